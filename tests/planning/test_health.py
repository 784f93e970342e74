"""What is said of a table's layout, and which statement would help."""

from __future__ import annotations

import pytest

from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.definitions import TableDefinition, plan_create_table
from paimon_magics.planning.health import (
    Figures,
    LayoutRules,
    Severity,
    findings,
    worst,
)
from paimon_magics.statements.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable

MB = 1024 * 1024
APPEND = LayoutRules(256 * MB, 179 * MB, 5, 8, 5, -1, False)
KEYED = LayoutRules(128 * MB, 89 * MB, 5, 8, 5, 4, True)


def definition(sql: str) -> TableDefinition:
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
def test_rules_are_the_tables_own_options(sql: str, expected: tuple[int, ...]) -> None:
    rules = LayoutRules.of(definition(sql))
    assert expected == (
        rules.target_bytes,
        rules.small_below_bytes,
        rules.run_trigger,
        rules.run_stop,
        rules.files_min,
    )


def test_an_option_that_can_not_be_read_is_named() -> None:
    table = TableDefinition((), options=(("target-file-size", "large"),))
    with pytest.raises(InvalidTableError, match="target-file-size"):
        LayoutRules.of(table)


FINE = Figures(1, 4, 8, 1_000, 4_000 * MB, bytes_max=1_000 * MB, bytes_median=1_000 * MB)


@pytest.mark.parametrize(
    ("rules", "figures", "severity", "said", "statement"),
    [
        (APPEND, Figures(), Severity.GOOD, "no files", ""),
        (APPEND, FINE, Severity.GOOD, "as the table's options ask for", ""),
        (
            APPEND,
            Figures(
                3, 3, 100, 1, 400 * MB, 90, 80, 22, "dt=1/h=2", 70,
                bytes_max=200 * MB, bytes_median=100 * MB,
            ),
            Severity.SERIOUS,
            "80 of 100 files are smaller than 179 MiB and could be merged; most are in dt=1/h=2: "
            "compacting would leave about 22 files.",
            "CALL sys.compact(table => 'shop.t', partitions => 'dt=1,h=2')",
        ),
        (
            APPEND,
            Figures(
                1, 1, 100, 1, 400 * MB, 20, 20, 81, "", 20,
                bytes_max=400 * MB, bytes_median=400 * MB,
            ),
            Severity.NOTICE,
            "20 of 100 files",
            "CALL sys.compact(table => 'shop.t')",
        ),
        (
            KEYED,
            Figures(
                1, 4, 40, 1, 400 * MB, 40, 40, 4, "", 40, 7, 2, 0,
                bytes_max=100 * MB, bytes_median=100 * MB,
            ),
            Severity.NOTICE,
            "2 of 4 buckets have 5 or more sorted runs (up to 7): each read merges them.",
            "CALL sys.compact(table => 'shop.t')",
        ),
        (
            KEYED,
            Figures(
                1, 4, 40, 1, 400 * MB, 40, 40, 4, "", 40, 9, 2, 1,
                bytes_max=100 * MB, bytes_median=100 * MB,
            ),
            Severity.SERIOUS,
            "1 have 8 or more, where engines that compact hold their writers up",
            "CALL sys.compact(table => 'shop.t')",
        ),
        (
            KEYED,
            Figures(
                2, 8, 40, 1, 4_000 * MB, skewed_partition="dt=1",
                bytes_max=2_000 * MB, bytes_median=100 * MB,
            ),
            Severity.NOTICE,
            "The largest bucket of dt=1 has 2.0 GiB, the median one 100 MiB",
            "ORDER BY file_size_in_bytes DESC",
        ),
        (
            KEYED,
            Figures(1, 4, 4, 1, 4 * MB, bytes_max=MB, bytes_median=MB),
            Severity.NOTICE,
            "Buckets have 1 MiB on average, smaller than",
            "ALTER TABLE shop.t SET TBLPROPERTIES ('bucket' = '2')",
        ),
        (
            KEYED,
            Figures(1, 4, 400, 1, 40_000 * MB, bytes_max=9_000 * MB, bytes_median=9_000 * MB),
            Severity.NOTICE,
            "larger than",
            "'bucket' = '8'",
        ),
        (
            APPEND,
            Figures(400, 400, 400, 1, 400 * MB, bytes_max=MB, bytes_median=MB),
            Severity.NOTICE,
            "400 partitions have 1 MiB on average",
            "",
        ),
    ],
)  # fmt: skip
def test_findings(
    rules: LayoutRules, figures: Figures, severity: Severity, said: str, statement: str
) -> None:
    found = findings("shop.t", rules, figures)
    assert worst(found) == severity
    assert said in found[0].text
    assert statement in found[0].statement
    assert bool(statement) == bool(found[0].statement)
