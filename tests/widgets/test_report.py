"""A report as text, as a static page and as a widget that answers questions."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from paimon_magics.session.outcome import Outcome
from paimon_magics.session.reports.report import Action, Bar, Chart, Report, Section, Shape
from paimon_widgets.assets import WIDGET
from paimon_widgets.charts import chart_svg
from paimon_widgets.report_view import ReportView, outcome_bundle, report_bundle
from tests.widgets.pages import Reader

ROWS = pa.table(
    {
        "id": pa.array(range(50), pa.int64()),
        "item": [None if n % 10 == 9 else f"<b>{n}" for n in range(50)],
        "nested": [[n, {"a": None}] if n else None for n in range(0)] or [[n] for n in range(50)],
    }
)


def picked(rows: Sequence[dict[str, object]]) -> Report:
    return Report("PICKED", f"picked {[row['id'] for row in rows]}", ())


def report(refresh: bool = False) -> Report:
    section = Section(
        "All of them",
        ROWS,
        "shop.t$files",
        actions=(Action("Compare", 2, picked),),
        charts=(
            Chart("How many", (Bar("<a>", 3, "3 of them"), Bar("b", 0, "none"))),
            Chart("When", (Bar("1", 3, "3 rows", "A"), Bar("2", 9, "9", "C")), Shape.COLUMNS),
        ),
        note="That is <all>.",
    )
    changes = Section(
        "Changes",
        pa.table({"rowkind": ["-U", "+U"], "id": [1, 1], "item": ["tea", "coffee"]}),
        "shop.t$audit_log",
        changed=((), ("item",)),
    )
    return Report(
        "THING", "shop.t, snapshot 3", (section, changes), refresh=report if refresh else None
    )


def asked(view: ReportView, **question: Any) -> dict[str, Any]:
    answer = view.answer(question)
    assert answer is not None
    json.dumps(answer)
    return answer


def paged(view: ReportView, offset: int = 0, **look: Any) -> dict[str, Any]:
    return asked(
        view, ask="page", sheet=0, offset=offset, **{"orders": [], "conditions": []} | look
    )


def test_text_has_summary_charts_and_tables() -> None:
    text = str(report())
    assert text.startswith("shop.t, snapshot 3\n\nAll of them\nHow many\n<a>  ████")
    assert "the first 20 rows; more follow" in text
    assert "+U        1  coffee  item" in text, "what changed is named"
    assert text == str(report())


def test_page_is_static_self_contained_and_escaped() -> None:
    bundle = report_bundle(report())
    page = bundle["text/html"]
    read = Reader(page)
    assert not {"script", "link", "img", "iframe"} & set(read.tags)
    assert "http" not in page
    assert read.tags.count("svg") == 2
    assert {"<a>", "<b>3", "That is <all>.", "30 more rows"} <= set(read.text)
    assert "<b><u>coffee</u></b>" in page, "what changed is marked"
    assert "<b><u>tea</u></b>" not in page
    assert bundle[WIDGET]["model_id"]
    assert bundle["text/plain"] == str(report())


def test_negative_chart_columns_are_drawn_downwards() -> None:
    bars = (Bar("1", 1000, "1,000", "A"), Bar("2", -1000, "-1,000", "O"), Bar("3", 0, "0"))
    drawn = chart_svg(Chart("Rows", bars, Shape.COLUMNS))
    columns = re.findall(r'<rect x="\d+" y="([\d.]+)" width="20" height="([\d.]+)"', drawn)
    places = [(float(y), float(height)) for y, height in columns]
    (up, up_height), (down, down_height), (none, none_height) = places
    assert up_height == down_height > 40
    assert up + up_height == down, "both begin at the line of nothing"
    assert none_height == 2 and abs(none - down) <= 2
    assert 'width="86" height="1"' in drawn, "which is drawn"
    assert chart_svg(Chart("Rows", bars[:1], Shape.COLUMNS)).count("<rect") == 1


def test_sorted_show_result_offers_no_sql() -> None:
    one = Report("T", "t", (Section("", ROWS, "SHOW TABLES"),))
    view = ReportView(one)
    assert view.sql == "SHOW TABLES"
    answer = paged(view, orders=[{"column": "id", "descending": True}])
    assert answer["sql"] == view.sql == "", "SHOW can't be sorted in SQL"
    assert answer["page"]["rows"][0][0] == "49"


def test_browser_receives_a_single_page_of_rows() -> None:
    view = ReportView(report())
    sheet = view.report["sheets"][0]
    assert len(sheet["page"]["rows"]) == 20
    assert (sheet["page"]["total"], sheet["page"]["follow"]) == (50, True)
    assert [each["type"] for each in sheet["columns"]] == ["BIGINT", "STRING", "ARRAY<BIGINT>"]
    assert sheet["page"]["rows"][9] == ["9", None, "[9]"]
    assert sheet["sql"] == "SELECT * FROM shop.t$files" == view.sql
    last = paged(view, 40)["page"]
    assert [row[0] for row in last["rows"]] == [str(n) for n in range(40, 50)]
    assert last["follow"] is False
    assert view.data.num_rows == 10
    assert view.report["sheets"][1]["page"]["changed"] == [[], [2]]


def test_shown_sql_contains_sort_order_and_conditions() -> None:
    view = ReportView(report())
    answer = paged(
        view,
        orders=[{"column": "id", "descending": True}],
        conditions=[{"column": "item", "operator": "contains", "text": "1"}],
    )
    assert [row[0] for row in answer["page"]["rows"]][:3] == ["41", "31", "21"]
    assert answer["sql"] == view.sql
    assert view.sql == (
        "SELECT * FROM shop.t$files WHERE contains(`item`, '1') ORDER BY `id` DESC NULLS LAST"
    )


def test_invalid_condition_is_explained_and_changes_nothing() -> None:
    view = ReportView(report())
    wrong = [{"column": "id", "operator": "=", "text": "many"}]
    assert paged(view, conditions=wrong)["problem"] == (
        "`many` is not a value of column `id`. Write it as: 42"
    )
    assert view.sql == "SELECT * FROM shop.t$files"


def test_cell_answer_has_the_uncut_value() -> None:
    long = "x" * 5_000
    one = Report("T", "t", (Section("", pa.table({"a": [long], "b": [b"\x01"]}), "t"),))
    view = ReportView(one)
    assert len(view.report["sheets"][0]["page"]["rows"][0][0]) == 200
    assert asked(view, ask="cell", sheet=0, row=0, column=0)["text"] == long
    assert asked(view, ask="cell", sheet=0, row=0, column=1)["text"] == "0x01"


def test_action_reports_on_the_selected_rows() -> None:
    view = ReportView(report())
    paged(view, 20)
    answer = asked(view, ask="act", sheet=0, action=0, rows=[1, 3])
    assert answer["report"]["summary"] == "picked [21, 23]"


def test_hidden_columns_are_kept_in_data_but_not_shown() -> None:
    rows = pa.table({"partition": [""], "files": [3]})
    one = Report("T", "t", (Section("", rows, "t$files", hidden=("partition",)),))
    assert "partition" not in str(one)
    assert "partition" not in report_bundle(one)["text/html"]
    view = ReportView(one)
    assert [column["name"] for column in view.report["sheets"][0]["columns"]] == ["files"]
    assert view.report["sheets"][0]["page"]["rows"] == [["3"]]
    assert one.data.column_names == ["partition", "files"]


def test_empty_section_shows_a_note_instead_of_a_table() -> None:
    one = Report("T", "t", (Section("Open", ROWS.slice(0, 0), ""),))
    page = report_bundle(one)["text/html"]
    assert "<strong>Open</strong>" in page and "no rows" in page and "<table" not in page


def test_live_report_is_refreshed_on_request() -> None:
    view = ReportView(report(refresh=True))
    assert view.seconds == 2.0
    assert asked(view, ask="refresh")["report"]["summary"] == "shop.t, snapshot 3"
    closed = ReportView(dataclasses.replace(report(), refresh=lambda: None))
    assert asked(closed, ask="refresh") == {"of": "refresh", "sheet": -1, "over": True}
    assert ReportView(report()).seconds == 0.0
    assert ReportView(report()).answer({"ask": "refresh"}) is None


@pytest.mark.parametrize(
    "question",
    [None, "page", {}, {"ask": "page"}, {"ask": "page", "sheet": 9}, {"ask": "page", "sheet": 0},
     {"ask": "page", "sheet": 0, "offset": -1, "orders": [], "conditions": []},
     {"ask": "page", "sheet": 0, "offset": "0", "orders": [], "conditions": []},
     {"ask": "cell", "sheet": 0, "row": 99, "column": 0}, {"ask": "cell", "sheet": 0, "row": 0},
     {"ask": "cell", "sheet": 0, "row": -1, "column": 0},
     {"ask": "act", "sheet": 0, "action": 0, "rows": [0]},
     {"ask": "act", "sheet": 0, "action": 0, "rows": [0, 99]},
     {"ask": "act", "sheet": 0, "action": 7, "rows": [0, 1]}],
)  # fmt: skip
def test_malformed_question_gets_no_answer(question: object) -> None:
    assert ReportView(report()).answer(question) is None


def test_outcome_rows_become_a_grid_and_messages_stay_text() -> None:
    shown = Outcome("SHOW TABLES;", "SHOW TABLES", display_rows=50, _page=ROWS)
    bundle = outcome_bundle(shown)
    assert bundle["text/plain"] == str(shown)
    assert bundle["text/html"] == shown._repr_html_()
    assert WIDGET in bundle
    view = ReportView(shown)
    assert view.report["sheets"][0]["sql"] == "SHOW TABLES"
    assert len(view.report["sheets"][0]["page"]["rows"]) == 50
    assert WIDGET not in outcome_bundle(Outcome("USE a", "USE", message="a is in use."))


def test_columns_with_the_same_name_are_both_shown() -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array(["x"])], names=["a", "a"])
    view = ReportView(Outcome("SELECT 1 a, 'x' a", "SELECT", display_rows=5, _page=twice))
    assert view.report["sheets"][0]["page"]["rows"] == [["1", "x"]]
