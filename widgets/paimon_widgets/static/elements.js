// What the views share: making elements, copying text, and how far the kernel's work is.

function element(name, text = "", attributes = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// A query as it is, or, where it is long, behind a line to open it.
const QUERY_SHORT = 200;

function queryView() {
  const box = element("div");
  const code = element("code", "", { tabindex: "0", "aria-label": "the query" });
  const folded = element("details");
  folded.append(element("summary", "the query as SQL"));
  return {
    box,
    say: (text) => {
      code.textContent = text;
      if (!text) {
        box.replaceChildren(element("small", "No SQL gives these rows.", { class: "note" }));
      } else if (text.length > QUERY_SHORT) {
        folded.append(code);
        box.replaceChildren(folded);
      } else box.replaceChildren(code);
    },
  };
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages that are not "secure" have no clipboard of that kind.
    const area = element("textarea", text, { "aria-hidden": "true" });
    area.style.position = "fixed";
    area.style.opacity = "0";
    const before = document.activeElement;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    before?.focus();
  }
}

// How far the kernel is with what was asked of it, and a button to stop that.
function runningBar(title, stopped) {
  const bar = element("progress", "", { max: "1" });
  const line = element("span");
  const stop = element("button", "Stop", { type: "button", title });
  const box = element("div", "", { class: "running" });
  box.append(bar, line, stop);
  box.hidden = true;
  let isRunning = false;

  stop.addEventListener("click", () => {
    if (stop.getAttribute("aria-disabled") === "true") return;
    stop.setAttribute("aria-disabled", "true");
    stopped();
  });

  function show(text, share) {
    if (!isRunning) return;
    if (share < 0) bar.removeAttribute("value");
    else bar.setAttribute("value", share.toFixed(3));
    bar.setAttribute("aria-label", text);
    line.textContent = text;
    box.hidden = false;
  }

  return {
    box,
    show,
    begin: () => {
      isRunning = true;
      stop.setAttribute("aria-disabled", "false");
      show("waits for the kernel", -1);
    },
    end: () => {
      isRunning = false;
      box.hidden = true;
    },
  };
}
