"""Index files of data files come and go with them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_magics.planning.commits.expiry import NO_FLOOR, ExpiryRules
from paimon_magics.planning.commits.requests import (
    Append,
    CommitRequest,
    OverwritePartitions,
    Transaction,
)
from paimon_magics.settings import Settings
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.expiry.expire_snapshots import carry_out, decide
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import read_messages
from paimon_magics.tables.writing.table_write import completed, write_spec
from paimon_magics.tables.writing.writer import write_batches
from tests.faults.appending import TABLE, committer_of
from tests.tables.compaction.append_compactions import Lake
from tests.tables.manifest_files import create
from tests.tables.reachability import files, missing, unreachable

SQL = (
    "CREATE TABLE t (k INT, v STRING, n BIGINT) TBLPROPERTIES ({options}, "
    "'file-index.bloom-filter.columns' = 'v', 'file-index.bloom-filter.v.items' = '1000', "
    "'file-index.bsi.columns' = 'n', 'bucket' = '2', 'bucket-key' = 'k')"
)
ORDINARY = "'file-index.in-manifest-threshold' = '500 b'"


@pytest.fixture(params=[ORDINARY, f"{ORDINARY}, 'primary-key' = 'k'"], ids=["append", "keyed"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    sql = SQL.format(options=request.param)
    return create(tmp_path, sql.replace(", 'bucket-key' = 'k'", "") if "primary" in sql else sql)


def messages_of(
    table: Table, transaction: Transaction, numbers: Sequence[int], *, overwrite: bool = False
) -> tuple[bytes, ...]:
    spec = write_spec(table, transaction, overwrite=overwrite, slots=1, settings=Settings())
    rows = pa.RecordBatch.from_pydict(
        {
            "k": list(range(len(numbers))),
            "v": [str(number) for number in numbers],
            "n": list(numbers),
        },
        schema=arrow_schema(table.schema),
    )
    written = write_batches(spec, [rows])
    return completed(table, spec, written, transaction.base_snapshot_id).messages


def index_files(table: Table) -> set[str]:
    return {path for path in files(table) if path.endswith(".index")}


def catalog_of(table: Table) -> Catalog:
    return Catalog.open({"warehouse": str(Path(table.location).parents[1])})


def test_commit_messages_name_the_index_files(table: Table) -> None:
    committer = committer_of(catalog_of(table))
    transaction = committer.begin(TABLE)
    messages = messages_of(table, transaction, range(100))
    actual = [file for each in read_messages(table.paimon, messages) for file in each.new_files]
    assert len(actual) == 2
    assert all(file.extra_files == [f"{file.file_name}.index"] for file in actual)
    assert all(file.embedded_index is None for file in actual)
    committer.commit(CommitRequest(transaction, Append(), messages))
    assert len(index_files(table)) == 2
    assert not unreachable(table) and not missing(table)


def test_abort_removes_index_files(table: Table) -> None:
    committer = committer_of(catalog_of(table))
    transaction = committer.begin(TABLE)
    messages_of(table, transaction, range(100))
    assert index_files(table)
    committer.abort(transaction)
    assert not index_files(table) and not unreachable(table)


def test_failed_indexing_leaves_no_index_files(table: Table) -> None:
    committer = committer_of(catalog_of(table))
    transaction = committer.begin(TABLE)
    with pytest.raises(ValueError, match="column `n`: a bsi index"):
        messages_of(table, transaction, [*range(99), -(2**63)])
    committer.abort(transaction)
    assert not index_files(table) and not unreachable(table)


def test_expiry_removes_index_files(table: Table) -> None:
    committer = committer_of(catalog_of(table))
    transaction = committer.begin(TABLE)
    messages = messages_of(table, transaction, range(100))
    committer.commit(CommitRequest(transaction, Append(), messages))
    before = index_files(table)
    transaction = committer.begin(TABLE)
    messages = messages_of(table, transaction, range(50), overwrite=True)
    committer.commit(CommitRequest(transaction, OverwritePartitions(), messages))
    time.sleep(0.01)  # the options retain a millisecond
    options = {
        **dict(table.schema.options),
        "snapshot.num-retained.min": "1",
        "snapshot.num-retained.max": "1",
        "snapshot.time-retained": "1 ms",
    }
    rules = ExpiryRules.of(dataclasses.replace(table.schema, options=tuple(options.items())))
    assert rules is not None
    expiry = decide(table, rules, NO_FLOOR, int(time.time() * 1000))
    assert expiry is not None
    carry_out(expiry)
    after = index_files(table)
    assert len(after) == 2 and not after & before
    assert not unreachable(table) and not missing(table)


@pytest.mark.parametrize("threshold", ["0 b", "1 mb"])
def test_compaction_of_an_append_table_writes_indexes(tmp_path: Path, threshold: str) -> None:
    lake = Lake.of(
        tmp_path,
        "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('file-index.bitmap.columns' = 'v', "
        f"'file-index.in-manifest-threshold' = '{threshold}')",
    )
    for number in range(5):
        lake.append((number, f"v{number}"))
    assert lake.compact() is not None
    [(name, extra, embedded)] = lake.files("file_name", "extra_files", "embedded_file_index")
    if threshold == "0 b":
        assert list(extra) == [f"{name}.index"] and not embedded
        assert f"bucket-0/{name}.index" in index_files(lake.table)
    else:
        assert not extra and all(f"v{number}".encode() in embedded for number in range(5))
    assert not unreachable(lake.table) and not missing(lake.table)
