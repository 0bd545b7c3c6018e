// HTML from Python whose elements report what a person does with them. An element says what it reports:
//   data-click="NAME"   a press on it, or on anything in it that is no control of its own
//   data-change="NAME"  a check box that was set or cleared
//   data-hover="NAME"   mouse or keyboard focus came to it; an empty key says that they left
// with data-key="..." as the argument, and data-scroll="SELECTOR" for a press that leads to another part of the view.
const REST = 60; // milliseconds that the mouse rests before a hover is reported

export default {
  initialize: listen,
  render({ model, el }) {
    let hovered = "", name = "", timer = 0;
    const send = (event, element) =>
      model.send({ event, name: element.dataset[event], key: element.dataset.key ?? "", checked: !!element.checked });

    function hover(element) {
      const key = element?.dataset.key ?? "";
      name = element?.dataset.hover ?? name;
      clearTimeout(timer);
      timer = setTimeout(() => {
        if (key === hovered || !name) return;
        hovered = key;
        for (const row of el.querySelectorAll("[data-hover]")) {
          row.classList.toggle("x-hovered", key !== "" && row.dataset.key === key);
        }
        model.send({ event: "hover", name, key, checked: false });
      }, REST);
    }

    // New content keeps the focus, the folds that are open, and how far its tables are scrolled.
    function draw() {
      const root = el.getRootNode();
      const at = el.contains(root.activeElement) ? root.activeElement.dataset : null;
      const open = new Set([...el.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent));
      const places = [...el.querySelectorAll(".x-scroll")].map((part) => [part.scrollTop, part.scrollLeft]);
      el.innerHTML = model.get("html");
      for (const summary of el.querySelectorAll("details > summary")) {
        if (open.has(summary.textContent)) summary.parentElement.open = true;
      }
      el.querySelectorAll(".x-scroll").forEach((part, index) => {
        [part.scrollTop, part.scrollLeft] = places[index] ?? [0, 0];
      });
      if (at) {
        const same = (element) =>
          element.dataset.click === at.click && element.dataset.change === at.change && element.dataset.key === at.key;
        [...el.querySelectorAll("button, input")].find(same)?.focus();
      }
    }

    el.addEventListener("click", (event) => {
      const element = event.target.closest("[data-click]");
      if (!element || event.target.closest("a, input, label, summary")) return;
      send("click", element);
      const place = element.dataset.scroll && el.closest(".explorer")?.querySelector(element.dataset.scroll);
      place?.scrollIntoView({ block: "start", behavior: "smooth" });
    });
    el.addEventListener("change", (event) => {
      if (event.target.dataset.change) send("change", event.target);
    });
    el.addEventListener("pointerover", (event) => hover(event.target.closest("[data-hover]")));
    el.addEventListener("pointerleave", () => hover(null));
    el.addEventListener("focusin", (event) => hover(event.target.closest("[data-hover]")));
    el.addEventListener("focusout", (event) => el.contains(event.relatedTarget) || hover(null));
    model.on("change:html", draw);
    draw();
    return () => {
      clearTimeout(timer);
      model.off("change:html", draw);
    };
  },
};
