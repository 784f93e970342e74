"""Calls Paimon's own Java library in the tests' JVM: reads rows, writes rows, computes buckets.

Only tests use this. The product never touches the JVM beneath PySpark, and needs no jar.
"""

from __future__ import annotations

import datetime
import io
import pickle
import tempfile
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

PACKAGE = "org.apache.paimon:paimon-flink-2.0:2.0.0"
"""One shaded jar: all of Paimon's core and its file formats."""

S3_PACKAGE = "org.apache.paimon:paimon-s3:1.4.2"
"""What Paimon's Java library opens S3 with; the newest there is."""


Warehouse = str | Path | Mapping[str, str]
"""A catalog: a warehouse's folder, or the options of another kind of catalog, such as REST."""

_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_AS_IT_IS = {type(None), bool, int, float, str}
"""Types of values that PaimonTables.java writes without encoding."""


class JavaPaimon:
    """Paimon's Java catalogs in the JVM of a Spark session that was started with `PACKAGE`.

    Values are as from `pyarrow.Table.to_pylist` for the same type: dates, naive and UTC datetimes,
    Decimals, bytes, lists, maps as lists of pairs, rows as dicts.
    """

    def __init__(self, spark: Any) -> None:
        self._jvm = spark._jvm
        thread = self._jvm.java.lang.Thread.currentThread()
        compiler = self._jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setSourceVersion(8)
        compiler.setTargetVersion(8)
        compiler.setParentClassLoader(thread.getContextClassLoader())
        compiler.cook(Path(__file__).with_name("PaimonTables.java").read_text())
        loaded = compiler.getClassLoader().loadClass("PaimonTables")
        self._constructor = loaded.getConstructors()[0]
        self._gateway = spark.sparkContext._gateway
        self._catalogs: dict[tuple[tuple[str, str], ...], Any] = {}

    def rows(
        self, warehouse: Warehouse, name: str, options: Mapping[str, str] | None = None
    ) -> list[tuple[Any, ...]]:
        """All rows of `database.table`, read with the dynamic `options`, in Java's order."""
        with tempfile.NamedTemporaryFile(suffix=".pickles") as file:
            count = self._catalog(warehouse).dump(name, dict(options or {}), file.name)
            rows = []
            stream = io.BufferedReader(file)  # type: ignore[arg-type]
            while stream.peek(1):
                rows += [
                    tuple(value if type(value) in _AS_IT_IS else _plain(value) for value in row)
                    for row in pickle.load(stream)
                ]
        assert len(rows) == count
        return rows

    def left(
        self, warehouse: Warehouse, name: str, conditions: Sequence[tuple[str, str, Sequence[Any]]]
    ) -> list[list[int]]:
        """For each condition (column, operator, literals) the first column, an INT, of the rows
        that a read with it returns. Java may leave out rows that don't meet it, and need not."""
        given = [[column, operator, list(values)] for column, operator, values in conditions]
        found = self._catalog(warehouse).left(name, _pickled(given))
        return [[int(id) for id in ids] for ids in found]

    def write(
        self,
        warehouse: Warehouse,
        name: str,
        rows: Sequence[Sequence[Any]],
        *,
        kinds: Sequence[str] | None = None,
        overwrite: Mapping[str, str] | None = None,
    ) -> None:
        """Write `rows` in one batch commit; `kinds` has `+I`, `-U`, `+U` or `-D` for each row."""
        java_kinds = list(kinds) if kinds is not None else None
        java_overwrite = dict(overwrite) if overwrite is not None else None
        self._catalog(warehouse).write(name, _pickled(rows), java_kinds, java_overwrite)

    def prepare(self, warehouse: Warehouse, name: str, rows: Sequence[Sequence[Any]]) -> Any:
        """Write `rows` in Java, and return the argument for `commit`."""
        return self._catalog(warehouse).prepare(name, _pickled(rows), None, None)

    def commit(self, warehouse: Warehouse, prepared: Any) -> None:
        """Commit what a writer has prepared."""
        self._catalog(warehouse).commit(prepared)

    def expire(
        self, warehouse: Warehouse, name: str, options: Mapping[str, str] | None = None
    ) -> None:
        """Expire snapshots by the table's options and the dynamic `options`."""
        self._catalog(warehouse).expire(name, dict(options or {}))

    def retype(self, warehouse: Warehouse, name: str, types: Mapping[str, str]) -> None:
        """Give columns, or parts of them (`a.element`), new types."""
        self._catalog(warehouse).retype(name, list(types), list(types.values()))

    def purge(self, warehouse: Warehouse, name: str) -> None:
        """Remove all rows, branches, tags and snapshots but the last."""
        self._catalog(warehouse).purge(name)

    def compact_manifests(self, warehouse: Warehouse, name: str) -> None:
        """Merge a table's manifests."""
        self._catalog(warehouse).compactManifests(name)

    def expire_partitions(self, warehouse: Warehouse, name: str, options: Mapping[str, str]) -> int:
        """Drop partitions by the table's options and the dynamic `options`. Return how many."""
        return int(self._catalog(warehouse).expirePartitions(name, dict(options)))

    def roll_back(self, warehouse: Warehouse, name: str, snapshot_id: int) -> None:
        """Roll a table back."""
        self._catalog(warehouse).rollBack(name, snapshot_id)

    def replace(self, warehouse: Warehouse, name: str, column: str) -> None:
        """Replace a table by one with a single column of type INT."""
        self._catalog(warehouse).replace(name, column)

    def create_database(
        self,
        warehouse: Warehouse,
        name: str,
        properties: Mapping[str, str],
        changes: Mapping[str, str | None],
    ) -> dict[str, str]:
        """Create a database, set and remove (None) properties, and return them."""
        catalog = self._catalog(warehouse)
        catalog.createDatabase(name, dict(properties), dict(changes))
        return dict(catalog.database(name))

    def hashes(
        self,
        warehouse: Warehouse,
        name: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[Any]],
    ) -> list[int]:
        """The hash of each row's `columns`, as for a bucket key; `rows` are whole rows."""
        found = self._catalog(warehouse).hashes(name, list(columns), _pickled(rows))
        return [int(number) for number in found]

    def buckets(self, warehouse: Warehouse, name: str, rows: Sequence[Sequence[Any]]) -> list[int]:
        """The bucket that Java's writer would put each of the whole `rows` into."""
        return [int(number) for number in self._catalog(warehouse).buckets(name, _pickled(rows))]

    def _catalog(self, warehouse: Warehouse) -> Any:
        options = warehouse if isinstance(warehouse, Mapping) else {"warehouse": str(warehouse)}
        key = tuple(options.items())
        if key not in self._catalogs:
            arguments = self._gateway.new_array(self._jvm.java.lang.Object, 1)
            java_options = self._jvm.java.util.HashMap()
            for name, value in options.items():
                java_options.put(name, value)
            arguments[0] = java_options
            self._catalogs[key] = self._constructor.newInstance(arguments)
        return self._catalogs[key]


def _plain(value: Any) -> Any:
    """The Python value for a value as PaimonTables.java encodes it."""
    match value:
        case ("decimal", text):
            return Decimal(text)
        case ("date", days):
            return datetime.date(1970, 1, 1) + datetime.timedelta(days=days)
        case ("time", millis):
            return (_EPOCH + datetime.timedelta(milliseconds=millis)).time()
        case ("timestamp", millis, nanos):
            return _timestamp(millis, nanos)
        case ("timestamp_ltz", millis, nanos):
            return _timestamp(millis, nanos).replace(tzinfo=datetime.UTC)
        case ("array", elements):
            return [_plain(element) for element in elements]
        case ("map", keys, values):
            return [(_plain(k), _plain(v)) for k, v in zip(keys, values, strict=True)]
        case ("row", names, values):
            return {name: _plain(v) for name, v in zip(names, values, strict=True)}
        case bytearray():
            return bytes(value)
        case _:
            return value


def _timestamp(millis: int, nanos: int) -> datetime.datetime:
    assert nanos % 1000 == 0, "Python's datetime has no nanoseconds"
    return _EPOCH + datetime.timedelta(milliseconds=millis, microseconds=nanos // 1000)


def _pickled(rows: Sequence[Sequence[Any]]) -> bytes:
    return pickle.dumps([_encoded(tuple(row)) for row in rows], protocol=3)


def pickled_values(values: Sequence[Any]) -> bytes:
    """Values as Java's side unpickles them."""
    return pickle.dumps([_encoded(value) for value in values], protocol=3)


def _encoded(value: Any) -> Any:
    match value:
        case Decimal():
            return str(value)
        case datetime.datetime():
            micros = (value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND
            return (micros // 1000, micros % 1000 * 1000)
        case datetime.date():
            return (value - datetime.date(1970, 1, 1)).days
        case datetime.time():
            moment = datetime.datetime.combine(datetime.date(1970, 1, 1), value)
            return (moment - _EPOCH) // datetime.timedelta(milliseconds=1)
        case dict():
            return tuple(_encoded(item) for item in value.values())
        case list():
            return [_encoded(item) for item in value]
        case tuple():
            return tuple(_encoded(item) for item in value)
        case _:
            return value
