// A map of a table's buckets: drawn on a canvas, walked through by arrow keys, opened by Enter or a
// click. What a cell holds is asked of the kernel.

const ANCHORS = [[0, 32, 77], [64, 77, 107], [124, 123, 120], [188, 174, 108], [255, 234, 70]];
const SIDE_MAX = 36;
const LABEL_PX = 12; // rows that are lower have no names beside them

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
  const metrics = model.get("metrics");
  const partitions = model.get("rows");
  const buckets = model.get("columns");
  const colours = palette();
  let side = Math.max(2, Math.min(24, Math.floor(720 / width)));
  let metric = 0;
  let place = 0;

  el.classList.add("paimon-view", "paimon-layout-view");
  const choice = element("select", "", { "aria-label": "coloured by" });
  metrics.forEach(([title], index) => {
    choice.append(element("option", title, { value: String(index) }));
  });
  const scale = element("span", "", { class: "scale" });
  const least = element("span");
  const most = element("span");
  const colour = element("i");
  scale.append(least, colour, most);
  const closer = element("button", "+", { type: "button", "aria-label": "larger" });
  const farther = element("button", "−", { type: "button", "aria-label": "smaller" });
  const bar = element("div", "", { class: "bar" });
  bar.append(element("label", "coloured by "), choice, scale, farther, closer);

  const map = element("div", "", { class: "map" });
  const names = element("div", "", { class: "names", "aria-hidden": "true" });
  const numbers = element("div", "", { class: "numbers", "aria-hidden": "true" });
  const field = element("div", "", { class: "field" });
  const canvas = element("canvas", "", {
    tabindex: "0",
    role: "application",
    "aria-label":
      `${model.get("summary")}. Arrow keys move between buckets, Enter lists the files of one, ` +
      "P the buckets of its partition, plus and minus make the map larger and smaller.",
  });
  canvas.width = width;
  canvas.height = height;
  const cursor = element("div", "", { class: "cursor", hidden: "" });
  field.append(canvas, cursor);
  map.append(names, numbers, field);
  for (const [index, name] of partitions.entries()) {
    const label = element("button", name, { type: "button", tabindex: "-1", title: name });
    label.addEventListener("click", () => go(index * width + (place % width), "partition"));
    names.append(label);
  }
  for (const number of buckets) numbers.append(element("span", String(number)));

  const told = element("p", "", { class: "told", role: "status", "aria-live": "polite" });
  const filesOf = element("button", "Files of the bucket", { type: "button" });
  const bucketsOf = element("button", "Buckets of the partition", { type: "button" });
  const opened = element("div", "", { class: "bar" });
  opened.append(filesOf, bucketsOf);
  filesOf.disabled = bucketsOf.disabled = true;
  const listed = element("div");
  const sizes = element("div");
  sizes.innerHTML = model.get("chart"); // made and escaped by the kernel, as the static page has it
  const sql = queryView();
  sql.say(model.get("sql"));
  el.append(element("p", model.get("summary")), bar, map, told, opened, listed, sizes, sql.box);

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
    const [, from, to] = metrics[metric];
    least.hidden = colour.hidden = from === to;
    least.textContent = from;
    most.textContent = from === to ? `all ${to}` : to;
    el.dataset.painted = String(performance.now());
  }

  // The canvas has a pixel for each bucket, and is stretched: a step closer draws nothing anew.
  function size() {
    canvas.style.width = `${width * side}px`;
    canvas.style.height = `${height * side}px`;
    names.hidden = !partitions.length || side < LABEL_PX;
    numbers.hidden = !buckets.length || side < 4;
    map.style.setProperty("--side", `${side}px`);
    // Numbers that would run into each other are left out.
    const step = Math.ceil((7 * String(buckets.at(-1)).length + 4) / side);
    for (const [index, one] of [...numbers.children].entries()) {
      one.style.left = `${index * side}px`;
      one.hidden = index % step !== 0;
    }
    closer.disabled = side >= SIDE_MAX;
    farther.disabled = side <= 2;
    if (!cursor.hidden) mark();
  }

  function zoom(factor) {
    side = Math.max(2, Math.min(SIDE_MAX, Math.round(side * factor)));
    size();
  }

  function mark() {
    const wide = Math.max(side, 6);
    const off = (wide - side) / 2;
    const left = (place % width) * side;
    const top = Math.floor(place / width) * side;
    cursor.hidden = false;
    cursor.style.left = `${left - off}px`;
    cursor.style.top = `${top - off}px`;
    cursor.style.width = `${wide}px`;
    cursor.style.height = `${wide}px`;
    // Within the map alone: the page stays where it is.
    const besides = [field.offsetLeft, field.offsetTop];
    const seen = [map.clientWidth - besides[0], map.clientHeight - besides[1]];
    map.scrollLeft = Math.max(left + wide - seen[0], Math.min(map.scrollLeft, left - off));
    map.scrollTop = Math.max(top + wide - seen[1], Math.min(map.scrollTop, top - off));
  }

  function go(to, ask) {
    place = Math.max(0, Math.min(width * height - 1, to));
    filesOf.disabled = bucketsOf.disabled = false;
    mark();
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
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") go(place, "files");
    else if (event.key === "p" || event.key === "P") go(place, "partition");
    else if (event.key === "+" || event.key === "=") zoom(1.5);
    else if (event.key === "-") zoom(1 / 1.5);
    else if (event.key in steps) go(steps[event.key](), "cell");
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  canvas.addEventListener("click", (event) => {
    canvas.focus();
    go(at(event), "files");
  });
  closer.addEventListener("click", () => zoom(1.5));
  farther.addEventListener("click", () => zoom(1 / 1.5));
  filesOf.addEventListener("click", () => go(place, "files"));
  bucketsOf.addEventListener("click", () => go(place, "partition"));
  choice.addEventListener("change", () => {
    metric = Number(choice.value);
    draw();
  });

  function answered(answer) {
    if (answer.place !== place) return;
    told.textContent = answer.text;
    if (!answer.rows) return;
    const table = element("table");
    const head = element("tr");
    for (const name of answer.titles) head.append(element("th", name, { scope: "col" }));
    table.append(element("caption", answer.title), head);
    for (const [index, row] of answer.rows.entries()) {
      const line = element("tr");
      for (const cell of row) line.append(element("td", cell));
      if (answer.places) {
        const open = element("button", row[0], { type: "button", title: "files of this bucket" });
        open.addEventListener("click", () => go(answer.places[index], "files"));
        line.firstChild.replaceChildren(open);
      }
      table.append(line);
    }
    listed.replaceChildren(table);
  }
  model.on("msg:custom", answered);
  size();
  draw();
  return () => model.off("msg:custom", answered);
}

export default { render };
