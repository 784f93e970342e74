"""The names of partitions, such as `day=2026-11-20/region=eu`, and the folders that they stand for.

Pure. Reports read the names from manifests (`tables.manifests.partitions`); the SQL beside them
makes the names from a table's `$files` or from its rows. Instants are shown in the time zone of
the session that runs the SQL.

The column `partition` of `$files` is ambiguous: `{a, b}` does not show where a text ends, and its
instants are local times of the process. The folder in `file_path` has each value
(`InternalRowPartitionComputer` of Paimon). By default a date is written there as days since 1970
and an instant as local time in UTC; with `partition.legacy-name` = false both are written as in
`$files`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.clauses.names import quoted, text_literal
from paimon_magics.statements.data_types import DataType, family_of

# What Spark's escapePathName writes as %XX.
_ESCAPED = frozenset(chr(c) for c in range(1, 32)) | frozenset("\"#%'*/:=?\\\x7f{[]^")


class KeyKind(Enum):
    """How a partition column's value is written as text."""

    TEXT = "text"
    DATE = "date"
    CLOCK = "time without a zone"
    INSTANT = "time in the session's zone"
    OPAQUE = "bytes, or a time of day"
    PLAIN = "anything else"


_KINDS = {
    "text": KeyKind.TEXT,
    **dict.fromkeys(("binary", "time"), KeyKind.OPAQUE),
    "date": KeyKind.DATE,
    "timestamp": KeyKind.CLOCK,
    "timestamp_ltz": KeyKind.INSTANT,
}


@dataclass(frozen=True, slots=True)
class PartitionNames:
    """The partition columns of a table, and what the text of their values depends on.

    `zone` is the time zone of this process, in which `$files` shows instants. `twice` are the
    instants, as text with an offset, whose local time occurs twice in the session's zone: their
    names have the offset, too.
    """

    keys: tuple[tuple[str, KeyKind], ...]
    default_name: str
    has_instants_in_paths: bool
    zone: str
    twice: tuple[str, ...] = ()

    @classmethod
    def of(cls, schema: TableSchema, zone: str, twice: Sequence[str] = ()) -> PartitionNames:
        """Return the names for a table."""
        return cls(
            tuple((key, key_kind(schema.column(key).type)) for key in schema.partition_keys),
            schema.partition_default_name,
            schema.flag("partition.legacy-name"),
            zone,
            tuple(twice),
        )

    def told_in(self, zone: str) -> str:
        """The end of a report's summary line: "; `at` in Europe/Berlin", "" without instants."""
        names = ", ".join(f"`{key}`" for key, kind in self.keys if kind is KeyKind.INSTANT)
        return f"; {names} in {zone}" if names else ""

    def of_files(self) -> str:
        """The name as an expression on the columns of `$files`."""
        return self._joined([self._of_file(place) for place in range(len(self.keys))])

    def of_rows(self) -> str:
        """The name as an expression on the table's columns."""
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
        if kind is KeyKind.TEXT:  # blank text is in the partition of NULL
            value = f"if(trim({value}) = '', NULL, {value})"
        return self._or_default(value)

    def _of_file(self, place: int) -> str:
        key, kind = self.keys[place]
        folder = f".*/{re.escape(escaped(key))}=([^/]*)/"
        raw = f"regexp_extract(file_path, {text_literal(folder)}, 1)"
        # A plus sign in a path is literal.
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
        """The value as the column `partition` of `$files` shows it: NULL is `null`."""
        inner = "substring(partition, 2, length(partition) - 2)"
        return inner if len(self.keys) == 1 else f"split({inner}, ', ')[{place}]"

    def _or_default(self, value: str) -> str:
        return f"coalesce({value}, {text_literal(self.default_name)})"

    def _instant_text(self, instant: str) -> str:
        text = f"CAST({instant} AS STRING)"
        if not self.twice:
            return text
        among = ", ".join(f"TIMESTAMP{text_literal(moment)}" for moment in self.twice)
        return f"concat({text}, if({instant} IN ({among}), date_format({instant}, 'xxx'), ''))"


def _clock(path: str, end: str) -> str:
    """The local time in a path, in a form that Spark reads: Java leaves out seconds of zero."""
    return f"concat({path}, if(length({path}) = 16, ':00{end}', '{end}'))"


def key_kind(data_type: DataType) -> KeyKind:
    """How the values of a partition column of this type are written as text."""
    return _KINDS.get(family_of(data_type), KeyKind.PLAIN)


def escaped(text: str) -> str:
    """The text with the escapes of a partition folder's name."""
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in text)
