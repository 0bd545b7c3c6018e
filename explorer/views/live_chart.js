// A chart that Vega draws: as wide as its container, replaced in order, with the marks under the mouse handed over.
//
// This module is small on purpose, because every chart loads it; Vega itself, a megabyte, is loaded when the first chart
// is drawn, once a page.

const PREFIX = "IPY_MODEL_"; // of a reference to another widget
const libraries = (globalThis.explorerLibraries ??= new Map());

function vegaEmbed(model) {
  const id = model.get("library").slice(PREFIX.length);
  if (!libraries.has(id)) {
    libraries.set(id, load(model, id).catch((error) => {
      libraries.delete(id); // the next chart tries again
      throw error;
    }));
  }
  return libraries.get(id);
}

async function load(model, id) {
  const library = await model.widget_manager.get_model(id);
  const url = URL.createObjectURL(new Blob([library.get("value")], { type: "text/javascript" }));
  try {
    return (await import(url)).default;
  } finally {
    URL.revokeObjectURL(url);
  }
}

// The specification comes as a text; empty for no chart.
function specification(model) {
  return model.get("spec") ? JSON.parse(model.get("spec")) : null;
}

function plain(value) {
  return JSON.parse(JSON.stringify(value ?? null));
}

// The last call within `wait` milliseconds; nothing after the chart was replaced.
function rested(wait, current, call) {
  let timer;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => current() && call(...values), wait);
  };
}

function render({ model, el }) {
  const frame = el.appendChild(document.createElement("div"));
  frame.style.width = "100%";
  let drawn = null; // what vega-embed returned for the chart on the screen
  let declared = new Set(); // the parameters of that chart
  let wide = false; // that chart is as wide as its container
  let last = 0; // number of the drawing that is wanted
  let queue = Promise.resolve();

  // Drawings wait for each other: two at once would write into one element, and connect to each other's marks.
  function draw() {
    const number = ++last;
    queue = queue.then(() => (number === last ? embed(number) : null)).catch((error) => {
      frame.textContent = `This chart cannot be drawn: ${error.message}`;
      console.warn(error);
    });
  }

  async function embed(number) {
    const spec = specification(model);
    const embedded = spec && (await vegaEmbed(model));
    if (number !== last) return;
    drawn?.finalize();
    drawn = null;
    if (!spec) return frame.replaceChildren();
    const names = (spec.params ?? []).map((parameter) => parameter.name);
    const fits = spec.width === "container";
    const result = await embedded(frame, spec, plain(model.get("embed_options")) ?? {});
    if (number !== last) return result.finalize();
    [drawn, declared, wide] = [result, new Set(names), fits];
    connect(result.view, () => drawn === result);
    tell();
  }

  function connect(view, current) {
    const wait = model.get("debounce_wait");
    for (const name of Object.keys(model.get("_vl_selections"))) {
      const send = rested(wait, current, (value) => {
        const selection = { value: plain(value), store: plain(view.data(`${name}_store`)) };
        model.set("_vl_selections", { ...model.get("_vl_selections"), [name]: selection });
        model.save_changes();
      });
      view.addSignalListener(name, (_, value) => send(value));
    }
    if (!model.get("hands_over")) return;
    let under = "";
    const tellHover = rested(40, current, (mark) => model.send({ event: "hover", mark }));
    view.addEventListener("pointermove", (_, item) => {
      const mark = datum(item);
      const recipe = mark?.recipe ?? "";
      if (recipe === under) return;
      under = recipe;
      isolate(recipe);
      tellHover(mark);
    });
    frame.onpointerleave = () => {
      if (!under) return;
      under = "";
      isolate("");
      tellHover(null);
    };
    let start = null; // a drag ends with a click too
    view.addEventListener("pointerdown", (event) => (start = [event.clientX, event.clientY]));
    view.addEventListener("click", (event, item) => {
      if (start && Math.hypot(event.clientX - start[0], event.clientY - start[1]) > 4) return;
      model.send({ event: "click", mark: datum(item), more: event.shiftKey });
    });
  }

  function datum(item) {
    const values = Object.entries(item?.datum ?? {}).filter(([, value]) => typeof value === "string");
    return values.length ? Object.fromEntries(values) : null;
  }

  function isolate(recipe) {
    signals({ isolated: recipe });
  }

  // The parameters that Python sets; a chart has those that its specification declares.
  function tell() {
    signals(model.get("told"));
  }

  function signals(values) {
    const known = Object.entries(values).filter(([name]) => declared.has(name));
    if (!drawn || !known.length) return;
    for (const [name, value] of known) drawn.view.signal(name, plain(value));
    drawn.view.runAsync();
  }

  function fit() {
    const width = Math.floor(frame.clientWidth);
    if (drawn && width && wide && drawn.view.width() !== width) {
      drawn.view.width(width).runAsync();
    }
  }

  const observer = new ResizeObserver(fit);
  observer.observe(frame);
  model.on("change:spec", draw);
  model.on("change:told", tell);
  draw();
  return () => {
    last += 1;
    observer.disconnect();
    drawn?.finalize();
  };
}

export default { initialize: listen, render };
