"""Frames for the names in a query: Paimon's tables, system tables, files and Python's frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from paimon_magics.coordinator.client.small_inserts import buffered_entries
from paimon_magics.errors import (
    InvalidValueError,
    StatementError,
    UnknownNameError,
    UnsupportedStatementError,
)
from paimon_magics.planning.reads.read_points import Latest, point_of_read
from paimon_magics.planning.reads.views import ViewKind, metadata_columns
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.planning.writes.inserts import takes_small_inserts
from paimon_magics.session.catalog_views import CatalogView
from paimon_magics.session.connection import NamedView
from paimon_magics.session.parameters import bind
from paimon_magics.session.planned_work import Reads, made_of, note_reads, reads_of
from paimon_magics.session.python_frames import spark_frame, spooled_rows
from paimon_magics.session.queries.catalog_calls import with_spark_calls
from paimon_magics.session.queries.file_relations import FileRelation, frame_of_files
from paimon_magics.session.queries.inline_rows import with_types
from paimon_magics.session.queries.planned_reads import (
    KnownRow,
    check_whole_changes,
    fits_broadcast,
    kept_read,
    kind_of,
    query_read,
    table_of,
)
from paimon_magics.session.queries.relations import Relation, Selection, check_plain, relation_of
from paimon_magics.session.queries.resolution import GivenFrame, SparkOwn
from paimon_magics.session.queries.snapshot_leases import SnapshotLeases
from paimon_magics.session.scope import StatementScope, errors_located
from paimon_magics.session.settings_checks import check_settings
from paimon_magics.spark.frame_steps import Narrowed, Source
from paimon_magics.spark.jvm import is_connect
from paimon_magics.spark.queries import query_frame
from paimon_magics.spark.reading import change_rows
from paimon_magics.spark.rows import frame_of_rows, rows_with_keys, with_rows, without_keys
from paimon_magics.spark.types import frame_in_columns
from paimon_magics.statements.queries.plain_queries import (
    AggregateCall,
    PlainQuery,
    WholeAggregates,
    plain_query,
    whole_aggregates,
)
from paimon_magics.statements.queries.query_traits import adds_no_rows, used_names
from paimon_magics.statements.queries.rewriting import (
    ROW_ID_COLUMNS,
    Replacement,
    all_columns_word,
    current_names,
    stars_without_hidden,
)
from paimon_magics.statements.statement import Query, QueryText, TableReference
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.snapshots.targets import TableState
from paimon_magics.tables.snapshots.time_travel import find_target
from paimon_magics.tables.system_tables.registry import is_metadata, metadata_table
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from paimon_magics.session.queries.relations import Relation
    from paimon_magics.spark.handles import DataFrame
    from paimon_magics.tables.reading.applied_changes import Change


def frame_of_query(
    scope: StatementScope,
    statement: str,
    query: QueryText,
    parameters: Mapping[str, object],
    *,
    include_buffer: bool = False,
    selection: Selection | None = None,
    value_names: Callable[[int], Sequence[str]] | None = None,
) -> DataFrame:
    """Return the lazy frame of a query inside `statement`; with `include_buffer` also acknowledged
    rows that are not loaded. `selection` is for queries of rows to change. Errors have positions
    in `statement`, and those on values have the columns of `value_names`: see `with_types`."""
    bound = bind(query.parameters, parameters, statement, scope.zone)
    try:
        with SnapshotLeases(scope.committer) as leases:
            frame = frame_of_views(
                scope, statement, query, leases, bound,
                include_buffer=include_buffer, selection=selection,
            )  # fmt: skip
            names = tuple(reference.name.object_name for reference in query.references)
            return leases.noted(frame, names)
    except StatementError as error:
        raise with_types(error, scope.spark, statement, bound, value_names) from error.__cause__
    finally:
        scope.views.drop_passing()


def frame_of_views(
    scope: StatementScope,
    statement: str,
    query: QueryText,
    leases: SnapshotLeases,
    bound: Mapping[str, object],
    *,
    include_buffer: bool = False,
    selection: Selection | None = None,
) -> DataFrame:
    """Return the frame of a query with a view in place of each reference to a Paimon table. The
    caller drops passing views, and keeps `leases` for as long as they are used. `bound` are the
    values of the bind names."""

    def planned(names: frozenset[str] | None) -> DataFrame:
        reading = _Reading(scope, statement, leases, bound, names, include_buffer, selection)
        wanted = None if reading.shows_more else whole_aggregates(statement, query)
        read = _views(reading, query, () if wanted is None else wanted.calls)
        if isinstance(read, KnownRow):
            assert wanted is not None
            return _known_frame(reading, query, wanted, read)
        views, with_hidden = read
        more = _stars_without_hidden(statement, query, with_hidden, selection)
        if selection is not None:
            more = (*more, *selection.replacements)
        names_here = scope.settings.catalog_name, scope.database
        more = (*more, *current_names(statement, query, *names_here))
        if reading.rows and not reading.shows_more and adds_no_rows(statement, query):
            leases.rows_at_most = max(1, *reading.rows)
        frame = query_frame(scope.spark, statement, query, views, bound, more)
        scope.views.read_by(frame, {view for _, view in views})
        return frame

    names = used_names(statement, query)
    try:
        return planned(names)
    except UnknownNameError:
        if names is None:
            raise
        # With all columns Spark's error can suggest the one that was meant.
        return planned(None)


@dataclass(frozen=True, slots=True)
class _Reading:
    """What is known when the views of a query's references are made."""

    scope: StatementScope
    statement: str
    leases: SnapshotLeases
    bound: Mapping[str, object]
    names: frozenset[str] | None
    include_buffer: bool
    selection: Selection | None
    rows: list[int] = field(default_factory=list)
    """How many rows the relations have that this process read."""

    @property
    def shows_more(self) -> bool:
        """Whether rows are read that are not in the table's files, or rows to change."""
        return self.include_buffer or self.selection is not None

    def frame_for(self, reference: TableReference) -> DataFrame | None:
        """The frame that takes the place of the reference."""
        chosen = self.selection
        is_target = chosen is not None and reference.range.start == chosen.position
        return chosen.frame if chosen is not None and is_target else None

    def selects_from(self, query: QueryText, reference: TableReference) -> bool:
        """Whether rows to change are selected from the reference, and there is no other."""
        chosen = self.selection
        is_target = chosen is not None and reference.range.start == chosen.position
        return is_target and len(query.references) == 1

    def passing_view(self, stored: CatalogView, reference: TableReference) -> str:
        """A passing view of the rows that a view of the catalog gives the reference."""
        check_settings(self.scope)
        frame = frame_of_stored(self.scope, stored, reference, include_buffer=self.include_buffer)
        self.leases.hold_of(frame)
        return self.scope.views.pass_by(frame)

    def relation_of(
        self, reference: TableReference
    ) -> Relation | CatalogView | SparkOwn | FileRelation | GivenFrame:
        """What the reference reads."""
        chosen = self.selection
        is_target = chosen is not None and reference.range.start == chosen.position
        # The statement's target has been found before: neither Spark is asked about its name again,
        # nor the catalog.
        known = chosen.table if chosen is not None and is_target else None
        meaning = relation_of(self.scope, reference, self.statement, self.bound, self.names, known)
        if chosen is not None and chosen.shows_row_ids and isinstance(meaning, Relation):
            meaning = replace(meaning, hidden=meaning.hidden.union(ROW_ID_COLUMNS))
        if chosen is None or not isinstance(meaning, Relation) or meaning.name != chosen.table:
            return meaning
        if is_target:  # a row to change is told by its own columns and its id
            meaning = replace(meaning, hidden=meaning.hidden.intersection(ROW_ID_COLUMNS))
        if not (meaning.options or meaning.changes):
            meaning = replace(meaning, snapshot_id=chosen.snapshot_id)
        if not is_target:
            return meaning
        if chosen.conditions is None:
            return replace(meaning, names=None)
        filters, bound = chosen.conditions.filters, chosen.conditions.bound
        return replace(meaning, filters=filters, bound=bound)


def _known_frame(
    reading: _Reading, query: QueryText, wanted: WholeAggregates, known: KnownRow
) -> DataFrame:
    """The frame of a query whose aggregates are known without its table's rows."""
    if wanted.where is not None:
        query = replace(query, cuts=(*query.cuts, wanted.where))
    more = wanted.of_known(known.relation)
    reading.leases.rows_at_most = 1
    return query_frame(reading.scope.spark, reading.statement, query, (), reading.bound, more)


def _views(
    reading: _Reading, query: QueryText, aggregates: tuple[AggregateCall, ...]
) -> tuple[list[tuple[TableReference, str]], list[_WithHidden]] | KnownRow:
    """The views of the references, and the references whose views show hidden columns. Or, if the
    query is nothing but `aggregates` of its one reference, their results where they are known."""
    scope, statement, leases = reading.scope, reading.statement, reading.leases
    views, with_hidden = [], []
    frames: dict[str, str] = {}
    for reference in query.references:
        given_frame = reading.frame_for(reference)
        if given_frame is not None:
            leases.hold_of(given_frame)
            views.append((reference, scope.views.pass_by(given_frame)))
            continue
        with errors_located(statement, reference.range.start):
            match reading.relation_of(reference):
                case Relation() as relation:
                    frame = None
                    if reading.include_buffer:
                        frame = buffered_frame(scope, relation, leases)
                    if frame is not None:
                        view = scope.views.pass_by(frame)
                    else:
                        relation = replace(relation, aggregates=aggregates)
                        read = _view_of(scope, relation, leases, joined=len(query.references) > 1)
                        if isinstance(read, KnownRow):
                            return read
                        view, frame = read
                        known = reads_of(frame).rows_at_most
                        reading.rows.extend(() if known is None else (known,))
                        if reading.selects_from(query, reference):
                            leases.plan = reads_of(frame).plan
                        hidden = hidden_shown(scope, relation) if relation.hidden else ()
                        if hidden:
                            with_hidden.append((reference, hidden))
                case CatalogView() as stored:
                    view = reading.passing_view(stored, reference)
                case FileRelation() as files:
                    check_settings(scope)
                    view = scope.views.pass_by(frame_of_files(scope, files))
                case GivenFrame(name=name, frame=given):
                    check_settings(scope)
                    check_plain(reference)
                    if name not in frames:  # a self-join sends the frame once
                        frame = spark_frame(scope.spark, given)
                        leases.hold_of(frame)
                        scope.connection.state.keep_spooled(spooled_rows(frame))
                        frames[name] = scope.views.pass_by(frame)
                    view = frames[name]
                case SparkOwn():
                    narrow = _frame_of_view(scope, reference, reading.names, reading.bound)
                    if narrow is None:
                        continue
                    leases.hold_of(narrow)
                    view = scope.views.pass_by(narrow)
            views.append((reference, view))
    return views, with_hidden


def metadata_frame(scope: StatementScope, relation: Relation) -> DataFrame:
    """The rows of a system table that shows no data, such as `$snapshots`."""
    rows = metadata_table(
        scope.catalog,
        relation.name,
        snapshot_id=_snapshot_of(scope, relation),
        folder_of=lambda table: scope.manifests(table),
    )
    return note_reads(frame_of_rows(scope.spark, rows), Reads(rows_at_most=rows.num_rows))


def _snapshot_of(scope: StatementScope, relation: Relation) -> int | None:
    """The id of the snapshot that the read options name; None for the latest."""
    if relation.name.system_table is None:
        return None
    table = table_of(scope, relation)
    point = point_of_read(table.schema, dict(relation.options))
    if isinstance(point, Latest):
        return None
    target = find_target(table, point, scope.zone).target
    if not isinstance(target, TableState):
        raise InvalidValueError(
            f"`{relation.name}` shows one state of its table, not changes between two.",
            hint="Name a snapshot, a tag or a time.",
        )
    return None if target.snapshot is None else int(target.snapshot.id)


def _view_of(
    scope: StatementScope, relation: Relation, leases: SnapshotLeases, *, joined: bool
) -> tuple[str, DataFrame] | KnownRow:
    """A view of what a relation reads, and its frame. `joined`: the query may join it."""
    if is_metadata(relation.name):
        frame = metadata_frame(scope, relation)
        return scope.views.pass_by(frame), frame
    table_read = query_read(scope, relation, leases)
    if isinstance(table_read, KnownRow):
        return table_read
    view, frame = table_read.view, table_read.frame
    if relation.changes is not None:
        check_whole_changes(table_read)
        frame = note_reads(change_rows(frame), reads_of(frame))
        view = scope.views.pass_by(frame)
    if joined and fits_broadcast(scope, table_read):
        view = scope.views.pass_by(note_reads(frame.hint("broadcast"), reads_of(frame)))
    return view, frame


_WithHidden = tuple[TableReference, tuple[str, ...]]


def hidden_shown(scope: StatementScope, relation: Relation) -> tuple[str, ...]:
    """The hidden columns that the view of a relation has."""
    table = table_of(scope, relation)
    kind = kind_of(table, relation)
    is_tracked = kind is ViewKind.ROW_TRACKING and relation.name.system_table is None
    metadata = metadata_columns(table.schema, kind, relation.hidden)
    return (*(ROW_ID_COLUMNS if is_tracked else ()), *(column.name for column in metadata))


def _stars_without_hidden(
    statement: str,
    query: QueryText,
    with_hidden: Sequence[_WithHidden],
    selection: Selection | None,
) -> tuple[Replacement, ...]:
    """The replacements by which a query's stars leave hidden columns out. Raises
    UnsupportedStatementError for a query that uses all columns of a table in another way. A table
    that is the source of a MERGE shows its row ids: clauses name them."""
    if not with_hidden:
        return ()
    word = all_columns_word(statement, query)
    if word == "TABLE" and selection is not None and selection.shows_row_ids:
        named = {column for _, hidden in with_hidden for column in hidden}
        word = None if named.issubset(ROW_ID_COLUMNS) else word
    if word is not None:
        (reference, hidden), *_ = with_hidden
        raise UnsupportedStatementError(
            f"`{hidden[0]}` is a hidden column of `{reference.name}`, and {word} uses all columns.",
            hint=f"Write (SELECT *, {hidden[0]} FROM {reference.name}) in place of the table.",
            statement=statement,
            position=reference.range.start,
        )
    return stars_without_hidden(statement, query, with_hidden)


# A table together with small inserts that are acknowledged but not loaded yet.
#
# The coordinator gives snapshot and buffered rows as of one moment, so no row is missing or counted
# twice, and later loads do not change what the query sees. Records of older schemas are mapped as
# loading will map them. Records that can't be loaded (future dead letters) are left out.


def buffered_frame(
    scope: StatementScope, relation: Relation, leases: SnapshotLeases
) -> DataFrame | None:
    """Return the rows that `relation` will have when all inserts acknowledged now are loaded. None
    if it accepts no small inserts, or is not the table's current state.

    Raises InvalidValueError if the session has no coordinator to ask, CommitConflictError while the
    coordinator does not know what is acknowledged.
    """
    name = relation.name
    if name.system_table is not None or name.branch is not None or relation.options:
        return None
    relation = replace(relation, hidden=frozenset())  # such rows have no ids and places yet
    table = scope.tables.load(name)
    if not takes_small_inserts(table.schema) or _reads_another_state(table.schema):
        return None
    if scope.committer.inserts() is None:
        raise InvalidValueError(
            f"Acknowledged rows of `{name}` that are not loaded can't be read: this session has no "
            "coordinator.",
            hint="Connect with coordinator='embedded' or the address of a coordinator, or leave "
            "`include_buffer` (--include-buffer) out.",
        )

    def read(stored: Relation) -> DataFrame:
        return kept_read(scope, stored, leases).frame

    buffer = scope.committer.administration().queues.buffer(name)
    if buffer.acknowledged == buffer.published:
        return read(replace(relation, snapshot_id=buffer.snapshot_id))
    entries = buffered_entries(buffer, table)
    keys = table.schema.primary_keys
    names = None if relation.names is None else relation.names | {key.lower() for key in keys}
    below = read(replace(relation, snapshot_id=buffer.snapshot_id, names=names))
    if not keys:
        return with_rows(scope.spark, below, _rows_of(entries, table.schema))
    whole = replace(relation, snapshot_id=buffer.snapshot_id, names=None, filters=())
    return _upserted(scope, table, below, entries, lambda: read(whole))


def _rows_of(entries: Sequence[pa.RecordBatch | Change], schema: TableSchema) -> pa.Table:
    """The rows that are inserted."""
    import pyarrow as pa

    batches = [entry for entry in entries if isinstance(entry, pa.RecordBatch)]
    return pa.Table.from_batches(batches, arrow_schema(schema))


def _reads_another_state(schema: TableSchema) -> bool:
    """Whether the table's own options make a read one of an earlier state, or of changes."""
    return not isinstance(point_of_read(schema, {}), Latest)


def _upserted(
    scope: StatementScope,
    table: Table,
    below: DataFrame,
    entries: Sequence[pa.RecordBatch | Change],
    whole: Callable[[], DataFrame],
) -> DataFrame:
    """Return the frame as it will be when `entries` are loaded. `whole` gives the frame with all
    columns."""
    import pyarrow as pa

    from paimon_magics.tables.reading.applied_changes import (
        changed_rows,
        keys_of,
        merged_on_top,
        needs_rows_below,
    )
    from paimon_magics.tables.schema.arrow_casting import conform

    spark, table_schema = scope.spark, table.schema
    rows = _rows_of(entries, table_schema)
    keys = rows.select(list(table_schema.primary_keys))
    schema = arrow_schema(table_schema)
    old = schema.empty_table()
    changed = keys_of(entries)
    if changed is not None:
        keys = pa.concat_tables([keys, changed.cast(keys.schema)])
    if changed is not None or needs_rows_below(table_schema):
        stored = rows_with_keys(spark, whole(), keys)
        old = pa.Table.from_batches(
            [conform(to_batch, schema) for to_batch in stored.to_batches()], schema
        )
    if changed is not None:
        rows = changed_rows(table_schema, entries, lambda _: old)
    merged = merged_on_top(table_schema, old, rows)
    return with_rows(spark, without_keys(spark, below, keys), merged)


# Temporary views that choose columns and rows of a table: queries of them read what they use.


def note_view(scope: StatementScope, name: str, frame: DataFrame, source: Source | None) -> None:
    """Note a new view of `frame`, and what it reads; None for a view that is left to Spark."""
    # Spark Connect gives the frame of a name anew at each call, so that a view which another call
    # has replaced would not be noticed.
    is_read = source is not None and not is_connect(scope.spark)
    view = NamedView(frame, source, scope.spark.table(name)) if is_read else NamedView(frame)
    scope.connection.state.views[name.lower()] = view


def _frame_of_view(
    scope: StatementScope,
    reference: TableReference,
    names: frozenset[str] | None,
    bound: Mapping[str, object],
) -> DataFrame | None:
    """The rows of a view that the query of `reference` can use, with the columns among `names`
    (None for all). None if Spark reads the view."""
    name = reference.name.object_name
    view = scope.connection.state.views.get(name.lower())
    if view is None or view.source is None or reference.name.database is not None:
        return None
    if view.shown is None or not scope.spark.table(name).sameSemantics(view.shown):
        return None  # PySpark has replaced the view
    columns = view.source.names
    used = None if names is None else frozenset(name for name in columns if name.lower() in names)
    return view.source.read(Narrowed(used, reference.filters, bound, reference.rows_wanted))


# Views that the catalog keeps.


def frame_of_stored(
    scope: StatementScope,
    view: CatalogView,
    reference: TableReference | None = None,
    *,
    include_buffer: bool = False,
) -> DataFrame:
    """The rows of a view that the catalog keeps. Its query reads Paimon's tables as they are now,
    with the rights of who reads it. Files that can't matter for the conditions of `reference` are
    left out where the query only chooses columns and rows of one table. Raises errors of ours that
    name the view."""
    try:
        frame = frame_of_its_query(scope, view, reference, include_buffer=include_buffer)
        columns = view.schema.columns
        if len(frame.columns) < len(columns):
            few = f"its query gives {len(frame.columns)} columns now, and it has {len(columns)}."
            raise StatementError(few, hint="ALTER VIEW … AS gives it another query.")
    except StatementError as error:
        raise _unreadable(view, error) from error
    return made_of(frame_in_columns(frame, columns), frame)


def frame_of_its_query(
    scope: StatementScope,
    view: CatalogView,
    reference: TableReference | None = None,
    *,
    include_buffer: bool = False,
) -> DataFrame:
    """As `frame_of_stored`, with the columns of the query. Errors are those of the query, with
    positions in the view's text."""
    inner, text, query = query_of_view(scope, view, reference)
    with SnapshotLeases(scope.committer) as leases:
        frame = frame_of_views(inner, text, query, leases, {}, include_buffer=include_buffer)
        leases.rows_at_most = None  # others may be joined with them
        return leases.noted(frame, (view.name.object_name,))


def query_of_view(
    scope: StatementScope, view: CatalogView, reference: TableReference | None
) -> tuple[StatementScope, str, QueryText]:
    """The scope, the text and the query of a view, with those of the conditions of `reference` that
    the view's own table can meet."""
    inner = scope.within(view.name)
    statement = with_spark_calls(inner, view.parsed())
    assert isinstance(statement, Query)
    query = statement.query
    plain = plain_query(statement.text, query)
    if plain is not None and plain.columns is not None and reference is not None:
        query = replace(query, references=(_passed_on(plain, view, reference),))
    return inner, statement.text, query


def _passed_on(plain: PlainQuery, view: CatalogView, reference: TableReference) -> TableReference:
    """The view's own reference with the conditions on its columns that are the table's."""
    names = (column.name.lower() for column in view.schema.columns)
    stored = dict(zip(names, (column.stored for column in plain.columns or ()), strict=False))
    passed = []
    for condition in reference.filters:
        column = stored.get(condition.column.lower())
        if column is not None and all(value.kind != "parameter" for value in condition.values):
            passed.append(replace(condition, column=column))
    return replace(plain.reference, filters=(*plain.reference.filters, *passed))


def _unreadable(view: CatalogView, error: StatementError) -> StatementError:
    """The error of a view's query, for a statement that reads the view."""
    message = error.message
    if not message.startswith("The view `"):
        message = f"The view `{view.name}` can't be read: {message}"
    return type(error)(message, hint=error.hint)
