"""Files of a primary-key table that share no key with others are read as they are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pypaimon import Schema

from paimon_magics.planning.reads.splits import MergeSplit
from paimon_magics.planning.reads.views import ViewKind
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.reading.data_read import ReadRequest, plan_data_read
from paimon_magics.tables.table import Table

FIELDS = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), ("op", pa.string()), ("v", pa.int64())]
)


def written(folder: Path, options: dict[str, str], commits: list[list[tuple[int, str]]]) -> Table:
    catalog = Catalog.open({"warehouse": str(folder)})
    catalog.paimon.create_database("default", True)
    options = {
        "bucket": "1",
        "rowkind.field": "op",
        "write-only": "true",
        "write.native.enabled": "true",
    } | options
    schema = Schema.from_pyarrow_schema(FIELDS, primary_keys=["k"], options=options)
    catalog.paimon.create_table("default.t", schema, False)
    for number, commit in enumerate(commits):
        builder = catalog.paimon.get_table("default.t").new_batch_write_builder()
        writer, committer = builder.new_write(), builder.new_commit()
        rows = {
            "k": [key for key, _ in commit],
            "op": [kind for _, kind in commit],
            "v": [number] * len(commit),
        }
        writer.write_arrow(pa.table(rows, schema=FIELDS))
        committer.commit(writer.prepare_commit())
        writer.close()
        committer.close()
    return catalog.load(TableName("t", "default"))


def inserts(*keys: int) -> list[tuple[int, str]]:
    return [(key, "+I") for key in keys]


@pytest.mark.parametrize(
    ("commits", "raw", "merged"),
    [
        ([inserts(1, 2)], 1, 0),
        ([inserts(1, 2), inserts(3, 4), inserts(9)], 3, 0),
        ([inserts(1, 2), inserts(2, 4), inserts(5)], 1, 2),
        ([inserts(1, 5), inserts(2), inserts(3)], 0, 3),
        ([inserts(1, 2), [(3, "-D")], inserts(4)], 2, 1),
        ([[(1, "-D"), (2, "+I")]], 0, 1),
    ],
)
@pytest.mark.parametrize("engine", ["deduplicate", "partial-update"])
def test_only_overlapping_files_and_files_with_deletes_are_merged(
    tmp_path: Path,
    engine: str,
    commits: list[list[tuple[int, str]]],
    raw: int,
    merged: int,
) -> None:
    options = {"merge-engine": engine}
    if engine == "partial-update":
        options["partial-update.remove-record-on-delete"] = "true"
    table = written(tmp_path, options, commits)
    read = plan_data_read(table, ReadRequest())
    assert sum(len(files.paths) for files in read.planned.raw) == raw
    assert all(isinstance(split, MergeSplit) for split in read.planned.splits)
    assert sum(len(split.files) for split in read.planned.splits) == merged
    expected = {
        key: number if kind == "+I" else None
        for number, commit in enumerate(commits)
        for key, kind in commit
    }
    actual = {row["k"]: row["v"] for batch in read.rows() for row in batch.to_pylist()}
    assert actual == {key: number for key, number in expected.items() if number is not None}
    log = plan_data_read(table, ReadRequest(ViewKind.AUDIT_LOG))
    # It shows kinds: of buckets that need a merge, a raw scan reads no file either.
    assert len(log.planned.raw) == (len(commits) == raw == 1 and not merged)
    assert sum(batch.num_rows for batch in log.rows()) == len(expected)
