// A map of a table's buckets: drawn on a canvas, walked through by arrow keys, opened by Enter or a
// click. What a cell holds is asked of the kernel.

const ANCHORS = [[0, 32, 77], [64, 77, 107], [124, 123, 120], [188, 174, 108], [255, 234, 70]];

function palette() {
  const colours = new Uint8ClampedArray(256 * 4);
  for (let value = 1; value < 256; value += 1) {
    const share = ((value - 1) / 254) * (ANCHORS.length - 1);
    const low = Math.min(Math.floor(share), ANCHORS.length - 2);
    for (let part = 0; part < 3; part += 1) {
      const from = ANCHORS[low][part];
      colours[value * 4 + part] = from + (ANCHORS[low + 1][part] - from) * (share - low);
    }
    colours[value * 4 + 3] = 255;
  }
  return colours;
}

function bytesOf(value) {
  return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
}

function render({ model, el }) {
  const width = model.get("width");
  const height = model.get("height");
  const values = bytesOf(model.get("values"));
  const colours = palette();
  const side = Math.max(2, Math.min(24, Math.floor(720 / width)));
  let metric = 0;
  let place = 0;

  el.classList.add("paimon-view", "paimon-layout-view");
  const choice = element("select", "", { "aria-label": "coloured by" });
  model.get("metrics").forEach((title, index) => {
    choice.append(element("option", title, { value: String(index) }));
  });
  const scale = element("span", "", { class: "scale" });
  scale.append(element("span", "little"), element("i"), element("span", "much"));
  const bar = element("div", "", { class: "bar" });
  bar.append(element("label", "coloured by "), choice, scale);

  const map = element("div", "", { class: "map" });
  const canvas = element("canvas", "", {
    tabindex: "0",
    role: "application",
    "aria-label": `${model.get("summary")}. Arrow keys move between buckets, Enter opens one.`,
  });
  canvas.width = width;
  canvas.height = height;
  canvas.style.width = `${width * side}px`;
  canvas.style.height = `${height * side}px`;
  const cursor = element("div", "", { class: "cursor", hidden: "" });
  map.append(canvas, cursor);

  const told = element("p", "", { class: "told", role: "status", "aria-live": "polite" });
  const files = element("div");
  el.append(element("p", model.get("summary")), bar, map, told, files);

  function draw() {
    const context = canvas.getContext("2d");
    const image = context.createImageData(width, height);
    const start = metric * width * height;
    for (let i = 0; i < width * height; i += 1) {
      const from = values[start + i] * 4;
      image.data[i * 4] = colours[from];
      image.data[i * 4 + 1] = colours[from + 1];
      image.data[i * 4 + 2] = colours[from + 2];
      image.data[i * 4 + 3] = colours[from + 3];
    }
    context.putImageData(image, 0, 0);
    el.dataset.painted = String(performance.now());
  }

  function go(to, ask) {
    place = Math.max(0, Math.min(width * height - 1, to));
    const size = Math.max(side, 6);
    const off = (size - side) / 2;
    cursor.hidden = false;
    cursor.style.left = `${(place % width) * side - off}px`;
    cursor.style.top = `${Math.floor(place / width) * side - off}px`;
    cursor.style.width = `${size}px`;
    cursor.style.height = `${size}px`;
    model.send({ ask, place });
  }

  function at(event) {
    const x = Math.floor(event.offsetX / side);
    const y = Math.floor(event.offsetY / side);
    return Math.min(y, height - 1) * width + Math.min(x, width - 1);
  }

  const steps = {
    ArrowLeft: () => place - 1,
    ArrowRight: () => place + 1,
    ArrowUp: () => place - width,
    ArrowDown: () => place + width,
    Home: () => 0,
    End: () => width * height - 1,
    PageUp: () => place - 10 * width,
    PageDown: () => place + 10 * width,
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") go(place, "files");
    else if (event.key in steps) go(steps[event.key](), "cell");
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  canvas.addEventListener("click", (event) => {
    canvas.focus();
    go(at(event), "files");
  });
  choice.addEventListener("change", () => {
    metric = Number(choice.value);
    draw();
  });

  function answered(answer) {
    if (answer.place !== place) return;
    told.textContent = answer.text;
    if (!answer.files) return;
    const table = element("table");
    const head = element("tr");
    for (const name of ["level", "rows", "size", "created"]) {
      head.append(element("th", name, { scope: "col" }));
    }
    table.append(element("caption", answer.title), head);
    for (const row of answer.files) {
      const line = element("tr");
      for (const cell of row) line.append(element("td", cell));
      table.append(line);
    }
    files.replaceChildren(table);
  }
  model.on("msg:custom", answered);
  draw();
  return () => model.off("msg:custom", answered);
}

export default { render };
