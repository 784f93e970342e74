// What the views share: making elements, and copying text.

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
