// The health of tables: lists of tables and partitions to choose from, and of what is chosen the
// sizes of its files, what is out of order, and the statement that helps, with a button that runs
// it. Asked of the kernel.

let made = 0; // lists on the page, to name their options apart

// A list of which one is chosen, by a click or by keys. `show` fills an option.
function choiceList(label, show, choose) {
  const number = (made += 1);
  const box = element("div");
  const list = element("div", "", { class: "list", role: "listbox", tabindex: "0" });
  list.setAttribute("aria-label", label);
  const rest = element("p", "", { class: "note" });
  box.append(list, rest);
  let rows = [];
  let at = 0;

  function mark() {
    for (const [index, option] of [...list.children].entries()) {
      option.setAttribute("aria-selected", String(index === at));
    }
    const option = list.children[at];
    if (!option) return list.removeAttribute("aria-activedescendant");
    list.setAttribute("aria-activedescendant", option.id);
    // Within the list alone: the page stays where it is.
    const top = option.offsetTop - list.offsetTop;
    const bottom = top + option.offsetHeight;
    list.scrollTop = Math.max(bottom - list.clientHeight, Math.min(list.scrollTop, top));
  }

  function go(to) {
    if (!rows.length) return;
    at = Math.max(0, Math.min(rows.length - 1, to));
    mark();
    choose(rows[at]);
  }

  const steps = {
    ArrowUp: () => at - 1,
    ArrowDown: () => at + 1,
    PageUp: () => at - 8,
    PageDown: () => at + 8,
    Home: () => 0,
    End: () => rows.length - 1,
    Enter: () => at,
    " ": () => at,
  };
  list.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in steps)) return;
    go(steps[event.key]());
    event.preventDefault();
    event.stopPropagation();
  });

  function fill(found, count, chosen = 0) {
    rows = found;
    at = chosen;
    const options = rows.map((row, index) => {
      const option = element("div", "", { class: "option", role: "option" });
      option.id = `paimon-health-${number}-${index}`;
      show(option, row);
      option.addEventListener("click", () => {
        list.focus();
        go(index);
      });
      return option;
    });
    list.replaceChildren(...options);
    list.hidden = !rows.length;
    const left = count - rows.filter((row) => !row.isAll).length;
    rest.textContent = !count ? "none" : left > 0 ? `${left.toLocaleString("en")} more` : "";
    rest.hidden = !rest.textContent;
    mark();
  }
  // Mark the row of that name, without asking for it.
  function markNamed(name) {
    at = rows.findIndex((row) => row.name === name);
    mark();
  }
  return { box, fill, markNamed };
}

function finder(label, ask) {
  const input = element("input", "", { type: "text", placeholder: "find", "aria-label": label });
  input.addEventListener("input", () => ask(input.value));
  input.addEventListener("keydown", (event) => event.stopPropagation());
  return input;
}

// The button that runs a statement; `runner` knows whether one runs.
function runButton(statement, runner) {
  const run = element("button", "Run", { type: "button", title: "run the statement in the kernel" });
  run.setAttribute("aria-label", `Run ${statement}`);
  run.addEventListener("click", () => runner.start(statement));
  runner.buttons.push(run);
  return run;
}

function findingList(findings, told, runner) {
  const list = element("ul");
  for (const finding of findings) {
    const line = element("li");
    const mark = element("span", finding.mark, { class: "mark", "aria-hidden": "true" });
    line.append(mark, " ", element("b", finding.word), `: ${finding.text}`);
    if (finding.statement) {
      const helps = element("div", "", { class: "helps" });
      const copy = element("button", "Copy", { type: "button", title: "copy the statement" });
      copy.addEventListener("click", async () => {
        await copyText(finding.statement);
        told.textContent = "statement copied";
      });
      helps.append(element("code", finding.statement, { tabindex: "0" }));
      if (runner) helps.append(runButton(finding.statement, runner));
      helps.append(copy);
      line.append(helps);
    }
    list.append(line);
  }
  return list;
}

function sizeStrip(sizes, small) {
  const strip = element("span", "", { class: "strip", "aria-hidden": "true" });
  const most = Math.max(...sizes, 1);
  for (const [index, count] of sizes.entries()) {
    const bar = element("i");
    bar.style.height = `${(100 * count) / most}%`;
    if (count) bar.classList.add("has");
    if (count && small[index]) bar.classList.add("small");
    strip.append(bar);
  }
  return strip;
}

// One statement at a time: its progress while it runs, then its outcome or what went wrong. The
// buttons keep the focus while they do nothing.
function statementRunner(model) {
  const running = runningBar("stop the statement", () => model.send({ ask: "stop" }));
  const ended = element("div", "", { role: "status", "aria-live": "polite", tabindex: "-1" });
  const box = element("div");
  box.append(running.box, ended);
  let isRunning = false;
  let turn = 0;
  const runner = { box, buttons: [], start, mark, progress: running.show, end };

  function mark() {
    for (const button of runner.buttons) button.setAttribute("aria-disabled", String(isRunning));
  }

  function start(statement) {
    if (isRunning) return;
    isRunning = true;
    mark();
    ended.replaceChildren();
    running.begin();
    model.send({ ask: "run", statement, turn });
  }

  function end(answer) {
    const isOurs = isRunning;
    turn = answer.turn;
    isRunning = false;
    running.end();
    mark();
    ended.replaceChildren();
    if (answer.outcome) ended.append(element("pre", answer.outcome));
    if (answer.problem) ended.append(element("pre", answer.problem, { class: "problem" }));
    if (isOurs && answer.outcome && document.activeElement === document.body) ended.focus();
  }
  return runner;
}

function render({ model, el }) {
  el.classList.add("paimon-view", "paimon-health-view");
  const { tables, table, turn, runs } = model.get("first");
  const runner = runs ? statementRunner(model) : null;
  if (runner) runner.end({ turn });
  const told = element("p", "", { class: "told", role: "status", "aria-live": "polite" });
  let small = [];

  const tableList = choiceList(
    "tables, the most urgent first",
    (option, row) => {
      const about = `${row.word}; ${row.files.toLocaleString("en")} files`;
      option.append(
        element("span", row.mark, { class: "mark", "aria-hidden": "true" }),
        element("span", row.name, { class: "name", title: row.name }),
        element("span", `${about}, ${row.small.toLocaleString("en")} small`, { class: "about" }),
      );
    },
    (row) => model.send({ ask: "table", table: row.place }),
  );
  const partitionList = choiceList(
    "partitions, those that need something first",
    (option, row) => {
      option.append(element("span", row.label ?? row.name, { class: "name", title: row.name }));
      if (row.sizes) option.append(sizeStrip(row.sizes, small));
      if (row.about) option.append(element("span", row.about, { class: "about" }));
    },
    (row) => model.send({ ask: "partition", partition: row.name }),
  );

  const summary = element("p");
  const rules = element("p", "", { class: "note" });
  const findings = element("div", "", { class: "findings" });
  const sizes = element("div", "", { class: "sizes" });
  const chosen = element("div", "", { class: "heading" });
  const sql = queryView();
  const ofPartitions = element("div");
  const findPartition = finder("part of a partition's name", (find) =>
    model.send({ ask: "partitions", find }),
  );
  const head = element("div", "", { class: "bar" });
  head.append(element("span", "Partitions", { class: "heading" }), findPartition);
  ofPartitions.append(head, partitionList.box);

  if (tables.count > 1) {
    const bar = element("div", "", { class: "bar" });
    bar.append(element("span", "Tables", { class: "heading" }));
    bar.append(finder("part of a table's name", (find) => model.send({ ask: "tables", find })));
    el.append(bar, tableList.box);
  }
  el.append(summary, rules, ofPartitions, chosen, findings, ...(runner ? [runner.box] : []));
  el.append(sizes, told, sql.box);

  function showPartitions(found) {
    small = found.small;
    const all = { isAll: true, name: "", label: "all of the table" };
    const rows = findPartition.value ? found.rows : [all, ...found.rows];
    partitionList.fill(rows, found.count, findPartition.value ? -1 : 0);
  }

  function showPart(part) {
    if (runner) runner.buttons = [];
    findings.replaceChildren(findingList(part.findings, told, runner));
    runner?.mark();
    sizes.innerHTML = part.chart; // made and escaped by the kernel, as the static page has it
    told.textContent = "";
  }

  function showTable(found) {
    summary.textContent = found.summary;
    rules.textContent = found.rules;
    chosen.textContent = "";
    sql.say(found.sql);
    findPartition.value = "";
    ofPartitions.hidden = !found.partitions || !found.partitions.count;
    if (found.partitions) showPartitions(found.partitions);
    showPart(found);
  }

  function showTables(found, place) {
    const at = found.rows.findIndex((row) => row.place === place);
    tableList.fill(found.rows, found.count, at);
  }

  function ran(answer) {
    showTables(answer.tables, answer.table.place);
    showTable(answer.table);
    const { part } = answer;
    if (part) {
      partitionList.markNamed(part.partition);
      chosen.textContent = part.partition;
      showPart(part);
    }
    runner.end(answer);
  }

  function answered(answer) {
    if (answer.of === "tables") tableList.fill(answer.rows, answer.count, -1);
    else if (answer.of === "partitions") showPartitions(answer);
    else if (answer.of === "table") showTable(answer);
    else if (answer.of === "partition") {
      chosen.textContent = answer.partition;
      showPart(answer);
    } else if (answer.of === "progress") runner.progress(answer.text, answer.share);
    else if (answer.of === "ran") ran(answer);
  }
  model.on("msg:custom", answered);
  showTables(tables, table.place);
  showTable(table);
  return () => model.off("msg:custom", answered);
}

export default { render };
