"""The health of tables as text, as a static page and as a widget that answers questions."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from paimon_magics.planning.reports.health import Figures
from paimon_magics.session.reports.health import Health, sizes_of, worst_partitions
from paimon_magics.session.reports.layout import Layout
from paimon_magics.statements.statement import TableName
from paimon_widgets.assets import WIDGET
from paimon_widgets.health_view import HealthView, health_bundle, health_html
from tests.widgets.pages import Reader

COMPACT = "CALL sys.compact(table => 'default.t')"


def two(layout: Layout) -> Health:
    """The table, behind one of another name that is in order."""
    empty = replace(
        layout,
        name="default.a",
        table=TableName("a", "default"),
        data=layout.data.slice(0, 0),
        files=layout.files.slice(0, 0),
        figures=Figures(),
    )
    return Health((empty, layout))


def asked(view: HealthView, **question: Any) -> dict[str, Any]:
    answer = view.answer(question)
    assert answer is not None
    json.dumps(answer)
    return answer


def test_text_page_and_values_contain_findings_and_suggested_statements(layout: Layout) -> None:
    health = Health((layout,))
    said = "serious: 4 of 12 buckets have 5 or more sorted runs (up to 8)"
    assert said in str(health) and COMPACT in str(health)
    assert str(Health((layout,))) == str(health)
    read = Reader(health_html(health))
    assert COMPACT in read.text
    assert not {"script", "img", "link"} & set(read.tags)
    assert health_html(Health(())) == "<p>There are no tables.</p>"
    assert health.data.column("severity").to_pylist()[0] == "serious"
    assert json.loads(json.dumps(health.to_json()))["default.t"]["severity"] == "serious"
    assert health.partitions.column("table").to_pylist() == ["default.t"] * 3


def test_text_and_page_list_file_sizes_of_each_partition(layout: Layout) -> None:
    actual = worst_partitions(layout)
    steps = actual.column_names[4:]
    assert steps and steps[0].startswith("0 B – ")
    for row in actual.to_pylist():
        assert sum(row[step] for step in steps) == row["files"]
    assert "day=2026-11-20     32     32  100%  " in str(Health((layout,)))
    page = "".join(Reader(health_html(Health((layout,)))).text)
    assert "day=<b>&" in page and steps[0] in page
    one = layout.of_partition("day=2026-11-20")
    assert worst_partitions(one).num_rows == 0, "there is nothing to compare"


def test_bundle_has_text_and_page_and_widget_only_if_live(layout: Layout) -> None:
    health = Health((layout,))
    bundle = health_bundle(health)
    assert bundle[WIDGET]["model_id"]
    assert bundle["text/html"] == health_html(health)
    assert bundle["text/plain"] == str(health)
    assert set(health_bundle(health, live=False)) == {"text/plain", "text/html"}
    assert WIDGET not in health_bundle(Health(()))


def test_table_with_worst_findings_is_listed_first_and_selected(layout: Layout) -> None:
    view = HealthView(two(layout))
    tables, table = view.first["tables"], view.first["table"]
    assert [row["name"] for row in tables["rows"]] == ["default.t", "default.a"]
    assert (table["place"], table["findings"][0]["word"]) == (1, "serious")
    assert view.selected == ("default.t", "")
    assert view.data.equals(sizes_of(layout))
    assert view.sql.startswith("SELECT partition, count(*) AS bucket_count, ")
    assert "target-file-size 128 MiB; a file below 90 MiB is small" in table["rules"]
    assert "compaction from 5 sorted runs" in table["rules"]
    json.dumps(view.first)

    other = asked(view, ask="table", table=0)
    assert other["findings"][0]["text"] == "The table has no files."
    assert view.selected == ("default.a", "")
    assert asked(view, ask="tables", find="DEFAULT.T")["count"] == 1


def test_selecting_partition_shows_its_sizes_findings_and_statement(
    layout: Layout,
) -> None:
    view = HealthView(Health((layout,)))
    listed = view.first["table"]["partitions"]
    (first, *_) = listed["rows"]
    assert first["name"] == "day=2026-11-20"
    assert first["about"] == "32 files, 32 small (100%), up to 8 sorted runs in a bucket"
    assert sum(first["sizes"]) == 32 and len(first["sizes"]) == len(listed["small"])
    part = asked(view, ask="partition", partition="day=2026-11-20")
    assert part["findings"][0]["text"].startswith("4 of 4 buckets have 5 or more sorted runs")
    assert part["findings"][0]["statement"] == (
        "CALL sys.compact(table => 'default.t', partitions => 'day=2026-11-20')"
    )
    assert "32, small" in part["chart"] and "#e69f00" in part["chart"]
    assert view.selected == ("default.t", "day=2026-11-20")
    good = asked(view, ask="partition", partition="day=<b>&")
    assert good["findings"][0]["word"] == "good"
    assert "day=&lt;b&gt;&amp;" in good["chart"]
    assert asked(view, ask="partition", partition="")["findings"][0]["word"] == "serious"
    assert view.selected == ("default.t", "")


def test_partitions_are_searched_by_part_of_their_name(layout: Layout) -> None:
    view = HealthView(Health((layout,)))
    actual = asked(view, ask="partitions", find="11-19")
    assert [row["name"] for row in actual["rows"]] == ["day=2026-11-19"]
    assert asked(view, ask="partitions", find="nowhere") == {
        "of": "partitions",
        "rows": [],
        "count": 0,
        "small": actual["small"],
    }


@pytest.mark.parametrize(
    "question",
    [None, "tables", {}, {"ask": "table"}, {"ask": "table", "table": 7},
     {"ask": "tables", "find": 1}, {"ask": "table", "table": "0"}, {"ask": "partition"},
     {"ask": "partition", "partition": "x"}, {"ask": "partition", "partition": 1}],
)  # fmt: skip
def test_malformed_question_gets_no_answer(layout: Layout, question: object) -> None:
    view = HealthView(Health((layout,)))
    assert view.answer(question) is None
    assert view.selected == ("default.t", "")
