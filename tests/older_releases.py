"""Tables that older releases of Paimon wrote, and what those releases read from them.

`tests/data/older-releases` holds them; its README tells how they were made. A database is a
release: `r0_8_2` of Paimon's connector for Spark, `p1_3_2` of pypaimon. Rows have the form of
`tests/recorded_reads.py`.
"""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.recorded_reads import RecordedRead

__all__ = ["older_reads", "older_tables", "unpack_older_releases"]

_FOLDER = Path(__file__).parent / "data" / "older-releases"


def unpack_older_releases(folder: Path) -> Path:
    """Unpack the tables below `folder`, and return the warehouse."""
    with tarfile.open(_FOLDER / "warehouse.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "warehouse"


def older_tables() -> list[str]:
    """The names of all tables, as `database.table`."""
    return list(_recorded())


def older_reads() -> Iterator[RecordedRead]:
    """Every read, of tables and of their system tables."""
    for name, views in _recorded().items():
        for view, found in views.items():
            table = f"{name}${view}" if view else name
            yield RecordedRead(name, table, {}, found["columns"], None, found["rows"], None)


@cache
def _recorded() -> dict[str, dict[str, Any]]:
    content = gzip.decompress((_FOLDER / "reads.json.gz").read_bytes())
    result: dict[str, dict[str, Any]] = json.loads(content)
    return result
