"""The names that may be typed at a place: of the catalog, the notebook, and options.

Nothing here waits for a catalog, a store or Spark: names come from the session's name cache.
"""

from __future__ import annotations

import datetime
import re
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

from paimon_magics.magics.namespace import Variables
from paimon_magics.statements.clauses.names import quoted, spelled, text_literal
from paimon_magics.statements.completion.words import FUNCTIONS, TIME_FUNCTIONS

if TYPE_CHECKING:
    from paimon_magics.session.name_cache import KnownNames
    from paimon_magics.session.session import Session
    from paimon_magics.statements.completion.scopes import Seen
    from paimon_magics.statements.completion.wants import Expected, Want
    from paimon_magics.statements.statement import TableName

_SHOWN_MAX = 500


# Long enough for the first answers of a local catalog, too short to be noticed.
_WAIT_SECONDS = 0.02


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


_INSTANT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?Z")


_PLAIN_NAME = re.compile(r"[^\W\d]\w*\Z")


_TABLE_PARAMETERS = ("table", "source_table", "target_table")
_BRANCH_PARAMETERS = ("branch", "from_branch", "source_branch", "target_branch")
_CHOICES = {
    "compact_strategy": ("full", "minor"),
    "order_strategy": ("order", "zorder", "hilbert"),
    "source_type": ("hive",),
    "time_retained": ("1 d", "7 d", "30 d"),
}
"""Values of parameters that are the same for all tables."""


_QUOTED_TYPES = ("STRING", "VARCHAR", "CHAR", "DATE", "TIMESTAMP", "BINARY")


@dataclass(frozen=True, slots=True)
class Offer:
    """One completion, and the text shown beside it."""

    text: str
    about: str = ""


class NameOffers:
    """The names that are expected at a place."""

    def __init__(self, session: Session | None, variables: Variables, expected: Expected) -> None:
        self._known: KnownNames | None = None if session is None else session.known_names
        self._session = session
        self._database = "default" if session is None else session.database
        self._catalog_name = "paimon" if session is None else session.settings.catalog_name
        self._variables = variables
        self._expected = expected

    def have_come(self) -> bool:
        """Wait `_WAIT_SECONDS` for pending reads of the name cache. Returns whether all have
        finished; False if none was pending."""
        if self._known is None or self._known.wait(0):
            return False
        return self._known.wait(_WAIT_SECONDS)

    def all(self) -> list[Offer]:
        """The completions, the likeliest kinds first."""
        offers: dict[str, Offer] = {}
        for want in self._expected.wants:
            for offer in self._offered(want):
                offers.setdefault(offer.text, offer)
                if len(offers) >= _SHOWN_MAX:
                    return list(offers.values())
        return list(offers.values())

    def _offered(self, want: Want) -> Iterable[Offer]:
        from paimon_magics.statements.completion import wants

        typed = self._expected.typed
        match want:
            case wants.Keywords(words):
                lower = typed.islower()
                cased = (Offer(w.lower() if lower else w, "keyword") for w in words)
                return matching(typed, cased)
            case wants.Tables(database, common):
                named = matching(typed, (Offer(name, "WITH") for name in common))
                frames = () if database else self._frames()
                return [*named, *self._tables(database), *matching(typed, frames)]
            case wants.SystemTables():
                return matching(typed, map(_system_table, _system_tables()))
            case wants.Databases():
                databases = self._known.databases() if self._known else ()
                return self._names(_starting(databases, typed), "database")
            case wants.Columns(relations, with_aliases):
                return matching(typed, self._columns(relations, with_aliases))
            case wants.Fields(relations, path):
                return matching(typed, self._fields(relations, path))
            case wants.Functions():
                of_catalog = () if self._known is None else self._known.functions(self._database)
                called = (*map(spelled, of_catalog), *FUNCTIONS)
                names = (Offer(f"{name}(", "function") for name in called if typed)
                return matching(typed, names)
            case wants.Partitions(table):
                return matching(typed, self._partitions(table))
            case wants.PartitionColumns(table):
                known = self._table(table)
                keys = known.partition_keys if known else ()
                return self._names(_starting(keys, typed), "partition column")
            case wants.PartitionValues(relations, column):
                return matching(typed, self._partition_values(relations, column))
            case wants.Versions(table, snapshots):
                return matching(typed, self._versions(table, snapshots))
            case wants.Times(table):
                return matching(typed, self._times(table))
            case wants.Options(of_reads):
                return matching(typed, self._options(of_reads))
            case wants.OptionValues(key):
                return matching(typed, self._option_values(key))
            case wants.BindNames():
                return matching(typed, self._bindable())
            case wants.Procedures(is_qualified):
                return matching(typed, _procedures(is_qualified))
            case wants.ProcedureParameters(procedure):
                return matching(typed, _parameters(procedure))
            case wants.ArgumentValues(procedure, parameter, table):
                name, kind = _parameter(procedure, parameter)
                return matching(typed, self._values(name, kind, table))

    def _tables(self, database: str | None) -> Iterator[Offer]:
        if self._known is None:
            return iter(())
        if database == self._catalog_name and database not in self._known.databases():
            databases = _starting(self._known.databases(), self._expected.typed)
            return iter(self._names(databases, "database"))
        names = self._known.tables(database or self._database)
        return iter(self._names(_starting(names, self._expected.typed), "table"))

    def _frames(self) -> Iterator[Offer]:
        """Frames of the notebook, which queries can read by name."""
        from paimon_magics.session.python_frames import frame_kind

        for name in sorted(self._variables):
            kind = frame_kind(self._variables[name])
            if kind is not None:
                yield Offer(self._written(name), f"{kind} frame")

    def _columns(self, relations: Sequence[Seen], with_aliases: bool) -> Iterator[Offer]:
        for seen in relations:
            for name, about in self._columns_of(seen):
                yield Offer(self._written(name), about)
        if with_aliases:
            for seen in relations:
                if seen.alias:
                    yield Offer(self._written(seen.alias) + ".", "alias")

    def _columns_of(self, seen: Seen) -> Iterator[tuple[str, str]]:
        known = self._table(seen.name) if seen.name is not None else None
        if known is not None:
            yield from ((column.name, column.type) for column in known.columns)
        elif seen.name is not None and seen.name.database is None:
            from paimon_magics.session.python_frames import column_names

            frame = self._variables.get(seen.name.object_name)
            yield from ((name, "column") for name in column_names(frame))
        yield from ((name, "column") for name in seen.columns)
        for inner in seen.stars:
            yield from self._columns_of(inner)

    def _fields(self, relations: Sequence[Seen], path: Sequence[str]) -> Iterator[Offer]:
        for seen in relations:
            types = dict(self._columns_of(seen))
            for name in path:
                kind = next((types[field] for field in types if field.lower() == name.lower()), "")
                types = _struct_fields(kind)
            for name, about in types.items():
                yield Offer(self._written(name), about)

    def _partitions(self, table: TableName) -> Iterator[Offer]:
        known = self._table(table)
        if known is None or self._known is None:
            return
        for values in self._known.partitions(self._full(table)):
            pairs = zip(known.partition_keys, values, strict=True)
            if None not in values:
                parts = (f"{key}={self._shown(value or '')}" for key, value in pairs)
                yield Offer("/".join(parts), "partition")

    def _partition_values(self, relations: Sequence[Seen], column: str) -> Iterator[Offer]:
        for seen in relations:
            known = self._table(seen.name) if seen.name is not None else None
            if known is None or self._known is None or seen.name is None:
                continue
            keys = [key.lower() for key in known.partition_keys]
            if column.lower() not in keys:
                continue
            position = keys.index(column.lower())
            types = {column.name.lower(): column.type for column in known.columns}
            is_text = types.get(column.lower(), "").startswith(_QUOTED_TYPES)
            values = self._known.partitions(self._full(seen.name))
            for value in dict.fromkeys(values[position] for values in values):
                if value is not None:
                    yield Offer(self._literal(self._shown(value), is_text), "partition")

    def _shown(self, value: str) -> str:
        """A partition's value as SHOW PARTITIONS and the views show it: instants in the session's
        zone. The name cache has them in UTC, marked with `Z`."""
        if not _INSTANT.fullmatch(value):
            return value
        return self._clock(datetime.datetime.fromisoformat(value))[0]

    def _clock(self, moment: datetime.datetime) -> tuple[str, str]:
        """A moment as text in the session's zone, and the zone."""
        from paimon_magics.columnar.time_zones import clock_text, rules_of

        return clock_text(moment.astimezone(rules_of(self._zone))), self._zone

    @cached_property
    def _zone(self) -> str:
        from paimon_magics.columnar.time_zones import UTC
        from paimon_magics.spark.session_settings import session_zone

        return UTC if self._session is None else session_zone(self._session.spark)

    def _versions(self, table: TableName, snapshots: bool) -> Iterator[Offer]:
        if self._known is None:
            return
        full = self._full(table)
        for tag in self._known.tags(full):
            # As a version a tag is a text literal; in statements on tags it is a name.
            yield Offer(self._literal(tag, is_text=snapshots), "tag")
        if snapshots:
            for snapshot in self._known.snapshots(full):
                moment = datetime.datetime.fromtimestamp(snapshot.time_ms // 1000, tz=datetime.UTC)
                time, zone = self._clock(moment)
                yield Offer(str(snapshot.id), f"{snapshot.kind} {time} {zone}")

    def _times(self, table: TableName | None) -> Iterator[Offer]:
        if self._known is not None and table is not None:
            full = self._full(table)
            for tag in self._known.tag_times(full):
                yield self._time(tag.time_ms, f"tag {tag.name}, snapshot {tag.snapshot_id}")
            for snapshot in self._known.snapshots(full):
                yield self._time(snapshot.time_ms, f"snapshot {snapshot.id}, {snapshot.kind}")
        if not self._expected.quote:
            yield from (Offer(text, "time") for text in TIME_FUNCTIONS)

    def _time(self, time_ms: int, about: str) -> Offer:
        """A moment in the session's zone. The offset behind it keeps the literal the same moment in
        the hour that occurs twice, and in a session of another zone."""
        from paimon_magics.columnar.time_zones import rules_of

        moment = _EPOCH + datetime.timedelta(milliseconds=time_ms)
        text = moment.astimezone(rules_of(self._zone)).isoformat(" ", "milliseconds")
        return Offer(self._literal(text, is_text=True), f"{about}, {self._zone}")

    def _values(self, parameter: str, kind: str, table: TableName | None) -> Iterator[Offer]:
        """Values of a procedure's parameter; numbers and truth stand outside of quotes."""
        if kind == "bool":
            yield from (Offer(word) for word in ("true", "false") if not self._expected.quote)
        elif parameter in _TABLE_PARAMETERS:
            yield from self._table_texts()
        elif parameter in _CHOICES:
            yield from self._texts((choice, "") for choice in _CHOICES[parameter])
        elif self._known is None:
            return
        elif parameter in ("database", "including_databases"):
            yield from self._texts((name, "database") for name in self._known.databases())
        elif table is not None:
            yield from self._values_of_table(parameter, kind, self._full(table))

    def _values_of_table(self, parameter: str, kind: str, table: TableName) -> Iterator[Offer]:
        known = self._known
        assert known is not None
        if parameter in ("tag", "version"):
            yield from self._texts((tag, "tag") for tag in known.tags(table))
        if parameter in ("version", "snapshot", "snapshot_id", "nextSnapshotId"):
            yield from (
                offer
                for offer in self._versions(table, snapshots=True)
                if offer.about != "tag" and (kind == "str" or not self._expected.quote)
            )
        elif parameter in _BRANCH_PARAMETERS:
            names = (*known.branches(table), *(["main"] if "_branch" in parameter else []))
            yield from self._texts((name, "branch") for name in names)
        elif parameter == "consumerId":
            progress = known.consumers(table)
            yield from self._texts((name, f"goes on with snapshot {id}") for name, id in progress)
        elif parameter == "partitions":
            for offer in self._partitions(table):
                yield from self._texts([(offer.text.replace("/", ","), offer.about)])
        elif parameter == "timestamp" and not self._expected.quote:
            for snapshot in known.snapshots(table):
                about = self._time(snapshot.time_ms, f"snapshot {snapshot.id}")
                yield Offer(str(snapshot.time_ms), f"{about.text.strip(chr(39))}, {about.about}")
        elif parameter == "older_than":
            yield from (offer for offer in self._times(table) if "(" not in offer.text)

    def _table_texts(self) -> Iterator[Offer]:
        """Names of tables as texts: of the current database, or of the one before the dot."""
        if self._known is None:
            return
        database, dot, _ = self._expected.typed.rpartition(".")
        if dot:
            tables = map(spelled, self._known.tables(database.strip("`")))
            yield from self._texts((f"{database}.{table}", "table") for table in tables)
            return
        tables = map(spelled, self._known.tables(self._database))
        yield from self._texts((table, "table") for table in tables)
        databases = map(spelled, self._known.databases())
        yield from self._texts((f"{name}.", "database") for name in databases)

    def _texts(self, texts: Iterable[tuple[str, str]]) -> Iterator[Offer]:
        """Texts with what is shown beside them, as literals."""
        for text, about in texts:
            yield Offer(self._literal(text, is_text=True), about)

    def _options(self, of_reads: bool) -> Iterator[Offer]:
        from paimon_magics.planning.options.table_options import OPTIONS
        from paimon_magics.planning.reads.read_points import READ_OPTIONS

        if of_reads:
            keys: Iterable[str] = READ_OPTIONS
        else:
            keys = ["primary-key", *OPTIONS]
        for key in keys:
            yield Offer(self._literal(key, is_text=True), _about_option(key))

    def _option_values(self, key: str) -> Iterator[Offer]:
        from paimon_magics.planning.options.table_options import OPTIONS

        option = OPTIONS.get(key)
        if option is None:
            return
        values = option.choices or (("true", "false") if option.type == "boolean" else ())
        for value in dict.fromkeys((*values, *filter(None, [option.default]))):
            about = "default" if value == option.default else ""
            yield Offer(self._literal(value, is_text=True), about)

    def _bindable(self) -> Iterator[Offer]:
        for name in sorted(self._variables):
            value = self._variables[name]
            if not callable(value) and not isinstance(value, ModuleType):
                yield Offer(name, type(value).__name__)

    def _names(self, names: Iterable[str], about: str) -> list[Offer]:
        return [Offer(self._written(name), about) for name in names]

    def _written(self, name: str) -> str:
        """A name as SQL, in back-quotes if it needs them."""
        if self._expected.quote or _PLAIN_NAME.match(name):
            return name
        return quoted(name)

    def _literal(self, text: str, is_text: bool) -> str:
        if not is_text:
            return text
        literal = text_literal(text)
        return literal[1:-1] if self._expected.quote else literal

    def _table(self, name: TableName) -> Any:
        return None if self._known is None else self._known.table(self._full(name))

    def _full(self, name: TableName) -> TableName:
        return replace(name, catalog=None, database=name.database or self._database)


def _struct_fields(kind: str) -> dict[str, str]:
    """The fields of a struct, or of an array of structs, with their types; {} for other types."""
    from paimon_magics.errors import PaimonMagicsError
    from paimon_magics.statements.data_types import ArrayType, RowType
    from paimon_magics.statements.types.type_text import from_sql, to_spark_sql

    try:
        data_type = from_sql(kind)
    except PaimonMagicsError:
        return {}
    if isinstance(data_type, ArrayType):
        data_type = data_type.element
    fields = data_type.fields if isinstance(data_type, RowType) else ()
    return {field.name: to_spark_sql(field.type) for field in fields}


def matching(typed: str, offers: Iterable[Offer]) -> list[Offer]:
    """The offers that begin with the typed text, then those with a later word that does."""
    wanted = typed.lower()
    texts = [(offer, offer.text.lower().lstrip("`'")) for offer in offers]
    first = [offer for offer, text in texts if text.startswith(wanted)]
    if len(wanted) < 2:
        return first
    inside = re.compile(rf"[^a-z0-9]{re.escape(wanted)}")
    return first + [
        offer for offer, text in texts if not text.startswith(wanted) and inside.search(text)
    ]


def _starting(names: Sequence[str], typed: str) -> list[str]:
    """The names that begin with `typed`, found by bisection in sorted names; if there are none,
    names that contain it."""
    low = bisect_left(names, typed)
    matches = []
    for name in names[low : low + _SHOWN_MAX]:
        if not name.startswith(typed):
            break
        matches.append(name)
    if matches or not typed:
        return matches
    wanted = typed.lower()
    return [name for name in names if wanted in name.lower()][:_SHOWN_MAX]


def open_session() -> Session | None:
    """The open session that cells may use. If there never was one, the modules of sessions are not
    imported: that takes seconds."""
    loaded: Any = sys.modules.get("paimon_magics.session.opening")
    return loaded.usable_session() if loaded is not None else None


def _system_tables() -> list[str]:
    from paimon_magics.planning.reads.views import ViewKind

    if open_session() is None:
        return []
    from paimon_magics.tables.system_tables.registry import METADATA_TABLES

    return sorted([*METADATA_TABLES, *(kind.value for kind in ViewKind if kind.value)])


def _system_table(name: str) -> Offer:
    return Offer(name, "system table")


def _about_option(key: str) -> str:
    from paimon_magics.planning.options.table_options import OPTIONS

    option = OPTIONS.get(key)
    if option is None:
        return "option"
    default = "no default" if option.default is None else f"default {option.default or 'empty'}"
    return f"{option.type}, {default}: {option.purpose}"


def _procedures(is_qualified: bool) -> Iterator[Offer]:
    from paimon_magics.planning.commits.procedures import PROCEDURES

    for procedure in PROCEDURES.values():
        name = procedure.name if is_qualified else f"sys.{procedure.name}"
        yield Offer(f"{name}(", procedure.form)


def _parameters(procedure: str) -> Iterator[Offer]:
    from paimon_magics.planning.commits.procedures import PROCEDURES

    definition = PROCEDURES.get(procedure.lower())
    for parameter in definition.parameters if definition is not None else ():
        need = "" if parameter.required else "optional "
        yield Offer(f"{parameter.name} => ", f"{need}{parameter.kind.__name__}")


def _parameter(procedure: str, parameter: str | int) -> tuple[str, str]:
    """The name and the kind of a procedure's parameter, which is written or at a place."""
    from paimon_magics.planning.commits.procedures import PROCEDURES

    definition = PROCEDURES.get(procedure.lower())
    parameters = definition.parameters if definition is not None else ()
    for place, known in enumerate(parameters):
        if parameter == place or str(parameter).lower() == known.name.lower():
            return known.name, known.kind.__name__
    return "", ""
