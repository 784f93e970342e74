// What the views share: making elements, and copying text.

function element(name, text = "", attributes = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
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
