"""What is validated can be written, as what it says; what is refused is told where it is."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from paimon_magics.coordinator.inserts.admission.validator import InsertValidator, ValidatedInsert
from paimon_magics.coordinator.inserts.loading.rows import conformed_stream, entries_of
from paimon_magics.coordinator.inserts.log.records import Format, Record
from paimon_magics.errors import InvalidValueError, StatementError
from paimon_magics.planning.schemas.table_schema import Column, TableSchema, plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName
from paimon_magics.statements.types.type_text import from_paimon

NAME = TableName("events", "shop")


def schema(sql: str) -> TableSchema:
    statement = parse_statement(f"CREATE TABLE events ({sql})")
    assert isinstance(statement, CreateTable)
    return plan_create_table(statement)


def of_type(text: str) -> TableSchema:
    return TableSchema((Column(0, "v", from_paimon(text)),))


def record(validated: ValidatedInsert, lsn: int = 1) -> Record:
    return Record(lsn, validated.format, validated.schema_id, validated.rows, 0, validated.payload)


def let_in(table: TableSchema, document: Any) -> list[dict[str, object]]:
    """The rows of a request as they would be written."""
    validated = InsertValidator(NAME, table).json(json.dumps(document).encode())
    batches, unfit = entries_of([record(validated)], {0: table}, table)
    assert unfit == []
    rows: list[dict[str, object]] = pa.Table.from_batches(batches).to_pylist() if batches else []
    assert len(rows) == validated.rows
    return rows


UTC = datetime.UTC
GOOD: list[tuple[str, object, object]] = [
    ("BOOLEAN", True, True),
    ("TINYINT", -128, -128),
    ("BIGINT", 2**63 - 1, 2**63 - 1),
    ("FLOAT", 1.5, 1.5),
    ("FLOAT", 3, 3.0),
    ("DOUBLE", "-Infinity", -math.inf),
    ("DOUBLE", 1e300, 1e300),
    ("DECIMAL(5, 2)", "123.45", Decimal("123.45")),
    ("DECIMAL(5, 2)", "1.5000", Decimal("1.50")),
    ("DECIMAL(5, 2)", 1.1, Decimal("1.10")),
    ("DECIMAL(5, 2)", -7, Decimal("-7.00")),
    ("DECIMAL(38, 0)", "9" * 38, Decimal("9" * 38)),
    ("DECIMAL(5, 2)", "1e2", Decimal("100.00")),
    ("STRING", "ü\U0001f600", "ü\U0001f600"),
    ("VARCHAR(3)", "ab   ", "ab "),
    ("CHAR(3)", "a", "a  "),
    ("BYTES", "AP8=", b"\x00\xff"),
    ("VARBINARY(2)", "AP8=", b"\x00\xff"),
    ("DATE", "2026-11-21", datetime.date(2026, 11, 21)),
    ("TIME(3)", "10:30:00.5", datetime.time(10, 30, 0, 500_000)),
    ("TIMESTAMP(0)", "1969-12-31 23:59:59.0", datetime.datetime(1969, 12, 31, 23, 59, 59)),
    (
        "TIMESTAMP(3)",
        "2026-11-21T10:30:00.123000",
        datetime.datetime(2026, 11, 21, 10, 30, 0, 123000),
    ),
    ("TIMESTAMP(6)", "0001-01-01 00:00:00", datetime.datetime(1, 1, 1)),
    (
        "TIMESTAMP(6) WITH LOCAL TIME ZONE",
        "2026-11-21T10:30:00+01:00",
        datetime.datetime(2026, 11, 21, 9, 30, tzinfo=UTC),
    ),
    (
        "TIMESTAMP(3) WITH LOCAL TIME ZONE",
        "2026-11-21 10:30:00Z",
        datetime.datetime(2026, 11, 21, 10, 30, tzinfo=UTC),
    ),
]


@pytest.mark.parametrize(("text", "value", "expected"), GOOD)
def test_json_value_is_converted_to_its_column_type(
    text: str, value: object, expected: object
) -> None:
    assert let_in(of_type(text), {"rows": [[value], [None]]}) == [{"v": expected}, {"v": None}]


def test_nested_json_values_are_converted_to_their_column_types() -> None:
    table = schema(
        "a ARRAY<INT>, m MAP<STRING, INT>, k MAP<INT, STRING>, r STRUCT<x: INT, y: DATE>"
    )
    rows = let_in(
        table,
        {"rows": [[[1, None], {"a": 1}, [[7, "x"]], {"x": 1}], [[], {}, [], [2, "2026-01-02"]]]},
    )
    assert rows == [
        {"a": [1, None], "m": [("a", 1)], "k": [(7, "x")], "r": {"x": 1, "y": None}},
        {"a": [], "m": [], "k": [], "r": {"x": 2, "y": datetime.date(2026, 1, 2)}},
    ]


@pytest.mark.parametrize(
    ("text", "value", "said"),
    [
        ("BOOLEAN", 1, "1 where true or false is expected"),
        ("INT", True, "True where a whole number is expected"),
        ("INT", 1.0, "1.0 where a whole number"),
        ("INT", "1", '"1" where a whole number'),
        ("TINYINT", 128, "128 does not fit into TINYINT"),
        ("BIGINT", 2**63, "does not fit into BIGINT"),
        ("FLOAT", 1e39, "does not fit into FLOAT"),
        ("DOUBLE", 10**400, "does not fit into DOUBLE"),
        ("DOUBLE", "nan", "where a number is expected"),
        ("DECIMAL(5, 2)", "1.234", "does not fit into DECIMAL(5, 2)"),
        ("DECIMAL(5, 2)", "1234", "does not fit into DECIMAL(5, 2)"),
        ("DECIMAL(38, 20)", 0.1234567890123456, "send it as text"),
        ("DECIMAL(5, 2)", "NaN", "where the digits of a number is expected"),
        ("DECIMAL(5, 2)", "1_0", "where the digits of a number is expected"),
        ("DECIMAL(5, 2)", " 1", "where the digits of a number is expected"),
        ("DECIMAL(5, 2)", "\u0663", "where the digits of a number is expected"),
        ("STRING", 5, "5 where a text is expected"),
        ("VARCHAR(3)", "abcd", "longer than VARCHAR(3)"),
        ("CHAR(3)", "abcd", "longer than CHAR(3)"),
        ("BYTES", "!", "base64"),
        ("BINARY(3)", "AP8=", "2 bytes where exactly 3 are"),
        ("VARBINARY(1)", "AP8=", "2 bytes where at most 1 are"),
        ("DATE", "2026-02-30", "a day of the calendar"),
        ("DATE", "20260201", "a date as"),
        ("TIME(0)", "24:00:00", "a time of the day"),
        ("TIME(0)", "10:30:00.5", "where the column keeps no digits of a second"),
        ("TIMESTAMP(6)", "2026-11-21", "a timestamp as"),
        ("TIMESTAMP(3)", "2026-11-21T10:30:00.1239", "where the column keeps 3 digits of a second"),
        ("TIMESTAMP(6)", "2026-11-21 10:00:00Z", "a timestamp as"),
        ("TIMESTAMP(9)", "2300-01-01 00:00:00", "does not fit into a timestamp"),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", "2026-11-21 10:00:00", "with its zone"),
        ("TIMESTAMP_LTZ(3)", "9999-12-31T23:59:59-18:00", "a time of the calendar, in UTC"),
        ("TIMESTAMP_LTZ(3)", "0001-01-01T00:00:00+00:01", "a time of the calendar, in UTC"),
    ],
)
def test_value_that_does_not_fit_is_refused_with_row_and_column(
    text: str, value: object, said: str
) -> None:
    with pytest.raises(InvalidValueError) as raised:
        let_in(of_type(text), {"rows": [[None], [value]]})
    assert raised.value.message.startswith("Row 2, column `v`: ")
    assert said in raised.value.message


ROUNDED = [  # a number of JSON that a float changes, and what an insert of it is answered
    ("DECIMAL(10, 2)", "0.00999999999999999999999", "send it as text"),
    ("DECIMAL(10, 2)", "12345678.0100000000000000001", "send it as text"),
    ("DECIMAL(10, 2)", "1.000000000000000000001", "send it as text"),
    ("DECIMAL(38, 20)", "0.10000000000000001", "0.10000000000000001 has more digits"),
    ("DECIMAL(38, 20)", "0.1000000000000000000000001e1", "send it as text"),
    ("DECIMAL(10, 2)", "1e-400", "1e-400 does not fit into DECIMAL(10, 2)"),
    ("DECIMAL(10, 2)", "1e400", "1e400 does not fit into DECIMAL(10, 2)"),
    ("ARRAY<DECIMAL(10, 2)>", "[1.000000000000000000001]", "send it as text"),
    ("MAP<STRING, DECIMAL(10, 2)>", '{"a": 1.000000000000000000001}', "send it as text"),
    ("DOUBLE", "1e400", "does not fit into DOUBLE"),
    ("DOUBLE", "-1e400", "does not fit into DOUBLE"),
    ("FLOAT", "1e400", "does not fit into FLOAT"),
    ("ARRAY<DOUBLE>", "[1e400]", "does not fit into DOUBLE"),
]


@pytest.mark.parametrize(("text", "literal", "said"), ROUNDED)
@pytest.mark.parametrize(
    ("form", "place"),
    [
        ('{"rows": [[%s]]}', "Row 1, column `v`: "),
        ('{"rows": [[null], [%s]]}', "Row 2, column `v`: "),
        ('{"statements": [{"rows": [[%s]]}, {"rows": [[null]]}]}', "Statement 1, row 1, column"),
    ],
)
def test_inexact_number_is_refused(
    text: str, literal: str, said: str, form: str, place: str
) -> None:
    validator = InsertValidator(NAME, schema(f"v {text}"))
    validator.json(b'{"rows": [[null]]}')  # the plan of the columns is known from then on
    with pytest.raises(InvalidValueError) as raised:
        validator.json((form % literal).encode())
    assert raised.value.message.startswith(place)
    assert said in raised.value.message


def test_inexact_number_in_an_update_or_delete_is_refused() -> None:
    table = schema(
        "id DECIMAL(20, 10) NOT NULL, v DECIMAL(20, 10), f DOUBLE, PRIMARY KEY (id) NOT ENFORCED"
    )
    long = "1.000000000000000000001"
    for change in (
        f'"update": {{"keys": [[1]], "set": {{"v": {long}}}}}',
        f'"delete": {{"keys": [[{long}]]}}',
        f'"delete": {{"keys": [[1]], "where": [["v", "=", {long}]]}}',
        '"update": {"keys": [[1]], "set": {"f": 1e400}}',
    ):
        with pytest.raises(InvalidValueError, match=r"send it as text|does not fit into DOUBLE"):
            InsertValidator(NAME, table).json(f"{{{change}}}".encode())


@pytest.mark.parametrize(
    ("text", "literal", "expected"),
    [
        ("DECIMAL(10, 2)", "1.000000000000000000000", Decimal("1.00")),
        ("DECIMAL(10, 2)", "0.000000000000000000000e-999", Decimal("0.00")),
        ("DECIMAL(20, 15)", "0.123456789012345", Decimal("0.123456789012345")),
        ("DECIMAL(20, 0)", "123456789.012345E6", Decimal("123456789012345")),
        ("DECIMAL(38, 0)", "9" * 38, Decimal("9" * 38)),
        ("DOUBLE", "0.1000000000000000055511151231257827", 0.1),
        ("DOUBLE", "1e-400", 0.0),
        ("STRUCT<d: DECIMAL(3, 1), f: DOUBLE>", "[1.50, 1e-400]", {"d": Decimal("1.5"), "f": 0}),
    ],
)
def test_exact_number_or_nearest_float_is_accepted(
    text: str, literal: str, expected: object
) -> None:
    table = schema(f"v {text}")
    validated = InsertValidator(NAME, table).json(f'{{"rows": [[{literal}]]}}'.encode())
    batches, unfit = entries_of([record(validated)], {0: table}, table)
    assert unfit == []
    assert pa.Table.from_batches(batches).to_pylist() == [{"v": expected}]


def test_a_default_of_another_engine_may_be_infinite() -> None:
    id, v = schema("id INT, v DOUBLE").columns
    table = TableSchema((id, replace(v, default="-Infinity")))
    rows = let_in(table, {"columns": ["id"], "rows": [[1]]})
    assert rows == [{"id": 1, "v": -math.inf}]


@pytest.mark.parametrize(
    ("document", "error", "said"),
    [
        ([], InvalidValueError, "must be a JSON object"),
        ({}, InvalidValueError, "A statement must be"),
        ({"rows": 1}, InvalidValueError, "a list of lists"),
        ({"rows": [{"id": 1}]}, InvalidValueError, "a list of lists"),
        ({"rows": [], "more": 1}, InvalidValueError, "A statement must be"),
        ({"rows": [[1, "a"], [1]]}, InvalidValueError, "Row 2 has 1 values, but 2 columns"),
        ({"columns": ["id", "nme"], "rows": []}, InvalidValueError, "no column `nme`"),
        (
            {"columns": ["id", "ID"], "rows": []},
            InvalidValueError,
            "`id` of `shop.events` is",
        ),
        ({"columns": ["name"], "rows": []}, InvalidValueError, "is NOT NULL and has no"),
        ({"columns": "id", "rows": []}, InvalidValueError, "a list of column names"),
        ({"rows": [[None, "a"]]}, InvalidValueError, "Row 1, column `id`: NULL is not allowed"),
        (
            {"statements": [{"rows": [[1, "a"]]}, {"rows": [[1, 2]]}]},
            InvalidValueError,
            "Statement 2, row 1, column `name`",
        ),
        ({"statements": []}, InvalidValueError, "at least one"),
    ],
)
def test_a_request_that_does_not_fit_is_refused(
    document: object, error: type[StatementError], said: str
) -> None:
    table = schema("id BIGINT NOT NULL, name STRING")
    with pytest.raises(error) as raised:
        let_in(table, document)
    assert said in raised.value.message


@pytest.mark.parametrize("body", [b"", b"{", b'{"rows": [[NaN]]}', b'{"rows": [["\\ud800"]]}'])
def test_invalid_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidValueError, match="not JSON"):
        InsertValidator(NAME, of_type("STRING")).json(body)


def test_omitted_columns_get_their_default_or_null() -> None:
    table = schema(
        "id BIGINT NOT NULL, kind STRING DEFAULT 'new', n DECIMAL(5, 2) DEFAULT 1.5, note STRING, "
        "at TIMESTAMP_NTZ DEFAULT '2026-01-02 03:04', raw BINARY DEFAULT 'ab'"
    )
    assert let_in(table, {"columns": ["note", "id"], "rows": [["x", 1]]}) == [
        {
            "id": 1,
            "kind": "new",
            "n": Decimal("1.50"),
            "note": "x",
            "at": datetime.datetime(2026, 1, 2, 3, 4),
            "raw": b"ab",
        }
    ]


def test_null_is_replaced_by_the_column_default() -> None:
    table = schema("id INT NOT NULL DEFAULT 7, kind STRING DEFAULT 'new', n DECIMAL(5, 2)")
    assert let_in(table, {"rows": [[None, None, None], [1, "a", None]]}) == [
        {"id": 7, "kind": "new", "n": None},
        {"id": 1, "kind": "a", "n": None},
    ]


def test_column_with_a_zoned_default_cannot_be_omitted() -> None:
    table = schema("id INT, at TIMESTAMP DEFAULT '2026-01-02 03:04:05'")
    with pytest.raises(InvalidValueError, match=r"`at` of `shop[.]events` can't be left out"):
        let_in(table, {"columns": ["id"], "rows": [[1]]})


def test_null_is_refused_for_a_column_with_a_zoned_default() -> None:
    table = schema("id INT, at TIMESTAMP DEFAULT '2026-01-02 03:04:05'")
    with pytest.raises(InvalidValueError, match="column `at`: NULL is not allowed"):
        let_in(table, {"rows": [[1, None]]})


SINGLE = st.lists(
    st.sampled_from([1, -(2**31), 2**31, True, 1.5, "a", None, [1], {}]), min_size=1, max_size=3
)


@given(st.lists(st.lists(SINGLE, max_size=2), min_size=1, max_size=4))
def test_statements_are_validated_together_as_separately(
    shapes: list[list[list[Any]]],
) -> None:
    validator = InsertValidator(NAME, schema("id INT NOT NULL, name STRING"))
    validator.json(b'{"rows": [[1, "a"]]}')
    statements = [{"rows": rows} for rows in shapes]
    alone = [outcome(validator, {"statements": [statement]}) for statement in statements]
    together = outcome(validator, {"statements": statements})
    refused = [(n, each) for n, each in enumerate(alone) if isinstance(each, str)]
    if refused:
        number, message = refused[0]
        assert together == message.replace("Statement 1", f"Statement {number + 1}")
    else:
        assert together == sum(each for each in alone if isinstance(each, int))


def outcome(validator: InsertValidator, document: Any) -> int | str:
    """The number of rows that are let in, or the message of the error."""
    try:
        return validator.json(json.dumps(document).encode()).rows
    except StatementError as error:
        return error.message


def test_statements_with_other_columns_keep_their_order() -> None:
    table = schema("id BIGINT, a STRING, b INT")
    document = {
        "statements": [
            {"rows": [[1, "x", 1]]},
            {"columns": ["b", "id"], "rows": [[2, 2], [3, 3]]},
            {"rows": []},
            {"rows": [[4, None, None]]},
        ]
    }
    assert let_in(table, document) == [
        {"id": 1, "a": "x", "b": 1},
        {"id": 2, "a": None, "b": 2},
        {"id": 3, "a": None, "b": 3},
        {"id": 4, "a": None, "b": None},
    ]


TYPES = [text for text, _, _ in GOOD]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from([value for _, value, _ in GOOD if isinstance(value, str)]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
NESTED = st.sampled_from(
    ["ARRAY<INT>", "MAP<STRING, INT>", "MAP<DATE, ARRAY<STRING>>", "STRUCT<x: INT, y: STRING>"]
)


@settings(max_examples=400, deadline=None)
@given(text=st.sampled_from(TYPES), values=st.lists(JSON, min_size=1, max_size=3))
def test_accepted_values_can_be_written(text: str, values: Sequence[object]) -> None:
    table = of_type(text)
    try:
        rows = let_in(table, {"rows": [[value] for value in values]})
    except InvalidValueError:
        return
    assert len(rows) == len(values)


@settings(max_examples=300, deadline=None)
@given(text=NESTED, values=st.lists(JSON, min_size=1, max_size=3))
def test_accepted_nested_values_can_be_written(text: str, values: Sequence[object]) -> None:
    try:
        let_in(schema(f"v {text}"), {"rows": [[value] for value in values]})
    except InvalidValueError:
        return


class TestArrowStreams:
    TABLE = schema("id BIGINT NOT NULL, name VARCHAR(3), c CHAR(2), d DATE DEFAULT '2026-01-01'")

    def stream(self, **columns: pa.Array) -> bytes:
        table = pa.table(columns)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue().to_pybytes()

    def test_stream_columns_are_cast_to_table_types(self) -> None:
        rows, payload = conformed_stream(
            NAME,
            self.stream(
                name=pa.array(["a", None]).dictionary_encode(),
                ID=pa.array([1, 2], pa.int32()),
                c=pa.array(["x", None]),
            ),
            self.TABLE,
        )
        validated = ValidatedInsert(Format.ARROW, 0, rows, payload)
        batches, unfit = entries_of([record(validated)], {0: self.TABLE}, self.TABLE)
        day = datetime.date(2026, 1, 1)
        assert (unfit, pa.Table.from_batches(batches).to_pylist()) == (
            [],
            [
                {"id": 1, "name": "a", "c": "x ", "d": day},
                {"id": 2, "name": None, "c": None, "d": day},
            ],
        )

    @pytest.mark.parametrize(
        ("columns", "said"),
        [
            ({"id": pa.array([None, 1])}, "NOT NULL"),
            ({"id": pa.array([2**63], pa.uint64())}, "column `id`: .*not in range"),
            ({"id": pa.array([1]), "name": pa.array(["abcd"])}, "length 4, more than 3"),
            ({"id": pa.array([1]), "none": pa.array([1])}, "no column `none`"),
            ({"name": pa.array(["a"])}, f"`id` of `{NAME}` is NOT NULL"),
        ],
    )
    def test_stream_that_does_not_fit_is_refused(
        self, columns: dict[str, pa.Array], said: str
    ) -> None:
        with pytest.raises((StatementError, ValueError), match=said):
            conformed_stream(NAME, self.stream(**columns), self.TABLE)

    @pytest.mark.parametrize(
        ("sql", "values", "said"),
        [
            ("v DATE", pa.array([2**31 - 1], pa.int32()).view(pa.date32()), "the years 1 to 9999"),
            ("v DATE", pa.array([-719_163], pa.int32()).view(pa.date32()), "the years 1 to 9999"),
            ("v TIMESTAMP_NTZ(3)", pa.array([2**60], pa.timestamp("ms")), "the years 1 to 9999"),
            (
                "v TIMESTAMP_NTZ(6)",
                pa.array([2**63 - 1], pa.timestamp("us")),
                "the years 1 to 9999",
            ),
            (
                "v TIMESTAMP_LTZ(6)",
                pa.array([-(2**62)], pa.timestamp("us", "UTC")),
                "the years 1 to 9999",
            ),
            ("v ARRAY<DATE>", pa.array([[2**31 - 1]], pa.list_(pa.date32())), "years 1 to 9999"),
            ("v FLOAT", pa.array([1e300]), "does not fit into float"),
            ("v ARRAY<FLOAT>", pa.array([[1.0, -1e300]]), "does not fit into"),
        ],
    )
    def test_values_that_no_engine_reads_are_refused(
        self, sql: str, values: pa.Array, said: str
    ) -> None:
        with pytest.raises(ValueError, match=f"column `v`.*{said}"):
            conformed_stream(NAME, self.stream(v=values), schema(sql))

    def test_calendar_bounds_and_infinity_are_accepted(self) -> None:
        sql = schema("d DATE, t TIMESTAMP_NTZ(6), f FLOAT")
        ends = [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]
        times = [datetime.datetime(1, 1, 1), datetime.datetime.max]
        stream = self.stream(d=pa.array(ends), t=pa.array(times), f=pa.array([math.inf, 1.0]))
        assert conformed_stream(NAME, stream, sql)[0] == 2

    def test_invalid_arrow_stream_is_refused(self) -> None:
        with pytest.raises(InvalidValueError, match="can't be read as an Arrow stream"):
            conformed_stream(NAME, b"no stream", self.TABLE)


class TestSchemaChanges:
    OLD = schema("id BIGINT NOT NULL, old_name STRING, gone INT, n INT, d STRING DEFAULT 'x'")

    def changed(self, columns: str, ids: Sequence[int]) -> TableSchema:
        made = schema(columns)
        numbered = tuple(
            Column(id, c.name, c.type, c.comment, c.default)
            for id, c in zip(ids, made.columns, strict=True)
        )
        return TableSchema(numbered, schema_id=1)

    def converted(
        self, target: TableSchema, *rows: list[object], columns: list[str] | None = None
    ) -> tuple[list[dict[str, object]], list[int]]:
        records = []
        for lsn, row in enumerate(rows, 1):
            document = {"rows": [row]} | ({"columns": columns} if columns else {})
            validated = InsertValidator(NAME, self.OLD).json(json.dumps(document).encode())
            records.append(record(validated, lsn))
        batches, unfit = entries_of(records, {0: self.OLD, 1: target}, target)
        table = pa.Table.from_batches(batches) if batches else pa.table({})
        return table.to_pylist(), [each.lsn for each in unfit]

    def test_columns_are_matched_by_field_id(self) -> None:
        target = self.changed(
            "new STRING, name STRING, id BIGINT NOT NULL, n BIGINT, d STRING", [9, 1, 0, 3, 4]
        )
        assert self.converted(target, [1, "a", 5, 7, "y"]) == (
            [{"new": None, "name": "a", "id": 1, "n": 7, "d": "y"}],
            [],
        )

    def test_default_is_taken_at_insert_time(self) -> None:
        target = self.changed("id BIGINT NOT NULL, d STRING DEFAULT 'y'", [0, 4])
        assert self.converted(target, [1], columns=["id"]) == ([{"id": 1, "d": "x"}], [])

    def test_unfit_rows_are_reported_and_do_not_affect_others(self) -> None:
        target = self.changed("id BIGINT NOT NULL, n TINYINT NOT NULL", [0, 3])
        rows = [1, "a", 1, 7, "d"], [2, "a", 1, 700, "d"], [3, "a", 1, None, "d"], [4, "", 1, 8, ""]
        assert self.converted(target, *rows) == ([{"id": 1, "n": 7}, {"id": 4, "n": 8}], [2, 3])

    def test_new_not_null_column_makes_dead_letters(self) -> None:
        target = self.changed("id BIGINT NOT NULL, must INT NOT NULL", [0, 9])
        assert self.converted(target, [1, "a", 1, 7, "d"]) == ([], [1])
