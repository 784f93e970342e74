"""Frames of tables and system tables, as `session.table` and `spark.table` give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from paimon_magics.errors import InvalidValueError, UnknownNameError, nearest, value_text
from paimon_magics.planning.reads.column_texts import calls_of_a_row, mentioned
from paimon_magics.planning.reads.views import shown_columns
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.session.connection import Connection
from paimon_magics.session.queries.frames import (
    buffered_frame,
    frame_of_stored,
    hidden_shown,
    metadata_frame,
)
from paimon_magics.session.queries.planned_reads import (
    KeptRead,
    kept_read,
    limits_of,
    plan_of,
)
from paimon_magics.session.queries.relations import Relation, relation_of
from paimon_magics.session.queries.resolution import check_reads_view
from paimon_magics.session.queries.snapshot_leases import SnapshotLeases
from paimon_magics.session.scope import StatementScope, errors_translated, scope_of_frame
from paimon_magics.session.settings_checks import check_settings, with_settings
from paimon_magics.spark.frame_steps import Narrowed, Source, conditions_in, has_only_conditions
from paimon_magics.spark.narrowing import note_source
from paimon_magics.spark.reading import read_frame
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.queries.plain_queries import ChosenColumn, PlainQuery
from paimon_magics.statements.queries.query_traits import lists_null
from paimon_magics.statements.queries.rewriting import hidden_columns_named
from paimon_magics.statements.statement import ColumnFilter, TableName
from paimon_magics.tables.reading.data_read import ReadRequest, plan_data_read
from paimon_magics.tables.reading.known_rows import row_count
from paimon_magics.tables.snapshots.targets import TableState
from paimon_magics.tables.system_tables.registry import is_metadata
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame


# Also of tables that show level 0 only after a compaction.
_ALL_LEVELS = {"batch-scan-mode": "compact"}


def frame_of_table(
    scope: StatementScope,
    name: TableName,
    options: Mapping[str, str] | None = None,
    *,
    include_buffer: bool = False,
    in_order: bool = False,
) -> DataFrame:
    """Return all rows of a table or system table as a lazy frame, with Paimon's read options;
    `include_buffer` as in `frame_of_query`. With `in_order` the two rows of an update stay next to
    each other; without it Spark may cut files anywhere."""
    all_options = with_settings(scope, name, options or {})
    return _frame_and_source(
        scope, name, all_options, include_buffer=include_buffer, in_order=in_order
    )[0]


def chosen_of_table(
    scope: StatementScope,
    name: TableName,
    options: Mapping[str, str],
    columns: object,
    where: object,
    *,
    include_buffer: bool = False,
) -> DataFrame:
    """Return the `columns` (None for all) of the rows that meet the condition `where` (None for
    all rows) as a lazy frame.

    Raises InvalidValueError for values that are not columns or not a condition, UnknownNameError
    for a column that the table does not have. Raises UnsupportedStatementError for a setting of
    Spark that is not supported. Spark's errors about the condition become our errors.
    """
    condition = _condition(where)
    all_options = with_settings(scope, name, options)
    texts = columns if isinstance(columns, Sequence) and not isinstance(columns, str) else ()
    hidden = hidden_columns_named(" ".join([*map(str, texts), condition or ""]))
    frame, source = _frame_and_source(
        scope,
        name,
        all_options,
        include_buffer=include_buffer,
        in_order=False,
        lists_null=condition is not None and lists_null(condition, {}),
        hidden=hidden,
    )
    if columns is None and condition is None:
        return frame
    known = frame.columns
    if columns is None and hidden and source is not None:  # all columns, as `*` shows them
        known = [column for column in known if column not in source.hidden]
    names = _chosen(columns, known, name)
    if condition is None and names == tuple(frame.columns):
        return frame
    with errors_translated(condition or ""):
        outputs = tuple(_Output(name, quoted(name), name) for name in names)
        plain = _cut(frame, condition, outputs)
        if source is None:
            return plain
        only_filters = condition is None or has_only_conditions(condition)
        filters = () if condition is None else conditions_in(condition)
        chosen = _Chosen(frame, source, outputs, condition, filters, only_filters)
        narrowed = chosen.read(Narrowed(None)) or plain
    note_source(narrowed, chosen)
    return narrowed


def frame_of_plain_query(
    scope: StatementScope, statement: str, plain: PlainQuery, names: Sequence[str] | None = None
) -> tuple[DataFrame, Source] | None:
    """The frame of a plain query of a table, and the source that reads less of it. None if the
    query is not of a table's data, or each row may depend on others. `names` are those of the
    columns, None for the query's own."""
    relation = relation_of(scope, plain.reference, statement, {})
    if not isinstance(relation, Relation) or is_metadata(relation.name):
        return None
    if relation.hidden or relation.changes:
        return None
    texts = [column.text for column in plain.columns or ()]
    if not all(map(calls_of_a_row, [*texts, plain.where or ""])):
        return None
    options = dict(relation.options)
    frame, source = _frame_and_source(
        scope,
        relation.name,
        options,
        include_buffer=False,
        in_order=True,
        lists_null=relation.lists_null,
    )
    if source is None:
        return None
    alias, reference = plain.reference.alias, plain.reference
    with errors_translated(statement):
        outputs = _outputs(frame.alias(alias), source, plain, names)
        if outputs is None:
            return None
        filters, only_filters = reference.filters, reference.only_filters
        chosen = _Chosen(frame, source, outputs, plain.where, filters, only_filters, alias)
        narrowed = chosen.read(Narrowed(None))
    return None if narrowed is None else (narrowed, chosen)


def _outputs(
    frame: DataFrame, source: Source, plain: PlainQuery, names: Sequence[str] | None
) -> tuple[_Output, ...] | None:
    """The columns of a plain query of a source's frame; None if their names are not unique or
    not as many as `names`, or if one may refer to the alias of another."""
    known = {column.name.lower(): column.name for column in source.columns}
    chosen = plain.columns or [ChosenColumn(quoted(column), column) for column in frame.columns]
    own = frame.selectExpr(*(choice.text for choice in chosen)).columns
    aliases = {name for name in own if name.lower() not in {name.lower() for name in source.names}}
    for name, choice in zip(own, chosen, strict=False):
        if mentioned(choice.text, aliases - {name}) != frozenset():
            return None
    shown = own if names is None else names
    if not len(chosen) == len(own) == len(shown) or len({name.lower() for name in shown}) < len(
        shown
    ):
        return None
    return tuple(
        _Output(name, choice.text, known.get((choice.stored or "").lower()), name != before)
        for name, before, choice in zip(shown, own, chosen, strict=True)
    )


def _frame_and_source(
    scope: StatementScope,
    name: TableName,
    options: Mapping[str, str] | None,
    *,
    include_buffer: bool,
    in_order: bool,
    lists_null: bool = False,
    hidden: frozenset[str] = frozenset(),
) -> tuple[DataFrame, _TableSource | None]:
    items = tuple(sorted((options or {}).items()))
    relation = Relation(name, items, unordered=not in_order, hidden=hidden, lists_null=lists_null)
    if is_metadata(name):
        return metadata_frame(scope, relation), None
    view = None if scope.tables.exists(name) else scope.find_view(name)
    if view is not None:
        check_reads_view(view, name, has_options=bool(options))
        return frame_of_stored(scope, view, include_buffer=include_buffer), None
    with SnapshotLeases(scope.committer) as leases:
        if include_buffer:
            buffered = buffered_frame(scope, relation, leases)
            if buffered is not None:
                return leases.noted(buffered), None
        # What is done with the frame decides what is read of it: nothing is read before.
        first = kept_read(scope, relation, leases, by_spark=True)
        frame = leases.noted(_new_frame(first), (name.object_name,))
    source = _TableSource(scope.connection, relation, first)
    note_source(frame, source)
    return frame, source


def _new_frame(read: KeptRead) -> DataFrame:
    """A frame of its own for a caller: the kept one stays for other queries. A text takes one call
    of the JVM, `select("*")` nine."""
    return read.frame.where("true")


@dataclass(frozen=True)
class _TableSource:
    """A table at one snapshot, which `first` reads with all columns."""

    connection: Connection
    relation: Relation
    first: KeptRead

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns that the view on the table shows."""
        return [column.name for column in self.columns]

    @property
    def columns(self) -> Sequence[Column]:
        """The columns that the view on the table shows."""
        return shown_columns(self.first.read.schema.columns, self.first.read.view)

    @property
    def hidden(self) -> tuple[str, ...]:
        """The columns that the frame has, though the table's star leaves them out."""
        return hidden_shown(StatementScope(self.connection), self.relation)

    @property
    def is_small(self) -> bool:
        """Whether this process reads all of it."""
        scope, read = StatementScope(self.connection), self.first.read
        limits = limits_of(scope, read, self.relation)
        return limits is not None and limits.take(read.planned.raw, read.planned.splits)

    def row_count(self) -> int | None:
        """The number of its rows, if the manifests have it."""
        return row_count(self.first.read)

    def showing(self, hidden: frozenset[str]) -> tuple[DataFrame, tuple[str, ...]] | None:
        """A frame of the same rows with hidden columns; None if the table has none of them."""
        relation = replace(self.relation, hidden=self.relation.hidden | hidden)
        scope = scope_of_frame(self.connection)
        names = tuple(name for name in hidden_shown(scope, relation) if name in hidden)
        if not names or self.connection.state.closed:
            return None
        try:
            with SnapshotLeases(scope.committer) as leases:
                first = kept_read(scope, relation, leases, self.first.planned, by_spark=True)
                frame = leases.noted(_new_frame(first), (relation.name.object_name,))
        finally:
            scope.views.drop_passing()
        source = _TableSource(self.connection, relation, first)
        note_source(frame, source)
        return frame, source.hidden

    def read(self, wanted: Narrowed) -> DataFrame | None:
        """A frame of fewer columns and files. None if they are the same, or the session is
        closed."""
        if self.connection.state.closed:
            return None
        scope = scope_of_frame(self.connection)
        check_settings(scope)  # texts of steps would mean something else
        names = wanted.columns
        relation = replace(
            self.relation,
            names=None if names is None else frozenset(name.lower() for name in names),
            filters=wanted.filters,
            bound=tuple(sorted(wanted.bound.items())),
            rows_wanted=wanted.rows,
            lists_null=self.relation.lists_null or wanted.lists_null,
        )
        try:
            with SnapshotLeases(scope.committer) as leases:
                narrowed = kept_read(scope, relation, leases, self.first.planned)
                if narrowed.view == self.first.view:
                    return None
                return leases.noted(_new_frame(narrowed), (relation.name.object_name,))
        finally:
            scope.views.drop_passing()


@dataclass(frozen=True, slots=True)
class _Output:
    """A column of a choice: its name and the text that gives it; `stored` is the column of the
    source that it shows, None for an expression. `is_renamed`: the text gives another name."""

    name: str
    text: str
    stored: str | None
    is_renamed: bool = False


@dataclass(frozen=True)
class _Chosen:
    """Some columns and rows of a source, whose frame with all of them is `frame`. `filters` are
    conditions in the condition `where`, and the whole of it with `only_filters`. The texts may
    qualify names by `alias`."""

    frame: DataFrame
    source: Source
    outputs: tuple[_Output, ...]
    where: str | None
    filters: tuple[ColumnFilter, ...]
    only_filters: bool
    alias: str = ""

    @property
    def names(self) -> Sequence[str]:
        """The names of the chosen columns."""
        return [output.name for output in self.outputs]

    @property
    def columns(self) -> Sequence[Column]:
        """The chosen columns that are not expressions."""
        by_name = {column.name: column for column in self.source.columns}
        return tuple(
            replace(by_name[output.stored], name=output.name)
            for output in self.outputs
            if output.stored is not None
        )

    @property
    def is_small(self) -> bool:
        """Whether this process reads all of its table."""
        return self.source.is_small

    def row_count(self) -> int | None:
        """The number of the rows, if all are chosen and the manifests have it."""
        return self.source.row_count() if self.where is None else None

    def showing(self, hidden: frozenset[str]) -> tuple[DataFrame, tuple[str, ...]] | None:
        """None: a choice of columns has no others."""
        return None

    def read(self, wanted: Narrowed) -> DataFrame | None:
        """A frame of the chosen columns that are wanted."""
        outputs = self.outputs
        if wanted.columns is not None:
            outputs = (
                tuple(output for output in outputs if output.name in wanted.columns) or outputs[:1]
            )
        texts = [output.text for output in outputs]
        used = mentioned(", ".join([*texts, self.where or ""]), self.source.names)
        stored = {
            output.name.lower(): output.stored
            for output in self.outputs
            if output.stored is not None
        }
        passed_on = [
            condition for condition in wanted.filters if condition.column.lower() in stored
        ]
        renamed = (
            replace(condition, column=stored[condition.column.lower()]) for condition in passed_on
        )
        only_filters = self.only_filters and len(passed_on) == len(wanted.filters)
        base = self.source.read(
            Narrowed(
                used,
                (*self.filters, *renamed),
                wanted.bound,
                wanted.rows if only_filters else None,
                wanted.lists_null,
            )
        )
        return self._of(self.frame if base is None else base, outputs)

    def _of(self, frame: DataFrame, outputs: Sequence[_Output]) -> DataFrame:
        rows = frame.alias(self.alias) if self.alias else frame
        return _cut(rows, self.where, outputs)


def _cut(frame: DataFrame, where: str | None, outputs: Sequence[_Output]) -> DataFrame:
    rows = frame if where is None else frame.where(where)
    selected = rows.selectExpr(*(output.text for output in outputs))
    renamed = any(output.is_renamed for output in outputs)
    return selected.toDF(*(output.name for output in outputs)) if renamed else selected


def _condition(where: object) -> str | None:
    if where is None or (isinstance(where, str) and where.strip()):
        return where
    raise InvalidValueError(
        f"`where` of table() is {value_text(where)}, not a condition.",
        hint="Give a SQL string, as in where=\"day = '2026-01-31'\", or call .where(…) on the "
        "frame, which accepts Spark's Columns too.",
    )


def _chosen(columns: object, known: Sequence[str], table: TableName) -> tuple[str, ...]:
    """The names of the chosen columns as the table spells them, in the order given."""
    if columns is None:
        return tuple(known)
    values = None if isinstance(columns, str | bytes | Mapping) else columns
    names = list(values) if isinstance(values, Sequence) else []
    wrong = [name for name in names if not isinstance(name, str)]
    if not names or wrong:
        problem = "an empty list" if isinstance(values, Sequence) else value_text(columns)
        problem = f"a list with {value_text(wrong[0])} in it" if wrong else problem
        raise InvalidValueError(
            f"`columns` of table() is {problem}, not a list of columns' names.",
            hint="Give their names in a list, as in columns=['id', 'amount']; leave it out for all "
            "columns.",
        )
    chosen = []
    for name in names:
        same = [column for column in known if column == name] or [
            column for column in known if column.lower() == name.lower()
        ]
        if not same:
            raise UnknownNameError(
                f"`{table}` has no column `{name}`.",
                hint=nearest(name, known, what="columns"),
            )
        if same[0] in chosen:
            raise InvalidValueError(
                f"`columns` of table() names `{same[0]}` twice.", hint="Name each column once."
            )
        chosen.append(same[0])
    return tuple(chosen)


# Frames of whole states of a table.


def frame_of_state(
    scope: StatementScope, table: Table, snapshot: Any, partitions: frozenset[bytes] | None
) -> DataFrame:
    """All rows of a snapshot, in the columns of the table's schema, merged whatever their level;
    of `partitions` (serialized) only, if given. The snapshot does not expire while the frame is
    there. Raises OutdatedPlanError if it has expired."""
    with SnapshotLeases(scope.committer) as leases:
        leases.require(table.name, int(snapshot.id))
        read = plan_data_read(
            table,
            ReadRequest(options=_ALL_LEVELS, zone=scope.zone, partitions=partitions),
            target=TableState(snapshot),
            manifests=scope.manifests(table),
            batch_rows=scope.settings.batch_rows,
        )
        plan = plan_of(scope, read)
        frame = read_frame(scope.spark, plan, read.schema.columns, read.reader)
        leases.planned.append(read.planned)
        return leases.noted(frame, (table.name.object_name,))
