"""Answers to PySpark's own calls on Paimon's tables: rows, or a refusal with what to call instead.

A read gives what a cell would give. Calls that would change a Paimon table, or create a table of
Spark's own under its name, are refused. `spark.pyspark_calls` routes the calls here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from paimon_magics.boundary import short_errors
from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    UnsupportedStatementError,
)
from paimon_magics.planning.commits.procedures import check_passed
from paimon_magics.planning.copying.file_formats import check_file_options
from paimon_magics.planning.options.values import boolean_value
from paimon_magics.session.connection import Connection
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.parameters import bind
from paimon_magics.session.queries.frames import frame_of_views
from paimon_magics.session.queries.resolution import is_paimon_name, is_paimon_table
from paimon_magics.session.queries.snapshot_leases import SnapshotLeases
from paimon_magics.session.queries.table_frames import frame_of_table
from paimon_magics.session.scope import StatementScope, errors_located
from paimon_magics.spark.queries import (
    cancellable,
    has_own_catalog,
    is_temporary_view,
    known_to_spark,
)
from paimon_magics.spark.rows import frame_without_rows
from paimon_magics.spark.sessions import is_alive
from paimon_magics.statements.clauses.names import named, text_literal
from paimon_magics.statements.definitions import (
    AlterView,
    CreateFunction,
    CreateView,
    DescribeFunction,
    DropFunction,
    DropView,
    ShowFunctions,
)
from paimon_magics.statements.dialects.alternatives import instead_of
from paimon_magics.statements.grammar.calls import passed_procedure
from paimon_magics.statements.grammar.parsing import parse_cell
from paimon_magics.statements.grammar.spark_passthrough import (
    file_options,
    leading_words,
    names_in,
    passed,
)
from paimon_magics.statements.statement import (
    CreateTable,
    Delete,
    DropTable,
    Insert,
    MergeInto,
    PassThrough,
    QueryText,
    TableName,
    TableReference,
    TextRange,
    TruncateTable,
    Update,
)
from paimon_magics.statements.subjects import Explain, Statement, subject_of
from paimon_magics.statements.table_changes import AlterTable, RenameTable

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame, SparkSession


_WRITE = "Call session.write(frame, '{name}', mode='append'), or with 'overwrite', 'dynamic'."
_INSTEAD = {
    "saveAsTable": _WRITE,
    "insertInto": _WRITE,
    "writeTo": _WRITE,
    "mergeInto": "Write session.merge(frame, '{name}', on='t.id = s.id').when_….run().",
    "listColumns": "Run DESCRIBE {name}, or ask session.table('{name}').schema.",
    "getTable": "Run DESCRIBE {name}.",
    "cacheTable": "Call session.table('{name}').cache().",
}
_RUN = "Run it in a %%paimon cell, or by session.run."


@short_errors
class SparkCalls:
    """Answers for one session. `run` runs a statement with the values of its bind names."""

    def __init__(
        self, connection: Connection, run: Callable[[str, Mapping[str, object]], Outcome]
    ) -> None:
        self._connection = connection
        self._run = run

    @property
    def spark(self) -> SparkSession:
        """The Spark session that the tables are read on."""
        return self._connection.spark

    def table(self, name: str, options: Mapping[str, str]) -> DataFrame | None:
        """Return the rows of a Paimon table with Paimon's read options; None for Spark's names.

        Raises UnknownNameError for an unknown read option.
        """
        table = self._named(name)
        if table is None or not self._is_read(table) or not is_alive(self.spark):
            return None
        return frame_of_table(
            StatementScope(self._connection), self._connection.full_name(table), options
        )

    def changes(self, name: str, options: Mapping[str, str]) -> DataFrame | None:
        """Return the changes of a Paimon table that Spark's options of `changes` choose, as the
        clause CHANGES reads them; None for Spark's names. Raises InvalidValueError for options that
        choose none."""
        table = self._named(name)
        if table is None or not self._is_read(table) or not is_alive(self.spark):
            return None
        return self._run(f"SELECT * FROM {name} {changes_clause(options)}", {}).dataframe

    def exists(self, name: str) -> bool | None:
        """Whether Paimon has the table; an unqualified name is one of the session's database. None
        for a name that Spark may have."""
        table = self._named(name)
        if table is None or not self._is_read(table):
            return None
        return self._exists(table)

    def is_paimons(self, name: str) -> bool:
        """Whether a table's name means one of Paimon's."""
        table = self._named(name)
        return table is not None and self._taken(table) is not None

    def refuse(self, call: str, name: str) -> None:
        """Raise UnsupportedStatementError if Paimon has a table of that name."""
        table = self._named(name)
        taken = None if table is None else self._taken(table)
        if taken is None:
            return
        hint = _INSTEAD.get(call.rpartition(".")[2], "Run the statement for it by session.run.")
        raise UnsupportedStatementError(
            f"`{taken}` is a Paimon table, and {call} only works on tables of Spark's own.",
            hint=f"{hint.format(name=taken)} {_spark_own(taken)}",
        )

    def query(self, text: str, args: object, formatted: bool) -> DataFrame | None:
        """Return the rows of a statement on Paimon's tables; None if it names none.

        Raises UnsupportedStatementError for a statement that would change a Paimon table.
        """
        statement = _parsed(text)
        if statement is None or formatted or isinstance(args, list):
            self._refuse_unread(text)
            return None
        for name in _changed(statement):
            taken = self._taken(name)
            if taken is not None:
                raise _not_by_sql(text, taken)
        read = next(filter(self._is_read, _read(statement)), None)
        if read is None or not is_alive(self.spark):
            return None
        if isinstance(statement, CreateTable | CreateView) and not is_for_spark(
            StatementScope(self._connection), statement
        ):
            raise _not_by_sql(text, read)
        values = args if isinstance(args, Mapping) else {}
        outcome = self._run(text, dict(values))
        return outcome.dataframe or frame_without_rows(self.spark)

    def _refuse_unread(self, text: str) -> None:
        """Check every name in a text that can't be parsed as one statement. Raises
        UnsupportedStatementError for a Paimon table among them."""
        for name in names_in(text):
            taken = self._taken(name)
            if taken is not None:
                raise UnsupportedStatementError(
                    f"`{taken}` is a Paimon table, and this form of SparkSession.sql only works on "
                    "tables of Spark's own.",
                    hint=f"Give one statement, and bind values by names, as :day. {_RUN}",
                )

    def _named(self, text: str) -> TableName | None:
        try:
            return named(text)
        except UnsupportedStatementError:
            return None

    def _is_ours(self, name: TableName) -> bool:
        """Whether Paimon's catalog may be meant: not if the name has one of Spark's catalogs."""
        ours = self._connection.settings.catalog_name
        return name.catalog in (None, ours) and not has_own_catalog(self.spark, name.catalog)

    def _exists(self, name: TableName) -> bool:
        try:
            return is_paimon_name(
                StatementScope(self._connection), self._connection.full_name(name)
            )
        except PaimonMagicsError:
            return False  # Paimon's catalog can't have such a name

    def _is_read(self, name: TableName) -> bool:
        """Whether a query of that name reads Paimon's table, as in a cell."""
        if not self._is_ours(name):
            return False
        if name.catalog is not None:
            return True  # our own error says what is wrong with it
        if name.database is None and is_temporary_view(self.spark, name.object_name):
            return False
        return self._exists(name)

    def _taken(self, name: TableName) -> TableName | None:
        """Return the Paimon table that a Spark table of that name would collide with, in the
        session's or Spark's current database. Ignores case, as Spark does.
        """
        if not self._is_ours(name):
            return None
        if name.catalog is not None:
            return self._connection.full_name(name)
        databases = [name.database or self._connection.state.database]
        if name.database is None and is_alive(self.spark):  # Spark may have been stopped
            databases.append(self.spark.catalog.currentDatabase())
        for database in dict.fromkeys(databases):
            match = self._of_any_case(replace(name, database=database))
            if match is not None:
                return match
        return None

    def _of_any_case(self, name: TableName) -> TableName | None:
        if self._exists(name):
            return name
        catalog, database = self._connection.catalog, name.database or ""
        if not catalog.database_exists(database):
            return None
        tables = catalog.list_tables(database)
        same = (table for table in tables if table.lower() == name.table.lower())
        return next((replace(name, table=table) for table in same), None)


_BOUNDS = ("starting{}", "ending{}", "startingBoundInclusive", "endingBoundInclusive")


def changes_clause(options: Mapping[str, str]) -> str:
    """The clause CHANGES that the options of `spark.read.changes` mean. Source: Spark's
    `ChangelogContextUtils`."""
    rest = {key.lower(): value for key, value in options.items()}
    named = {
        kind: [rest.pop(bound.format(kind).lower(), None) for bound in _BOUNDS[:2]]
        for kind in ("version", "timestamp")
    }
    chosen = [(kind, bounds) for kind, bounds in named.items() if any(bounds)]
    if len(chosen) != 1 or chosen[0][1][0] is None:
        raise InvalidValueError(
            "The changes of a table need a start: a version or a timestamp, not both.",
            hint="spark.read.option('startingVersion', 3).option('endingVersion', 7).changes(…), "
            "or startingTimestamp and endingTimestamp.",
        )
    ((kind, bounds),) = chosen
    texts = []
    for word, bound, option in zip(("FROM", "TO"), bounds, _BOUNDS[2:], strict=True):
        included = boolean_value(option, rest.pop(option.lower(), "true"))
        if bound is not None:
            texts += [word, kind.upper(), text_literal(bound), *([] if included else ["EXCLUSIVE"])]
    if rest:
        listed = (f"{text_literal(key)} = {text_literal(value)}" for key, value in rest.items())
        texts.append(f"WITH ({', '.join(listed)})")
    return " ".join(["CHANGES", *texts])


def _parsed(text: str) -> Statement | None:
    """The single statement of a text; None if the text is left to Spark."""
    try:
        statements = parse_cell(text)
    except PaimonMagicsError:
        return None
    return statements[0] if len(statements) == 1 else None


def _changed(statement: Statement) -> Iterable[TableName]:
    """The tables that a statement changes or creates, or names if it is passed to Spark."""
    match statement:
        case AlterTable(name=name, changes=(RenameTable(new_name=new_name),)):
            return (name, replace(new_name, database=new_name.database or name.database))
        case PassThrough(names=names):
            return tuple(name for name, _ in names)
        case _:
            subject = subject_of(statement)
            return () if subject.only_tells or subject.table is None else (subject.table,)


def _read(statement: Statement) -> Iterable[TableName]:
    """The tables that a statement reads or describes."""
    if isinstance(statement, Explain):
        return (*_read(statement.inner), *_changed(statement.inner))
    subject = subject_of(statement)
    described = (subject.table,) if subject.only_tells and subject.table is not None else ()
    return (*subject.sources, *described)


def _not_by_sql(text: str, name: TableName) -> UnsupportedStatementError:
    word = text.split(None, 1)[0].upper()
    return UnsupportedStatementError(
        f"SparkSession.sql can't run {word} on `{name}`, which is a Paimon table.",
        hint=f"{_RUN} {_spark_own(name)}",
    )


def _spark_own(name: TableName) -> str:
    shown = f"spark_catalog.{name.database or 'default'}.{name.object_name}"
    return f"A table of Spark's own is named in full: {shown}."


# Statements that are passed to Spark: on its own tables and views, or of other kinds than ours.


def is_for_spark(scope: StatementScope, statement: Statement) -> bool:
    """Whether Spark runs the statement: it is about a table that only Spark has, or of a kind that
    is passed on."""
    match statement:
        case CreateTable(using=using):
            return using not in (None, "paimon")
        case PassThrough():
            return True
        case CreateView():
            return _is_view_of_spark(scope, statement)
        case CreateFunction(name=own) | DropFunction(name=own) | DescribeFunction(name=own):
            return own.catalog not in (None, scope.settings.catalog_name)
        case ShowFunctions(database=database):
            return database is not None and not scope.catalog.database_exists(database)
        case _:
            name = subject_of(statement).table
            return name is not None and _is_sparks(scope, name)


def _is_view_of_spark(scope: StatementScope, statement: CreateView) -> bool:
    """Whether CREATE VIEW makes a view of Spark's own: in another catalog, or where Paimon's can't
    keep any and the query reads nothing of Paimon's."""
    name, ours = statement.name, (None, scope.settings.catalog_name)
    if name.catalog not in ours:
        return True
    if scope.stored_views is not None or name.catalog is not None:
        return False
    return all(
        reference.name.catalog not in ours
        or not is_paimon_table(scope, scope.full_name(reference.name))
        for reference in statement.query.references
    )


def own_name(scope: StatementScope, name: TableName) -> str | None:
    """The full name of a table of Spark's own; None for a temporary view."""
    if name.catalog is not None:
        return str(name)
    if name.database is None and is_temporary_view(scope.spark, name.object_name):
        return None
    catalog = scope.spark.catalog
    database = name.database or catalog.currentDatabase()
    return f"{catalog.currentCatalog()}.{database}.{name.object_name}"


def _tell_of_own(scope: StatementScope, statement: Statement) -> None:
    """Add a note on Spark's table that a statement deletes or changes, under a name that could be
    of Paimon's."""
    match statement:
        case (
            DropTable(name=name)
            | TruncateTable(name=name)
            | Insert(target=name, overwrite=True)
            | Delete(target=name)
            | Update(target=name)
            | MergeInto(target=name)
            | AlterTable(name=name)
        ) if name.catalog is None:
            own = own_name(scope, name)
        case _:
            return
    if own is not None:
        scope.note(
            f"`{name}` is a table of Spark's own here, {own}: Paimon has no table "
            f"`{scope.full_name(name)}`."
        )


def pass_to_spark(
    scope: StatementScope, statement: Statement, parameters: Mapping[str, object]
) -> Outcome:
    """Run the statement's text in Spark, with views for the Paimon tables that its query reads.

    Raises UnsupportedStatementError if the statement would act on a Paimon table.
    """
    if isinstance(statement, CreateView | AlterView | DropView):
        own, statement = statement.name_position, passed(statement.text, statement.offset)
        others = tuple(named for named in statement.names if named[1] != own)
        statement = replace(statement, names=others)  # a temporary view may hide a table
    match statement:
        case PassThrough():
            _refuse_paimon(scope, statement)
            _check_file_options(statement)
        case CreateTable(name=name, name_position=position):
            _refuse_shadow(scope, statement, name, position)
            _refuse_copy(scope, statement)
            _check_file_options(statement)
        case Delete() | Update() | MergeInto():
            _refuse_view(scope, statement)
        case AlterTable(name=name, changes=(RenameTable(new_name=new_name),)):
            target = replace(new_name, database=new_name.database or name.database)
            _refuse_shadow(scope, statement, target, statement.name_position)
    _tell_of_own(scope, statement)
    query = _whole(statement)
    bound = bind(query.parameters, parameters, statement.text, scope.zone)
    try:
        with SnapshotLeases(scope.committer) as leases:
            with cancellable(scope.spark):  # Spark runs commands at once
                frame = frame_of_views(scope, statement.text, query, leases, bound)
            leases.noted(frame)
    finally:
        scope.views.drop_passing()
    if not frame.columns:
        message = f"Spark ran {leading_words(statement.text)}; it returns no rows."
        return Outcome(statement.text, "Spark statement", message=message)
    return Outcome(
        statement.text,
        "Spark statement",
        dataframe=frame,
        display_rows=scope.settings.display_rows,
    )


def _is_sparks(scope: StatementScope, name: TableName) -> bool:
    if name.catalog is not None:
        return name.catalog != scope.settings.catalog_name
    if name.database is None and is_temporary_view(scope.spark, name.object_name):
        return True
    if is_paimon_name(scope, scope.full_name(name)):
        return False
    parts = [part for part in (name.database, name.object_name) if part is not None]
    return known_to_spark(scope.spark, parts)


def _refuse_paimon(scope: StatementScope, statement: PassThrough) -> None:
    word = statement.text.split(None, 1)[0].upper()
    kind = "INSERT OVERWRITE DIRECTORY" if word == "INSERT" else word
    procedure = passed_procedure(statement.text) if word == "CALL" else None
    if procedure is not None:
        names, position = procedure
        current = scope.spark.catalog.currentCatalog()
        check_passed(names, scope.settings.catalog_name, current, statement.text, position)
    for name, position in statement.names:
        if name.catalog in (None, scope.settings.catalog_name) and is_paimon_table(
            scope, scope.full_name(name)
        ):
            raise UnsupportedStatementError(
                f"{kind} is not offered for Paimon's table `{name}`.",
                hint=instead_of(kind, name),
                statement=statement.text,
                position=position,
            )


def _check_file_options(statement: PassThrough | CreateTable) -> None:
    """Raise UnknownNameError for OPTIONS of a view, table or folder of files that Spark does not
    know, and would pass over."""
    options = file_options(statement.text)
    if options is not None:
        kind, names, position = options
        with errors_located(statement.text, position):
            check_file_options(kind, names)


def passed_line(scope: StatementScope, statement: PassThrough) -> str:
    """What Spark would do, as a sentence. Raises as `pass_to_spark` for what it refuses itself."""
    _refuse_paimon(scope, statement)
    _check_file_options(statement)
    return f"Spark would run {leading_words(statement.text)}, which it checks itself."


def _refuse_view(scope: StatementScope, statement: Delete | Update | MergeInto) -> None:
    """Refuse to change the rows of a temporary view: Spark's own error is unclear."""
    name = statement.target
    if name.catalog or name.database or not is_temporary_view(scope.spark, name.object_name):
        return
    raise UnsupportedStatementError(
        f"`{name}` is a temporary view: it has no rows of its own to change.",
        hint="Name the table that it reads.",
        statement=statement.text,
        position=statement.target_position,
    )


def _refuse_shadow(
    scope: StatementScope, statement: Statement, name: TableName, position: int
) -> None:
    """Refuse to create a Spark table under a Paimon table's name: queries would not find it."""
    if name.catalog in (None, scope.settings.catalog_name) and is_paimon_table(
        scope, scope.full_name(name)
    ):
        full = scope.full_name(name)
        raise UnsupportedStatementError(
            f"`{full}` is a Paimon table: one of Spark's own would not be found under its name.",
            hint="Choose another name, or name Spark's in full: "
            f"spark_catalog.{full.database}.{full.table}.",
            statement=statement.text,
            position=position,
        )


def _refuse_copy(scope: StatementScope, statement: CreateTable) -> None:
    """Refuse a table of Spark's own that is to be LIKE one of Paimon's, which Spark lacks."""
    like = statement.like
    if like is None or _taken_by_paimon(scope, like) is None:
        return
    raise UnsupportedStatementError(
        f"`{like}` is a Paimon table, which Spark can't copy for USING {statement.using}.",
        hint=f"Write CREATE TABLE {statement.name} USING {statement.using} AS SELECT * FROM {like} "
        "WHERE false.",
        statement=statement.text,
        position=statement.like_position,
    )


def _taken_by_paimon(scope: StatementScope, name: TableName) -> TableName | None:
    """The full name of Paimon's table that a name means, None for other names."""
    if name.catalog not in (None, scope.settings.catalog_name):
        return None
    full = scope.full_name(name)
    return full if is_paimon_table(scope, full) else None


def _whole(statement: Statement) -> QueryText:
    """The statement's whole text as a query text, with the references of its query."""
    inner = subject_of(statement).query
    everything = TextRange(0, len(statement.text))
    if inner is None:
        return QueryText(range=everything)
    references = inner.references
    if isinstance(statement, MergeInto):
        references = tuple(_as_source(statement, reference) for reference in references)
    return QueryText(range=everything, references=references, parameters=inner.parameters)


def _as_source(merge: MergeInto, reference: TableReference) -> TableReference:
    """A reference in a MERGE's source. A table that is the source itself, without an alias, gets
    its name as one: a view stands in its place, and the clauses name the table."""
    end = reference.range.end
    behind = merge.text[end : merge.condition.start]
    if end != merge.source.range.end or not re.fullmatch(r"\s*ON\b.*", behind, re.I | re.S):
        return reference
    return replace(reference, alias_position=end)
