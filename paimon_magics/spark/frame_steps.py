"""The steps that were taken on the frame of a table, and the columns and rows that they need.

All of this is derived from the texts of a step's arguments: which columns they can refer to, which
conditions all rows of the result meet, and how many rows of the table are enough.
"""

from __future__ import annotations

import datetime
import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.reads.column_texts import (
    Guess,
    calls_of_a_row,
    guesses,
    is_plain_name,
    mentioned,
    text_within,
    uses_other_rows,
)
from paimon_magics.planning.reads.predicates import PredicateValue
from paimon_magics.planning.schemas.table_schema import Column as TableColumn
from paimon_magics.statements.clauses.names import quoted, text_literal
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.queries.query_traits import lists_null
from paimon_magics.statements.queries.rewriting import hidden_columns_named
from paimon_magics.statements.statement import ColumnFilter, FilterValue, Query, TableReference

PARTS = "_paimon_magics_parts"
"""Attribute of a Column that `&` made: the two Columns."""

_TEXT = "_paimon_magics_text"

_TABLE = "paimon_magics_frame"
_USE_HIDDEN = ("select", "selectExpr", "where", "filter", "orderBy", "sort", "agg", "groupBy")
_ALL_COLUMNS = ("*", "unresolvedstar()")
_OF_A_ROW = ("select", "selectExpr", "withColumn", "withColumns", "drop", "alias")
"""Methods that make one row of each, if their expressions do."""


@dataclass(frozen=True, slots=True)
class Step:
    """A method that was called on a frame; `grouped` are the arguments of `groupBy` before it."""

    method: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    grouped: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class StepFilters:
    """Conditions on stored columns that all rows meet, with the values `bound` in them. They are
    all the conditions of the first `whole` steps. `by_name` has some steps, by number, that refer
    to columns by name, so they apply to any frame."""

    filters: tuple[ColumnFilter, ...]
    bound: Mapping[str, object]
    whole: int
    by_name: Mapping[int, Step]


def list_null(steps: Sequence[Step]) -> bool:
    """Whether a condition may compare a column with a list that has NULL in it."""
    conditions = (step for step in steps if step.method in ("where", "filter"))
    texts = (text for step in conditions for text in _texts((*step.args, *step.kwargs.values())))
    return any(lists_null(text, {}) for text in texts if text is not None)


def used_columns(
    steps: Sequence[Step], columns: Sequence[str], *, counted: bool
) -> frozenset[str] | None:
    """The columns that the steps can use; None for all."""
    used: set[str] = set()
    for step in steps:
        if step.method == "limit":
            continue
        for text in _texts((*step.args, *step.kwargs.items(), *(step.grouped or ()))):
            names = None if text is None else mentioned(text, columns)
            if names is None:
                return None
            used |= names
        if step.method in ("select", "selectExpr", "agg") or step.grouped is not None:
            # Functions of groups without arguments are for all columns of numbers.
            whole = step.grouped is not None and step.method not in ("agg", "count")
            return None if whole and not step.args else frozenset(used)
    return frozenset(used) if counted else None


def filters_of_steps(
    root: DataFrame,
    steps: Sequence[Step],
    results: Sequence[DataFrame],
    columns: Sequence[TableColumn],
    *,
    connect: bool,
) -> StepFilters:
    """The conditions that the steps on `root`, the frame of a table, set on its columns. `results`
    are the frames that the steps made."""
    filters: list[ColumnFilter] = []
    bound: dict[str, object] = {}
    own = {column.name.lower(): column.name for column in columns}
    """The columns that are still those of the table, by their names in lower case."""
    whole, all_told = 0, True
    by_name: dict[int, Step] = {}
    for number, step in enumerate(steps):
        if step.method in ("where", "filter"):
            condition = next(iter((*step.args, *step.kwargs.values())), None)
            if isinstance(condition, str):
                conditions = conditions_in(condition)
                filters += (part for part in conditions if part.column.lower() in own)
                all_told &= has_only_conditions(condition) and all(
                    part.column.lower() in own for part in conditions
                )
            elif isinstance(condition, Column):
                own_columns = [column for column in columns if column.name.lower() in own]
                parts = list(
                    _of_column(root, condition, own_columns, None if number else results[0])
                )
                filters += (_filter(part[0], bound) for part in parts if part is not None)
                all_told &= None not in parts
                same = [part[1] for part in parts if part is not None]
                if len(same) == len(parts):
                    by_name[number] = Step("where", (_joined(same),), {})
        else:
            if connect:
                by_name[number] = _by_name(root, step, columns, own)
            left = _unchanged(step, own, connect)
            own = {key: name for key, name in own.items() if key in left}
        whole += all_told
        if not own:
            break
    return StepFilters(tuple(filters), bound, whole, by_name)


def rows_wanted(steps: Sequence[Step], looked_at: int | None, whole: int) -> int | None:
    """The number of matching rows of the table that are enough, in any selection; None for all.
    `looked_at` is the number of rows of the last step that are wanted; the conditions of the first
    `whole` steps are those of the table's rows."""
    least: int | None = None
    for number, step in enumerate(steps):
        if step.method == "limit":
            limit = next(iter((*step.args, *step.kwargs.values())), None)
            if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
                return least
            least = limit if least is None else min(least, limit)
        elif step.method in ("where", "filter"):
            # Of the rows behind a LIMIT a condition leaves fewer.
            if least is not None or number >= whole:
                return least
        elif step.grouped is not None or step.method not in _OF_A_ROW or not _is_of_a_row(step):
            return least
    limits = [rows for rows in (least, looked_at) if rows is not None]
    return min(limits, default=None)


def _is_of_a_row(step: Step) -> bool:
    """Whether a step makes one row from each row: without an aggregate, a window or a generator."""
    texts = list(_texts((*step.args, *step.kwargs.items())))
    return None not in texts and all(calls_of_a_row(text or "") for text in texts)


def _texts(values: Iterable[object]) -> Iterator[str | None]:
    """The texts of a step's arguments; None for one that may mean any column."""
    for value in values:
        match value:
            case bool() | None:
                pass
            case str():
                yield value
            case Column():
                yield _text(value)
            case list() | tuple():
                yield from _texts(value)
            case dict():
                yield from _texts(value.items())
            case _:
                # A number is the place of a column, and of anything else nothing is known.
                yield None


def hidden_named(step: Step) -> frozenset[str]:
    """The hidden columns of a table that a step uses, without making columns of such names."""
    values = [*step.args, *step.kwargs.values()]
    if step.method == "withColumn":
        values = values[1:]
    elif step.method == "withColumns":
        values = [column for columns in values for column in columns.values()]
    elif step.method not in _USE_HIDDEN:
        return frozenset()
    texts = [text for text in _texts(values) if text is not None]
    if any(
        text in _ALL_COLUMNS
        for value, text in zip(values, texts, strict=False)
        if isinstance(value, Column)
    ):
        return frozenset()
    return hidden_columns_named(" ".join(texts))


def _text(column: Column) -> str:
    """The text of a Column, with a single call to the JVM."""
    known = column.__dict__.get(_TEXT)
    if not isinstance(known, str):
        known = column.__dict__[_TEXT] = text_within(str(column))
    return known


def _unchanged(step: Step, own: Mapping[str, str], connect: bool) -> set[str]:
    """The table's columns that keep their values and names after a step, and the rows that may be
    left out before the step without changing other rows."""
    texts = list(_texts((*step.args, *step.kwargs.items())))
    if None in texts or any(uses_other_rows(text or "") for text in texts):
        return set()
    match step.method:
        case "alias" | "orderBy" | "sort":
            return set(own)
        case "drop" | "withColumn" | "withColumns":
            return set(own) - {(text or "").lower() for text in texts}
        case "select" | "selectExpr":
            chosen: set[str] = set()
            for value in _flat((*step.args, *step.kwargs.values())):
                if isinstance(value, str) and value == "*":
                    chosen |= set(own)
                elif isinstance(value, str) or not connect:
                    # With Spark Connect the text of a literal has no quotes.
                    text = _text(value) if isinstance(value, Column) else text_within(str(value))
                    chosen |= {text.lower()} if is_plain_name(text) else set()
            return chosen
        case _:
            return set()


def _flat(values: Iterable[object]) -> Iterator[object]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def conditions_in(condition: str) -> tuple[ColumnFilter, ...]:
    """The conditions on single columns in a condition's text, which Spark has accepted."""
    reference = _reference(condition)
    return () if reference is None else reference.filters


def has_only_conditions(condition: str) -> bool:
    """Whether a condition's text consists only of the conditions found in it."""
    reference = _reference(condition)
    return reference is not None and reference.rows_wanted is not None


def _reference(condition: str) -> TableReference | None:
    try:
        statement = parse_statement(f"SELECT * FROM {_TABLE} WHERE ({condition}\n) LIMIT 1")
    except PaimonMagicsError:
        return None
    if not isinstance(statement, Query):
        return None
    first = next(iter(statement.query.references), None)
    return None if first is None or first.name.table != _TABLE else first


def _of_column(
    root: DataFrame,
    condition: Column,
    columns: Sequence[TableColumn],
    filtered: DataFrame | None = None,
) -> Iterator[tuple[Guess, str | Column] | None]:
    """The comparisons that a condition joins by AND, each with an equivalent SQL text or Column
    that refers to columns by name. None if Spark can't confirm that a part and its text are
    equivalent. `filtered` is `root` with the whole condition, where there is one."""
    parts = condition.__dict__.get(PARTS)
    if parts is not None:
        for part in parts:
            yield from _of_column(root, part, columns)
        return
    for guess in guesses(_text(condition), columns):
        try:
            filtered = root.where(condition) if filtered is None else filtered
            # A text takes one call of the JVM, a Column some tens.
            text = _text_of(guess)
            if filtered.sameSemantics(root.where(text)):
                yield guess, text
                return
            column = _column_of(guess)
            if filtered.sameSemantics(root.where(column)):
                yield guess, column
                return
        except PySparkException:
            break  # it uses a column that the table does not have
    yield None


def _joined(conditions: Sequence[str | Column]) -> str | Column:
    """All of the conditions: a text if all are."""
    texts = [condition for condition in conditions if isinstance(condition, str)]
    if len(texts) == len(conditions):
        return " AND ".join(texts)
    columns = (
        F.expr(condition) if isinstance(condition, str) else condition for condition in conditions
    )
    return functools.reduce(operator.and_, columns)


def _by_name(
    root: DataFrame, step: Step, columns: Sequence[TableColumn], own: Mapping[str, str]
) -> Step:
    """The step with columns by name, in the arguments for which Spark confirms equivalence: columns
    of `root`, and functions of them whose text is also SQL. All names must belong to columns that
    are still the table's, `own`."""
    names = [column.name for column in columns]

    def text_of(value: object) -> str:
        text = _text(value) if isinstance(value, Column) else ""
        used = mentioned(text, names)
        return text if used and all(value.lower() in own for value in used) else ""

    def named(values: Sequence[Any]) -> list[Any]:
        arguments: list[Any] = [
            type(value)(named(value)) if type(value) in (list, tuple) else value for value in values
        ]
        texts = {place: text for place, value in enumerate(arguments) if (text := text_of(value))}
        for places in (list(texts), *([place] for place in texts)):
            same = _same(
                root, [arguments[place] for place in places], [texts[place] for place in places]
            )
            for place, column in zip(places, same, strict=False):
                arguments[place] = column
            if len(same) == len(texts):
                break
        return arguments

    grouped = None if step.grouped is None else tuple(named(step.grouped))
    return Step(step.method, tuple(named(step.args)), step.kwargs, grouped)


def _same(root: DataFrame, columns: Sequence[Column], texts: Sequence[str]) -> list[Column]:
    """The columns of the texts as SQL; none unless Spark confirms that all are equivalent. For
    example, the text of a literal is not."""
    try:
        named = [F.expr(text) for text in texts]
        same = bool(named) and root.select(*columns).sameSemantics(root.select(*named))
    except PySparkException:
        return []  # a column of another frame, or no SQL
    return named if same else []


def _text_of(guess: Guess) -> str:
    column, values = quoted(guess.column), [_literal(value, guess) for value in guess.values]
    if guess.operator == "in":
        return f"{column} IN ({', '.join(values)})"
    return " ".join((column, guess.operator.upper(), *values))


def _literal(value: PredicateValue, guess: Guess) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return text_literal(value)
        case datetime.date():
            return ("" if guess.as_text else "DATE") + text_literal(value.isoformat())
        case Decimal():
            return f"{value:f}BD"
        case _:
            return str(value)


_COMPARISONS: Mapping[str, Callable[[Any, Any], Column]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _column_of(guess: Guess) -> Column:
    column = F.col(quoted(guess.column))
    values = [str(value) if guess.as_text else value for value in guess.values]
    if guess.operator in _COMPARISONS:
        return _COMPARISONS[guess.operator](column, values[0])
    if guess.operator == "in":
        return column.isin(*values)
    return column.isNull() if guess.operator == "is null" else column.isNotNull()


def _filter(guess: Guess, bound: dict[str, object]) -> ColumnFilter:
    values = []
    for value in guess.values:
        name = f"value{len(bound)}"
        bound[name] = value
        values.append(FilterValue("parameter", name))
    return ColumnFilter(guess.column, guess.operator, tuple(values))


# The source of a table's frame, and the data that a derived frame needs from it.


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The data that a frame needs from its table: the names of `columns` (None for all), and
    conditions on the source's `columns` that all its rows meet, with the values `bound` in them.
    `rows` is an upper bound on the matching rows needed, in any selection; None for all.
    `lists_null`: a condition may compare a column with a list that has NULL in it."""

    columns: frozenset[str] | None
    filters: tuple[ColumnFilter, ...] = ()
    bound: Mapping[str, object] = field(default_factory=dict)
    rows: int | None = None
    lists_null: bool = False


class Source(Protocol):
    """The source of a recorded frame."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the frame's columns."""

    @property
    def columns(self) -> Sequence[TableColumn]:
        """The columns that show a column of the table, by their names in the frame, with the types
        by which the table's rows are compared."""

    @property
    def is_small(self) -> bool:
        """Whether a new frame of all its rows takes less time than the first one."""

    def row_count(self) -> int | None:
        """The number of rows, if known without reading them."""

    def showing(self, hidden: frozenset[str]) -> tuple[DataFrame, tuple[str, ...]] | None:
        """A new frame of the same rows that also has the columns among `hidden` which the table
        has, and their names; None if it has none of them."""

    def read(self, wanted: Narrowed) -> DataFrame | None:
        """A new frame of the same rows, reduced to the wanted columns and rows; None if it would
        read as much as the first frame. It has all wanted columns and may have others. With
        `wanted.rows` it may have fewer rows, but at least this number."""
