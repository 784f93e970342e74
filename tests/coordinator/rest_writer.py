"""A process that commits rows through a REST catalog with pypaimon, for tests of many writers.

`python -m tests.coordinator.rest_writer URL WAREHOUSE TOKEN TABLE FIRST COUNT` commits the numbers
FIRST … FIRST+COUNT-1, one row in each commit, and prints each number when its commit was answered.
"""

from __future__ import annotations

import sys

import pyarrow as pa
from pypaimon import CatalogFactory
from pypaimon.schema.data_types import PyarrowFieldParser


def main(url: str, warehouse: str, token: str, name: str, first: int, count: int) -> None:
    catalog = CatalogFactory.create(
        {
            "metastore": "rest",
            "uri": url,
            "warehouse": warehouse,
            "token.provider": "bear",
            "token": token,
        }
    )
    table = catalog.get_table(name)
    schema = PyarrowFieldParser.from_paimon_schema(table.fields)
    for k in range(first, first + count):
        builder = table.new_batch_write_builder()
        writer, committer = builder.new_write(), builder.new_commit()
        row = {"k": k, "v": "v", "p": str(k % 2)}
        writer.write_arrow(pa.Table.from_pylist([row], schema=schema))
        committer.commit(writer.prepare_commit())
        writer.close()
        committer.close()
        print(k, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:5], *map(int, sys.argv[5:7]))  # type: ignore[arg-type]
