"""Finds values that a column's type would change when it stores them, before anything is written.

A *loss* is a part of a value that would be cut off or rounded away:

- a fraction, in a column of whole numbers; digits after the point, beyond a DECIMAL's scale;
- digits of a whole number, in FLOAT and DOUBLE, which hold 24 and 53 bits of it;
- a number other than 0 and 1, in BOOLEAN; a finite DOUBLE that becomes infinite as a FLOAT;
- digits of a second, beyond a TIMESTAMP's precision; the time of day, in DATE.

It is no loss when a FLOAT or DOUBLE takes its nearest value (1.1), nor when a DECIMAL takes the
first 15 digits of a DOUBLE or 6 of a FLOAT: further digits of such a number are not significant.
Values that don't fit at all (overflow, a text that is not a number) fail in the cast itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.planning.writes.losses import LOSS_END, LOSS_IS, LOSSES, ColumnLoss, column_type
from paimon_magics.spark.types import spark_type
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.data_types import (
    INTEGERS,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    RowType,
)

_WHOLE = (
    spark_types.ByteType,
    spark_types.ShortType,
    spark_types.IntegerType,
    spark_types.LongType,
)
# Half a unit of the 15th digit of a DOUBLE, of the 6th of a FLOAT: the last significant digits.
_DOUBLE_SHARE, _FLOAT_SHARE = 5e-15, 5e-6
# Whole numbers of at most so many digits are exact in a DOUBLE, in a FLOAT.
_DOUBLE_DIGITS, _FLOAT_DIGITS = 15, 7
_DECIMAL_DIGITS_MAX = 38
# A DECIMAL with this many digits differs from a DECIMAL with fewer digits by a larger share of its
# value than two DOUBLE roundings.
_EXACT_DIGITS, _EXACT_SHARE = 14, 1e-15
_MICROS = 6
_EXAMPLE_CHARACTERS = 100

Entry = tuple[SparkColumn, SparkColumn]
"""The condition that a value is changed, and the text for LOSSES."""


@dataclass(frozen=True, slots=True)
class Loss:
    """The first value of a frame that would be changed: its row (from 1), the position of its
    column (from 0), and its text as a literal."""

    row: int
    position: int
    value: str


def first_loss(frame: DataFrame, targets: Sequence[DataType | None]) -> Loss | None:
    """The first value of `frame` that a column would change; None if there is none.

    `targets` are the types of the columns that store the frame's columns, None for one that is not
    stored. Types that can't lose anything cost nothing. Otherwise the frame is computed once, and
    again where there is a loss; a folded VALUES list starts no job.
    """
    names = [f"c{position}" for position in range(len(targets))]
    texts: dict[int, SparkColumn] = {}
    for position, (field, target) in enumerate(zip(frame.schema, targets, strict=True)):
        value = F.col(names[position])
        lost = None if target is None else loss(value, field.dataType, target)
        if lost is not None:
            texts[position] = F.when(lost, _value_text(value, field.dataType))
    if not texts:
        return None
    looked = frame.toDF(*names).select(*(t.alias(names[at]) for at, t in texts.items()))
    if not looked.where(F.coalesce(*looked.columns).isNotNull()).limit(1).collect():
        return None
    for number, row in enumerate(looked.toLocalIterator(), 1):
        for position, text in zip(texts, row, strict=True):
            if text is not None:
                return Loss(number, position, str(text))
    return None  # the second computation gave other values


def loss_entry(
    value: SparkColumn, source: spark_types.DataType, target: DataType, column: str
) -> Entry | None:
    """The condition that a column, or a field of it, of type `target` changes a value, and the text
    for it in LOSSES. None if no value is changed."""
    lost = loss(value, source, target)
    if lost is None:
        return None
    text = F.substring(_value_text(value, source), 1, _EXAMPLE_CHARACTERS)
    if isinstance(source, spark_types.StringType):
        text = F.translate(text, LOSS_IS + LOSS_END, "  ")
    return lost, F.concat(F.lit(f"{column}{LOSS_IS}"), text, F.lit(LOSS_END))


def losses_column(entries: Sequence[Entry]) -> list[SparkColumn]:
    """The column LOSSES of rows; [] where no value can be changed."""
    either = _either(*(lost for lost, _ in entries))
    if either is None:
        return []
    texts = [F.when(lost, entry) for lost, entry in entries]
    return [F.when(either, F.concat_ws("", *texts)).alias(LOSSES)]


def lossy_columns(frame: DataFrame, columns: Sequence[Column | None]) -> list[SparkColumn]:
    """The column LOSSES over the rows of `frame`, once its columns have the names of `columns`, of
    a table, which store them; None for none. [] where no value can be changed."""
    pairs = zip(frame.schema, columns, strict=True)
    entries = (
        loss_entry(F.col(quoted(column.name)), field.dataType, column.type, column.name)
        for field, column in pairs
        if column is not None
    )
    return losses_column([entry for entry in entries if entry is not None])


def changeable(frame: DataFrame, columns: Sequence[Column | None]) -> tuple[str, ...]:
    """The casts that may change values, as "`column` from DOUBLE to INT": of a frame's columns to
    those of a table that store them, None for none."""
    return tuple(
        f"`{column.name}` from {field.dataType.simpleString().upper()} to {column_type(column)}"
        for field, column in zip(frame.schema, columns, strict=True)
        if column is not None and may_lose(field.dataType, column.type)
    )


def counted_losses(frame: DataFrame) -> tuple[ColumnLoss, ...]:
    """How many rows of a frame have changed values, by column; by one job, or none if it has no
    column LOSSES."""
    if LOSSES not in frame.columns:
        return ()
    entries = frame.select(F.explode(F.split(F.col(LOSSES), LOSS_END)).alias("entry"))
    parts = entries.select(F.split("entry", LOSS_IS).alias("parts"))
    lost = parts.where(F.size("parts") > 1)
    column, example = F.col("parts")[0].alias("name"), F.min(F.col("parts")[1]).alias("example")
    rows = lost.groupBy(column).agg(F.count(F.lit(1)).alias("rows"), example).collect()
    return tuple(ColumnLoss(row["name"], row["rows"], row["example"]) for row in rows)


def kept_losses(frame: DataFrame) -> list[str]:
    """The column LOSSES, as a text of SQL, where the frame has it."""
    return [LOSSES] if LOSSES in frame.columns else []


def without_losses(frame: DataFrame) -> DataFrame:
    """The frame without the column LOSSES."""
    return frame.drop(LOSSES) if LOSSES in frame.columns else frame


def _value_text(value: SparkColumn, source: spark_types.DataType) -> SparkColumn:
    """The value as a literal."""
    # Not every nested value can be cast to a text.
    text = F.coalesce(value.try_cast("string"), F.lit("a value"))
    if isinstance(source, spark_types.StringType):
        return F.concat(F.lit("'"), text, F.lit("'"))
    return text


def loss(value: SparkColumn, source: spark_types.DataType, target: DataType) -> SparkColumn | None:
    """The condition that a column of type `target` changes a value of Spark's type `source`. It is
    never true for NULL. None if no value is changed."""
    match target:
        case ArrayType(element=element) if isinstance(source, spark_types.ArrayType):
            return _inside(value, source.elementType, element)
        case MapType(key=key, value=item) if isinstance(source, spark_types.MapType):
            return _either(
                _inside(F.map_keys(value), source.keyType, key),
                _inside(F.map_values(value), source.valueType, item),
            )
        case RowType(fields=fields) if isinstance(source, spark_types.StructType):
            # Spark casts structs by position.
            pairs = list(zip(source.fields, fields, strict=False))
            return _either(
                *(loss(value[part.name], part.dataType, field.type) for part, field in pairs)
            )
        case AtomicType():
            return _of_atomic(value, source, target)
        case _:
            return None


def may_lose(source: spark_types.DataType, target: DataType) -> bool:
    """Whether a column of type `target` changes any values of Spark's type `source`."""
    return loss(F.lit(None), source, target) is not None


def _inside(
    values: SparkColumn, source: spark_types.DataType, target: DataType
) -> SparkColumn | None:
    """The condition that an array's element is changed; None if none ever is."""
    if not may_lose(source, target):
        return None

    def changed(element: SparkColumn) -> SparkColumn:
        lost = loss(element, source, target)
        assert lost is not None
        return F.coalesce(lost, F.lit(False))

    return F.exists(values, changed)


def _either(*conditions: SparkColumn | None) -> SparkColumn | None:
    known = [
        F.coalesce(condition, F.lit(False)) for condition in conditions if condition is not None
    ]
    if not known:
        return None
    result = known[0]
    for condition in known[1:]:
        result = result | condition
    return result


def _of_atomic(
    value: SparkColumn, source: spark_types.DataType, target: AtomicType
) -> SparkColumn | None:
    match source:
        case spark_types.DecimalType():
            return _of_decimal(value, source, target)
        case spark_types.FloatType() | spark_types.DoubleType():
            return _of_floating(value, source, target)
        case _ if isinstance(source, _WHOLE):
            return _of_whole(value, source, target)
        case spark_types.TimestampType() | spark_types.TimestampNTZType():
            return _of_timestamp(value, source, target)
        case spark_types.StringType():
            return _of_text(value, target)
        case _ if source.typeName() == "time" and target.name == "TIME":
            return (value.cast("decimal(14, 6)") * F.lit(1000)) % F.lit(1) != F.lit(0)
        case _:
            return None


def _of_decimal(
    value: SparkColumn, source: spark_types.DecimalType, target: AtomicType
) -> SparkColumn | None:
    whole_digits = source.precision - source.scale
    match target:
        case AtomicType(name=name) if name in (*INTEGERS, "TIME"):
            if source.scale == 0:
                return None
            is_short = source.precision <= _EXACT_DIGITS
            return _has_fraction(value, 0) if is_short else value % F.lit(1) != F.lit(0)
        case AtomicType(name="DECIMAL", parameters=(precision, scale)):
            if source.scale <= scale:
                return None
            if source.precision <= _EXACT_DIGITS and whole_digits <= precision - scale:
                return _has_fraction(value, scale)
            stored = value.try_cast(spark_type(target))  # NULL for what the cast refuses
            if max(whole_digits, precision - scale) + source.scale <= _DECIMAL_DIGITS_MAX:
                return stored != value  # in the type that holds both
            back = F.coalesce(stored.try_cast(source) != value, F.lit(True))
            return stored.isNotNull() & back
        case AtomicType(name="DOUBLE") if whole_digits > _DOUBLE_DIGITS:
            return _changes_whole_part(value, "double")
        case AtomicType(name="FLOAT") if whole_digits > _FLOAT_DIGITS:
            return _changes_whole_part(value, "float")
        case AtomicType(name="BOOLEAN"):
            return ~value.isin(0, 1)
        case _:
            return None


def _has_fraction(value: SparkColumn, scale: int) -> SparkColumn:
    """The condition that a DECIMAL of at most `_EXACT_DIGITS` digits has digits beyond `scale`.
    Spark computes with DOUBLEs in a fifth of the time that DECIMALs take."""
    units = value.cast("double") * F.lit(float(10**scale))
    # Such a DECIMAL is a DOUBLE's nearest value, and its last digit is more than the share.
    return F.abs(F.rint(units) - units) > F.abs(units) * F.lit(_EXACT_SHARE)


def _of_floating(
    value: SparkColumn, source: spark_types.DataType, target: AtomicType
) -> SparkColumn | None:
    is_float = isinstance(source, spark_types.FloatType)
    wide = value.cast("double")
    match target:
        case AtomicType(name=name) if name in (*INTEGERS, "TIME"):
            return F.rint(wide) != wide  # equal for NaN and infinities, which the cast refuses
        case AtomicType(name="DECIMAL", parameters=(precision, scale)):
            # Without a DECIMAL, which Spark makes of the number's text.
            share = F.lit(_FLOAT_SHARE if is_float else _DOUBLE_SHARE)
            units = wide * F.lit(float(10**scale))
            fits = F.abs(wide) < F.lit(float(10 ** (precision - scale)))  # not true for NaN
            # The cast refuses numbers that are too large, and makes NULL of NaN and infinities.
            is_none = F.isnan(wide) | (F.abs(wide) == F.lit(float("inf")))
            return is_none | (fits & (F.abs(F.rint(units) - units) > F.abs(units) * share))
        case AtomicType(name="FLOAT") if not is_float:
            endless = F.abs(value.cast("float")) == F.lit(float("inf")).cast("float")
            return endless & (F.abs(wide) != F.lit(float("inf")))
        case AtomicType(name="BOOLEAN"):
            return ~wide.isin(0.0, 1.0)
        case _:
            return None


def _of_whole(
    value: SparkColumn, source: spark_types.DataType, target: AtomicType
) -> SparkColumn | None:
    match target:
        case AtomicType(name="DOUBLE") if isinstance(source, spark_types.LongType):
            return _changes_whole_part(value, "double")
        case AtomicType(name="FLOAT") if isinstance(
            source, spark_types.LongType | spark_types.IntegerType
        ):
            return _changes_whole_part(value, "float")
        case AtomicType(name="BOOLEAN"):
            return ~value.isin(0, 1)
        case _:
            return None


def _of_timestamp(
    value: SparkColumn, source: spark_types.DataType, target: AtomicType
) -> SparkColumn | None:
    match target:
        case AtomicType(name="DATE"):
            return value != value.cast("date").cast(source)
        case AtomicType(name="TIMESTAMP" | "TIMESTAMP_LTZ", parameters=(digits,)):
            return _has_more_digits(value, source, digits)
        case AtomicType(name=name) if name in INTEGERS:
            return _has_more_digits(value, source, 0)
        case _:
            return None


def _of_text(value: SparkColumn, target: AtomicType) -> SparkColumn | None:
    match target:
        case AtomicType(name="DECIMAL", parameters=(precision, scale)):
            # As many whole digits as the target, and the most digits after the point then.
            most = _DECIMAL_DIGITS_MAX - (precision - scale)
            if most <= scale:
                return None
            wide = value.try_cast(spark_types.DecimalType(_DECIMAL_DIGITS_MAX, most))
            lost = _of_decimal(wide, spark_types.DecimalType(_DECIMAL_DIGITS_MAX, most), target)
            # Most texts are short enough to be seen without DECIMALs.
            point = F.instr(value, ".")
            may_be = (point > 0) & (F.length(value) - point > scale)
            may_be |= F.contains(F.lower(value), F.lit("e"))
            lost = None if lost is None else F.when(may_be, lost)
        case AtomicType(name="DATE"):
            lost = _of_timestamp(
                value.try_cast("timestamp_ntz"), spark_types.TimestampNTZType(), target
            )
            # A time of day follows a blank or a T; other texts need no cast.
            may_be = F.contains(value, F.lit(" ")) | F.contains(value, F.lit("T"))
            lost = None if lost is None else F.when(may_be, lost)
        case AtomicType(name="TIMESTAMP" | "TIMESTAMP_LTZ", parameters=(digits,)):
            # The zone that a text names does not matter here.
            instant = value.try_cast("timestamp")
            lost = _has_more_digits(instant, spark_types.TimestampType(), digits)
        case _:
            return None
    return None if lost is None else F.coalesce(lost, F.lit(False))


def _changes_whole_part(value: SparkColumn, kept_as: str) -> SparkColumn:
    # Few digits are exact: that is seen without DECIMALs.
    limit = F.lit(2**53 if kept_as == "double" else 2**24)
    is_large = (value > limit) | (value < -limit)
    stored = value.cast(kept_as).cast("double").try_cast(f"decimal({_DECIMAL_DIGITS_MAX}, 0)")
    whole = value.try_cast(f"decimal({_DECIMAL_DIGITS_MAX}, 0)")
    return is_large & F.coalesce(stored != whole, F.lit(False))


def _has_more_digits(
    value: SparkColumn, source: spark_types.DataType, digits: int
) -> SparkColumn | None:
    """The condition that a timestamp has more than `digits` digits of a second; None if none
    can."""
    if digits >= _MICROS:
        return None
    if isinstance(source, spark_types.TimestampNTZType):
        # A cast to the other type takes twice as long.
        return _has_fraction(F.date_part(F.lit("second"), value), digits)
    return F.unix_micros(value) % F.lit(10 ** (_MICROS - digits)) != F.lit(0)


def reason(target: DataType) -> str:
    """The effect of a column of type `target` on such a value, as the end of a sentence."""
    match target:
        case AtomicType(name=name) if name in (*INTEGERS, "TIME"):
            return "its fraction would be cut off"
        case AtomicType(name="DECIMAL", parameters=(_, scale)):
            return f"it would be rounded to {scale} digits after the point"
        case AtomicType(name="FLOAT" | "DOUBLE"):
            return "it would be rounded"
        case AtomicType(name="BOOLEAN"):
            return "it would become true"
        case AtomicType(name="DATE"):
            return "its time of day would be cut off"
        case AtomicType(name="TIMESTAMP" | "TIMESTAMP_LTZ", parameters=(digits,)):
            return f"its second would be cut to {digits} digits"
        case _:
            return "part of it would be cut off or rounded"
