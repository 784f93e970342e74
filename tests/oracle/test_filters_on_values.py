"""Conditions select the same rows, however much of the files pruning leaves out: every type, NaN,
-0.0, infinities and NULL, in files of every writer and format, by raw scan and merge read.

Spark computes the expected rows in memory. With PAIMON_MAGICS_EXAMPLES more conditions are tried on
each table; a printed seed chooses them.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import itertools
import math
import os
import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from paimon_magics import Session
from paimon_magics.planning.reads.scans import has_true_bounds
from tests.oracle.java_reader import JavaPaimon

pytestmark = [pytest.mark.spark, pytest.mark.java]

# Spark and its tasks read all files, however few they are.
SETTINGS = {"local_rows_max": 0}

CONDITIONS = int(os.environ.get("PAIMON_MAGICS_EXAMPLES", "6"))
FULL = "'metadata.stats-mode' = 'full'"
NAN, INF = math.nan, math.inf


def utc(year: int, month: int, day: int, hour: int = 0) -> datetime.datetime:
    return datetime.datetime(year, month, day, hour, tzinfo=datetime.UTC)


# Paimon's type, Arrow's type, and four values in ascending order.
TYPES: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "bo": ("BOOLEAN", pa.bool_(), [False, False, True, True]),
    "ti": ("TINYINT", pa.int8(), [-128, -1, 0, 127]),
    "sm": ("SMALLINT", pa.int16(), [-32768, -1, 0, 32767]),
    "i": ("INT", pa.int32(), [-(2**31), -1, 0, 2**31 - 1]),
    "l": ("BIGINT", pa.int64(), [-(2**63), -1, 0, 2**63 - 1]),
    "d": (
        "DECIMAL(9, 2)",
        pa.decimal128(9, 2),
        [Decimal("-9999999.99"), Decimal("-0.01"), Decimal("0.00"), Decimal("9999999.99")],
    ),
    "e": (
        "DECIMAL(38, 3)",
        pa.decimal128(38, 3),
        [Decimal("-1e34") / 1, Decimal("-0.001"), Decimal("0.000"), Decimal("1e34") / 1],
    ),
    "s": ("STRING", pa.string(), ["", "a", "a ", "zü€"]),
    "v": ("VARCHAR(40)", pa.string(), ["a", "b" * 30, "b" * 30 + "c", "ü"]),
    "c": ("CHAR(2)", pa.string(), ["aa", "ab", "ba", "zz"]),
    "b": ("BINARY(2)", pa.binary(), [b"\x00a", b"\x00b", b"\x7fa", b"\xffa"]),
    "dt": (
        "DATE",
        pa.date32(),
        [datetime.date(*day) for day in ((1, 1, 1), (1969, 12, 31), (1970, 1, 1), (9999, 12, 31))],
    ),
    "t": (
        "TIMESTAMP_NTZ(6)",
        pa.timestamp("us"),
        [
            datetime.datetime(1, 1, 1),
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
            datetime.datetime(1970, 1, 1),
            datetime.datetime(9999, 12, 31),
        ],
    ),
    "z": (
        "TIMESTAMP_LTZ(6)",
        pa.timestamp("us", "UTC"),
        [utc(1900, 1, 1), utc(1970, 1, 1), utc(2026, 3, 29, 1), utc(2200, 1, 1)],
    ),
}
FLOATS = {"f": ("FLOAT", pa.float32()), "g": ("DOUBLE", pa.float64())}
STRUCT = "STRUCT<x: DOUBLE, y: FLOAT>"
STRUCT_TYPE = pa.struct([("x", pa.float64()), ("y", pa.float32())])
SCHEMA = pa.schema(
    [("id", pa.int32()), ("p", pa.int32())]
    + [(name, arrow) for name, (_, arrow, _) in TYPES.items()]
    + [(name, arrow) for name, (_, arrow) in FLOATS.items()]
    + [("st", STRUCT_TYPE), ("ar", pa.list_(pa.float64()))]
)
# The values of each file: places among the four values, and floats.
FILES: list[tuple[list[int | None], list[float | None]]] = [
    ([0, 0], [-INF, -1.5]),
    ([1, None], [-0.0, None]),
    ([2, 2], [0.0, 0.0]),
    ([2, 3], [2.5, NAN]),
    ([3, 1], [INF, 2.5]),
    ([None, None], [None, None]),
    ([0, 3], [NAN, NAN]),
    ([1, 2], [-0.0, 0.0]),
]
FLOAT_VALUES = [-INF, -1.5, -0.0, 0.0, 2.5, INF, NAN]


def rows() -> pa.Table:
    found: list[dict[str, Any]] = []
    for file, (places, floats) in enumerate(FILES):
        for place, number in zip(places, floats, strict=True):
            row: dict[str, Any] = {"id": len(found), "p": file}
            for name, (_, _, values) in TYPES.items():
                row[name] = None if place is None else values[place]
            row["f"] = row["g"] = number
            row["st"] = None if number is None else {"x": number, "y": number}
            row["ar"] = [number]
            found.append(row)
    return pa.Table.from_pylist(found, SCHEMA)


def literal(name: str, value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            said = "FLOAT" if name in ("f", "st.y") else "DOUBLE"
            named = math.isfinite(value)
            suffix = "F" if said == "FLOAT" else "D"
            return f"{value}{suffix}" if named else f"CAST('{value}' AS {said})"
        case Decimal():
            return f"{value:f}BD"
        case str():
            return f"'{value}'"
        case bytes():
            return f"X'{value.hex()}'"
        case datetime.datetime():
            kind = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP_LTZ"
            text = value.replace(tzinfo=None).isoformat(sep=" ")
            return f"{kind}'{text}'" if value.tzinfo is None else f"{kind}'{text} UTC'"
        case datetime.date():
            return f"DATE'{value.isoformat()}'"
        case int() if value == -(2**63):
            return "(-9223372036854775807L - 1)"
        case _:
            return str(value)


def conditions_on(name: str, values: Sequence[Any]) -> Iterator[str]:
    said = [literal(name, value) for value in values]
    for each in said:
        for operator in ("=", "<>", "<", "<=", ">", ">=", "<=>"):
            yield f"{name} {operator} {each}"
            yield f"NOT ({name} {operator} {each})"
    for each, other in itertools.permutations(said, 2):
        for not_ in ("", "NOT "):
            yield f"{name} {not_}IN ({each}, {other})"
            yield f"{name} {not_}BETWEEN {each} AND {other}"
    yield f"{name} IS NULL"
    yield f"{name} IS NOT NULL"
    yield f"{name} <=> NULL"


def chosen(random: random.Random, count: int, names: Sequence[str]) -> list[str]:
    """A random choice of `count` conditions, half of them on floating-point values."""
    of_floats = ("f", "g", "st.x", "st.y") if "st" in names else ("f", "g")
    floats = [each for name in of_floats for each in conditions_on(name, FLOAT_VALUES)]
    others = [
        each
        for name, (_, _, values) in TYPES.items()
        if name in names
        for each in conditions_on(name, values)
    ]
    half = count // 2
    found = random.sample(floats, min(half, len(floats)))
    return found + random.sample(others, min(count - half, len(others)))


def expected_ids(
    spark: SparkSession, table: pa.Table, conditions: Sequence[str]
) -> list[list[int]]:
    spark.createDataFrame(table).createOrReplaceTempView("rows_in_memory")
    parts = (f"collect_list(CASE WHEN {each} THEN id END)" for each in conditions)
    (found,) = spark.sql(f"SELECT {', '.join(parts)} FROM rows_in_memory").collect()
    return [sorted(ids) for ids in found]


def found_ids(session: Session, table: str, conditions: Sequence[str]) -> list[list[int]]:
    """The ids of the rows that meet each condition: one job, with a scan for each condition, which
    is pushed into it."""
    query = " UNION ALL ".join(
        f"SELECT {number} AS n, collect_list(id) AS ids FROM {table} WHERE {each}"
        for number, each in enumerate(conditions)
    )
    found = {row["n"]: row["ids"] for row in session.run(query).to_arrow().to_pylist()}
    return [sorted(found[number]) for number in range(len(conditions))]


def check(session: Session, table: str, conditions: Sequence[str], full: pa.Table) -> None:
    expected = expected_ids(session.spark, full, conditions)
    found = found_ids(session, table, conditions)
    wrong = {
        each: (want, got)
        for each, want, got in zip(conditions, expected, found, strict=True)
        if want != got
    }
    assert not wrong, f"{table}: expected and found {wrong}"


def create(session: Session, name: str, options: str, left_out: Sequence[str] = ()) -> None:
    types = {name: kind for name, (kind, _, _) in TYPES.items()}
    types |= {name: kind for name, (kind, _) in FLOATS.items()}
    types |= {"st": STRUCT, "ar": "ARRAY<DOUBLE>"}
    columns = ", ".join(f"{n} {kind}" for n, kind in types.items() if n not in left_out)
    session.run(
        f"CREATE TABLE {name} (id INT NOT NULL, p INT NOT NULL, {columns}) PARTITIONED BY (p) "
        f"TBLPROPERTIES ({options})"
    )


def write_by_session(session: Session, name: str, full: pa.Table, sort: str = "") -> None:
    session.spark.createDataFrame(full).createOrReplaceTempView("rows_to_write")
    session.run(f"INSERT INTO {name} SELECT * FROM rows_to_write {sort}")


def write_by_pypaimon(warehouse: Path, name: str, full: pa.Table) -> None:
    import pypaimon

    table = pypaimon.CatalogFactory.create({"warehouse": str(warehouse)}).get_table(
        f"default.{name}"
    )
    builder = table.new_batch_write_builder()
    writer, commit = builder.new_write(), builder.new_commit()
    writer.write_arrow(full)
    commit.commit(writer.prepare_commit())


# The columns that a format does not support, or not with these values.
LEFT_OUT = {"orc": ("t", "z"), "avro": ("b", "st", "ar"), "parquet": ()}


@pytest.fixture
def seed() -> random.Random:
    number = int(os.environ.get("PAIMON_MAGICS_SEED", secrets.randbelow(2**32)))
    print(f"PAIMON_MAGICS_SEED={number}")
    return random.Random(number)


WRITERS = [
    ("us", "parquet"),
    ("pypaimon", "parquet"),
    ("java", "parquet"),
    ("us", "orc"),
    ("java", "orc"),
    ("us", "avro"),
]
IN_EVERY_RUN = [("us", "parquet"), ("java", "parquet"), ("us", "orc")]


@pytest.mark.parametrize(
    ("writer", "file_format"),
    [
        pytest.param(*each, marks=[] if each in IN_EVERY_RUN else pytest.mark.soak)
        for each in WRITERS
    ],
)
def test_conditions_select_the_same_rows_of_tables_without_keys(
    session: Session,
    java_paimon: JavaPaimon,
    warehouse: Path,
    seed: random.Random,
    writer: str,
    file_format: str,
) -> None:
    left_out = LEFT_OUT[file_format]
    full = rows().drop_columns(list(left_out))
    create(session, "t", f"'file.format' = '{file_format}', {FULL}", left_out)
    match writer:
        case "us":
            write_by_session(session, "t", full)
        case "pypaimon":
            write_by_pypaimon(warehouse, "t", full)
        case "java":
            java_paimon.write(
                warehouse, "default.t", [tuple(row.values()) for row in full.to_pylist()]
            )
    check(session, "t", chosen(seed, CONDITIONS, full.column_names), full)
    if writer == "us":
        check_in_java(java_paimon, warehouse, full, seed, zeros_alike=file_format == "parquet")
        check_in_pypaimon(warehouse, full, seed)


def test_conditions_select_the_same_rows_of_tables_with_keys(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, seed: random.Random
) -> None:
    full = rows()
    create(session, "t", f"'primary-key' = 'p,id', 'bucket' = '1', {FULL}")
    moved = pa.Table.from_pylist(
        [
            {**row, "id": other["id"], "p": other["p"]}
            for row, other in zip(full.to_pylist()[::-1], full.to_pylist(), strict=True)
        ],
        full.schema,
    )
    write_by_session(session, "t", moved)
    check(session, "t", chosen(seed, CONDITIONS, full.column_names), moved)
    half = full.filter(pc.less(full["p"], len(FILES) // 2))
    write_by_session(session, "t", half)
    rest = moved.filter(pc.greater_equal(moved["p"], len(FILES) // 2))
    merged = pa.concat_tables([half, rest])
    check(session, "t", chosen(seed, max(CONDITIONS // 3, 4), full.column_names), merged)
    check_in_java(java_paimon, warehouse, merged, seed, zeros_alike=True)


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda first, other: first == other[0],
    "<>": lambda first, other: first != other[0],
    "<": lambda first, other: first < other[0],
    "<=": lambda first, other: first <= other[0],
    ">": lambda first, other: first > other[0],
    ">=": lambda first, other: first >= other[0],
    "in": lambda first, other: first in other,
}


def rank(value: Any, *, zeros_alike: bool) -> Any:
    """A key that compares in Python as the value does in SQL (`zeros_alike`), or in Java."""
    match value:
        case float():
            zero = value == 0 and not zeros_alike and math.copysign(1, value) < 0
            return (math.isnan(value), 0.0 if math.isnan(value) else value, not zero)
        case str():
            return value.encode()
        case _:
            return value


def check_in_java(
    java_paimon: JavaPaimon,
    warehouse: Path,
    full: pa.Table,
    seed: random.Random,
    *,
    zeros_alike: bool,
) -> None:
    """Assert that Java leaves out no row that meets a condition. Where Java distinguishes -0.0 from
    0.0 (as a literal, and in ORC files), that holds for rows that meet it in Java's order as well.
    ORC's bounds don't distinguish the zeros, so Java may compare a zero with the wrong one, even in
    its own files; such rows are not expected, nor are those of days before 1582, likewise."""
    values = {name: values for name, (_, _, values) in TYPES.items() if name in full.column_names}
    values |= dict.fromkeys(FLOATS, FLOAT_VALUES)
    if not zeros_alike:  # ORC: Java looks for days before 1582 by the Julian calendar
        values["dt"] = [day for day in values["dt"] if day is None or day.year > 1582]
    every = [(name, op, [each]) for name in values for op in OPERATORS for each in values[name]]
    every += [(name, "in", values[name][place:][:2]) for name in values for place in (1, 2)]
    floats = [each for each in every if each[0] in FLOATS]
    conditions = seed.sample(floats, CONDITIONS) + seed.sample(every, CONDITIONS // 2)
    found = java_paimon.left(warehouse, "default.t", conditions)
    for (name, operator, wanted), ids in zip(conditions, found, strict=True):
        orders = [True]
        if not zeros_alike or any(str(value) == "-0.0" for value in wanted):
            orders.append(False)
        expected = {
            row["id"]
            for row in full.to_pylist()
            if row[name] is not None
            and (zeros_alike or row[name] != 0 or name not in FLOATS or 0 not in wanted)
            and all(
                OPERATORS[operator](
                    rank(row[name], zeros_alike=alike),
                    [rank(value, zeros_alike=alike) for value in wanted],
                )
                for alike in orders
            )
        }
        assert expected <= set(ids), (name, operator, wanted)


def check_in_pypaimon(warehouse: Path, full: pa.Table, seed: random.Random) -> None:
    """Assert that pypaimon returns the rows that Arrow's comparisons select in memory; in them NaN
    is no number."""
    import pypaimon

    catalog = pypaimon.CatalogFactory.create({"warehouse": str(warehouse)})
    builder = catalog.get_table("default.t").new_read_builder()
    predicates = builder.new_predicate_builder()
    methods = {
        "equal": pc.equal,
        "less_than": pc.less,
        "less_or_equal": pc.less_equal,
        "greater_than": pc.greater,
        "greater_or_equal": pc.greater_equal,
    }
    every = [(n, m, v) for n in FLOATS for m in methods for v in FLOAT_VALUES if not math.isnan(v)]
    for name, method, value in seed.sample(every, CONDITIONS // 2):
        scalar = pa.scalar(value, full.schema.field(name).type)
        wanted = full.filter(methods[method](full[name], scalar))
        filtered = builder.with_filter(getattr(predicates, method)(name, value))
        found = filtered.new_read().to_arrow(filtered.new_scan().plan().splits())
        assert sorted(found["id"].to_pylist()) == wanted["id"].to_pylist(), (name, method, value)


PAGE_ROWS = 20_000  # of the native writer


def test_conditions_select_the_same_rows_across_pages(session: Session, warehouse: Path) -> None:
    session.run("CREATE TABLE clean (id INT, g DOUBLE, f FLOAT)")
    session.run("CREATE TABLE odd (id INT, g DOUBLE, f FLOAT)")
    numbers = pa.array(range(5 * PAGE_ROWS), pa.int32())
    values = pc.floor(pc.divide(numbers.cast(pa.float64()), PAGE_ROWS))  # 0.0, 1.0 … 4.0
    clean = pa.table({"id": numbers, "g": values, "f": values.cast(pa.float32())})
    swapped = {3 * PAGE_ROWS + 7: NAN, 50: -0.0, 4 * PAGE_ROWS: NAN}
    with_odd = pa.array([swapped.get(i, v) for i, v in enumerate(values.to_pylist())])
    odd = pa.table({"id": numbers, "g": with_odd, "f": with_odd.cast(pa.float32())})
    # One file each, in which pages are left out.
    for name, table in (("clean", clean), ("odd", odd)):
        session.spark.createDataFrame(table).coalesce(1).createOrReplaceTempView("to_write")
        session.run(f"INSERT INTO {name} SELECT * FROM to_write")
    conditions = [
        *("g = -0.0D", "g = 0.0D", "g <= -0.0D", "g < 0.0D", "g > 4.0D", "g >= 3.0D", "g <> 3.0D"),
        *(
            "NOT (g < 4)",
            "g = CAST('NaN' AS DOUBLE)",
            "f > 3.5F",
            "f IN (CAST('NaN' AS FLOAT), 2F)",
        ),
        "f BETWEEN -0.0F AND 0.0F",
    ]
    counts = ", ".join(f"count_if({each}) AS c{n}" for n, each in enumerate(conditions))
    for name, table in (("clean", clean), ("odd", odd)):
        session.spark.createDataFrame(table).createOrReplaceTempView("rows_in_memory")
        (expected,) = session.spark.sql(f"SELECT {counts} FROM rows_in_memory").collect()
        query = " UNION ALL ".join(
            f"SELECT {n} AS n, count(*) AS c FROM {name} WHERE {each}"
            for n, each in enumerate(conditions)
        )
        actual = {row["n"]: row["c"] for row in session.run(query).to_arrow().to_pylist()}
        assert [actual[n] for n in range(len(conditions))] == list(expected), name
    (with_bounds,) = (pq.ParquetFile(path) for path in data_files(warehouse, "clean"))
    assert with_bounds.metadata.row_group(0).column(1).statistics.max == 4.0
    (without,) = (pq.ParquetFile(path) for path in data_files(warehouse, "odd"))
    group = without.metadata.row_group(0)
    assert [group.column(i).is_stats_set for i in range(3)] == [True, False, False]
    assert [group.column(i).has_column_index for i in range(3)] == [True, False, False]


def data_files(warehouse: Path, name: str) -> list[Path]:
    return sorted(warehouse.glob(f"default.db/{name}/bucket-*/*.parquet"))


@pytest.mark.parametrize("columns", ["g DOUBLE", "g STRUCT<x: DOUBLE>"])
def test_float_filters_reach_only_files_with_true_bounds(
    session: Session, warehouse: Path, columns: str
) -> None:
    session.run(f"CREATE TABLE t (id INT, {columns})")
    value, field = ("1.0D", "g") if "STRUCT" not in columns else ("named_struct('x', 1.0D)", "g.x")
    session.run(f"INSERT INTO t VALUES (8, {value})")
    (path,) = data_files(warehouse, "t")
    assert has_true_bounds(str(path))

    def plan() -> str:
        actual = io.StringIO()
        with contextlib.redirect_stdout(actual):
            session.table("t").where(f"{field} > 9 AND id > 7").select("id").explain("formatted")
        return actual.getvalue()

    assert f"GreaterThan({field},9.0)" in plan()
    full = session.run("SELECT * FROM t").to_arrow()
    session.run("TRUNCATE TABLE t")
    write_by_pypaimon(warehouse, "t", full)
    explained = plan()
    assert "GreaterThan(id,7)" in explained
    # A condition on a struct's field may reach the scan, whose filters are off.
    assert (f"GreaterThan({field},9.0)" in explained) is ("STRUCT" in columns)
