"""COPY INTO files: folders, partitions, one file; what is replaced, and wrong input."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from paimon_magics import Session
from paimon_magics.errors import (
    InvalidValueError,
    JobError,
    PaimonMagicsError,
    SetupError,
    UnconfirmedError,
    UnknownNameError,
    UnsupportedStatementError,
)
from tests.session.evidence import files
from tests.session.rows import rows

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def shop(module_session: Session) -> Session:
    module_session.run(
        "CREATE TABLE orders (id INT, name STRING, dt STRING); INSERT INTO orders VALUES "
        "(1, 'a,b', 'x'), (2, 'é', 'y'), (3, NULL, 'y')"
    )
    return module_session


def data(folder: Path) -> list[Path]:
    return sorted(folder.rglob("part-*"))


def names(folder: Path) -> set[str]:
    """What is beside and in the target."""
    return {path.name for path in folder.iterdir()}


def test_table_becomes_files_and_the_answer_counts_them(shop: Session, tmp_path: Path) -> None:
    outcome = shop.run(
        f"COPY INTO '{tmp_path}/out' FROM orders FILE_FORMAT = (TYPE = CSV, HEADER = TRUE)"
    )
    written = data(tmp_path / "out")
    assert outcome.to_pylist() == [
        {"output_path": f"{tmp_path}/out", "file_count": len(written), "rows_written": 3}
    ]
    lines = [line for file in written for line in csv.DictReader(file.read_text().splitlines())]
    assert sorted((line["id"], line["name"], line["dt"]) for line in lines) == [
        ("1", "a,b", "x"), ("2", "é", "y"), ("3", "", "y")
    ]  # fmt: skip
    assert names(tmp_path) == {"out"}


COLUMNS = {
    "id": "INT",
    "b": "BOOLEAN",
    "tiny": "TINYINT",
    "small": "SMALLINT",
    "big": "BIGINT",
    "f": "FLOAT",
    "d": "DOUBLE",
    "m": "DECIMAL(38, 18)",
    "s": "STRING",
    "c": "CHAR(3)",
    "vc": "VARCHAR(20)",
    "dt": "DATE",
    "ts": "TIMESTAMP",
    "ntz": "TIMESTAMP_NTZ",
}
PARTS = {
    "a": "ARRAY<TIMESTAMP>",
    "o": "MAP<STRING, DECIMAL(38, 18)>",
    "st": "STRUCT<x: TIMESTAMP_NTZ, y: ARRAY<STRING>>",
}
VALUES = (
    "(1, true, -128, 32767, -9223372036854775808, CAST('NaN' AS FLOAT), 0.1D, "
    "12345678901234567890.123456789012345678, 'a\"b,c\\\\', 'ab', ' x ', DATE '0001-01-01', "
    "TIMESTAMP '1900-01-01 00:00:00.123456', TIMESTAMP_NTZ '9999-12-31 23:59:59.999999'{})",
    "(2, false, 127, -32768, 9223372036854775807, CAST('-Infinity' AS FLOAT), 1e-300D, "
    "-0.000000000000000001, 'line\nline', '', 'é\\t\\\\\"', DATE '9999-12-31', "
    "TIMESTAMP '2026-07-01 12:00:00.000001', TIMESTAMP_NTZ '0001-01-01 00:00:00.000001'{})",
    "(3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL{})",
    "(4, true, 0, 0, 0, CAST(-0.0 AS FLOAT), 1.7976931348623157E308D, 0, '', '', '', "
    "DATE '1582-10-15', TIMESTAMP '2026-10-25 02:30:00', TIMESTAMP_NTZ '2026-10-25 02:30:00'{})",
)
PART_VALUES = (
    ", array(TIMESTAMP '2026-07-01 12:00:00.000001', NULL), "
    "map('k', 12345678901234567890.123456789012345678), "
    "named_struct('x', TIMESTAMP_NTZ '2026-07-01 12:00:00.000001', 'y', array('q\"', NULL))",
    ", array(), map(), named_struct('x', NULL, 'y', NULL)",
    ", NULL, NULL, NULL",
    ", array(NULL), map('k', NULL), named_struct('x', NULL, 'y', array())",
)


@pytest.mark.parametrize("kind", ["CSV", "JSON", "PARQUET", "ORC"])
def test_rows_of_all_types_are_the_same_when_they_are_loaded_again(
    shop: Session, tmp_path: Path, kind: str
) -> None:
    columns = COLUMNS | (PARTS if kind != "CSV" else {})
    if kind in ("PARQUET", "ORC"):
        columns |= {"bin": "BINARY"}
    more = ", unhex('00FF')" if "bin" in columns else ""
    texts = [
        value.format(part if kind != "CSV" else "").removesuffix(")") + f"{more})"
        for value, part in zip(VALUES, PART_VALUES, strict=True)
    ]
    defined = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
    for table in (f"every_{kind}", f"every_back_{kind}"):
        shop.run(f"CREATE TABLE {table} ({defined})")
    shop.run(f"INSERT INTO every_{kind} VALUES {', '.join(texts)}")
    form = f"FILE_FORMAT = (TYPE = {kind})"
    shop.run(f"COPY INTO '{tmp_path}/{kind}' FROM every_{kind} {form}")
    shop.run(f"COPY INTO every_back_{kind} FROM '{tmp_path}/{kind}' {form}")
    before, after = (
        shop.run(f"SELECT * FROM {table} ORDER BY id").to_arrow()
        for table in (f"every_{kind}", f"every_back_{kind}")
    )
    assert before.num_rows == 4
    for name in columns:
        assert str(before[name].to_pylist()) == str(after[name].to_pylist()), name


@pytest.mark.parametrize(
    ("kind", "column", "hint"),
    [
        ("CSV", "unhex('00FF') AS c", "base64(`c`)"),
        ("JSON", "unhex('00FF') AS c", "base64(`c`)"),
        ("JSON", "array(unhex('00FF')) AS c", "PARQUET"),
        ("CSV", "array(1) AS c", "to_json(`c`)"),
        ("CSV", "named_struct('x', 1) AS c", "to_json(`c`)"),
    ],
)
def test_columns_without_a_text_are_refused_by_name_before_anything_is_written(
    shop: Session, tmp_path: Path, kind: str, column: str, hint: str
) -> None:
    with pytest.raises(UnsupportedStatementError, match="the column `c`") as caught:
        shop.run(f"COPY INTO '{tmp_path}/no' FROM (SELECT {column}) FILE_FORMAT = (TYPE = {kind})")
    assert hint in str(caught.value)
    assert names(tmp_path) == set()


def test_format_of_times_is_that_of_all_times(shop: Session, tmp_path: Path) -> None:
    copy = (
        f"COPY INTO '{tmp_path}/out' FROM (SELECT TIMESTAMP_NTZ '2026-02-01 03:04:05' AS n, "
        "TIMESTAMP '2026-02-01 03:04:05' AS z) "
        "FILE_FORMAT = (TYPE = JSON, TIMESTAMP_FORMAT = '{}')"
    )
    with pytest.raises(InvalidValueError, match="has a zone, and the column `n` is TIMESTAMP_NTZ"):
        shop.run(copy.format("dd.MM.yyyy XXX"))
    assert names(tmp_path) == set()
    shop.run(copy.format("dd.MM.yyyy HH:mm"))
    (text,) = [file.read_text() for file in data(tmp_path / "out")]
    assert json.loads(text) == {"n": "01.02.2026 03:04", "z": "01.02.2026 03:04"}


def test_exported_files_can_be_loaded_again(shop: Session, tmp_path: Path) -> None:
    for kind in ("JSON", "PARQUET", "ORC"):
        shop.run(f"COPY INTO '{tmp_path}/{kind}' FROM orders FILE_FORMAT = (TYPE = {kind})")
        shop.run(f"CREATE TABLE back_{kind} (id INT, name STRING, dt STRING)")
        shop.run(f"COPY INTO back_{kind} FROM '{tmp_path}/{kind}' FILE_FORMAT = (TYPE = {kind})")
        assert rows(shop, f"SELECT * FROM back_{kind} ORDER BY id") == rows(
            shop, "SELECT * FROM orders ORDER BY id"
        )


def test_partitions_become_folders_and_single_becomes_one_file(
    shop: Session, tmp_path: Path
) -> None:
    shop.run(
        f"COPY INTO '{tmp_path}/parts' FROM orders FILE_FORMAT = (TYPE = JSON) PARTITION BY (dt)"
    )
    assert {file.parent.name for file in data(tmp_path / "parts")} == {"dt=x", "dt=y"}
    first = data(tmp_path / "parts" / "dt=x")[0]
    assert json.loads(first.read_text()) == {"id": 1, "name": "a,b"}
    outcome = shop.run(
        f"COPY INTO '{tmp_path}/one.parquet' FROM (SELECT id FROM orders WHERE id IN (1, :n) "
        "ORDER BY id DESC) FILE_FORMAT = (TYPE = PARQUET, COMPRESSION = GZIP) SINGLE = TRUE",
        {"n": 3},
    )
    assert outcome.to_pylist()[0]["file_count"] == 1
    assert pq.read_table(tmp_path / "one.parquet").to_pylist() == [{"id": 3}, {"id": 1}]
    assert pq.ParquetFile(tmp_path / "one.parquet").metadata.row_group(0).column(0).compression == (
        "GZIP"
    )
    assert names(tmp_path) == {"parts", "one.parquet"}


def test_overwrite_replaces_the_folder_only_when_all_is_written(
    shop: Session, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    statement = f"COPY INTO '{target}' FROM orders FILE_FORMAT = (TYPE = JSON)"
    shop.run(statement)
    before = files(tmp_path)
    with pytest.raises(InvalidValueError, match="exists already") as raised:
        shop.run(statement)
    assert "OVERWRITE = TRUE" in raised.value.hint
    with pytest.raises(JobError, match="boo"):
        shop.run(
            f"COPY INTO '{target}' FROM (SELECT if(id > 2, raise_error('boo'), id) AS id FROM "
            "orders) FILE_FORMAT = (TYPE = JSON) OVERWRITE = TRUE"
        )
    assert files(tmp_path) == before
    shop.run(f"COPY INTO '{target}' FROM (VALUES (7)) FILE_FORMAT = (TYPE = JSON) OVERWRITE = TRUE")
    assert [json.loads(file.read_text()) for file in data(target)] == [{"col1": 7}]
    assert names(tmp_path) == {"out"}


def test_overwrite_asks_before_it_removes_files_of_others(shop: Session, tmp_path: Path) -> None:
    target = tmp_path / "out"
    statement = f"COPY INTO '{target}' FROM orders FILE_FORMAT = (TYPE = JSON) OVERWRITE = TRUE"
    shop.run(statement, confirm=False)
    shop.run(statement, confirm=False)  # it replaces what an export has written
    (target / "notes.txt").write_text("mine")
    with pytest.raises(UnconfirmedError, match=r"1 file .* such as notes\.txt"):
        shop.run(statement, confirm=False)
    assert (target / "notes.txt").read_text() == "mine"


def test_mistakes_are_answered_before_anything_is_written(
    shop: Session, module_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    before = files(tmp_path)
    out = f"{tmp_path}/out"
    form = "FILE_FORMAT = (TYPE = PARQUET)"
    cases: list[tuple[str, type[PaimonMagicsError], str, str]] = [
        (f"COPY INTO '{out}' FROM ordrs {form}", UnknownNameError, "ordrs", "orders"),
        (f"COPY INTO '{out}' FROM (SELECT nme FROM orders) {form}", UnknownNameError, "nme", ""),
        (
            f"COPY INTO '{out}' FROM orders {form} PARTITION BY (day)",
            UnknownNameError, "`day`", "dt",
        ),
        (
            f"COPY INTO '{out}' FROM (SELECT dt FROM orders) {form} PARTITION BY (dt)",
            InvalidValueError, "all columns", "Leave one",
        ),
        (
            f"COPY INTO '{out}' FROM orders {form} PARTITION BY (dt) SINGLE = TRUE",
            InvalidValueError, "contradict", "Leave one",
        ),
        (
            f"COPY INTO '{out}' FROM (SELECT id, id FROM orders) {form}",
            InvalidValueError, "Two columns are called `id`", "AS",
        ),
        (
            f"COPY INTO '{module_warehouse}/x' FROM orders {form} OVERWRITE = TRUE",
            InvalidValueError, "warehouse", "outside",
        ),
        (f"COPY INTO '/' FROM orders {form} OVERWRITE = TRUE", InvalidValueError, "`/`", "folder"),
        (f"COPY INTO '.' FROM orders {form} OVERWRITE = TRUE", InvalidValueError, "`.`", "folder"),
        (
            f"COPY INTO '{tmp_path}/work' FROM orders {form} SINGLE = TRUE OVERWRITE = TRUE",
            InvalidValueError, "is a folder", "rows.parquet",
        ),
        (
            f"COPY INTO '{out}' FROM orders FILE_FORMAT = (TYPE = CSV, SKIP_HEADER = 1)",
            InvalidValueError, "SKIP_HEADER", "HEADER",
        ),
        (
            f"INSERT OVERWRITE DIRECTORY '{out}' USING csv SELECT * FROM orders",
            UnsupportedStatementError, "INSERT OVERWRITE DIRECTORY", "COPY INTO 'path'",
        ),
    ]  # fmt: skip
    for statement, kind, message, hint in cases:
        with pytest.raises(PaimonMagicsError) as raised:
            shop.run(statement, confirm=True)
        assert isinstance(raised.value, kind), statement
        assert message in raised.value.message, (statement, raised.value.message)
        assert hint in raised.value.hint, (statement, raised.value.hint)
    assert files(tmp_path) == before


def test_folder_without_rights_is_named(shop: Session, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SetupError, match="can't be written"):
        shop.run(f"COPY INTO '{tmp_path}/file/out' FROM orders FILE_FORMAT = (TYPE = CSV)")
    assert (tmp_path / "file").read_text() == "x"


def test_python_call_exports_a_table_and_a_query(shop: Session, tmp_path: Path) -> None:
    shop.copy_into(f"{tmp_path}/a", "default.orders", "PARQUET")
    outcome = shop.copy_into(
        f"{tmp_path}/b.csv", "SELECT id FROM orders", "CSV", options={"HEADER": True}, single=True
    )
    assert outcome.to_pylist()[0]["rows_written"] == 3
    assert sorted((tmp_path / "b.csv").read_text().split()) == ["1", "2", "3", "id"]
    assert pq.read_table(tmp_path / "a").num_rows == 3


def test_explain_and_dry_run_write_nothing(shop: Session, tmp_path: Path) -> None:
    statement = (
        f"COPY INTO '{tmp_path}/out' FROM orders FILE_FORMAT = (TYPE = PARQUET) PARTITION BY (dt)"
    )
    assert "PARQUET files with 3 columns" in shop.run(statement, dry_run=True).message
    assert "Folders by dt" in shop.explain(statement).message
    assert files(tmp_path) == {}


def test_target_in_the_warehouse_is_refused_before_anything_is_asked(
    shop: Session, module_warehouse: Path
) -> None:
    table = module_warehouse / "default.db" / "orders"
    before = files(table)
    for target in (table, f"/{table}", f"FILE:{table}/bucket-0"):
        with pytest.raises(InvalidValueError, match="place of the warehouse"):
            shop.run(
                f"COPY INTO '{target}' FROM orders FILE_FORMAT = (TYPE = CSV) OVERWRITE = TRUE",
                confirm=False,
            )
    assert files(table) == before


def test_texts_come_back_from_csv_as_they_were(shop: Session, tmp_path: Path) -> None:
    texts = [" x ", "", None, "\ttab", 'a"b', "back\\slash", "end\\", '"', "NULL", "a,b"]
    texts += ['say "hi"\nthere', "two\r\nlines"]
    shop.run("CREATE TABLE texts (id INT, t STRING)")
    shop.insert("texts", list(enumerate(texts)))
    shop.run(f"COPY INTO '{tmp_path}/out' FROM texts FILE_FORMAT = (TYPE = CSV, HEADER = TRUE)")
    for name, option in (("by_position", "SKIP_HEADER = 1"), ("by_name", "PARSE_HEADER = TRUE")):
        shop.run(f"CREATE TABLE {name} (id INT, t STRING)")
        shop.run(f"COPY INTO {name} FROM '{tmp_path}/out' FILE_FORMAT = (TYPE = CSV, {option})")
        assert rows(shop, f"SELECT * FROM {name} ORDER BY id") == list(enumerate(texts))


def test_empty_field_with_quotes_is_null_where_nothing_is_empty(
    shop: Session, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text('"1","",""\n2,,\n')
    shop.run("CREATE TABLE empty (id INT, n INT, t STRING)")
    shop.run(f"COPY INTO empty FROM '{tmp_path}' FILE_FORMAT = (TYPE = CSV)")
    assert rows(shop, "SELECT * FROM empty ORDER BY id") == [(1, None, ""), (2, None, None)]
