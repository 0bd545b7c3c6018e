// The grid's browser side: it draws the page of lines that the kernel sends and reports what a user does.
// Cells are HTML that Python has escaped. Every other string is set as text.

function make(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

let grids = 0;

function render({ model, el }) {
  const name = `x-grid-${++grids}`;
  const get = (key) => model.get(key);
  const set = (key, value) => { model.set(key, value); model.save_changes(); };
  const ask = (changes) => set("view", { ...get("view"), first: 0, ...changes });
  const several = (count) => `${count.toLocaleString("en")} ${get("noun")}${count === 1 ? "" : "s"}`;
  let active = null; // id of the row that the keyboard is on

  // JupyterLab's own shortcuts (arrows move between cells, Enter edits) do not reach what is inside.
  const root = make("div", { class: "x-grid", "data-lm-suppress-shortcuts": "true" });
  const tools = make("div", { class: "x-grid-tools" });
  const head = make("thead");
  const body = make("tbody");
  const table = make("table", { class: "x-table", role: "grid", id: name, "aria-multiselectable": "true" }, head, body);
  const box = make("div", { class: "x-grid-box" }, table);
  const foot = make("div", { class: "x-grid-foot" });
  root.append(tools, box, foot);
  el.append(root);

  // --- search, grouping, columns ---

  let waiting = 0;
  const search = make("input", {
    type: "search", placeholder: "Search", "aria-label": `Search ${get("title")}`, "aria-controls": name,
    oninput: () => {
      const words = search.value; // another choice may set the field again before the pause is over
      clearTimeout(waiting);
      waiting = setTimeout(() => ask({ search: words }), 200);
    },
  });
  const group = make("select", { id: `${name}-group`, onchange: () => ask({ group: group.value, closed: [] }) });
  const choice = make("div", { class: "x-grid-choice", role: "group", "aria-label": "Columns" });
  const menu = make("details", {}, make("summary", {}, "Columns"), choice);
  menu.addEventListener("keydown", (event) => { if (event.key === "Escape") menu.open = false; });
  tools.append(search, make("label", { for: `${name}-group` }, "Group by"), group, menu);

  function drawTools() {
    tools.hidden = !get("tools");
    const groups = get("columns").filter((column) => column.groups);
    group.replaceChildren(make("option", { value: "" }, "nothing"),
      ...groups.map((column) => make("option", { value: column.key }, column.title)));
    group.value = get("view").group ?? "";
    group.hidden = group.previousSibling.hidden = !groups.length;
    if (document.activeElement !== search) search.value = get("view").search ?? "";
    const focused = choice.contains(document.activeElement) ? document.activeElement.value : null;
    choice.replaceChildren(...get("columns").slice(1).map((column) => {
      const field = make("input", { type: "checkbox", value: column.key, onchange: () => {
        const others = get("hidden").filter((key) => key !== column.key);
        set("hidden", field.checked ? others : [...others, column.key]);
      } });
      field.checked = !get("hidden").includes(column.key);
      return make("label", {}, field, column.title);
    }));
    if (focused !== null) choice.querySelector(`[value="${CSS.escape(focused)}"]`)?.focus();
  }

  // --- the table ---

  const shown = () => get("columns").map((column, place) => ({ ...column, place }))
    .filter((column) => !get("hidden").includes(column.key));

  function drawHead() {
    const { sort, descending } = get("view");
    const focused = head.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    const cells = shown().map((column) => {
      const here = sort === column.key;
      const title = !column.sortable ? make("span", { title: column.hint }, column.title) : make("button", {
        type: "button", title: column.hint, "data-key": column.key,
        // A third click on a column gives the order of the source back.
        onclick: () => ask(!here ? { sort: column.key, descending: false }
          : descending ? { sort: "", descending: false } : { descending: true }),
      }, column.title, make("span", { "aria-hidden": "true" }, here ? (descending ? " ↓" : " ↑") : ""));
      return make("th", {
        scope: "col", class: column.number && "x-number",
        "aria-sort": column.sortable && (here ? (descending ? "descending" : "ascending") : "none"),
      }, title);
    });
    const check = make("th", { scope: "col", class: "x-check" }, make("span", { class: "x-unseen" }, "Selected"));
    head.replaceChildren(make("tr", {}, ...(get("checks") ? [check] : []), ...cells));
    if (focused) head.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  function heading(line) {
    const toggle = () => {
      const closed = (get("view").closed ?? []).filter((other) => other !== line.group);
      set("view", { ...get("view"), closed: line.closed ? closed : [...closed, line.group] });
    };
    const button = make("button", { type: "button", "aria-expanded": String(!line.closed), onclick: toggle },
      make("span", { "aria-hidden": "true" }, line.closed ? "▸ " : "▾ "), make("bdi", {}, line.words),
      make("small", {}, ` ${several(line.count)}`));
    const width = shown().length + (get("checks") ? 1 : 0);
    return make("tr", { class: "x-grid-group" }, make("th", { colspan: width, scope: "rowgroup" }, button));
  }

  function row(line) {
    const cells = shown().map((column, at) => {
      const cell = make(at ? "td" : "th", { class: column.number && "x-number", scope: at ? null : "row" });
      cell.innerHTML = line.cells[column.place];
      return cell;
    });
    if (get("checks")) {
      const check = make("input", { type: "checkbox", tabindex: "-1", "aria-label": `Select ${line.label}`,
        onchange: () => toggle(line.id) });
      cells.unshift(make("td", { class: "x-check", onclick: (event) => {
        if (event.target !== check) toggle(line.id); // the whole cell is the target of the mouse
        event.stopPropagation();
      } }, check));
    }
    const made = make("tr", { "data-id": line.id, tabindex: "-1", "aria-label": line.label,
      class: line.strong ? "x-bold" : line.quiet ? "x-quiet" : null }, ...cells);
    made.addEventListener("click", (event) => { if (!event.target.closest("a, button, summary")) pick(line.id); });
    made.addEventListener("mouseenter", () => hover(line.id));
    made.addEventListener("focus", () => { active = line.id; hover(line.id); });
    return made;
  }

  function drawBody() {
    const held = body.contains(document.activeElement);
    body.replaceChildren(...get("lines").map((line) => ("id" in line ? row(line) : heading(line))));
    if (!get("lines").length) {
      const width = shown().length + (get("checks") ? 1 : 0);
      const why = get("view").search ? `No ${get("noun")} matches the search.` : `No ${get("noun")}s.`;
      body.append(make("tr", {}, make("td", { colspan: width, class: "x-grid-none" }, why)));
    }
    table.setAttribute("aria-label", get("title"));
    table.setAttribute("aria-rowcount", String(get("total") + 1));
    drawMarks();
    if (held) rows().find((other) => other.tabIndex === 0)?.focus({ preventScroll: true });
  }

  // The row that the keyboard is on is the table's one tab stop.
  function drawMarks() {
    const selected = new Set(get("selected"));
    const all = rows();
    if (!all.some((other) => other.dataset.id === active)) active = all[0]?.dataset.id ?? null;
    for (const other of all) {
      const on = selected.has(other.dataset.id);
      other.setAttribute("aria-selected", String(on));
      other.classList.toggle("x-chosen", on);
      other.tabIndex = other.dataset.id === active ? 0 : -1;
      const check = other.querySelector(".x-check input");
      if (check) check.checked = on;
    }
    drawFoot();
  }

  function drawFoot() {
    const first = get("view").first ?? 0, page = get("page"), total = get("total");
    const last = Math.min(first + page, total);
    const chosen = get("selected").length;
    // Headings of groups are lines too.
    const line = get("view").group ? "Lines" : `${get("noun")[0].toUpperCase()}${get("noun").slice(1)}s`;
    const words = total > page ? `${line} ${(first + 1).toLocaleString("en")} to ${last.toLocaleString("en")} of `
      + `${total.toLocaleString("en")}` : several(get("count"));
    const focused = foot.contains(document.activeElement) ? document.activeElement.dataset.turn : null;
    const turn = (label, to, key) => make("button", { type: "button", "data-turn": key,
      disabled: to < 0 || to >= total, onclick: () => ask({ first: to }) }, label);
    foot.hidden = !get("tools") && total <= page;
    foot.replaceChildren(make("span", { role: "status" }, words + (get("checks") && chosen ? `, ${chosen} selected` : "")),
      ...(get("checks") && chosen ? [make("button", { type: "button", onclick: () => set("selected", []) }, "Clear")] : []),
      ...(total > page ? [turn("Previous", first - page, "back"), turn("Next", first + page, "on")] : []));
    if (focused) foot.querySelector(`[data-turn="${focused}"]:not(:disabled)`)?.focus();
  }

  // --- what a user does ---

  const rows = () => [...body.querySelectorAll("tr[data-id]")];
  const hover = (id) => { if (get("hovered") !== id) set("hovered", id); };
  const pick = (id) => model.send({ picked: id });
  function toggle(id) {
    const others = get("selected").filter((other) => other !== id);
    set("selected", others.length < get("selected").length ? others : [...others, id]);
    drawMarks();
  }

  body.addEventListener("mouseleave", () => hover(""));
  body.addEventListener("focusout", (event) => { if (!body.contains(event.relatedTarget)) hover(""); });
  body.addEventListener("keydown", (event) => {
    if (event.target.tagName !== "TR") return; // a link or a button in a cell has keys of its own
    const all = rows();
    const at = all.indexOf(event.target);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
    const view = get("view");
    if (to !== undefined) all[to]?.focus();
    else if (event.key === " ") get("checks") ? toggle(event.target.dataset.id) : pick(event.target.dataset.id);
    else if (event.key === "Enter") pick(event.target.dataset.id);
    else if (event.key === "PageDown" && view.first + get("page") < get("total")) ask({ first: view.first + get("page") });
    else if (event.key === "PageUp" && view.first > 0) ask({ first: Math.max(0, view.first - get("page")) });
    else return;
    event.preventDefault();
    event.stopPropagation();
    drawMarks();
  });

  const drawn = { columns: [drawTools, drawHead, drawBody], hidden: [drawTools, drawHead, drawBody],
    view: [drawTools, drawHead, drawFoot], lines: [drawBody], total: [drawFoot], count: [drawFoot], selected: [drawMarks] };
  for (const [key, draws] of Object.entries(drawn)) for (const draw of draws) model.on(`change:${key}`, draw);
  drawTools(), drawHead(), drawBody();
  return () => clearTimeout(waiting);
}

export default { initialize: listen, render };
