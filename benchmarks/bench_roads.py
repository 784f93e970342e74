"""Reading 2 million rows through a session, against pypaimon in the same Spark tasks.

The peer uses Spark for distribution just as we do, with pypaimon's own reader in the tasks: what a
user would build by hand. Sizes can be cut by PAIMON_MAGICS_BENCH_ROWS.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Iterator

import pyarrow as pa
from measure import median_ms, report

import paimon_magics

ROWS = int(os.environ.get("PAIMON_MAGICS_BENCH_ROWS", "2000000"))
_COLUMNS = "k BIGINT NOT NULL, a INT, b DOUBLE, c STRING, d DECIMAL(12,2), e DATE, part INT"
_SELECT = (
    "SELECT id AS k, CAST(id % 1000 AS INT) AS a, id * 0.5D AS b, concat('value-', id) AS c, "
    "CAST(id % 100000 AS DECIMAL(12,2)) AS d, date_add(DATE'2024-01-01', CAST(id % 365 AS INT)) "
    "AS e, CAST(id % 4 AS INT) AS part FROM range({rows})"
)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        session = paimon_magics.connect(folder, master="local[2]")
        query = _SELECT.format(rows=ROWS)
        for name, options in (
            ("append", ""),
            ("keyed", "'primary-key' = 'k,part', 'bucket' = '2'"),
        ):
            session.run(
                f"CREATE TABLE {name}_ours ({_COLUMNS}) PARTITIONED BY (part)"
                + (f" TBLPROPERTIES ({options})" if options else "")
            )
        runs = 5
        session.run(f"INSERT OVERWRITE append_ours {query}")
        keyed_rows = ROWS // 10
        small = _SELECT.format(rows=keyed_rows)
        session.run(f"INSERT OVERWRITE keyed_ours {small}")
        aggregate = "SELECT count(*), sum(a), max(c) FROM {} WHERE k % 3 = 0"
        report(
            f"raw read, filter and aggregate, {ROWS:,} rows",
            median_ms(lambda: session.run(aggregate.format("append_ours")).to_arrow(), runs=runs),
            "pypaimon",
            median_ms(lambda: _peer_read(session, "append_ours", aggregate), runs=runs),
        )
        session.run(f"INSERT INTO keyed_ours {small}")
        report(
            f"merge read, aggregate, {2 * keyed_rows:,} stored rows",
            median_ms(lambda: session.run(aggregate.format("keyed_ours")).to_arrow(), runs=runs),
            "pypaimon",
            median_ms(lambda: _peer_read(session, "keyed_ours", aggregate), runs=1, warm_up=0),
        )
        session.close(stop_spark=True)


def _pypaimon_table(session: paimon_magics.Session, name: str) -> object:
    from pypaimon import CatalogFactory

    catalog = CatalogFactory.create({"warehouse": session.warehouse})
    return catalog.get_table(f"default.{name}")


def _peer_read(session: paimon_magics.Session, name: str, aggregate: str) -> None:
    table = _pypaimon_table(session, name)
    builder = table.new_read_builder()  # type: ignore[attr-defined]
    splits = builder.new_scan().plan().splits()
    tasks = [splits[index::2] for index in range(2)]
    blob = pickle.dumps((builder.new_read(), tasks))

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader, groups = pickle.loads(blob)
        for batch in batches:
            for index in batch.column(0).to_pylist():
                if groups[index]:
                    yield from reader.to_arrow(groups[index]).to_batches(65536)

    schema = session.table(name).schema
    session.spark.range(0, 2, 1, 2).mapInArrow(read, schema).createOrReplaceTempView("peer")
    session.spark.sql(aggregate.format("peer")).toArrow()


if __name__ == "__main__":
    main()
