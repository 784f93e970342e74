// A report: a line, charts, and tables that are paged, sorted, filtered and copied. A page of rows is
// all that is here; every other one is asked of the kernel, which also says how its rows are asked
// for in SQL.

const KINDS = { "+I": "insert", "-U": "before", "+U": "after", "-D": "delete" };

const SLOW_MS = 300;

function sheetView(sheet, ask) {
  const box = element("section");
  let look = { orders: [], conditions: [] };
  let page = sheet.page;
  let at = [0, 0]; // the cell that has the cursor, and where a range of cells began
  let anchor = [0, 0];
  const picked = new Set();
  const picks = Math.max(0, ...sheet.actions.map((action) => action.picks));
  const columns = sheet.columns;

  if (sheet.heading) box.append(element("h4", sheet.heading, { class: "heading" }));
  for (const chart of sheet.charts) {
    const drawn = element("div");
    drawn.innerHTML = chart; // made and escaped by the kernel, as the static page has it
    box.append(drawn);
  }

  const filters = element("div", "", { class: "bar" });
  const column = element("select", "", { "aria-label": "column to filter by" });
  columns.forEach((one, index) => column.append(element("option", one.name, { value: index })));
  const operator = element("select", "", { "aria-label": "condition" });
  const value = element("input", "", { type: "text", "aria-label": "value", placeholder: "value" });
  const add = element("button", "Filter", { type: "button" });
  const clear = element("button", "Clear", { type: "button" });
  filters.append(column, operator, value, add, clear);

  const sql = queryView();
  sql.say(sheet.sql);
  const rows = element("div", "", { class: "rows" });
  const told = element("div", "", { class: "told", role: "status", "aria-live": "polite" });
  const pager = element("div", "", { class: "bar" });
  const first = element("button", "First", { type: "button" });
  const back = element("button", "‹ Back", { type: "button" });
  const next = element("button", "Next ›", { type: "button" });
  const place = element("span");
  const copy = element("button", "Copy page", { type: "button" });
  pager.append(first, back, next, place, copy);
  for (const [index, action] of sheet.actions.entries()) {
    const button = element("button", action.label, { type: "button", "data-action": index });
    button.addEventListener("click", () => {
      work({ ask: "act", action: index, rows: [...picked].sort((a, b) => a - b) });
    });
    pager.append(button);
  }
  const running = runningBar("stop what is computed", () => ask({ ask: "stop" }));
  const more = element("div");
  const isLong = sheet.page.follow || sheet.page.rows.length > 1;
  if (columns.length && isLong) box.append(filters);
  if (columns.length) box.append(sql.box);
  if (columns.length) box.append(rows, pager);
  if (sheet.note) box.append(element("p", sheet.note, { class: "note" }));
  box.append(running.box, told, more);

  function operators() {
    operator.replaceChildren();
    for (const one of columns[Number(column.value)]?.operators ?? []) {
      operator.append(element("option", one, { value: one }));
    }
    value.disabled = operator.value.startsWith("is ");
  }

  // Most answers come at once; others may take a Spark job. One is waited for at a time.
  let waits = null;
  let wanted = look; // of the page that is waited for

  function work(question) {
    if (waits !== null) return;
    told.textContent = "";
    waits = setTimeout(running.begin, SLOW_MS);
    ask({ ...question, sheet: sheet.id });
  }

  function go(offset, next = look) {
    if (waits !== null) return;
    wanted = next;
    work({ ask: "page", offset, ...next });
  }

  function sortedBy(name) {
    const found = look.orders.find((one) => one.column === name);
    return found ? (found.descending ? "descending" : "ascending") : "none";
  }

  function head() {
    const line = element("tr");
    if (picks) line.append(element("th", "", { scope: "col", "aria-label": "picked" }));
    for (const one of columns) {
      const state = sortedBy(one.name);
      const cell = element("th", "", { scope: "col", "aria-sort": state });
      if (one.right) cell.classList.add("right");
      const mark = { ascending: " ▲", descending: " ▼", none: "" }[state];
      const button = element("button", one.name + mark, {
        type: "button",
        title: `${one.type}: sort`,
      });
      button.disabled = !one.sortable;
      button.append(element("small", one.type));
      button.addEventListener("click", () => {
        const turn = { none: false, ascending: true }[state];
        const orders = turn === undefined ? [] : [{ column: one.name, descending: turn }];
        go(0, { ...look, orders });
      });
      cell.append(button);
      line.append(cell);
    }
    const made = element("thead");
    made.append(line);
    return made;
  }

  function bodyCell(text, row, index) {
    const cell = element("td", text === null ? "NULL" : text, {
      role: "gridcell",
      tabindex: row === at[0] && index === at[1] ? "0" : "-1",
    });
    if (columns[index].right) cell.classList.add("right");
    if (text === null) cell.classList.add("null");
    if (columns[index].name === "rowkind" && KINDS[text]) cell.classList.add("kind", KINDS[text]);
    if (page.changed[row]?.includes(index)) {
      cell.classList.add("changed");
      cell.title = "changed";
    }
    cell.addEventListener("mousedown", (event) => move(row, index, event.shiftKey));
    cell.addEventListener("dblclick", () => whole());
    return cell;
  }

  function draw() {
    rows.hidden = !page.rows.length && !look.conditions.length;
    const table = element("table", "", { role: "grid", "aria-label": sheet.heading || "result" });
    const body = element("tbody");
    page.rows.forEach((values, row) => {
      const line = element("tr");
      if (picks) {
        const cell = element("td", "", { class: "pick" });
        const box = element("input", "", { type: "checkbox", "aria-label": `row ${row + 1}` });
        box.addEventListener("change", () => pick(row, box.checked));
        cell.append(box);
        line.append(cell);
      }
      values.forEach((text, index) => line.append(bodyCell(text, row, index)));
      body.append(line);
    });
    table.append(head(), body);
    table.addEventListener("keydown", pressed);
    rows.replaceChildren(table);
    picked.clear();
    at = [0, 0];
    anchor = [0, 0];
    marked();
    const last = page.offset + page.rows.length;
    const total = page.total === null ? "" : ` of ${page.total.toLocaleString("en")}`;
    place.textContent = page.rows.length
      ? `rows ${(page.offset + 1).toLocaleString("en")}–${last.toLocaleString("en")}${total}`
      : "no rows";
    first.disabled = back.disabled = page.offset === 0;
    next.disabled = !page.follow;
    clear.disabled = !look.conditions.length && !look.orders.length;
    const paged = page.offset > 0 || page.follow;
    first.hidden = back.hidden = next.hidden = !paged;
    copy.hidden = !page.rows.length;
  }

  function cells() {
    return [...rows.querySelectorAll("tbody tr")].map((line) => [
      ...line.querySelectorAll('td[role="gridcell"]'),
    ]);
  }

  function inRange(row, index) {
    const between = (x, a, b) => x >= Math.min(a, b) && x <= Math.max(a, b);
    return between(row, at[0], anchor[0]) && between(index, at[1], anchor[1]);
  }

  function marked() {
    const isRange = at[0] !== anchor[0] || at[1] !== anchor[1];
    cells().forEach((line, row) =>
      line.forEach((cell, index) => {
        cell.classList.toggle("chosen", isRange && inRange(row, index));
        cell.tabIndex = row === at[0] && index === at[1] ? 0 : -1;
      }),
    );
    rows.querySelectorAll("tbody tr").forEach((line, row) => {
      line.classList.toggle("picked", picked.has(row));
    });
    for (const button of pager.querySelectorAll("[data-action]")) {
      button.disabled = sheet.actions[Number(button.dataset.action)].picks !== picked.size;
    }
  }

  function pick(row, isPicked) {
    if (isPicked) picked.add(row);
    else picked.delete(row);
    if (picked.size > picks) {
      const oldest = picked.values().next().value;
      picked.delete(oldest);
    }
    rows.querySelectorAll('td.pick input').forEach((box, index) => {
      box.checked = picked.has(index);
    });
    marked();
  }

  function move(row, index, extend) {
    if (!page.rows.length) return;
    at = [
      Math.max(0, Math.min(page.rows.length - 1, row)),
      Math.max(0, Math.min(columns.length - 1, index)),
    ];
    if (!extend) anchor = [...at];
    marked();
    cells()[at[0]]?.[at[1]]?.focus();
  }

  function tsv(from, to) {
    const clean = (text) => (text === null ? "" : text.replace(/[\t\n]/g, " "));
    return page.rows
      .slice(from[0], to[0] + 1)
      .map((line) => line.slice(from[1], to[1] + 1).map(clean).join("\t"))
      .join("\n");
  }

  async function copyRange() {
    const from = [Math.min(at[0], anchor[0]), Math.min(at[1], anchor[1])];
    const to = [Math.max(at[0], anchor[0]), Math.max(at[1], anchor[1])];
    const count = (to[0] - from[0] + 1) * (to[1] - from[1] + 1);
    await copyText(tsv(from, to));
    told.textContent = count === 1 ? "1 cell copied" : `${count} cells copied`;
  }

  function whole() {
    ask({ ask: "cell", sheet: sheet.id, row: at[0], column: at[1] });
  }

  const steps = {
    ArrowLeft: ([row, index]) => [row, index - 1],
    ArrowRight: ([row, index]) => [row, index + 1],
    ArrowUp: ([row, index]) => [row - 1, index],
    ArrowDown: ([row, index]) => [row + 1, index],
    Home: ([row]) => [row, 0],
    End: ([row]) => [row, columns.length - 1],
  };

  function pressed(event) {
    if (!event.target.matches('td[role="gridcell"]')) return;
    const isCopy = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "c";
    if (isCopy) copyRange();
    else if (event.key in steps) move(...steps[event.key](at), event.shiftKey);
    else if (event.key === "Enter") whole();
    else if (event.key === " " && picks) pick(at[0], !picked.has(at[0]));
    else if (event.key === "PageDown" && page.follow) go(page.offset + sheet.size);
    else if (event.key === "PageUp" && page.offset) go(Math.max(0, page.offset - sheet.size));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  column.addEventListener("change", operators);
  operator.addEventListener("change", () => {
    value.disabled = operator.value.startsWith("is ");
  });
  function filtered() {
    const name = columns[Number(column.value)].name;
    const text = value.disabled ? "" : value.value;
    const one = { column: name, operator: operator.value, text };
    go(0, { ...look, conditions: [...look.conditions, one] });
  }
  add.addEventListener("click", filtered);
  value.addEventListener("keydown", (event) => {
    if (event.key === "Enter") filtered();
    event.stopPropagation();
  });
  clear.addEventListener("click", () => go(0, { orders: [], conditions: [] }));
  first.addEventListener("click", () => go(0));
  back.addEventListener("click", () => go(Math.max(0, page.offset - sheet.size)));
  next.addEventListener("click", () => go(page.offset + sheet.size));
  copy.addEventListener("click", async () => {
    const names = columns.map((one) => one.name).join("\t");
    await copyText(`${names}\n${tsv([0, 0], [page.rows.length - 1, columns.length - 1])}`);
    told.textContent = `${page.rows.length} rows copied, with their names`;
  });

  function answered(answer) {
    if (answer.of === "progress") {
      running.show(answer.text, answer.share);
      return;
    }
    if (answer.of !== "cell") {
      clearTimeout(waits);
      waits = null;
      running.end();
    }
    told.className = "told";
    told.textContent = "";
    if (answer.problem) {
      told.classList.add("problem");
      told.textContent = answer.problem;
    } else if (answer.of === "page") {
      const hadFocus = rows.contains(document.activeElement);
      page = answer.page;
      look = wanted;
      sql.say(answer.sql);
      draw();
      if (hadFocus) move(0, 0, false);
    } else if (answer.of === "cell") {
      told.append(element("pre", answer.text, { class: "whole" }));
    } else if (answer.of === "act") {
      const inner = element("div", "", { class: "more" });
      more.replaceChildren(inner);
      reportView(inner, answer.report, ask, views);
      inner.scrollIntoView({ block: "nearest" });
    }
  }

  let views = null;
  operators();
  draw();
  return {
    box,
    answered,
    within: (known) => {
      views = known;
    },
  };
}

// Puts a report into a place; `views` finds the view of each of its tables by number.
function reportView(place, report, ask, views) {
  const made = [];
  if (report.summary) made.push(element("p", report.summary, { class: "summary" }));
  for (const sheet of report.sheets) {
    const view = sheetView(sheet, ask);
    view.within(views);
    views.set(sheet.id, view);
    made.push(view.box);
  }
  for (const note of report.notes) made.push(element("p", note, { class: "note" }));
  place.replaceChildren(...made);
}

function render({ model, el }) {
  el.classList.add("paimon-view", "paimon-report");
  const views = new Map();
  const ask = (question) => model.send(question);
  const place = element("div");
  el.append(place);
  reportView(place, model.get("report"), ask, views);

  // What goes on is asked for anew while somebody can see it; the kernel does nothing by itself.
  const seconds = model.get("seconds");
  let waits = false;
  let live = null;
  let timer = null;
  if (seconds > 0) {
    const bar = element("div", "", { class: "bar" });
    const button = element("button", "Pause", { type: "button" });
    const when = element("span", "", { class: "live" });
    bar.append(button, when);
    el.prepend(bar);
    live = () => {
      const isSeen = el.isConnected && !document.hidden && el.getClientRects().length > 0;
      if (waits || !isSeen || button.textContent !== "Pause") return;
      if (place.contains(document.activeElement)) return; // somebody is at work in it
      waits = true;
      model.send({ ask: "refresh" });
    };
    button.addEventListener("click", () => {
      button.textContent = button.textContent === "Pause" ? "Go on" : "Pause";
      live();
    });
    timer = setInterval(live, seconds * 1000);
    el.dataset.refreshes = "0";
  }

  function answered(answer) {
    if (answer.of === "refresh") {
      waits = false;
      const when = el.querySelector(".live");
      if (answer.over) {
        clearInterval(timer);
        el.querySelector(".bar button").remove();
        when.className = "live";
        when.textContent = "The session is closed: this is how it was before.";
        return;
      }
      when.textContent = answer.problem ?? `as of ${new Date().toLocaleTimeString("en-GB")}`;
      when.classList.toggle("problem", Boolean(answer.problem));
      if (answer.report) {
        views.clear();
        reportView(place, answer.report, ask, views);
      }
      el.dataset.refreshes = String(Number(el.dataset.refreshes) + 1);
      return;
    }
    views.get(answer.sheet)?.answered(answer);
  }
  model.on("msg:custom", answered);
  return () => {
    model.off("msg:custom", answered);
    if (timer !== null) clearInterval(timer);
  };
}

export default { render };
