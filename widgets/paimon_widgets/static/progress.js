// How far jobs are. The kernel tells it every second or so; where it says nothing for a while, it is
// gone, or has no time to speak, and what it said last is not shown as if it were so.

const SILENT_MS = 20000;

function render({ model, el }) {
  const bar = element("progress", "", { max: "1" });
  const line = element("small");
  const box = element("div", "", { class: "paimon-progress" });
  box.append(bar, line);
  el.classList.add("paimon-progress-view");
  el.append(box);
  let timer = null;

  function silent() {
    box.hidden = true;
  }

  function told() {
    const share = model.get("share");
    if (share < 0) bar.removeAttribute("value");
    else bar.setAttribute("value", share.toFixed(3));
    const text = model.get("text");
    bar.setAttribute("aria-label", text);
    line.textContent = text;
    box.hidden = false;
    clearTimeout(timer);
    timer = setTimeout(silent, SILENT_MS);
  }

  model.on("change:text", told);
  model.on("change:share", told);
  told();
  return () => {
    clearTimeout(timer);
    model.off("change:text", told);
    model.off("change:share", told);
  };
}

export default { render };
