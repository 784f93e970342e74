"""Casts a query's rows to a table's columns: order, types, defaults, NOT NULL and lengths.

Everything is an expression in the JVM. So a VALUES list is checked while Spark folds it, before any
job starts; a SELECT is checked while it runs. Casts are ANSI casts regardless of the session's
settings, as in Paimon's connector: a value that does not fit fails and never becomes NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from pyspark.errors import AnalysisException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.planning.writes.inserts import Constant, FromInput, Missing, Source
from paimon_magics.spark.losses import first_loss, reason
from paimon_magics.spark.types import spark_type
from paimon_magics.statements.clauses.names import quoted, text_literal
from paimon_magics.statements.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowType,
    VectorType,
    as_nullable,
)
from paimon_magics.statements.queries.query_text import with_markers_apart

CHECK_FAILED = "paimon-magics:"
"""The prefix of the messages that our own checks raise inside Spark."""

_DAY_MS = 24 * 3600 * 1000

_ANSI = "spark.sql.ansi.enabled"


_ONE_ROW = "VALUES (0) AS __paimon_magics(__paimon_magics_one)"


def project(
    spark: SparkSession,
    frame: DataFrame,
    columns: Sequence[Column],
    sources: Sequence[Source],
    constants: Mapping[str, str | None],
    only: str | None = None,
    more: Sequence[SparkColumn | str] = (),
) -> DataFrame:
    """Return `frame` as rows of a table with `columns`; `sources` gives the source of each column.

    `constants` are the values of the PARTITION clause, as `partition_values` returns them. `only`
    names the one column to return; None returns all. `more` are columns, or texts of SQL for
    them, behind those, over `frame`, which may have columns behind those of `sources`. Raises
    InvalidValueError for a column whose type can't be cast at all.
    """
    names = list(frame.columns)
    # A query's column names may repeat. The target's are unique, and Spark's errors show them.
    targets = {
        source.position: column.name
        for column, source in zip(columns, sources, strict=True)
        if isinstance(source, FromInput)
    }
    targeted = [targets.get(position, name) for position, name in enumerate(names)]
    if targeted != names:
        frame = frame.toDF(*targeted)
    with ansi_casts(spark):
        casts: list[_Cast] = []
        for column, source in zip(columns, sources, strict=True):
            if only not in (None, column.name):
                continue
            match source:
                case FromInput(position=at):
                    value = partial(_number_of_time, frame, column)
                    named = names[at]
                case Constant():
                    value = partial(F.lit, constants[column.name])
                    named = "the PARTITION clause"
                case Missing():
                    value = partial(F.lit, None)
                    named = "NULL"
            casts.append(_Cast(column, value, named, isinstance(source, FromInput)))
        try:
            return selected_columns(frame, [*map(_checked_column, casts), *more])
        except AnalysisException:
            # Look for the column only now: each attempt takes Spark some milliseconds.
            for cast in casts:
                _check_cast(frame, cast)
            raise


def stored(column: Column, value: SparkColumn | str) -> SparkColumn | str:
    """A value, a column or a text of SQL, as a column of the table stores it, with the checks of
    `project`; a text if the type needs only a cast. Call it within `ansi_casts`."""
    place = f"column `{column.name}`"
    if (
        isinstance(value, str)
        and column.default is None
        and _is_plain(column.type)
        and not _is_limited_inside(column.type)
    ):
        cast = f"CAST( {value} AS {spark_type(column.type).simpleString()})"
        return cast if column.type.nullable else _not_null_text(cast, place)
    expression = F.expr(value) if isinstance(value, str) else value
    return _checked(_Cast(column, lambda: expression, "", False).stored, column.type, place)


def check_stored_types(
    frame: DataFrame, values: Sequence[tuple[Column, SparkColumn | str]]
) -> None:
    """Raise InvalidValueError for the first value over `frame` whose type can't be cast to that of
    its column at all. Call it within `ansi_casts`, when Spark has refused all together."""
    for column, value in values:
        expression = F.expr(value) if isinstance(value, str) else value
        _check_cast(frame, _Cast(column, partial(_same, expression), column.name, False))


def _same(value: SparkColumn) -> SparkColumn:
    return value


@dataclass(frozen=True)
class _Cast:
    """A column of the table: the value before the cast, which is only built where it is needed, and
    the name of its source for messages. `is_input` tells that the value is the input's column of
    the same name."""

    column: Column
    value: Callable[[], SparkColumn]
    named: str
    is_input: bool

    @property
    def text(self) -> str | None:
        """The cast value as SQL text, if it is a plain cast of the input's column. Spark's error
        then names the column, and PySpark calls the JVM once instead of for each part."""
        column = self.column
        if not self.is_input or not _is_plain(column.type):
            return None
        type_name = spark_type(column.type).simpleString()
        cast = f"CAST({quoted(column.name)} AS {type_name})"
        if column.default is None:
            return cast
        return f"coalesce({cast}, CAST(({column.default}) AS {type_name}))"

    @property
    def stored(self) -> SparkColumn:
        """The cast value to store."""
        column, text = self.column, self.text
        if text is not None:
            return F.expr(text)
        # The value is cast before it meets the default: their common type may hold less than both
        # (a text and a DECIMAL become DOUBLE).
        value = self.value().cast(spark_type(column.type))
        if column.default is not None:
            # Paimon puts the default in place of every NULL, an explicit one too.
            value = F.coalesce(value, F.expr(column.default).cast(spark_type(column.type)))
        return value


def _number_of_time(frame: DataFrame, column: Column) -> SparkColumn:
    """The input for a column. For a column of Paimon's TIME, a value of Spark's TIME becomes
    milliseconds (its cast to DECIMAL gives seconds)."""
    value = F.col(quoted(column.name))
    match column.type:
        case AtomicType(name="TIME") if frame.schema[column.name].dataType.typeName() == "time":
            return value.cast("decimal(14, 6)") * F.lit(1000)
    return value


def _is_plain(data_type: DataType) -> bool:
    return isinstance(data_type, AtomicType) and data_type.name != "TIME"


def _check_cast(frame: DataFrame, cast: _Cast) -> None:
    try:
        frame.select(cast.stored)
    except AnalysisException as error:
        if (error.getCondition() or "").startswith("DATATYPE_MISMATCH"):
            column = cast.column
            value_type = frame.select(cast.value().alias("v")).schema["v"].dataType.simpleString()
            hint = f"Cast the expression for `{column.name}` yourself, or write another column."
            # 2026-01-31 is a subtraction.
            if type_text(column.type) == "DATE" and value_type == "int":
                hint = "Write dates in quotes: DATE '2026-01-31'."
            raise InvalidValueError(
                f"Column `{column.name}` is {type_text(column.type)}, and {value_type.upper()} "
                f"values (`{cast.named}`) can't be cast to it.",
                hint=hint,
            ) from error
        raise


def _checked_column(cast: _Cast) -> SparkColumn | str:
    column, text = cast.column, cast.text
    place = f"column `{column.name}`"
    if text is None or _is_limited_inside(column.type):
        return _checked(cast.stored, column.type, place).alias(column.name)
    if not column.type.nullable:
        text = _not_null_text(text, place)
    return f"{text} AS {quoted(column.name)}"


def _checked(value: SparkColumn, data_type: DataType, place: str) -> SparkColumn:
    """The value with checks that fail where its type can't hold it: NULL, length and TIME's range,
    at every level of nesting."""
    checked = _checked_inside(value, data_type, place)
    if data_type.nullable:
        return checked
    return F.when(checked.isNotNull(), checked).otherwise(_failure(F.lit(_null_text(place))))


def _not_null_text(value: str, place: str) -> str:
    """The SQL text of a value that must not be NULL."""
    failed = f"raise_error({text_literal(CHECK_FAILED + _null_text(place))})"
    return f"CASE WHEN {value} IS NOT NULL THEN {value} ELSE {failed} END"


def _null_text(place: str) -> str:
    return f"{place} is NOT NULL, but a row has NULL there"


def _checked_inside(value: SparkColumn, data_type: DataType, place: str) -> SparkColumn:
    match data_type:
        case AtomicType(name="TIME"):
            return _within_a_day(value, place)
        case AtomicType():
            return _within_length(value, data_type, place)
        case ArrayType(element=element) if _is_limited(element):
            return F.transform(
                value, lambda part: _checked(part, element, f"an element of {place}")
            )
        case MapType(key=key, value=item) if _is_limited_inside(data_type):
            key, pairs = as_nullable(key, True), value  # Spark's maps have no NULL keys
            if _is_limited(key):
                pairs = F.transform_keys(
                    pairs, lambda part, _: _checked(part, key, f"a key of {place}")
                )
            if _is_limited(item):
                pairs = F.transform_values(
                    pairs, lambda _, part: _checked(part, item, f"a value of {place}")
                )
            return pairs
        case RowType(fields=fields) if any(_is_limited(field.type) for field in fields):
            parts = (
                _checked(value[field.name], field.type, f"`{field.name}` of {place}").alias(
                    field.name
                )
                for field in fields
            )
            return F.when(value.isNotNull(), F.struct(*parts))
        case _:
            return value


def _is_limited(data_type: DataType) -> bool:
    """Whether some value of the corresponding Spark type can't be stored unchanged."""
    return not data_type.nullable or _is_limited_inside(data_type)


def _is_limited_inside(data_type: DataType) -> bool:
    match data_type:
        case AtomicType(name=name):
            return name in ("CHAR", "VARCHAR", "TIME")
        case ArrayType(element=element):
            return _is_limited(element)
        case MapType(key=key, value=item):
            return _is_limited(as_nullable(key, True)) or _is_limited(item)
        case RowType(fields=fields):
            return any(_is_limited(field.type) for field in fields)
        case MultisetType() | VectorType():
            return False  # Spark has no values for them


def _within_length(value: SparkColumn, data_type: AtomicType, place: str) -> SparkColumn:
    """The checks of CHAR(n) and VARCHAR(n), as Spark's own on writes: surplus trailing spaces are
    cut, other surplus characters are refused, CHAR is padded."""
    match data_type:
        case AtomicType(name="CHAR" | "VARCHAR" as name, parameters=(length,)):
            too_long = F.when(
                F.length(F.rtrim(value)) <= length, F.substring(value, 1, length)
            ).otherwise(
                _failure(
                    F.concat(
                        F.lit(f"{place} is {type_text(data_type)}, but a value has "),
                        F.length(value).cast("string"),
                        F.lit(" characters"),
                    )
                )
            )
            fitting = F.rpad(value, length, " ") if name == "CHAR" else value
            return F.when(F.length(value) <= length, fitting).otherwise(
                F.when(value.isNotNull(), too_long)
            )
        case _:
            return value


def _within_a_day(value: SparkColumn, place: str) -> SparkColumn:
    outside = F.concat(
        F.lit(f"{place} is TIME, milliseconds of a day, but a value is "), value.cast("string")
    )
    return F.when(value.between(0, _DAY_MS - 1), value).otherwise(
        F.when(value.isNotNull(), _failure(outside))
    )


def _failure(message: SparkColumn) -> SparkColumn:
    return F.raise_error(F.concat(F.lit(CHECK_FAILED), message))


def type_text(data_type: DataType) -> str:
    """The name of a type in messages."""
    match data_type:
        case AtomicType(name=name, parameters=parameters) if parameters:
            return f"{name}({', '.join(map(str, parameters))})"
        case _:
            return spark_type(data_type).simpleString().upper()


@contextmanager
def ansi_casts(spark: SparkSession) -> Iterator[None]:
    """Casts that are built in the body are ANSI casts."""
    before = spark.conf.get(_ANSI, "true") or "true"
    if before == "true":
        yield
        return
    spark.conf.set(_ANSI, "true")
    try:
        yield
    finally:
        spark.conf.set(_ANSI, before)


# Selects columns that are given as texts of SQL, with few questions to the JVM.
#
# PySpark asks the JVM three times and more for each column that is an object, and once for a text.


def selected_columns(frame: DataFrame, columns: Sequence[SparkColumn | str]) -> DataFrame:
    """`frame.select` of columns and of texts of SQL for columns. Raises what Spark raises."""
    texts = [column for column in columns if isinstance(column, str)]
    if len(texts) == len(columns):
        return frame.selectExpr(*texts)
    return frame.select(
        *(F.expr(column) if isinstance(column, str) else column for column in columns)
    )


# The constants of PARTITION clauses, as texts of the values that are stored.


def partition_values(
    spark: SparkSession,
    items: Sequence[tuple[Column, str]],
    parameters: Mapping[str, object],
    null_text: str,
) -> dict[str, str | None]:
    """The values of PARTITION items `(column, SQL text)` as text that casts back to the same value,
    as it is stored: that of a CHAR column is padded.

    Spark evaluates them without a job, with `parameters` bound. None is NULL, as is `null_text`
    (the option partition.default-name). Raises what Spark
    raises for a text that is not a constant or does not fit the column's type. Raises
    InvalidValueError for a value that the column would cut, which would name another partition.
    """
    if not items:
        return {}
    with ansi_casts(spark):
        # Each constant is cast to its column's type first: '01' for an INT column is 1.
        named = ", ".join(f"({sql}) AS c{position}" for position, (_, sql) in enumerate(items))
        # FROM a local relation, which Spark folds: a SELECT without FROM runs as a job.
        query = with_markers_apart(f"SELECT {named} FROM {_ONE_ROW}")
        constants = spark.sql(query, args=dict(parameters))
        row = constants.select(
            *(
                F.nullif(F.col(field.name), F.lit(null_text)).alias(field.name)
                if isinstance(field.dataType, StringType)
                else F.col(field.name)
                for field in constants.schema
            )
        )
        _check_exact(row, [column for column, _ in items])
        texts = [
            _text(F.col(f"c{position}").cast(spark_type(column.type)), column)
            for position, (column, _) in enumerate(items)
        ]
        values = row.select(*texts).collect()[0]
    return {column.name: value for (column, _), value in zip(items, values, strict=True)}


def _check_exact(row: DataFrame, columns: Sequence[Column]) -> None:
    loss = first_loss(row, [column.type for column in columns])
    if loss is not None:
        column = columns[loss.position]
        raise InvalidValueError(
            f"Column `{column.name}` is {type_text(column.type)}, but PARTITION has {loss.value}: "
            f"{reason(column.type)}.",
            hint="Nothing was written. Give a value that the column can hold.",
        )


def _text(value: SparkColumn, column: Column) -> SparkColumn:
    match column.type:
        case AtomicType(name="CHAR", parameters=(length,)):
            return F.rpad(value.cast("string"), length, " ")
        case AtomicType(name="TIMESTAMP_LTZ"):
            # The same instant for readers in any zone.
            in_utc = F.to_utc_timestamp(value, F.current_timezone()).cast("string")
            return F.concat(in_utc, F.lit("Z"))
        case _:
            return value.cast("string")
