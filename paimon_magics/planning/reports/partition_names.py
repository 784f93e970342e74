"""What views call a partition, `day=2026-11-20/region=eu`, in SQL.

Pure. Views read the names from manifests (`tables.system_tables.layout`); the SQL beside them makes
them of a table's `$files` or of its rows. Instants are told in the zone of the session that runs
it.

`$files` is no place to read values from: `{a, b}` does not tell where a text ends, and instants are
wall clocks of the process there. The folder in `file_path` tells each value
(`InternalRowPartitionComputer` of Paimon): by default a day as days since 1970 and an instant as a
wall clock of UTC, with `partition.legacy-name` = false both as in `$files`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.clauses.names import quoted, text_literal
from paimon_magics.statements.data_types import AtomicType, DataType

__all__ = ["KeyKind", "PartitionNames", "escaped", "key_kind"]

# What Spark's escapePathName writes as %XX.
_ESCAPED = frozenset(chr(c) for c in range(1, 32)) | frozenset("\"#%'*/:=?\\\x7f{[]^")


class KeyKind(Enum):
    """How the text of a partition column is made."""

    TEXT = "text"
    DATE = "date"
    CLOCK = "time without a zone"
    INSTANT = "time in the session's zone"
    OPAQUE = "bytes, or a time of day"
    PLAIN = "anything else"


_KINDS = {
    **dict.fromkeys(("CHAR", "VARCHAR", "STRING"), KeyKind.TEXT),
    **dict.fromkeys(("BINARY", "VARBINARY", "BYTES", "TIME"), KeyKind.OPAQUE),
    "DATE": KeyKind.DATE,
    "TIMESTAMP": KeyKind.CLOCK,
    "TIMESTAMP_LTZ": KeyKind.INSTANT,
}


@dataclass(frozen=True, slots=True)
class PartitionNames:
    """The partition columns of a table, and what their texts depend on.

    `zone` is that of this process, whose wall clocks `$files` shows. `twice` are the instants among
    the values that the session's zone shows twice, with their offset: those are told with it.
    """

    keys: tuple[tuple[str, KeyKind], ...]
    default_name: str
    has_instants_in_paths: bool
    zone: str
    twice: tuple[str, ...] = ()

    @classmethod
    def of(cls, schema: TableSchema, zone: str, twice: Sequence[str] = ()) -> PartitionNames:
        """Those of a table."""
        return cls(
            tuple((key, key_kind(schema.column(key).type)) for key in schema.partition_keys),
            schema.partition_default_name,
            schema.flag("partition.legacy-name"),
            zone,
            tuple(twice),
        )

    def told_in(self, zone: str) -> str:
        """What stands behind a view's line: "; `at` in Europe/Berlin", "" without such columns."""
        names = ", ".join(f"`{key}`" for key, kind in self.keys if kind is KeyKind.INSTANT)
        return f"; {names} in {zone}" if names else ""

    def of_files(self) -> str:
        """The name, of the columns of `$files`."""
        return self._joined([self._of_file(place) for place in range(len(self.keys))])

    def of_rows(self) -> str:
        """The name, of the columns of a row."""
        return self._joined([self._of_row(*key) for key in self.keys])

    def _joined(self, values: Sequence[str]) -> str:
        parts = []
        for place, ((key, _), value) in enumerate(zip(self.keys, values, strict=True)):
            parts += [text_literal(f"{'/' if place else ''}{key}="), value]
        return f"concat({', '.join(parts)})" if parts else "''"

    def _of_row(self, key: str, kind: KeyKind) -> str:
        name = quoted(key)
        if kind is KeyKind.INSTANT:
            return self._or_default(self._instant_text(name))
        value = f"CAST({name} AS STRING)"
        if kind is KeyKind.TEXT:  # blank text lies where NULL does
            value = f"if(trim({value}) = '', NULL, {value})"
        return self._or_default(value)

    def _of_file(self, place: int) -> str:
        key, kind = self.keys[place]
        folder = f".*/{re.escape(escaped(key))}=([^/]*)/"
        raw = f"regexp_extract(file_path, {text_literal(folder)}, 1)"
        # A plus stands for itself in a path.
        value = f"url_decode(replace({raw}, '+', '%2B'))"
        match kind:
            case KeyKind.DATE:
                days = f"date_from_unix_date(try_cast({raw} AS INT))"
                date = f"coalesce({days}, try_cast({raw} AS DATE))"
                return self._or_default(f"CAST({date} AS STRING)")
            case KeyKind.CLOCK:
                clock = _clock(value, "")
                return self._or_default(f"CAST(try_cast({clock} AS TIMESTAMP_NTZ) AS STRING)")
            case KeyKind.INSTANT:
                clock = f"concat({self._listed(place)}, {text_literal(f' {self.zone}')})"
                if self.has_instants_in_paths:
                    clock = _clock(value, "Z")
                return self._or_default(self._instant_text(f"try_cast({clock} AS TIMESTAMP)"))
            case KeyKind.OPAQUE:
                return self._or_default(f"nullif({self._listed(place)}, 'null')")
            case _:
                return value

    def _listed(self, place: int) -> str:
        """The value as `$files` lists it: a NULL is `null`."""
        inner = "substring(partition, 2, length(partition) - 2)"
        return inner if len(self.keys) == 1 else f"split({inner}, ', ')[{place}]"

    def _or_default(self, value: str) -> str:
        return f"coalesce({value}, {text_literal(self.default_name)})"

    def _instant_text(self, instant: str) -> str:
        text = f"CAST({instant} AS STRING)"
        if not self.twice:
            return text
        among = ", ".join(f"TIMESTAMP{text_literal(one)}" for one in self.twice)
        return f"concat({text}, if({instant} IN ({among}), date_format({instant}, 'xxx'), ''))"


def _clock(path: str, end: str) -> str:
    """The time in a path, as Spark reads it: Java leaves seconds out where they are zero."""
    return f"concat({path}, if(length({path}) = 16, ':00{end}', '{end}'))"


def key_kind(data_type: DataType) -> KeyKind:
    """How the text of a partition column of that type is made."""
    name = data_type.name if isinstance(data_type, AtomicType) else ""
    return _KINDS.get(name, KeyKind.PLAIN)


def escaped(text: str) -> str:
    """The text as it is in the name of a partition's folder."""
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in text)
