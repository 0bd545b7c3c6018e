// A button that puts a text on the clipboard, and says so.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);  // browsers offer it on localhost and over HTTPS only
    return true;
  } catch {
    const field = Object.assign(document.createElement("textarea"), { value: text });
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}
export default {
  initialize: listen,
  render({ model, el }) {
    const button = document.createElement("button");
    button.className = "jupyter-button widget-button";
    button.title = "Copy the command that opens this view";
    button.textContent = "Copy";
    button.setAttribute("aria-live", "polite");
    button.addEventListener("click", async () => {
      button.textContent = (await copied(model.get("text"))) ? "Copied" : "Select and copy it";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    el.append(button);
  },
};
