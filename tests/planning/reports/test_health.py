"""What is said of a table's layout, and which statement would help."""

from __future__ import annotations

from typing import Any

import pytest

from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.reports.health import (
    Figures,
    LayoutRules,
    Severity,
    findings,
    worst,
)
from paimon_magics.planning.schemas.table_schema import TableSchema, plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName

MB = 1024 * 1024
APPEND = LayoutRules(256 * MB, 179 * MB, 5, 8, 5, -1, False)
KEYED = LayoutRules(128 * MB, 89 * MB, 5, 8, 5, 4, True)
MANY = LayoutRules(128 * MB, 89 * MB, 5, 8, 5, 128, True)
GOOD, NOTICE, SERIOUS = Severity


def schema(sql: str) -> TableSchema:
    statement = parse_statement(sql)
    assert isinstance(statement, CreateTable)
    return plan_create_table(statement)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("CREATE TABLE t (k INT)", (256 * MB, int(256 * MB * 0.7), 5, 8, 5)),
        (
            "CREATE TABLE t (k INT NOT NULL) TBLPROPERTIES ('primary-key' = 'k')",
            (128 * MB, int(128 * MB * 0.7), 5, 8, 5),
        ),
        (
            "CREATE TABLE t (k INT) TBLPROPERTIES ('target-file-size' = '1 gb', "
            "'compaction.small-file-ratio' = '0.5', 'compaction.min.file-num' = '10', "
            "'num-sorted-run.compaction-trigger' = '3')",
            (1024 * MB, 512 * MB, 3, 6, 10),
        ),
    ],
)
def test_layout_rules_follow_the_table_options(sql: str, expected: tuple[int, ...]) -> None:
    rules = LayoutRules.of(schema(sql))
    assert expected == (
        rules.target_bytes,
        rules.small_below_bytes,
        rules.run_trigger,
        rules.run_stop,
        rules.files_min,
    )


def test_error_names_an_unreadable_option() -> None:
    table = TableSchema((), options=(("target-file-size", "large"),))
    with pytest.raises(InvalidTableError, match="target-file-size"):
        LayoutRules.of(table)


def figures(cells: int, cell_mb: int, **others: Any) -> Figures:
    """Of a table whose buckets have `cell_mb` MiB each, in one partition with a file each, but for
    what `others` say."""
    sizes = {"bytes_max": cell_mb * MB, "bytes_median": cell_mb * MB}
    given: dict[str, Any] = {"partitions": 1, "files": cells, "rows": 1_000, **sizes, **others}
    return Figures(cells=cells, total_bytes=cells * cell_mb * MB, **given)


SMALL = {"files": 100, "small_files": 90, "mergeable_files": 80, "files_after": 22}
MANY_SMALL = {"files": 1_000, "small_files": 900, "mergeable_files": 800, "files_after": 220}
RUNS = {"files": 40, "cells_with_runs": 2}


@pytest.mark.parametrize(
    ("rules", "figures", "severity", "said", "statement"),
    [
        (APPEND, Figures(), GOOD, "no files", ""),
        (APPEND, figures(4, 1_000), GOOD, "match the table's options", ""),
        (
            APPEND, figures(3, 133, partitions=3, worst_partition="dt=1/h=2", **MANY_SMALL),
            SERIOUS, "800 of 1,000 files are smaller than 179 MiB and could be merged; most are in "
            "dt=1/h=2: compacting would leave about 220 files.",
            "CALL sys.compact(table => 'shop.t')",
        ),
        (
            APPEND, figures(1, 1, files=30, small_files=30, mergeable_files=30, files_after=1),
            NOTICE, "30 of 30 files", "CALL sys.compact(table => 'shop.t')",
        ),
        (
            APPEND, figures(4, 100, small_files=4), GOOD,
            "4 files below 179 MiB: no bucket has 5 of them", "",
        ),
        (
            KEYED, figures(4, 1, small_files=60), GOOD,
            "60 files below 89 MiB: a compaction merges a bucket's files once it has 5 sorted "
            "runs.", "",
        ),
        (
            APPEND, figures(1, 400, **{**SMALL, "mergeable_files": 20}), NOTICE,
            "20 of 100 files", "CALL sys.compact(table => 'shop.t')",
        ),
        (
            KEYED, figures(4, 100, run_count_max=7, **RUNS), NOTICE,
            "2 of 4 buckets have 5 or more sorted runs (up to 7): each read merges them.",
            "CALL sys.compact(table => 'shop.t')",
        ),
        (
            KEYED, figures(4, 100, run_count_max=9, cells_stopped=1, **RUNS), SERIOUS,
            "1 have 8 or more, at which compacting engines block their writers",
            "CALL sys.compact(table => 'shop.t')",
        ),
        (
            KEYED, figures(8, 500, skewed_partition="dt=1", bytes_max=2_000 * MB,
                           bytes_median=100 * MB), NOTICE,
            "The largest bucket of dt=1 has 2.0 GiB, the median bucket 100 MiB",
            "ORDER BY file_size_in_bytes DESC",
        ),
        (KEYED, figures(4, 1), GOOD, "match the table's options", ""),
        (
            MANY, figures(128, 1), NOTICE, "Buckets have 1 MiB on average, smaller than",
            "CALL sys.rescale(table => 'shop.t', bucket_num => 1)",
        ),
        (
            MANY, figures(128, 15), NOTICE, "set the option 'bucket' = '9'",
            "CALL sys.rescale(table => 'shop.t', bucket_num => 9)",
        ),
        (KEYED, figures(4, 10_000), NOTICE, "larger than", "bucket_num => 8"),
        (
            APPEND, figures(400, 1, partitions=400), NOTICE,
            "400 partitions have 1 MiB on average", "",
        ),
    ],
)  # fmt: skip
def test_findings_match_the_layout(
    rules: LayoutRules, figures: Figures, severity: Severity, said: str, statement: str
) -> None:
    actual = findings(TableName("t", "shop"), rules, figures)
    assert worst(actual) == severity
    assert said in actual[0].text
    assert statement in actual[0].statement
    assert bool(statement) == bool(actual[0].statement)
