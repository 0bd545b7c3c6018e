// Hears the kernel however late this module has loaded: the `initialize` of a widget.
//
// anywidget waits two seconds for the module of a widget and then drops every message to it, so that a busy machine
// showed tables and charts that stayed empty. Such a model takes its messages as widgets without a module do, and asks
// for the state that it has missed. It costs nothing where the module was in time.
function listen({ model }) {
  const attend = async () => {
    const own = await model.widget_manager.get_model(model.get("own"));
    try {
      await own._handle_comm_msg({ content: { data: {} } }); // changes nothing, and fails once anywidget has given up
    } catch {
      const receive = Object.getPrototypeOf(own.constructor.prototype)._handle_comm_msg; // what anywidget overrides
      own.comm?.on_msg(receive.bind(own)); // a saved state has no kernel
      own.comm?.send({ method: "request_state" }, own.callbacks());
    }
  };
  // Not awaited, because anywidget itself waits for this function.
  attend().catch((error) => console.warn("This widget may miss changes:", error));
}

