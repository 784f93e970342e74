"""Hash indexes of dynamic buckets beside the data files: `index-file-in-data-file-dir`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tests.tables.compaction.append_compactions import Lake
from tests.tables.expiry.test_expire_snapshots import expire
from tests.tables.reachability import files, missing, unreachable

PART = "x y/%z"


def test_hash_indexes_locate_keys_and_expire_with_their_snapshots(warehouse: Path) -> None:
    lake = Lake.of(
        warehouse,
        "CREATE TABLE t (p STRING, k INT, v STRING) PARTITIONED BY (p) TBLPROPERTIES "
        "('primary-key' = 'p,k', 'dynamic-bucket.target-row-num' = '3', "
        "'index-file-in-data-file-dir' = 'true')",
    )
    for value in ("a", "b"):
        lake.append(*[(PART, k, value) for k in range(7)])
    lake.append(("other", 1, "c"), (PART, 8, "c"))
    actual = [*((PART, k, "b") for k in range(7)), (PART, 8, "c")]
    assert sorted(lake.rows()) == [("other", 1, "c"), *actual]
    table = lake.table
    index = [path for path in files(table) if "-index-" in path and "manifest" not in path]
    assert index and {Path(path).parent.name.split("-")[0] for path in index} == {"bucket"}
    assert not missing(table) and not unreachable(table)

    # pypaimon finds the keys where the index says, and adds to it.
    builder = table.paimon.new_batch_write_builder()
    write, commit = builder.new_write(), builder.new_commit()
    values = [[PART] * 2, pa.array([0, 9], pa.int32()), ["d"] * 2]
    write.write_arrow(pa.table(values, ["p", "k", "v"]))
    commit.commit(write.prepare_commit())
    write.close()
    commit.close()
    lake.append(*[(PART, k, "e") for k in range(10)])
    actual = [("other", 1, "c"), *((PART, k, "e") for k in range(10))]
    assert sorted(lake.rows()) == actual
    assert expire(lake.table)
    assert sorted(lake.rows()) == actual
    assert not missing(table) and not unreachable(table)

    before = files(table)
    transaction, _ = lake.written([(PART, k, "f") for k in range(10, 20)])
    assert sum("-index-" in path for path in files(table) - before) > 1
    lake.committer.abort(transaction)
    assert files(table) == before
