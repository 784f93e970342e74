"""Tables at random whose rows statements change, with the model of their rows."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.oracle.random_expressions import KINDS, SQL, VALUES, Scope, Seen, literal
from tests.oracle.row_model import Row, RowModel

Chance = random.Random

_KEYS: dict[str, Callable[[int], Any]] = {
    "int": lambda n: n - 4,
    "string": lambda n: ["", "ä", "\U0001f600"][n % 3] + str(n),
    "date": lambda n: datetime.date(2024, 2, 25) + datetime.timedelta(n),
}
_NAMES = ("v0", "V1", "a b", "order", "v.x")
_FIELDS = {"a": "int", "b": "string"}


@dataclass
class Column:
    """A column: `fixed` ones are named by keys or options. `sql` is its type now."""

    name: str
    kind: str
    sql: str
    fixed: bool = False
    default: Any = None

    @property
    def quoted(self) -> str:
        return f"`{self.name}`"


@dataclass
class ChangedTable:
    """The table `t`, its columns and options, and what its rows should be."""

    engine: str
    options: dict[str, str]
    columns: list[Column]
    model: RowModel
    keys: tuple[str, ...] = ()
    partitioned: bool = False
    key_count: int = 12
    _numbers: int = field(default=0)

    @property
    def is_keyed(self) -> bool:
        return bool(self.keys)

    @property
    def tracks_rows(self) -> bool:
        return "row-tracking.enabled" in self.options

    @property
    def evolves(self) -> bool:
        return "data-evolution.enabled" in self.options

    @property
    def producer(self) -> str:
        return self.options.get("changelog-producer", "none")

    def column(self, name: str) -> Column:
        return next(each for each in self.columns if each.name == name)

    def scope(self, qualifier: str | None, *, bare: bool = True) -> Scope:
        """The columns as a statement may name them: the last text is qualified, if there is a
        qualifier."""
        seen = []
        for column in self.columns:
            texts = [column.quoted] if bare else []
            texts += [f"{qualifier}.{column.quoted}"] if qualifier else []
            name = column.name
            if column.kind == "struct":
                for part, kind in _FIELDS.items():
                    inner = tuple(f"{text}.{part}" for text in texts)
                    seen.append(Seen(inner, kind, _field_of(name, part)))
            else:
                seen.append(Seen(tuple(texts), column.kind, _value_of(name)))
        return Scope(tuple(seen))

    def sql(self) -> str:
        options = dict(self.options)
        if self.keys:
            options["primary-key"] = ",".join(self.keys)
        columns = ", ".join(
            f"{c.quoted} {c.sql}{' NOT NULL' if c.name in self.keys else ''}"
            + ("" if c.default is None else f" DEFAULT {literal(c.kind, c.default)}")
            for c in self.columns
        )
        pairs = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
        parts = " PARTITIONED BY (p)" if self.partitioned else ""
        return f"CREATE TABLE t ({columns}){parts} TBLPROPERTIES ({pairs})"

    def row(self, chance: Chance) -> Row:
        """A row that may be inserted."""
        return {column.name: self.value(chance, column) for column in self.columns}

    def value(self, chance: Chance, column: Column) -> Any:
        if column.name == "u":
            self._numbers += 1
            return self._numbers
        if column.name == "p":
            return chance.choice(["x", "y \u00e4=%", "z" if self.is_keyed else None])
        if column.name in self.keys:
            return _KEYS[column.kind](chance.randrange(self.key_count))
        if column.name == "seq":
            return chance.choice([None, chance.randrange(9), chance.randrange(9)])
        if column.name in self.model.groups:
            return chance.randrange(9)
        if chance.random() < 0.25:
            return None
        if column.kind == "struct":
            return {
                part: None if chance.random() < 0.3 else VALUES[kind](chance)
                for part, kind in _FIELDS.items()
            }
        return VALUES[column.kind](chance)

    def text(self, column: Column, value: Any) -> str:
        """A value as a literal of its column's kind."""
        if column.kind != "struct":
            return literal(column.kind, value)
        if value is None:
            return "CAST(NULL AS STRUCT<a: INT, b: STRING>)"
        parts = ", ".join(f"'{p}', {literal(kind, value[p])}" for p, kind in _FIELDS.items())
        return f"named_struct({parts})"

    def alteration(self, chance: Chance) -> str | None:
        """A statement that changes the schema; table and model are then those after it."""
        free = [column for column in self.columns if not column.fixed]
        match chance.choice(["add", "drop", "rename", "widen"]):
            case "add" if self.engine != "aggregation":
                self._numbers += 1
                kind = chance.choice(KINDS)
                column = Column(f"n{self._numbers}", kind, SQL[kind])
                first = chance.random() < 0.3
                self.columns.insert(0 if first else len(self.columns), column)
                for row in self.model.rows:
                    row[column.name] = None
                self.model.columns = [each.name for each in self.columns]
                return (
                    f"ALTER TABLE t ADD COLUMN {column.name} {column.sql}"
                    f"{' FIRST' if first else ''}"
                )
            case "drop" if len(free) > 1:
                gone = chance.choice(free)
                self.columns.remove(gone)
                for row in self.model.rows:
                    del row[gone.name]
                self.model.columns = [each.name for each in self.columns]
                return f"ALTER TABLE t DROP COLUMN {gone.quoted}"
            case "rename" if free:
                column = chance.choice(free)
                self._numbers += 1
                old, column.name = column.name, f"r{self._numbers}"
                for row in self.model.rows:
                    row[column.name] = row.pop(old)
                self.model.columns = [each.name for each in self.columns]
                return f"ALTER TABLE t RENAME COLUMN `{old}` TO {column.name}"
            case "widen":
                found = [column for column in free if column.sql == "INT"]
                if found:
                    column = chance.choice(found)
                    column.sql = "BIGINT"
                    return f"ALTER TABLE t ALTER COLUMN {column.quoted} TYPE BIGINT"
        return None


def _value_of(name: str) -> Callable[[Any], Any]:
    return lambda row: row[name]


def _field_of(name: str, part: str) -> Callable[[Any], Any]:
    return lambda row: None if row[name] is None else row[name][part]


def changed_table(chance: Chance) -> ChangedTable:
    """A table that Paimon takes."""
    engine = chance.choice(
        ["append"] * 4 + ["deduplicate"] * 4 + ["partial-update"] * 2 + ["aggregation"]
    )
    names = [*_NAMES[: -1 if engine == "aggregation" else None]]  # (options name its columns)
    chance.shuffle(names)
    values = [
        Column(name, kind, SQL[kind])
        for name in names[: chance.randint(2, 4)]
        for kind in [chance.choice(KINDS)]
    ]
    if chance.random() < 0.4:
        values.append(Column("st", "struct", "STRUCT<a: INT, b: STRING>", True))
    if chance.random() < 0.4 and engine != "aggregation":
        values.append(Column("d", "int", "INT", True, 7))
    kind = chance.choice(list(_KEYS))
    keys = [Column("k0", kind, SQL[kind], True)]
    if chance.random() < 0.3:
        keys.append(Column("k1", "int", "INT", True))
    partitioned = chance.random() < 0.4
    parts = [Column("p", "string", "STRING", True)] if partitioned else []
    table = ChangedTable(
        engine, {}, [*parts, *keys, *values], RowModel(engine, []), partitioned=partitioned
    )
    table.options["file.format"] = chance.choice(["parquet"] * 4 + ["orc"])
    if engine == "append":
        _append(chance, table)
    else:
        table.keys = tuple(column.name for column in [*parts, *keys])
        _keyed(chance, table)
    table.model.keys = table.keys
    table.model.columns = [column.name for column in table.columns]
    table.model.defaults = {c.name: c.default for c in table.columns if c.default is not None}
    return table


def _append(chance: Chance, table: ChangedTable) -> None:
    options = table.options
    how = chance.choice(["plain", "plain", "buckets", "tracked"])
    if how == "buckets":
        options |= {"bucket": chance.choice(["1", "2"]), "bucket-key": "k0"}
    elif how == "tracked":
        options["row-tracking.enabled"] = "true"
        table.columns.append(Column("u", "int", "BIGINT", True))
        if chance.random() < 0.5:
            options["data-evolution.enabled"] = "true"
    if chance.random() < 0.5:
        options["deletion-vectors.enabled"] = "true"
        if chance.random() < 0.3:
            options["deletion-vectors.bitmap64"] = "true"
    options["write-only"] = chance.choice(["true", "false"])
    options["compaction.min.file-num"] = "3"
    if chance.random() < 0.3:
        options["target-file-size"] = "2 kb"
    if chance.random() < 0.3:
        options["file-index.bloom-filter.columns"] = "k0"


def _keyed(chance: Chance, table: ChangedTable) -> None:
    options, engine = table.options, table.engine
    options["merge-engine"] = engine
    options["bucket"] = chance.choice(["1", "2", "-1", "-1", "-2"])
    if options["bucket"] == "-1":
        options["dynamic-bucket.target-row-num"] = "5"
    options["num-sorted-run.compaction-trigger"] = chance.choice(["2", "3", "5"])
    options["write-only"] = chance.choice(["true", "false", "false"])
    if engine == "deduplicate" and chance.random() < 0.4:
        table.columns.append(Column("seq", "int", "INT", True))
        options["sequence.field"] = table.model.sequence = "seq"
    if engine == "partial-update":
        if chance.random() < 0.5:
            options["partial-update.remove-record-on-delete"] = "true"
        elif chance.random() < 0.7:
            _group(chance, table)
    if engine == "aggregation":
        if chance.random() < 0.7:
            options["aggregation.remove-record-on-delete"] = "true"
        for column in table.columns:
            if column.name not in table.keys:
                column.fixed = True
                how = ["last_value", "last_non_null_value"]
                how += ["sum", "max", "min"] if column.kind in ("int", "decimal") else []
                function = table.model.functions[column.name] = chance.choice(how)
                options[f"fields.{column.name}.aggregate-function"] = function
    options["changelog-producer"] = chance.choice(
        ["none", "none", "input", "lookup", "lookup", "full-compaction"]
    )
    if chance.random() < 0.3:
        options["deletion-vectors.enabled"] = "true"
        if options["changelog-producer"] == "full-compaction":
            options["changelog-producer"] = "lookup"
        if options["write-only"] == "true" or options["bucket"] == "-2":
            # Rows are seen before they are compacted.
            options["deletion-vectors.merge-on-read"] = "true"
    if options["changelog-producer"] == "lookup":
        options["write-only"] = "false"
        if chance.random() < 0.4:
            options["changelog-producer.row-deduplicate"] = "true"


def _group(chance: Chance, table: ChangedTable) -> None:
    free = [each for each in table.columns if each.name not in table.keys and "." not in each.name]
    members = [each for each in free if each.default is None][:2]
    for member in members:
        member.fixed = True
    table.columns.append(Column("g", "int", "INT", True))
    names = [member.name for member in members]
    table.options["fields.g.sequence-group"] = ",".join(names)
    table.model.groups["g"] = names
