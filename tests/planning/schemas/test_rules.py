"""Definitions that Paimon's Java side accepts or refuses, one of each kind for every rule.

The cases were compared with Paimon 2.0.0's `FileSystemCatalog.createTable`. Those marked OURS are
refused here and accepted there: Paimon ignores the option, or fails only once rows are written.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from paimon_magics.errors import InvalidTableError, StatementError, UnknownNameError
from paimon_magics.planning.schemas.alterations import plan_alter_table
from paimon_magics.planning.schemas.rules import check_schema
from paimon_magics.planning.schemas.table_schema import TableSchema, plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable
from paimon_magics.statements.table_changes import RenameColumn

OURS = True
PK = {"primary-key": "k", "bucket": "1"}
PLAIN = (
    "k INT, v STRING, n BIGINT, a ARRAY<INT>, m MAP<STRING, INT>, s STRUCT<x: INT>, ts TIMESTAMP"
)
PT = "dt STRING, k INT, v STRING, n BIGINT"


class Case(NamedTuple):
    """A table of `columns`, PARTITIONED BY `partitioned`, with `options`; `refused` is part of the
    message, or "" when it is accepted."""

    columns: str
    options: dict[str, str]
    refused: str
    partitioned: str = ""
    ours: bool = False


def plan(case: Case) -> TableSchema:
    """The definition of a case, through the statement that a user would write."""
    options = ", ".join(f"'{key}' = '{value}'" for key, value in case.options.items())
    text = f"CREATE TABLE t ({case.columns})"
    text += f" PARTITIONED BY ({case.partitioned})" if case.partitioned else ""
    text += f" TBLPROPERTIES ({options})" if options else ""
    statement = parse_statement(text)
    assert isinstance(statement, CreateTable)
    return plan_create_table(statement)


CASES = {
    # names and keys
    "plain append table": Case(PLAIN, {}, ""),
    "duplicate column": Case("k INT, k STRING", {}, "2 times"),
    "columns that differ in case": Case("k INT, K STRING", {}, "2 times", ours=OURS),
    "reserved name": Case("k INT, rowkind STRING", {}, "can't be named `rowkind`"),
    "reserved name of a row id": Case("k INT, _ROW_ID BIGINT", {}, "can't be named"),
    "reserved prefix": Case("k INT, _KEY_k INT", {}, "can't be named"),
    "harmless underscore": Case("k INT, _key INT", {}, ""),
    "partition key": Case(PT, {}, "", "dt"),
    "unknown partition key": Case(PT, {}, "PARTITIONED BY names the column `dd`", "dd"),
    "partition key twice": Case(PT, {}, "twice", "dt, dt"),
    "nested partition key": Case(PLAIN, {}, "nested", "a"),
    "partition as an option": Case(PT, {"partition": "dt"}, ""),
    "primary key": Case(PLAIN, PK, ""),
    "unknown primary key": Case(PLAIN, {"primary-key": "kk"}, "primary key names the column `kk`"),
    "primary key twice": Case(PLAIN, {"primary-key": "k,k"}, "twice"),
    "nested primary key": Case(PLAIN, {"primary-key": "m"}, "nested"),
    "primary key with the partition key": Case(PT, {"primary-key": "dt,k"}, "", "dt"),
    "primary key without the partition key": Case(PT, {"primary-key": "k"}, "", "dt"),
    "primary key of partition keys": Case(PT, {"primary-key": "dt"}, "partition keys only", "dt"),
    "upsert key": Case(PLAIN, {"upsert-key": "k"}, ""),
    "upsert key beside primary key": Case(PLAIN, {**PK, "upsert-key": "n"}, "'upsert-key'"),
    # buckets
    "no bucket": Case(PLAIN, {"bucket": "-1"}, ""),
    "bucket 0": Case(PLAIN, {**PK, "bucket": "0"}, "can't be 0"),
    "bucket -3": Case(PLAIN, {**PK, "bucket": "-3"}, "can't be -3"),
    "bucket postponed": Case(PLAIN, {**PK, "bucket": "-2"}, ""),
    "bucket postponed without key": Case(PLAIN, {"bucket": "-2"}, "can't be -2"),
    "bucket no number": Case(PLAIN, {"bucket": "four"}, "'bucket' can't be 'four'"),
    "append with bucket key": Case(PLAIN, {"bucket": "4", "bucket-key": "n"}, ""),
    "append without bucket key": Case(PLAIN, {"bucket": "4"}, "no 'bucket-key'"),
    "bucket key without bucket": Case(PLAIN, {"bucket-key": "n"}, "needs a number of buckets"),
    "unknown bucket key": Case(PLAIN, {"bucket": "4", "bucket-key": "x"}, "names the column `x`"),
    "nested bucket key": Case(PLAIN, {"bucket": "4", "bucket-key": "a"}, "nested"),
    "bucket key outside primary key": Case(PLAIN, {**PK, "bucket-key": "n"}, "not in the primary"),
    "bucket key in primary key": Case(PLAIN, {**PK, "bucket-key": "k"}, ""),
    "bucket key in partition keys": Case(
        PT, {"bucket": "4", "bucket-key": "dt"}, "partition key", "dt"
    ),
    "mod bucket function": Case(
        PLAIN, {"bucket": "4", "bucket-key": "n", "bucket-function.type": "mod"}, ""
    ),
    "mod bucket function on text": Case(
        PLAIN,
        {"bucket": "4", "bucket-key": "v", "bucket-function.type": "mod"},
        "INT or BIGINT",
        ours=OURS,
    ),
    "full compaction of unbucketed append": Case(
        PLAIN, {"full-compaction.delta-commits": "3"}, "full-compaction.delta-commits"
    ),
    # merging
    "merge engine": Case(PLAIN, {**PK, "merge-engine": "partial-update"}, ""),
    "merge engine in capitals": Case(PLAIN, {**PK, "merge-engine": "FIRST-ROW"}, ""),
    "unknown merge engine": Case(PLAIN, {**PK, "merge-engine": "partialupdate"}, "can't be"),
    "merge engine of append": Case(
        PLAIN, {"merge-engine": "first-row"}, "needs a primary key", ours=OURS
    ),
    "changelog producer": Case(PLAIN, {**PK, "changelog-producer": "lookup"}, ""),
    "unknown changelog producer": Case(PLAIN, {**PK, "changelog-producer": "full"}, "can't be"),
    "changelog producer of append": Case(PLAIN, {"changelog-producer": "input"}, "needs a primary"),
    "first-row with input": Case(
        PLAIN, {**PK, "merge-engine": "first-row", "changelog-producer": "input"}, "first-row"
    ),
    "first-row with lookup": Case(
        PLAIN, {**PK, "merge-engine": "first-row", "changelog-producer": "lookup"}, ""
    ),
    "lookup with delta commits": Case(
        PLAIN,
        {**PK, "changelog-producer": "lookup", "full-compaction.delta-commits": "2"},
        "full-compaction.delta-commits",
    ),
    "streaming overwrite with lookup": Case(
        PLAIN,
        {**PK, "changelog-producer": "lookup", "streaming-read-overwrite": "true"},
        "streaming-read-overwrite",
    ),
    "streaming overwrite of append": Case(
        PLAIN, {"streaming-read-overwrite": "true"}, "streaming-read-overwrite"
    ),
    "sequence field": Case(PLAIN, {**PK, "sequence.field": "ts,n"}, ""),
    "unknown sequence field": Case(PLAIN, {**PK, "sequence.field": "seq"}, "`seq`"),
    "sequence field twice": Case(PLAIN, {**PK, "sequence.field": "n,n"}, "twice"),
    "sequence field of first-row": Case(
        PLAIN, {**PK, "sequence.field": "n", "merge-engine": "first-row"}, "sequence.field"
    ),
    "sequence field across partitions": Case(
        PT, {"primary-key": "k", "sequence.field": "n"}, "between partitions", "dt"
    ),
    "aggregated sequence field": Case(
        PLAIN,
        {**PK, "sequence.field": "n", "fields.n.aggregate-function": "sum"},
        "sequence field `n`",
    ),
    "snapshot ordering": Case(
        PLAIN, {**PK, "sequence.snapshot-ordering": "true", "write-only": "true"}, ""
    ),
    "snapshot ordering with compaction": Case(
        PLAIN, {**PK, "sequence.snapshot-ordering": "true"}, "snapshot-ordering"
    ),
    "rowkind field": Case(PLAIN, {**PK, "rowkind.field": "v"}, ""),
    "unknown rowkind field": Case(PLAIN, {**PK, "rowkind.field": "kind"}, "`kind`"),
    "sequence numbers of append": Case(
        PLAIN, {"table-read.sequence-number.enabled": "true"}, "needs a primary key"
    ),
    "aggregation": Case(
        PLAIN,
        {**PK, "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
        "",
    ),
    "unknown aggregate function": Case(
        PLAIN,
        {**PK, "merge-engine": "aggregation", "fields.n.aggregate-function": "summ"},
        "no aggregate function 'summ'",
    ),
    "unknown default aggregate function": Case(
        PLAIN,
        {**PK, "merge-engine": "aggregation", "fields.default-aggregate-function": "foo"},
        "no aggregate function 'foo'",
    ),
    "aggregate function of a wrong type": Case(
        PLAIN,
        {**PK, "merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
        "needs a column of the type number",
        ours=OURS,
    ),
    "option of an unknown column": Case(
        PLAIN, {**PK, "fields.zz.aggregate-function": "sum"}, "`zz`"
    ),
    "option inside a struct": Case(
        PLAIN,
        {**PK, "merge-engine": "aggregation", "fields.s.x.aggregate-function": "sum"},
        "inside the STRUCT",
    ),
    "sequence group": Case(
        PLAIN,
        {**PK, "merge-engine": "partial-update", "fields.n.sequence-group": "v,ts"},
        "",
    ),
    "sequence group of an unknown column": Case(
        PLAIN, {**PK, "merge-engine": "partial-update", "fields.n.sequence-group": "zz"}, "`zz`"
    ),
    "sequence group with the primary key": Case(
        PLAIN,
        {**PK, "merge-engine": "partial-update", "fields.n.sequence-group": "k"},
        "in the primary key",
    ),
    "column in two sequence groups": Case(
        PLAIN,
        {
            **PK,
            "merge-engine": "partial-update",
            "fields.n.sequence-group": "v",
            "fields.ts.sequence-group": "v",
        },
        "more than one sequence group",
    ),
    "aggregate outside a sequence group": Case(
        PLAIN,
        {**PK, "merge-engine": "partial-update", "fields.n.aggregate-function": "sum"},
        "needs a sequence group",
    ),
    "aggregate inside a sequence group": Case(
        PLAIN,
        {
            **PK,
            "merge-engine": "partial-update",
            "fields.ts.sequence-group": "n",
            "fields.n.aggregate-function": "sum",
        },
        "",
    ),
    "remove on delete and ignore delete": Case(
        PLAIN,
        {
            **PK,
            "merge-engine": "partial-update",
            "partial-update.remove-record-on-delete": "true",
            "ignore-delete": "true",
        },
        "contradict",
    ),
    # retention, formats, values
    "retention": Case(PLAIN, {"snapshot.num-retained.max": "20"}, ""),
    "retention below 1": Case(PLAIN, {"snapshot.num-retained.min": "0"}, "below 1"),
    "retention upside down": Case(
        PLAIN, {"snapshot.num-retained.max": "5"}, "'snapshot.num-retained.min' (10) is above"
    ),
    "changelog retention upside down": Case(
        PLAIN, {"changelog.num-retained.min": "5", "changelog.num-retained.max": "3"}, "is above"
    ),
    "row number of a file": Case(PLAIN, {"target-file-row-num": "0"}, "below 1"),
    "tags": Case(PLAIN, {"tag.default-time-retained": "1000000 d"}, ""),
    "tags without an end in time": Case(
        PLAIN, {"tag.default-time-retained": "1000001 d"}, "can't be '1000001 d'"
    ),
    "time of too many digits": Case(
        PLAIN, {"snapshot.time-retained": f"{'9' * 5_000} d"}, "can't be '9999"
    ),
    "number of too many digits": Case(PLAIN, {"bucket": "9" * 5_000}, "can't be '9999"),
    "size of too many digits": Case(
        PLAIN, {"target-file-size": f"{'9' * 5_000} mb"}, "can't be '9999"
    ),
    "file format": Case(PLAIN, {"file.format": "orc"}, ""),
    "file format in capitals": Case(PLAIN, {"file.format": "PARQUET"}, ""),
    "unknown file format": Case(PLAIN, {"file.format": "parkett"}, "can't be 'parkett'"),
    "avro nanoseconds": Case(
        "k INT, t TIMESTAMP_NTZ(9)", {"file.format": "avro"}, "up to 6 digits"
    ),
    "parquet nanoseconds": Case("k INT, t TIMESTAMP_NTZ(9)", {}, ""),
    "boolean value": Case(PLAIN, {"write-only": "TRUE"}, ""),
    "no boolean value": Case(PLAIN, {"write-only": "yes"}, "must be true or false", ours=OURS),
    "memory size without unit": Case(PLAIN, {"target-file-size": "1000"}, ""),
    "no memory size": Case(PLAIN, {"manifest.target-file-size": "8 megs"}, "'8 megs'", ours=OURS),
    "no duration": Case(PLAIN, {"snapshot.time-retained": "1 hr"}, "'1 hr'", ours=OURS),
    "no choice": Case(PLAIN, {"snapshot.expire.execution-mode": "asnc"}, "'asnc'", ours=OURS),
    "table of another kind": Case(PLAIN, {"type": "object-table"}, "of the type"),
    # features
    "deletion vectors": Case(PLAIN, {**PK, "deletion-vectors.enabled": "true"}, ""),
    "deletion vectors of append": Case(PLAIN, {"deletion-vectors.enabled": "true"}, ""),
    "deletion vectors of first-row": Case(
        PLAIN, {**PK, "deletion-vectors.enabled": "true", "merge-engine": "first-row"}, "first-row"
    ),
    "deletion vectors with full-compaction": Case(
        PLAIN,
        {**PK, "deletion-vectors.enabled": "true", "changelog-producer": "full-compaction"},
        "full-compaction",
    ),
    "row tracking": Case(PLAIN, {"row-tracking.enabled": "true"}, ""),
    "row tracking of a primary key": Case(
        PLAIN, {**PK, "row-tracking.enabled": "true"}, "row-tracking"
    ),
    "row tracking with buckets": Case(
        PLAIN, {"bucket": "2", "bucket-key": "k", "row-tracking.enabled": "true"}, "row-tracking"
    ),
    "data evolution": Case(
        PLAIN, {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}, ""
    ),
    "data evolution alone": Case(
        PLAIN, {"data-evolution.enabled": "true"}, "needs 'row-tracking.enabled'"
    ),
    "incremental clustering": Case(
        PLAIN, {"clustering.incremental": "true", "clustering.columns": "k"}, ""
    ),
    "incremental clustering of a primary key": Case(
        PLAIN, {**PK, "clustering.incremental": "true"}, "clustering.incremental"
    ),
    "clustering override": Case(
        PLAIN,
        {
            **PK,
            "pk-clustering-override": "true",
            "clustering.columns": "n",
            "deletion-vectors.enabled": "true",
        },
        "",
    ),
    "clustering override without vectors": Case(
        PLAIN,
        {**PK, "pk-clustering-override": "true", "clustering.columns": "n"},
        "needs 'deletion-vectors.enabled'",
    ),
    "clustering override without columns": Case(
        PLAIN, {**PK, "pk-clustering-override": "true"}, "needs 'clustering.columns'"
    ),
    "time field": Case(
        PLAIN, {**PK, "record-level.time-field": "ts", "record-level.expire-time": "1 d"}, ""
    ),
    "unknown time field": Case(PLAIN, {**PK, "record-level.time-field": "tt"}, "`tt`"),
    "time field of text": Case(PLAIN, {**PK, "record-level.time-field": "v"}, "timestamp"),
    "manifest sort": Case(PT, {"manifest-sort.enabled": "true"}, "", "dt"),
    "manifest sort without partitions": Case(
        PLAIN, {"manifest-sort.enabled": "true"}, "needs a partitioned table"
    ),
    "manifest sort by a column": Case(
        PT,
        {"manifest-sort.enabled": "true", "manifest-sort.partition-field": "k"},
        "not a partition key",
        "dt",
    ),
    "file index": Case(PLAIN, {"file-index.bloom-filter.columns": "k,v"}, ""),
    "file index of an unknown column": Case(
        PLAIN, {"file-index.bloom-filter.columns": "zz"}, "`zz`"
    ),
    "file index of a type that it can't hold": Case(
        PLAIN, {"file-index.bsi.columns": "v"}, "'bsi' can't hold"
    ),
    "unknown file index": Case(PLAIN, {"file-index.blom.columns": "k"}, "no file index 'blom'"),
    "file index option without column": Case(
        PLAIN, {"file-index.bloom-filter.k.fpp": "0.1"}, "no such index"
    ),
    "file index in a list": Case(PLAIN, {"file-index.bitmap.columns": "v[x]"}, "not a MAP"),
    "primary-key index": Case(
        PLAIN, {**PK, "deletion-vectors.enabled": "true", "pk-btree.index.columns": "n"}, ""
    ),
    "primary-key index without vectors": Case(
        PLAIN, {**PK, "pk-btree.index.columns": "n"}, "needs 'deletion-vectors.enabled'"
    ),
    "two primary-key indexes": Case(
        PLAIN,
        {
            **PK,
            "deletion-vectors.enabled": "true",
            "pk-btree.index.columns": "n",
            "pk-bitmap.index.columns": "n",
        },
        "more than one",
    ),
    "shared map layout": Case(
        PLAIN, {"fields.m.map.storage-layout": "shared-shredding"}, "", ours=False
    ),
    "map layout of a number": Case(
        PLAIN, {"fields.n.map.storage-layout": "shared-shredding"}, "not a MAP"
    ),
    "unknown map layout": Case(PLAIN, {"fields.m.map.storage-layout": "columns"}, "'columns'"),
    "variant ratio": Case(
        PLAIN, {"variant.shredding.minFieldCardinalityRatio": "1.5"}, "from 0 to 1"
    ),
    "chain table": Case(PT, {"primary-key": "dt,k", "chain-table.enabled": "true"}, "needs", "dt"),
    "scan mode": Case(PLAIN, {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"}, ""),
    "scan mode without its option": Case(
        PLAIN, {"scan.mode": "from-snapshot"}, "needs exactly one of"
    ),
    "two places to scan from": Case(
        PLAIN, {"scan.snapshot-id": "1", "scan.timestamp-millis": "1"}, "can't be combined with"
    ),
    "fallback and primary branch": Case(
        PLAIN, {"scan.fallback-branch": "a", "scan.primary-branch": "b"}, "can't be combined with"
    ),
    # keys of options
    "key of one's own": Case(PLAIN, {"owner": "me", "team.contact": "x@y"}, ""),
    "mistyped key": Case(PLAIN, {"buckt": "4"}, "no option 'buckt'", ours=OURS),
    "key with underscores": Case(
        PLAIN, {**PK, "merge_engine": "first-row"}, "no option", ours=OURS
    ),
    "swapped letters": Case(PLAIN, {"file.fromat": "orc"}, "no option 'file.fromat'", ours=OURS),
    "own option": Case(PLAIN, {"group_commit_rows": "1000"}, ""),
}


@pytest.mark.parametrize("case", [pytest.param(c, id=name) for name, c in CASES.items()])
def test_definitions_are_accepted_or_refused_as_in_paimon(case: Case) -> None:
    if not case.refused:
        check_schema(plan(case))
        return
    with pytest.raises((InvalidTableError, UnknownNameError)) as refusal:
        check_schema(plan(case))
    assert case.refused in str(refusal.value)
    assert refusal.value.hint.endswith((".", "?", ")", "…")) or refusal.value.hint


@pytest.mark.parametrize("name", ["merge engine of append", "aggregate function of a wrong type"])
def test_engine_may_create_definitions_refused_only_by_us(name: str) -> None:
    schema = plan(CASES[name])
    check_schema(schema, from_engine=True)
    renamed = plan_alter_table(schema, [RenameColumn(("n",), "m2")])
    assert "m2" in renamed.column_names


def test_unknown_option_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError) as refusal:
        check_schema(plan(Case(PLAIN, {"buckt": "4"}, "")))
    assert "Did you mean `bucket`?" in refusal.value.hint


@pytest.mark.parametrize(
    ("columns", "part"),
    [
        ("k INT, v STRING DEFAULT 'x'", "'x'"),
        ("k INT DEFAULT 5", "5"),
        ("k INT, d DATE DEFAULT DATE '2024-01-02'", "'2024-01-02'"),
        ("k INT, d DECIMAL(5, 2) DEFAULT 123.45", "123.45"),
        ("k INT, b BOOLEAN DEFAULT true", "true"),
    ],
)
def test_a_plain_literal_is_stored_as_default(columns: str, part: str) -> None:
    assert plan(Case(columns, {}, "")).columns[-1].default == part


@pytest.mark.parametrize(
    "columns",
    [
        "k INT DEFAULT 'abc'",
        "k TINYINT DEFAULT 200",
        "k STRING DEFAULT current_user()",
        "k STRING DEFAULT 'it''s'",
        "k VARCHAR(2) DEFAULT 'abc'",
        "k DATE DEFAULT '2024-13-01'",
        "k DECIMAL(3, 2) DEFAULT 12.3",
        "k ARRAY<INT> DEFAULT array('x')",
        "k TIMESTAMP DEFAULT current_timestamp()",
    ],
)
def test_a_default_that_paimon_would_misread_is_refused(columns: str) -> None:
    with pytest.raises(StatementError, match="can't have the default"):
        plan(Case(columns, {}, ""))


def test_default_null_is_no_default() -> None:
    assert plan(Case("k STRING DEFAULT NULL", {}, "")).columns[0].default is None
