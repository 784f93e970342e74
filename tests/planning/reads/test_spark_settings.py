"""No option behind `spark.paimon.` is passed over, and the documentation has what the table has."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.options.table_options import CORE_OPTIONS
from paimon_magics.planning.reads.read_points import READ_OPTIONS
from paimon_magics.planning.reads.spark_settings import (
    HONOURED,
    PAIMON_HONOURED,
    PAIMON_WITHOUT_INFLUENCE,
    REFUSED,
    WITHOUT_INFLUENCE,
    check_sql_settings,
    options_set,
    refuse_read_point,
)
from paimon_magics.statements.statement import TableName

TABLE = TableName("t", database="shop")
PAGE = Path(__file__).resolve().parents[3] / "docs" / "statements.md"
# Those of `SparkConnectorOptions`, and of `SparkCatalogOptions` what `OptionUtils` reads, beside
# those of the core.
CONNECTOR = {
    "requiredSparkConfsCheck.enabled",
    "legacy-timestamp-mapping.enabled",
    "v1Function.enabled",
    "vector-search.lateral-join.parallelism",
    "write.merge-schema",
    "write.merge-schema.type-widening",
    "write.merge-schema.explicit-cast",
    "write.use-v2-write",
    "write.data-evolution.update-conflict-retry.max-attempts",
    "write.data-evolution.update-conflict-retry.wait-ms",
    "read.stream.maxFilesPerTrigger",
    "read.stream.maxBytesPerTrigger",
    "read.stream.maxRowsPerTrigger",
    "read.stream.minRowsPerTrigger",
    "read.stream.maxTriggerDelayMs",
    "read.changelog",
    "read.allow.fullScan",
    "source.split.target-size-with-column-pruning",
}


def options(table: TableName | None = TABLE, **given: str) -> dict[str, str]:
    keys = {f"spark.paimon.{key}": value for key, value in given.items()}
    return options_set(keys, "paimon", table, {})


@pytest.mark.parametrize("scope", ["", "paimon.shop.t.", "*.*.*."])
@pytest.mark.parametrize("key", sorted({*CORE_OPTIONS, *CONNECTOR}))
def test_each_option_is_honoured_ignored_or_refused(key: str, scope: str) -> None:
    given = {f"{scope}{key}": "other"}
    if key in READ_OPTIONS:
        assert options(**given) == {key: "other"}
    elif key in PAIMON_WITHOUT_INFLUENCE or (key in PAIMON_HONOURED and not scope):
        assert options(**given) == {}
    else:
        name = f"spark.paimon.{scope}{key}".replace("*", r"\*")
        with pytest.raises(UnsupportedStatementError, match=name) as caught:
            options(**given)
        assert f"spark.paimon.{scope}{key}" in caught.value.hint
        assert "Paimon has no option" not in caught.value.message


def test_most_specific_table_setting_wins() -> None:
    given = {
        "scan.snapshot-id": "1",
        "*.*.t.scan.snapshot-id": "2",
        "paimon.*.t.scan.snapshot-id": "3",
        "paimon.shop.t.scan.snapshot-id": "4",
        "paimon.shop.u.scan.snapshot-id": "5",
    }
    assert options(**given) == {"scan.snapshot-id": "4"}
    assert options(TableName("u", database="shop"), **given) == {"scan.snapshot-id": "5"}
    assert options(TableName("v", database="shop"), **given) == {"scan.snapshot-id": "1"}
    assert options(TableName("t", database="other"), **given) == {"scan.snapshot-id": "3"}


@pytest.mark.parametrize(
    "key", ["variant.inferShreddingSchema", "scan.ignore-corrupt-files", "scan.ignore-lost-files"]
)
def test_option_with_the_value_that_always_holds_is_accepted(key: str) -> None:
    assert options(**{key: "false"}) == {}
    with pytest.raises(UnsupportedStatementError, match=key):
        options(**{key: "true"})


def test_older_option_names_are_recognised() -> None:
    assert options(**{"log.scan.timestamp-millis": "7"}) == {"scan.timestamp-millis": "7"}
    with pytest.raises(UnsupportedStatementError, match="first-row"):
        options(**{"first-row.ignore-delete": "true"})


def test_unknown_option_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnsupportedStatementError, match=r"no option 'scan\.snapshotid'") as caught:
        options(**{"scan.snapshotid": "1"})
    assert "scan.snapshot-id" in caught.value.hint


def test_configured_read_point_blocks_only_row_changes() -> None:
    given = {"spark.paimon.scan.tag-name": "v1"}
    for verb in ("DELETE", "UPDATE", "MERGE"):
        with pytest.raises(UnsupportedStatementError, match=r"spark\.paimon\.scan\.tag-name = v1"):
            refuse_read_point(given, "paimon", TABLE, verb)
    refuse_read_point(given, "paimon", TABLE, "INSERT")
    refuse_read_point({"spark.paimon.branch": "main"}, "paimon", TABLE, "INSERT")


@pytest.mark.parametrize("key", REFUSED)
def test_refused_setting_is_accepted_with_its_default(key: str) -> None:
    check_sql_settings({key: REFUSED[key].default.upper()})
    with pytest.raises(UnsupportedStatementError) as caught:
        check_sql_settings({key: "other"})
    assert f"{key} = other" in caught.value.message
    assert f"spark.conf.set('{key}', '{REFUSED[key].default}')" in caught.value.hint


def test_documentation_lists_every_setting() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("\n## Settings of the Spark session\n")[2]
    text = text.partition("\n## Not offered yet\n")[0]
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    wanted = {**HONOURED, **WITHOUT_INFLUENCE, **PAIMON_HONOURED, **PAIMON_WITHOUT_INFLUENCE}
    for key, reason in wanted.items():
        assert any(f"`{key}`" in row and reason in row for row in rows), key
    for key, setting in REFUSED.items():
        actual = [row for row in rows if row.startswith(f"| `{key}` | `{setting.default}`")]
        assert actual, key
        assert setting.consequence in actual[0]
    for key in READ_OPTIONS:
        assert f"`{key}`" in text
