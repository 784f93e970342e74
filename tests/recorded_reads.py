"""What Paimon 2.0.0's Spark connector read from tables that it had written: rows to be equal to.

`tests/data/paimon-2.0.0` holds the tables (`warehouse.tar.gz`, database by database) and 1,431
reads of them (`reads.json`). The fixture `recorded_warehouse` unpacks the tables once a run; tests
only read them. Rows are compared as multisets, with values in the form they were recorded in:
decimals, dates and timestamps as text (time zone UTC), binary as `0x…`, maps and structs as
objects. Text that is JSON is compared as what it says, since the order of its keys is Java's.
"""

from __future__ import annotations

import datetime
import json
import tarfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

__all__ = [
    "RecordedRead",
    "assert_same_rows",
    "multiset",
    "recorded_reads",
    "recorded_value",
    "unpack_recorded_warehouse",
]

_FOLDER = Path(__file__).parent / "data" / "paimon-2.0.0"


@dataclass(frozen=True, slots=True)
class RecordedRead:
    """One read: of `table` (`database.table[$system_table]`) with Paimon's read `options`.

    `columns` are `name type` in Spark's words, where they were recorded; `select` is what was
    projected, None for everything. Either `rows` or the connector's `error` is None.
    """

    scenario: str
    table: str
    options: Mapping[str, str]
    columns: Sequence[str] | None
    select: Sequence[str] | None
    rows: Sequence[Sequence[Any]] | None
    error: str | None

    @property
    def system_table(self) -> str | None:
        """The name behind the `$`, None for a read of the table itself."""
        return self.table.partition("$")[2] or None

    @property
    def id(self) -> str:
        """For pytest: the table and its options."""
        options = ",".join(f"{key}={value}" for key, value in sorted(self.options.items()))
        return f"{self.table}[{options}]" if options else self.table


@cache
def recorded_reads() -> tuple[RecordedRead, ...]:
    """All recorded reads, in the order of their scenarios."""
    scenarios = json.loads((_FOLDER / "reads.json").read_text(encoding="utf-8"))
    return tuple(
        RecordedRead(
            scenario["scenario"],
            read["table"],
            read["options"],
            read.get("columns"),
            read.get("select"),
            read.get("rows"),
            read.get("error"),
        )
        for scenario in scenarios
        for read in scenario["reads"]
    )


def unpack_recorded_warehouse(folder: Path) -> Path:
    """Unpack the tables below `folder`, and return the warehouse."""
    with tarfile.open(_FOLDER / "warehouse.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "warehouse"


def assert_same_rows(read: RecordedRead, found: pa.Table) -> None:
    """Fail unless `found` has the recorded rows, in any order, and the recorded column names."""
    assert read.rows is not None, "an error was recorded"
    if read.columns is not None:
        assert found.column_names == [column.split(" ")[0] for column in read.columns]
    elif read.select is not None:
        assert found.column_names == list(read.select)
    columns = [column.to_pylist() for column in found.columns]
    rows = zip(*columns, strict=True) if columns else [()] * found.num_rows
    types = [field.type for field in found.schema]
    ours = multiset([recorded_value(v, t) for v, t in zip(row, types, strict=True)] for row in rows)
    theirs = multiset(read.rows)
    assert ours == theirs, (
        f"{read.id}: only here {list((ours - theirs).elements())}, "
        f"only recorded {list((theirs - ours).elements())}"
    )


def recorded_value(value: Any, data_type: pa.DataType) -> Any:
    """A value of Arrow's `to_pylist` in the form that values were recorded in."""
    match value:
        case None:
            return None
        case datetime.datetime():
            text = value.strftime("%Y-%m-%d %H:%M:%S")
            return f"{text}.{value.microsecond:06d}" if value.microsecond else text
        case datetime.date() | datetime.time() | Decimal():
            return str(value)
        case bytes():
            return "0x" + value.hex()
    if pa.types.is_map(data_type):
        return {
            str(recorded_value(k, data_type.key_type)): recorded_value(v, data_type.item_type)
            for k, v in value
        }
    if pa.types.is_list(data_type):
        return [recorded_value(item, data_type.value_type) for item in value]
    if pa.types.is_struct(data_type):
        return {field.name: recorded_value(value[field.name], field.type) for field in data_type}
    return value


def multiset(rows: Iterable[Iterable[Any]]) -> Counter[str]:
    """Rows as texts that are equal where the rows are, each with how often it is there."""
    return Counter(json.dumps([_parsed(v) for v in row], sort_keys=True) for row in rows)


def _parsed(value: Any) -> Any:
    """JSON texts as what they say, so that the order of keys does not count."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return ["JSON", json.loads(value)]
        except ValueError:
            return value
    return value
