"""Which of a table's options the writers refuse, and which they tell that they do not apply."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_magics.errors import InvalidTableError, UnsupportedStatementError
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.planning.schemas.written_options import options_not_applied
from paimon_magics.planning.writes.inserts import (
    check_adds_rows,
    check_writable,
    takes_small_inserts,
)
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.statement import TableName

NAME = TableName("t", "shop")

COLUMNS = "clustering.columns"


def schema(**options: str) -> TableSchema:
    stored = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    return TableSchema(
        columns=(
            Column(0, "k", AtomicType("INT", nullable=False)),
            Column(1, "v", AtomicType("STRING")),
        ),
        primary_keys=("k",) if "bucket" in stored else (),
        options=tuple(stored.items()),
    )


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("data-file.external-paths", {"data_file__external_paths": "file:///elsewhere"}),
        ("commit.callbacks", {"commit__callbacks": "org.example.Callback"}),
        ("metadata.iceberg.storage", {"metadata__iceberg__storage": "hadoop-catalog"}),
        ("chain-table.enabled", {"chain_table__enabled": "true", "bucket": "1"}),
        ("pk-clustering-override", {"pk_clustering_override": "true", "bucket": "1"}),
        (
            "commit.strict-mode.last-safe-snapshot",
            {"commit__strict_mode__last_safe_snapshot": "3"},
        ),
        ("branch", {"branch": "trial"}),
        ("vector.file.format", {"vector__file__format": "lance"}),
        ("fields.v.map.storage-layout", {"fields__v__map__storage_layout": "shared-shredding"}),
        (
            "file.compression",
            {
                "changelog_producer": "input",
                "changelog_file__format": "avro",
                "file__compression": "lz4",
                "bucket": "1",
            },
        ),
        ("file.compression", {"file__compression": "brotli"}),
        ("file.compression", {"file__format": "avro", "file__compression": "lz4"}),
        ("target-file-row-num", {"file__format": "orc", "target_file_row_num": "10"}),
        ("manifest.compression", {"manifest__compression": "brotli"}),
        ("manifest.format", {"manifest__format": "orc"}),
        ("file.compression.per.level", {"file__compression__per__level": "0:brotli"}),
        ("file.compression.per.level", {"file__compression__per__level__5": "brotli"}),
        (
            "file.compression.per.level",
            {"file__compression__per__level": "0:lz4", "file__format__per__level": "0:avro"},
        ),
        ("global-index.external-path", {"global_index__external_path": "/elsewhere"}),
    ],
)
def test_options_ignored_by_writers_are_refused(key: str, options: dict[str, str]) -> None:
    with pytest.raises(UnsupportedStatementError) as caught:
        check_writable(NAME, schema(**options))
    assert f"'{key}'" in caught.value.message and "`shop.t`" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("metadata.stats-mode", {"metadata__stats_mode": "truncate(x)"}),
        ("metadata.stats-mode", {"metadata__stats_mode__per__level": "5:some"}),
        ("fields.v.stats-mode", {"fields__v__stats_mode": "some"}),
        ("metadata.stats-mode", {"changelog_file__stats_mode": "truncate(0)", "bucket": "1"}),
    ],
)
def test_invalid_statistics_options_are_refused(key: str, options: dict[str, str]) -> None:
    with pytest.raises(InvalidTableError) as caught:
        check_writable(NAME, schema(**options))
    assert f"'{key}'" in caught.value.message and caught.value.hint


@pytest.mark.parametrize(
    ("key", "value", "is_told"),
    [
        ("file-index.bloom-filter.columns", "v", False),
        ("file-index.bloom-filter.v.fpp", "0.1", False),
        ("file.format.per.level", "0:avro,5:orc", False),
        ("file.format.per.level", "5:orc", False),
        ("file.compression.per.level", "0:lz4", False),
        ("data-file.thin-mode", "true", True),
        ("data-file.thin-mode", "false", False),
        ("tag.automatic-creation", "process-time", True),
        ("tag.automatic-creation", "none", False),
        ("partition.expiration-time", "7 d", True),
        ("clustering.columns", "v", True),
        ("data-evolution.row-sidecar.enabled", "true", True),
        ("sink.clustering.by-columns", "v", True),
        ("write-buffer-size", "1 mb", False),
        ("commit.callbacks", "", False),
        ("branch", "main", False),
    ],
)
def test_unapplied_optional_features_are_reported(key: str, value: str, is_told: bool) -> None:
    table = TableSchema(columns=schema().columns, options=((key, value),))
    check_writable(NAME, table)
    assert bool(options_not_applied(table)) == is_told


def test_upsert_key_tables_take_no_plain_small_inserts() -> None:
    table = schema(upsert_key="k")
    check_writable(NAME, table)
    check_adds_rows(NAME, schema())
    with pytest.raises(UnsupportedStatementError, match=r"`shop.t` has 'upsert-key' = 'k'"):
        check_adds_rows(NAME, table)
    logged = (("auto_batch_load", "true"),)
    assert takes_small_inserts(replace(schema(), options=logged))
    assert not takes_small_inserts(replace(table, options=(*table.options, *logged)))


def test_tables_with_blobs_are_refused() -> None:
    columns = (*schema().columns, Column(9, "picture", AtomicType("BLOB")))
    with pytest.raises(UnsupportedStatementError, match="BLOB"):
        check_writable(NAME, TableSchema(columns=columns, options=()))


@pytest.mark.parametrize(("writes_sorted", "told"), [("false", ()), ("true", (COLUMNS,))])
def test_clustering_columns_are_reported_only_for_sorted_writes(
    writes_sorted: str, told: tuple[str, ...]
) -> None:
    options = (
        (COLUMNS, "v"),
        ("clustering.incremental", "true"),
        ("clustering.incremental.optimize-write", writes_sorted),
    )
    assert options_not_applied(TableSchema(schema().columns, options=options)) == told
