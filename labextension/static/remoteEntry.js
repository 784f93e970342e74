// SQL highlighting of `%%paimon` cells in JupyterLab 4, and saved views without their kernel.
//
// Written by hand as what JupyterLab loads of a prebuilt extension: a container with `init` and
// `get`, which takes CodeMirror and JupyterLab's own packages from what the page shares. So there is
// nothing to build, nothing is bundled, and nothing is fetched. Where the page shares other things
// than expected, cells look as they do without it.
"use strict";
(() => {
  const words = (text) => new Set(text.trim().split(/\s+/));

  const KEYWORDS = words(`
    ADD AFTER ALL ALTER ANALYZE AND ANTI ANY AS ASC BETWEEN BRANCH BY CACHE CALL CASCADE CASE CAST
    CHANGE CLUSTER COLUMN COLUMNS COMMENT CREATE CROSS CUBE CURRENT DATABASE DATABASES DBPROPERTIES
    DEFAULT DELETE DESC DESCRIBE DISTINCT DISTRIBUTE DROP ELSE END EXCEPT EXISTS EXPLAIN EXTENDED
    FALSE FIRST FOLLOWING FOR FORMATTED FROM FULL FUNCTION GROUP HAVING IF ILIKE IN INNER INSERT
    INTERSECT INTERVAL INTO IS JOIN LAST LATERAL LEFT LIKE LIMIT LOCATION MATCHED MERGE MINUS NAME
    NATURAL NOT NULL NULLS OF OFFSET ON OPTIONS OR ORDER OUTER OVER OVERWRITE PARTITION PARTITIONED
    PARTITIONS PIVOT PRECEDING QUALIFY RANGE REFRESH RENAME REPLACE RESET RESTRICT RETAIN RIGHT RLIKE
    ROLLUP ROW ROWS SELECT SEMI SET SETS SHOW SORT TABLE TABLES TABLESAMPLE TAG TAGS TBLPROPERTIES
    TEMPORARY TEMP THEN TO TRUE TRUNCATE TYPE UNBOUNDED UNCACHE UNION UNPIVOT UNSET UPDATE USE USING
    VALUES VERSION VIEW WHEN WHERE WINDOW WITH`);
  const TYPES = words(`
    ARRAY BIGINT BINARY BOOLEAN BYTE CHAR DATE DEC DECIMAL DOUBLE FLOAT INT INTEGER LONG MAP NUMERIC
    REAL SHORT SMALLINT STRING STRUCT TIMESTAMP TIMESTAMP_LTZ TIMESTAMP_NTZ TINYINT VARCHAR VARIANT`);

  const isCell = (text) => /^%%paimon(?![\w])/.test(text);

  // The lexer follows the one in paimon_magics/statements/tokens.py.
  const lexer = {
    name: "paimon-sql",
    startState: () => ({ line: 0, depth: 0, quote: "" }),
    copyState: (state) => ({ ...state }),
    blankLine: (state) => {
      state.line += 1;
    },
    token: (stream, state) => {
      if (stream.sol()) state.line += 1;
      if (state.line === 1) {
        if (stream.match(/^%%\w+/)) return "meta";
        if (stream.eatSpace()) return null;
        if (stream.match(/^-[\w-]*/)) return "attributeName";
        stream.match(/^\S+/);
        return "string";
      }
      if (state.depth) return comment(stream, state);
      if (state.quote) return quoted(stream, state);
      if (stream.eatSpace()) return null;
      if (stream.match("--")) {
        stream.skipToEnd();
        return "lineComment";
      }
      if (stream.match("/*")) {
        state.depth = 1;
        return comment(stream, state);
      }
      const quote = stream.match(/^[rRxX]?(['"])/) || stream.match(/^(`)/);
      if (quote) {
        state.quote = quote[1];
        return quoted(stream, state, /^r/i.test(quote[0]));
      }
      if (stream.match(/^(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:BD|[LSFD])?(?!\w)/i)) return "number";
      if (stream.match(/^::/)) return "operator";
      if (stream.match(/^:[^\W\d]\w*/)) return "variableName.special";
      const word = stream.match(/^[\w\u0080-\uffff]+(?:\$\w+)*/);
      if (word) {
        const upper = word[0].toUpperCase();
        if (KEYWORDS.has(upper)) return "keyword";
        if (TYPES.has(upper)) return "typeName";
        if (stream.match(/^\s*\(/, false)) return "variableName.function";
        return "variableName";
      }
      if (stream.match(/^[<>=!|+\-*/%&^~]+/)) return "operator";
      if (stream.match(/^[()[\]{}]/)) return "bracket";
      stream.next();
      return "punctuation";
    },
    languageData: {
      commentTokens: { line: "--", block: { open: "/*", close: "*/" } },
      closeBrackets: { brackets: ["(", "[", "'", '"', "`"] },
    },
  };

  function comment(stream, state) {
    while (!stream.eol() && state.depth) {
      if (stream.match("/*")) state.depth += 1;
      else if (stream.match("*/")) state.depth -= 1;
      else stream.next();
    }
    return "blockComment";
  }

  function quoted(stream, state, isRaw = false) {
    const quote = state.quote;
    while (!stream.eol()) {
      const character = stream.next();
      if (character === quote) {
        if (!isRaw && stream.peek() === quote) {
          stream.next();
          continue;
        }
        state.quote = "";
        break;
      }
      if (character === "\\" && quote !== "`" && !isRaw) stream.next();
    }
    return quote === "`" ? "variableName" : "string";
  }

  // Of JupyterLab's packages and CodeMirror's, the ones that this page uses.
  function extension(codemirror, language, state) {
    const sql = state.Prec.highest(language.StreamLanguage.define(lexer).extension);

    function ofEditor(source) {
      const own = new state.Compartment();
      return [
        own.of(isCell(source) ? sql : []),
        state.EditorState.transactionExtender.of((transaction) => {
          if (!transaction.docChanged) return null;
          const was = isCell(transaction.startState.doc.line(1).text);
          const is = isCell(transaction.newDoc.line(1).text);
          return was === is ? null : { effects: own.reconfigure(is ? sql : []) };
        }),
      ];
    }

    return {
      id: "paimon-magics:highlighting",
      description: "Shows the SQL of %%paimon cells as SQL.",
      autoStart: true,
      requires: [codemirror.IEditorExtensionRegistry],
      activate: (_, registry) => {
        registry.addExtension({
          name: "paimon-magics:cells",
          factory: (options) => {
            const source = options?.model?.sharedModel?.getSource?.() ?? "";
            return codemirror.EditorExtensionRegistry.createImmutableExtension(ofEditor(source));
          },
        });
      },
    };
  }

  // A notebook has a static page beside each view. JupyterLab shows an error in place of a view whose
  // kernel was gone when the notebook was opened, and leaves one that is open as it was when its kernel
  // ends: its buttons do nothing then. In both cases the page takes its place. A bar of progress has
  // no page, and goes.
  function savedViews(notebook) {
    const gone = "Error displaying widget: model not found";
    const ended = ["restarting", "autorestarting", "terminating", "dead"];
    const progress = "application/vnd.paimon-magics.progress+json";

    function replace(panel, node, why) {
      const cells = panel.content.widgets;
      const area = cells.find((cell) => cell.outputArea?.node.contains(node))?.outputArea;
      const place = area?.widgets.findIndex((one) => one.node.contains(node)) ?? -1;
      const model = place < 0 ? null : area.model.get(place);
      if (model?.data[progress]) {
        node.replaceChildren();
        node.classList.remove("jupyter-widgets");
        return;
      }
      if (!model?.data["text/html"]) return;
      const page = area.rendermime.createRenderer("text/html");
      page.renderModel(model).then(() => {
        const note = document.createElement("p");
        note.className = "paimon-ended";
        note.setAttribute("role", "status");
        note.textContent = `${why}: run the cell again to work with the view.`;
        node.classList.remove("jupyter-widgets");
        node.replaceChildren(note, page.node);
      });
    }

    function show(panel) {
      for (const node of panel.content.node.querySelectorAll(".jp-OutputArea-output")) {
        if (node.children.length || node.textContent !== gone) continue;
        replace(panel, node, "The kernel is gone");
      }
    }

    function end(panel, why) {
      const views = panel.content.node.querySelectorAll(".paimon-view, .paimon-progress-view");
      const nodes = [...views].map((view) => view.closest(".jp-OutputArea-output"));
      for (const node of new Set(nodes)) if (node) replace(panel, node, why);
    }

    function watch(panel) {
      let waits = false;
      const observer = new MutationObserver(() => {
        if (waits) return;
        waits = true;
        requestAnimationFrame(() => {
          waits = false;
          if (!panel.isDisposed) show(panel);
        });
      });
      observer.observe(panel.content.node, { childList: true, subtree: true });
      panel.disposed.connect(() => observer.disconnect());
      const context = panel.sessionContext;
      context.statusChanged.connect((_, status) => {
        if (ended.includes(status)) end(panel, "The kernel was restarted");
      });
      context.kernelChanged.connect((_, { oldValue, newValue }) => {
        if (oldValue && oldValue.id !== newValue?.id) end(panel, "The kernel is gone");
      });
    }

    return {
      id: "paimon-magics:saved-views",
      description: "Shows the static page of a saved view whose kernel is gone.",
      autoStart: true,
      requires: [notebook.INotebookTracker],
      activate: (_, tracker) => {
        tracker.forEach(watch);
        tracker.widgetAdded.connect((_, panel) => watch(panel));
      },
    };
  }

  let scope = {};

  async function shared(name) {
    const versions = Object.values(scope[name] ?? {});
    const found = versions.find((version) => version.loaded) ?? versions[0];
    if (!found) throw new Error(`paimon-magics: the page shares no ${name}`);
    return (await found.get())();
  }

  const container = {
    init: (sharedScope) => {
      scope = sharedScope;
    },
    get: async (module) => {
      if (module !== "./extension") throw new Error(`paimon-magics has no ${module}`);
      const names = ["@jupyterlab/codemirror", "@codemirror/language", "@codemirror/state"];
      const plugins = [
        extension(...(await Promise.all(names.map(shared)))),
        savedViews(await shared("@jupyterlab/notebook")),
      ];
      return () => ({ __esModule: true, default: plugins });
    },
  };
  window._JUPYTERLAB = window._JUPYTERLAB ?? {};
  window._JUPYTERLAB["paimon-magics"] = container;
})();
