"""Formats, compressions and statistics of files, by level."""

from __future__ import annotations

import pytest

from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.schemas.table_schema import TableSchema, plan_create_table
from paimon_magics.planning.writes.file_rules import (
    KEY_STATISTICS,
    NO_STATISTICS,
    Statistics,
    changelog_file_rules,
    data_file_rules,
)
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable


def table(**options: str) -> TableSchema:
    given = {"primary-key": "k", "bucket": "1", **options}
    text = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    statement = parse_statement(
        f"CREATE TABLE t (k INT, a STRING, b STRING, c STRING) TBLPROPERTIES ({text})"
    )
    assert isinstance(statement, CreateTable)
    return plan_create_table(statement)


def test_default_file_rules_are_parquet_and_zstd() -> None:
    rules = data_file_rules(table(), 0)
    assert (rules.format, rules.compression, rules.zstd_level) == ("parquet", "zstd", 1)
    assert rules.statistics == dict.fromkeys("kabc", Statistics(length=16))
    assert changelog_file_rules(table(), 0) == rules


def test_levels_have_their_own_file_rules() -> None:
    levels = table(
        **{
            "file.format": "orc",
            "file.format.per.level": "0:avro, 5:parquet",
            "file.compression.per.level": "0:none",
            "metadata.stats-mode.per.level": "0:none",
        }
    )
    low, middle, high = (data_file_rules(levels, level) for level in (0, 1, 5))
    assert [(r.format, r.compression) for r in (low, middle, high)] == [
        ("avro", "none"),
        ("orc", "zstd"),
        ("parquet", "zstd"),
    ]
    assert low.statistics["a"] == NO_STATISTICS
    assert high.statistics["a"] == Statistics(length=16)
    assert changelog_file_rules(levels, 0) == low


def test_changelog_files_have_their_own_rules() -> None:
    own = table(
        **{
            "file.format.per.level": "0:avro",
            "changelog-file.format": "PARQUET",
            "changelog-file.compression": "snappy",
            "changelog-file.stats-mode": "counts",
        }
    )
    rules = changelog_file_rules(own, 0)
    assert (rules.format, rules.compression) == ("parquet", "snappy")
    assert rules.statistics["b"] == Statistics(wants_values=False)


def test_columns_have_their_own_statistics() -> None:
    own = table(
        **{
            "fields.a.stats-mode": "full",
            "fields.b.stats-mode": "Truncate(3)",
            "metadata.stats-mode": "none",
        }
    )
    assert data_file_rules(own, 0).statistics == {
        "k": NO_STATISTICS,
        "a": Statistics(),
        "b": Statistics(length=3),
        "c": NO_STATISTICS,
    }


def test_statistics_can_be_limited_to_the_first_columns() -> None:
    first = {"metadata.stats-keep-first-n-columns": "2", "fields.c.stats-mode": "full"}
    assert data_file_rules(table(**first), 0).statistics == {
        "k": Statistics(length=16),
        "a": Statistics(length=16),
        "b": NO_STATISTICS,
        "c": Statistics(),
    }
    thin = table(**first, **{"data-file.thin-mode": "true"})
    assert data_file_rules(thin, 0).statistics == {
        "k": KEY_STATISTICS,
        "a": Statistics(length=16),
        "b": Statistics(length=16),
        "c": Statistics(),
    }


@pytest.mark.parametrize("mode", ["some", "truncate(0)", "truncate(x)"])
def test_unknown_statistics_mode_is_refused(mode: str) -> None:
    with pytest.raises(InvalidTableError, match=r"metadata\.stats-mode"):
        data_file_rules(table(**{"metadata.stats-mode": mode}), 0)
