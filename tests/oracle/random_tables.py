"""Tables at random, from a seed: how they merge, what they tell, their columns, rows and changes.

What comes out is text and plain values; nothing is written here.
"""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

Chance = random.Random
Row = tuple[Any, ...]

_DAY = datetime.date(2024, 1, 1)
_MOMENT = datetime.datetime(2024, 1, 1, 10)


@dataclass(frozen=True)
class Kind:
    """A type: its SQL, its values, a wider type, and aggregate functions that can take rows back or
    that can't."""

    sql: str
    make: Callable[[Chance], Any]
    wider: str = ""
    takes_back: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ("last_value", "first_value", "last_non_null_value")


def _text(chance: Chance) -> str:
    return chance.choice(["", "a", "Ä\u00df", "\U0001f600", "z" * 40, "a b", "\u0000"])


def _moment(chance: Chance) -> datetime.datetime:
    # (No fractions of seconds before 1970: such values are refused for ORC.)
    micros = datetime.timedelta(microseconds=chance.randrange(-(10**15), 10**15))
    return chance.choice([_MOMENT, datetime.datetime(1969, 12, 31, 23, 59, 59), _MOMENT + micros])


def _double(chance: Chance) -> float:
    return chance.choice([0.0, -0.0, math.nan, math.inf, 1.5, -2.0, float(chance.randrange(9))])


KINDS = {
    "TINYINT": Kind("TINYINT", lambda c: c.randrange(-9, 9), "INT", ("sum",)),
    "SMALLINT": Kind("SMALLINT", lambda c: c.randrange(-99, 99), "BIGINT", ("sum",)),
    "INT": Kind("INT", lambda c: c.choice([0, -(2**31), 2**31 - 1, c.randrange(50)]), "BIGINT"),
    "BIGINT": Kind("BIGINT", lambda c: c.choice([-(2**40), 2**40, c.randrange(50)]), "", ("sum",)),
    "FLOAT": Kind("FLOAT", _double, "DOUBLE"),
    "DOUBLE": Kind("DOUBLE", _double),
    "BOOLEAN": Kind("BOOLEAN", lambda c: c.random() < 0.5, "", (), ("bool_or", "bool_and")),
    "DECIMAL(9, 2)": Kind(
        "DECIMAL(9, 2)", lambda c: Decimal(c.randrange(-999, 999)).scaleb(-2), "DECIMAL(20, 2)",
        ("sum",), ("max", "min", "last_value"),
    ),
    "DECIMAL(20, 2)": Kind(
        "DECIMAL(20, 2)", lambda c: Decimal(c.randrange(-(10**12), 10**12)).scaleb(-2)
    ),
    "DECIMAL(38, 9)": Kind(
        "DECIMAL(38, 9)", lambda c: Decimal(c.randrange(-(10**30), 10**30)).scaleb(-9)
    ),
    "STRING": Kind("STRING", _text, "", (), ("listagg", "max", "min", "last_non_null_value")),
    "VARBINARY": Kind("BINARY", lambda c: c.choice([b"", b"\0\xff", b"abc", c.randbytes(9)])),
    "DATE": Kind("DATE", lambda c: _DAY + datetime.timedelta(c.randrange(-9, 9))),
    "TIMESTAMP_NTZ": Kind("TIMESTAMP_NTZ", _moment),
    "TIMESTAMP_NTZ(3)": Kind(
        "TIMESTAMP_NTZ(3)", lambda c: _MOMENT.replace(microsecond=c.randrange(3) * 1000)
    ),
    "TIMESTAMP": Kind("TIMESTAMP", lambda c: _moment(c).replace(tzinfo=datetime.UTC)),
    "ARRAY": Kind(
        "ARRAY<INT>", lambda c: [c.choice([None, 1, 2]) for _ in range(c.randrange(3))], "",
        (), ("last_value",),
    ),
    "MAP": Kind(
        "MAP<STRING, INT>", lambda c: [("a", 1), ("b", None)][: c.randrange(3)], "", (),
        ("last_value", "first_value"),
    ),
    "STRUCT": Kind(
        "STRUCT<x: INT, y: STRING>",
        lambda c: {"x": c.choice([None, 1]), "y": c.choice([None, "q"])}, "", (),
        ("last_value", "last_non_null_value"),
    ),
}  # fmt: skip
_REFUSED = {"avro": ("ARRAY", "MAP", "STRUCT"), "orc": ("TIMESTAMP",)}
"""Types that are not written to files of a format."""
_KEYS: dict[str, Callable[[int], Any]] = {
    "INT": lambda n: n - 5,
    "BIGINT": lambda n: n * 2**33 - 2**35,
    "STRING": lambda n: ["", "\u00e4", "\U0001f600", "\uffee"][n % 4] + str(n),
    "VARBINARY": lambda n: bytes([n % 256, 255 - n % 256]) * (n % 3 + 1),
    "DECIMAL(9, 2)": lambda n: Decimal(n * 37 - 500).scaleb(-2),
    "DECIMAL(38, 9)": lambda n: Decimal(n * 10**20 - 10**21).scaleb(-9),
    "DATE": lambda n: _DAY + datetime.timedelta(n - 20_000),
    "TIMESTAMP_NTZ": lambda n: _MOMENT + datetime.timedelta(microseconds=n * 999_983 - 10**7),
    "SMALLINT": lambda n: n - 9,
}


@dataclass
class Column:
    name: str
    kind: str
    fixed: bool = False
    """Named by an option or a key: no statement renames or drops it."""


@dataclass
class RandomTable:
    """A table, its options, and what may be written to it. Changes of its schema change it."""

    engine: str
    options: dict[str, str]
    keys: list[Column]
    values: list[Column]
    kinds: tuple[str, ...] = ("+I",)
    partitioned: bool = False
    key_count: int = 30
    _added: int = field(default=0)

    @property
    def columns(self) -> list[Column]:
        part = [Column("p", "STRING", True)] if self.partitioned else []
        return [*part, *self.keys, *self.values]

    @property
    def possible_kinds(self) -> list[str]:
        """The types that the table's formats take."""
        formats = f"{self.options.get('file.format')} {self.options.get('file.format.per.level')}"
        refused = {kind for name, kinds in _REFUSED.items() if name in formats for kind in kinds}
        return [kind for kind in KINDS if kind not in refused]

    @property
    def hides_level_0(self) -> bool:
        """Whether rows show only once they are compacted."""
        return self.engine == "first-row" or "deletion-vectors.enabled" in self.options

    @property
    def shows_lone_rows_as_written(self) -> bool:
        """Whether a key's only row is shown alike before and after a compaction. Compactions that
        look up merge it with nothing, as Java's do: a sequence group without a value then gives
        none, and functions and rows that retract have their say."""
        looks_up = (
            self.options.get("changelog-producer") == "lookup" or "force-lookup" in self.options
        )
        return self.engine not in ("partial-update", "aggregation") or not looks_up

    @property
    def has_javas_files(self) -> bool:
        """Whether compactions write as many files as Java's. Not where files have a least size that
        counts: encoders differ, and a file ends by what it has become so far."""
        return "target-file-size" not in self.options

    @property
    def trigger(self) -> int:
        """From so many sorted runs, or files of an append table, a bucket may be compacted."""
        is_append = self.engine == "append"
        key = "compaction.min.file-num" if is_append else "num-sorted-run.compaction-trigger"
        return int(self.options[key])

    @property
    def expires_rows(self) -> bool:
        return "record-level.expire-time" in self.options

    def sql(self) -> str:
        names = [column.name for column in self.keys]
        keys = ["p", *names] if self.partitioned else names
        options = dict(self.options)
        if self.engine != "append":
            options["primary-key"] = ",".join(keys)
        required = {*keys} if self.engine != "append" else set()
        columns = ", ".join(
            f"{c.name} {KINDS[c.kind].sql}{' NOT NULL' if c.name in required else ''}"
            for c in self.columns
        )
        pairs = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
        parts = " PARTITIONED BY (p)" if self.partitioned else ""
        return f"CREATE TABLE t ({columns}){parts} TBLPROPERTIES ({pairs})"

    def rows(self, chance: Chance) -> tuple[list[Row], list[str]]:
        """Rows to write at once, and their kinds."""
        count = chance.choice([1, 3, 10, 10, 40, 400 if self.has_javas_files else 4000])
        rows = [self._row(chance) for _ in range(count)]
        return rows, [chance.choice(self.kinds) for _ in rows]

    def _row(self, chance: Chance) -> Row:
        number = chance.randrange(self.key_count)
        # (No slash: Java's lookups name temporary files by partitions, and fail.)
        parts = ["x", "y \u00e4=%", None if self.engine == "append" else "x"]
        row: list[Any] = [chance.choice(parts)] if self.partitioned else []
        row += [_KEYS[c.kind](number // (at + 1)) for at, c in enumerate(self.keys)]
        for column in self.values:
            if column.name == "e":
                row.append(chance.choice([None, 1, 5 * 10**9]))
            else:
                is_null = chance.random() < 0.3
                value = None if is_null else KINDS[column.kind].make(chance)
                row.append(self._told_alike(column.kind, value))
        return tuple(row)

    def _told_alike(self, kind: str, value: Any) -> Any:
        """A value that Java reads and compares alike in all its forms.

        Arrays and maps with NULLs are equal only where both are in Java's binary form
        (`ScalarOperatorGens`): otherwise it tells of an update that changes nothing. ORC's Java
        reader takes a batch of 0.0 and -0.0 for the first of them repeated.
        """
        if value == 0.0 and any("orc" in option for option in self.options.values()):
            return type(value)(0)
        if "changelog-producer.row-deduplicate" in self.options and value is not None:
            if kind == "ARRAY":
                return [0 if each is None else each for each in value]
            if kind == "MAP":
                return [(key, each or 0) for key, each in value]
        return value

    def alteration(self, chance: Chance) -> str | None:
        """A statement that changes the schema; this value is then the table after it."""
        free = [column for column in self.values if not column.fixed]
        match chance.choice(["add", "drop", "rename", "widen", "widen", "first"]):
            case "add" | "first" as how:
                self._added += 1
                name, kind = f"n{self._added}", chance.choice(self.possible_kinds)
                if self.engine == "aggregation":
                    return None
                at = 0 if how == "first" else len(self.values)
                after = self.columns[len(self.columns) - len(self.values) - 1].name
                self.values.insert(at, Column(name, kind))
                where = f" AFTER {after}" if how == "first" else ""
                return f"ALTER TABLE t ADD COLUMN {name} {KINDS[kind].sql}{where}"
            case "drop" if len(free) > 1:
                gone = chance.choice(free)
                self.values.remove(gone)
                return f"ALTER TABLE t DROP COLUMN {gone.name}"
            case "rename" if free:
                column = chance.choice(free)
                old, column.name = column.name, f"{column.name}x"
                return f"ALTER TABLE t RENAME COLUMN {old} TO {column.name}"
            case "widen":
                found = [c for c in self.values if KINDS[c.kind].wider and c.name != "e"]
                if found:
                    column = chance.choice(found)
                    column.kind = KINDS[column.kind].wider
                    return f"ALTER TABLE t ALTER COLUMN {column.name} TYPE {KINDS[column.kind].sql}"
        return None


def random_table(chance: Chance) -> RandomTable:
    """A table that Paimon takes."""
    engine = chance.choice(
        ["deduplicate"] * 3 + ["partial-update"] * 3 + ["aggregation"] * 2 + ["first-row", "append"]
    )
    keys = [Column(f"k{n}", chance.choice([*_KEYS]), True) for n in range(chance.choice([1, 1, 2]))]
    table = RandomTable(
        engine,
        {"merge-engine": engine} if engine != "append" else {},
        keys,
        [],
        partitioned=chance.random() < 0.3,
        key_count=chance.choice([6, 30, 300]),
    )
    table.options |= _layout(chance, table)
    kinds = table.possible_kinds
    table.values = [Column(f"v{n}", chance.choice(kinds)) for n in range(chance.randint(1, 5))]
    match engine:
        case "deduplicate":
            _deduplicates(chance, table)
        case "partial-update":
            _updates_partly(chance, table)
        case "aggregation":
            _aggregates(chance, table)
        case "first-row":
            if chance.random() < 0.5:
                table.options["ignore-delete"] = "true"
                table.kinds = ("+I", "+I", "+U", "-D")
    if engine != "append":
        table.options |= _tells(chance, engine)
    if engine == "deduplicate" and chance.random() < 0.2:
        _expires(table)
    return table


def _layout(chance: Chance, table: RandomTable) -> dict[str, str]:
    """Buckets, formats, triggers."""
    options = {"write-only": chance.choice(["true", "false"])}
    options["bucket"] = chance.choice(["1", "1", "2", "-1"])
    if table.engine == "append":
        options["compaction.min.file-num"] = "3"
        if options["bucket"] != "-1":
            options["bucket-key"] = table.keys[0].name
    elif options["bucket"] == "-1":
        options["dynamic-bucket.target-row-num"] = "15"
    options["file.format"] = chance.choice(["parquet", "parquet", "parquet", "orc", "avro"])
    if table.engine != "append":
        options |= _levels(chance, table)
    if chance.random() < 0.2:
        options["file.compression"] = chance.choice(["zstd", "snappy"])  # known to all formats
    if chance.random() < 0.2:
        options["metadata.stats-mode"] = chance.choice(["none", "full", "counts"])
    if chance.random() < 0.2:
        options["manifest.merge-min-count"] = "2"
    if chance.random() < 0.15 and table.keys[0].kind in ("INT", "BIGINT", "STRING", "DATE"):
        options["file-index.bloom-filter.columns"] = table.keys[0].name
    return options


def _levels(chance: Chance, table: RandomTable) -> dict[str, str]:
    """What is compacted when, and into which files."""
    options = {"num-sorted-run.compaction-trigger": chance.choice(["2", "3", "5"])}
    if chance.random() < 0.3:
        options["compaction.size-ratio"] = chance.choice(["40", "1000"])
    if chance.random() < 0.2:
        options["num-levels"] = chance.choice(["3", "4"])
    if chance.random() < 0.2:
        options["file.format.per.level"] = chance.choice(["0:avro", "0:parquet,5:orc", "5:avro"])
    if chance.random() < 0.2:
        options["data-file.thin-mode"] = "true"
    if chance.random() < 0.2:
        options["target-file-size"] = "30 kb"
        table.key_count = 5000
    if chance.random() < 0.1:
        size = chance.choice(["5 kb", "20 kb"])
        kind = chance.choice(["total-size", "incremental-size"])
        options[f"compaction.{kind}-threshold"] = size
    if chance.random() < 0.15:
        options["compaction.force-up-level-0"] = "true"
    if chance.random() < 0.1:
        options["compaction.force-rewrite-all-files"] = "true"
    return options


def _sequence(chance: Chance, table: RandomTable) -> None:
    kind = chance.choice(["INT", "BIGINT", "TIMESTAMP_NTZ", "DOUBLE", "STRING"])
    table.values.append(Column("s", kind, True))
    table.options["sequence.field"] = "s"
    if chance.random() < 0.3:
        table.values.append(Column("s2", "INT", True))
        table.options["sequence.field"] = "s,s2"
    if chance.random() < 0.3:
        table.options["sequence.field.sort-order"] = "descending"


def _deduplicates(chance: Chance, table: RandomTable) -> None:
    if chance.random() < 0.4:
        _sequence(chance, table)
    table.kinds = chance.choice([("+I",), ("+I", "+I", "+U", "-D"), ("+I", "-U", "+U", "-D")])
    if "-D" in table.kinds and chance.random() < 0.2:
        table.options["ignore-delete"] = "true"


def _updates_partly(chance: Chance, table: RandomTable) -> None:
    how = chance.choice(["plain", "removing", "ignoring", "groups", "groups"])
    if how in ("removing", "ignoring"):
        key = "partial-update.remove-record-on-delete" if how == "removing" else "ignore-delete"
        table.options[key] = "true"
        table.kinds = ("+I", "+I", "+U", "-D")
    if how != "groups":
        if how != "removing" and chance.random() < 0.4:
            _sequence(chance, table)
        return
    free = [*table.values]
    for number in range(chance.choice([1, 2])):
        if not free:
            break
        members = [free.pop() for _ in range(min(len(free), chance.choice([1, 2])))]
        sequence = Column(f"g{number}", chance.choice(["INT", "BIGINT", "DATE"]), True)
        table.values.append(sequence)
        names = ",".join(member.name for member in members)
        table.options[f"fields.{sequence.name}.sequence-group"] = names
        for member in members:
            member.fixed = True
            if chance.random() < 0.3:
                function = chance.choice(KINDS[member.kind].keeps)
                table.options[f"fields.{member.name}.aggregate-function"] = function
                table.options[f"fields.{member.name}.ignore-retract"] = "true"
        if number == 0 and chance.random() < 0.3:
            key = "partial-update.remove-record-on-sequence-group"
            table.options[key] = sequence.name
    if chance.random() < 0.5:
        table.kinds = ("+I", "+I", "+U", "-D")


def _expires(table: RandomTable) -> None:
    """Rows expire; not with changelogs or deletion vectors, which tell nothing of that."""
    if table.options["changelog-producer"] == "none" and not table.hides_level_0:
        table.values.append(Column("e", "BIGINT", True))
        table.options["record-level.expire-time"] = "1 min"
        table.options["record-level.time-field"] = "e"


def _aggregates(chance: Chance, table: RandomTable) -> None:
    how = chance.choice(["inserts", "retracts", "removing"])
    if how != "inserts":
        table.kinds = ("+I", "+I", "+U", "-D", "-U") if how == "retracts" else ("+I", "+U", "-D")
    if how == "removing":
        table.options["aggregation.remove-record-on-delete"] = "true"
    for column in table.values:
        kind = KINDS[column.kind]
        functions = kind.keeps
        if kind.takes_back and chance.random() < 0.6:
            functions = kind.takes_back
        elif how == "retracts":
            table.options[f"fields.{column.name}.ignore-retract"] = "true"
        column.fixed = True
        table.options[f"fields.{column.name}.aggregate-function"] = chance.choice(functions)
    if chance.random() < 0.2:
        _sequence(chance, table)


def _tells(chance: Chance, engine: str) -> dict[str, str]:
    """Changelogs, deletion vectors, rows that expire."""
    producers = ["none", "input", "lookup", "lookup", "full-compaction"]
    if engine == "first-row":
        return {"changelog-producer": chance.choice(["none", "lookup"])}
    if chance.random() < 0.35:
        options = {
            "deletion-vectors.enabled": "true",
            "changelog-producer": chance.choice(["none", "none", "input", "lookup"]),
        }
        if chance.random() < 0.5:
            options["deletion-vectors.bitmap64"] = "true"
        if chance.random() < 0.3:
            options["deletion-vectors.merge-on-read"] = "true"
    else:
        options = {"changelog-producer": chance.choice(producers)}
        # (Where full compactions tell the changes nothing is looked up, and Java then shows the row
        # of the lowest level, whatever its sequence field says.)
        if chance.random() < 0.15 and options["changelog-producer"] != "full-compaction":
            options["force-lookup"] = "true"
    if options["changelog-producer"] in ("lookup", "full-compaction") and chance.random() < 0.4:
        options["changelog-producer.row-deduplicate"] = "true"
    if options["changelog-producer"] != "none" and chance.random() < 0.2:
        options["changelog-file.format"] = "parquet"
    return options


def shown(rows: Sequence[Sequence[Any]]) -> list[str]:
    """Rows as texts, sorted: NaN is not equal to itself."""
    return sorted(repr(tuple(row)).replace("<UTC>", "datetime.timezone.utc") for row in rows)
