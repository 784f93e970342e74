"""COPY INTO a table: files of each type, the history of loads, bad rows, and wrong input."""

from __future__ import annotations

import datetime
import gzip
import json
import os
import threading
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_magics import Session
from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    UnknownNameError,
    UnsupportedStatementError,
)
from paimon_magics.planning.copying.load_history import HISTORY_FOLDER, PENDING_FOLDER
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.snapshots.provenance import noted
from tests.session.evidence import files
from tests.session.rows import rows
from tests.tables.reachability import unreachable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CSV = "FILE_FORMAT = (TYPE = CSV)"


@pytest.fixture
def shop(module_session: Session, request: pytest.FixtureRequest) -> str:
    """A table `(id INT, name STRING, age INT)` of the test's own."""
    name = f"t{abs(hash(request.node.nodeid))}"
    module_session.run(f"CREATE TABLE {name} (id INT, name STRING, age INT)")
    return name


def put(folder: Path, **contents: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in contents.items():
        (folder / name.replace("_", ".")).write_text(content)
    return folder


def copy(session: Session, text: str) -> list[tuple[Any, ...]]:
    """The answer without the reasons: file, status, loaded, parsed, errors."""
    return [tuple(row.values())[:5] for row in session.run(text).to_pylist()]


def folder_of(warehouse: Path, table: str) -> Path:
    return warehouse / "default.db" / table


def refused(session: Session, text: str) -> PaimonMagicsError:
    with pytest.raises(PaimonMagicsError) as raised:
        session.run(text)
    return raised.value


def test_rows_of_csv_files_come_by_position_and_each_file_once(
    module_session: Session, shop: str, tmp_path: Path
) -> None:
    folder = put(tmp_path / "in a%20b", a_csv="1,Ann,30\n2,Bob,\n", b_csv="3,Cy,1\n", _hidden="x")
    statement = f"COPY INTO {shop} FROM '{folder}' {CSV}"
    outcome = module_session.run(statement)
    assert [tuple(row.values()) for row in outcome.to_pylist()] == [
        ("a.csv", "LOADED", 2, 2, 0, None),
        ("b.csv", "LOADED", 1, 1, 0, None),
    ]
    assert (outcome.rows_written, outcome.snapshot_id) == (3, 1)
    assert rows(module_session, f"SELECT * FROM {shop} ORDER BY id") == [
        (1, "Ann", 30), (2, "Bob", None), (3, "Cy", 1)
    ]  # fmt: skip
    assert copy(module_session, statement) == [
        ("a.csv", "SKIPPED", 0, 0, 0), ("b.csv", "SKIPPED", 0, 0, 0)
    ]  # fmt: skip
    (folder / "b.csv").write_text("4,Di,2\n5,Ed,3\n")
    assert copy(module_session, statement) == [
        ("b.csv", "LOADED", 2, 2, 0), ("a.csv", "SKIPPED", 0, 0, 0)
    ]  # fmt: skip
    assert copy(module_session, statement + " FORCE = TRUE PATTERN = '^a'") == [
        ("a.csv", "LOADED", 2, 2, 0)
    ]
    assert rows(module_session, f"SELECT count(*) FROM {shop}") == [(7,)]


def test_history_has_the_records_of_the_connector(
    module_session: Session, module_warehouse: Path, shop: str, tmp_path: Path
) -> None:
    folder = put(tmp_path / "in", a_csv="1,Ann,30\n")
    module_session.run(f"COPY INTO {shop} FROM '{folder}' {CSV}")
    table = folder_of(module_warehouse, shop)
    (record,) = (table / HISTORY_FOLDER).iterdir()
    document = json.loads(record.read_text())
    status = (folder / "a.csv").stat()
    assert document == {
        "filePath": f"file:{folder}/a.csv",
        "fileSize": status.st_size,
        "lastModified": status.st_mtime_ns // 1_000_000,
        "loadedAt": int(record.name.rpartition("-")[2]),
        "snapshotId": 1,
        "rowsLoaded": 1,
    }
    assert list((table / PENDING_FOLDER).iterdir()) == []


def test_options_of_csv_change_what_is_read(
    module_session: Session, shop: str, tmp_path: Path
) -> None:
    folder = put(tmp_path / "in", a_csv='age|id|name\nNULL|1|"A ""x"" \n B"\n7|2|\\N\n')
    module_session.run(
        f"COPY INTO {shop} (id, age, name) FROM '{folder}' FILE_FORMAT = (TYPE = CSV, "
        r"FIELD_DELIMITER = '|', PARSE_HEADER = TRUE, NULL_IF = ('NULL', '\N'), MULTI_LINE = TRUE, "
        """ESCAPE = '"')"""
    )
    assert rows(module_session, f"SELECT * FROM {shop} ORDER BY id") == [
        (1, 'A "x" \n B', None), (2, None, 7)
    ]  # fmt: skip
    with gzip.open(folder / "b.csv.gz", "wt", encoding="latin-1") as file:
        file.write("3,é,1\n")
    module_session.run(
        f"COPY INTO {shop} FROM '{folder}/b.csv.gz' "
        "FILE_FORMAT = (TYPE = CSV, ENCODING = 'ISO-8859-1')"
    )
    assert rows(module_session, f"SELECT name FROM {shop} WHERE id = 3") == [("é",)]


def test_files_of_other_types_match_by_name(
    module_session: Session, shop: str, tmp_path: Path
) -> None:
    session = module_session
    folder = put(tmp_path / "in", a_json='{"id":"1","name":"A","x":1}\n{"id":2}\n')
    session.run(f"COPY INTO {shop} FROM '{folder}' FILE_FORMAT = (TYPE = JSON)")
    frame = session.run("SELECT 9 AS more, 'P' AS name, 3L AS id").dataframe
    assert frame is not None
    frame.write.parquet(str(tmp_path / "p"))
    frame.write.orc(str(tmp_path / "o"))
    outcome = session.run(f"COPY INTO {shop} FROM '{tmp_path}/p' FILE_FORMAT = (TYPE = PARQUET)")
    assert any("`more`" in note for note in outcome.notes)
    session.run(f"COPY INTO {shop} FROM '{tmp_path}/o' FILE_FORMAT = (TYPE = ORC)")
    assert rows(session, f"SELECT * FROM {shop} ORDER BY id, name") == [
        (1, "A", None), (2, None, None), (3, "P", None), (3, "P", None)
    ]  # fmt: skip


def test_nested_values_of_json_and_a_list_of_objects_are_read(
    module_session: Session, tmp_path: Path
) -> None:
    module_session.run(
        "CREATE TABLE nested (id BIGINT, tags ARRAY<STRING>, at STRUCT<x: INT>, d DATE)"
    )
    folder = put(
        tmp_path / "in",
        a_json='[{"id":1,"tags":["a","b"],"at":{"x":5},"d":"2026-01-31"},\n{"id":2}]',
    )
    module_session.run(
        f"COPY INTO nested FROM '{folder}' FILE_FORMAT = (TYPE = JSON, MULTI_LINE = TRUE)"
    )
    assert rows(module_session, "SELECT id, tags[1], at.x, string(d) FROM nested ORDER BY id") == [
        (1, "b", 5, "2026-01-31"), (2, None, None, None)
    ]  # fmt: skip


def test_avro_files_need_no_jar(module_session: Session, tmp_path: Path) -> None:
    session = module_session
    session.run(
        "CREATE TABLE birds (id INT NOT NULL, name STRING, n DECIMAL(6, 2), at TIMESTAMP, d DATE, "
        "tags ARRAY<STRING>, place STRUCT<x: INT>)"
    )
    schema = {
        "type": "record", "name": "bird", "fields": [
            {"name": "name", "type": ["null", "string"]},
            {"name": "id", "type": "long"},
            {"name": "n", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6,
                                   "scale": 2}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "d", "type": {"type": "int", "logicalType": "date"}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "place", "type": ["null", {"type": "record", "name": "place", "fields": [
                {"name": "x", "type": "int"}]}]},
            {"name": "more", "type": "boolean"},
        ],
    }  # fmt: skip
    at = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)

    def bird(number: int) -> dict[str, Any]:
        name = None if number else "owl"
        day, tags, place = at.date(), ["a", "b"], {"x": number % 7}
        row = {"id": number, "name": name, "n": Decimal("1.25"), "at": at, "more": True}
        return row | {"d": day, "tags": tags, "place": place}

    folder = tmp_path / "in out"
    folder.mkdir()
    for name, numbers in (("a.avro", (0, 1)), ("b.avro", (2, 2**40))):
        with (folder / name).open("wb") as file:
            fastavro.writer(file, schema, list(map(bird, numbers)))
    statement = f"COPY INTO birds FROM '{folder}' FILE_FORMAT = (TYPE = AVRO) ON_ERROR = CONTINUE"
    assert copy(session, statement) == [
        ("a.avro", "LOADED", 2, 2, 0), ("b.avro", "PARTIALLY_LOADED", 1, 2, 1)
    ]  # fmt: skip
    assert rows(
        session,
        "SELECT id, name, string(n), unix_seconds(at), string(d), tags[1], place.x FROM birds "
        "ORDER BY id",
    ) == [
        (number, "owl" if not number else None, "1.25", int(at.timestamp()), "2026-01-31", "b",
         number)
        for number in range(3)
    ]  # fmt: skip
    assert [each[1] for each in copy(session, statement)] == ["SKIPPED", "SKIPPED"]
    (folder / "c.avro").write_text("id,name")
    error = refused(session, statement)
    assert "is no Avro file" in error.message and "TYPE" in error.hint


def test_malformed_json_is_a_matter_of_on_error(
    module_session: Session, shop: str, tmp_path: Path
) -> None:
    folder = put(tmp_path / "in", a_json="{bad json}\n", b_json='{"id":"1"}\n{"id":"x"}\n')
    form = "FILE_FORMAT = (TYPE = JSON)"
    error = refused(module_session, f"COPY INTO {shop} FROM '{folder}' {form}")
    assert "Malformed record: {bad json}" in error.message
    assert copy(module_session, f"COPY INTO {shop} FROM '{folder}' {form} ON_ERROR = CONTINUE") == [
        ("a.json", "LOAD_FAILED", 0, 1, 1), ("b.json", "PARTIALLY_LOADED", 1, 2, 1)
    ]  # fmt: skip
    assert rows(module_session, f"SELECT id FROM {shop}") == [(1,)]


def test_glob_and_list_of_files_choose_files(
    module_session: Session, shop: str, tmp_path: Path
) -> None:
    for day in ("d1", "d2", "e1"):
        put(tmp_path / day, a_csv=f"{ord(day[0]) + int(day[1])},{day},1\n", b_csv="0,b,0\n")
    assert copy(module_session, f"COPY INTO {shop} FROM '{tmp_path}/d*/a.csv' {CSV}") == [
        ("a.csv", "LOADED", 1, 1, 0), ("a.csv", "LOADED", 1, 1, 0)
    ]  # fmt: skip
    statement = f"COPY INTO {shop} FROM '{tmp_path}' {CSV} FILES = ('e1/a.csv', 'd1/a.csv')"
    assert [each[1] for each in copy(module_session, statement)] == ["LOADED", "SKIPPED"]
    assert rows(module_session, f"SELECT name FROM {shop} ORDER BY name") == [
        ("d1",), ("d2",), ("e1",)
    ]  # fmt: skip


def test_unlisted_columns_get_their_default(module_session: Session, tmp_path: Path) -> None:
    module_session.run(
        "CREATE TABLE defaults (id INT NOT NULL, v STRING DEFAULT 'new', w INT) "
        "TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '2')"
    )
    folder = put(tmp_path / "in", a_csv="1,5\n2,\n1,6\n")
    answer = copy(module_session, f"COPY INTO defaults (ID, w) FROM '{folder}' {CSV}")
    assert answer == [("a.csv", "LOADED", 3, 3, 0)]
    assert rows(module_session, "SELECT * FROM defaults ORDER BY id") == [
        (1, "new", 6), (2, "new", None)
    ]  # fmt: skip
    error = refused(module_session, f"COPY INTO defaults (v) FROM '{folder}' {CSV} FORCE = TRUE")
    assert "`id`" in error.message


BAD = "1,Ann,30\nabc,Bob,2\n3,Cy\n4,Di,x\n5,Ed,5\n"


def test_bad_row_ends_the_statement_and_leaves_nothing(
    module_session: Session, module_warehouse: Path, shop: str, tmp_path: Path
) -> None:
    folder = put(tmp_path / "in", a_csv="7,Al,1\n", b_csv=BAD)
    before = set(files(folder_of(module_warehouse, shop)))
    error = refused(module_session, f"COPY INTO {shop} FROM '{folder}' {CSV}")
    assert isinstance(error, InvalidValueError)
    assert "3 rows of `b.csv`" in error.message
    assert "Cast failure in column 'id': 'abc' can't be converted to INT" in error.message
    assert "ON_ERROR = CONTINUE" in error.hint
    after = set(files(folder_of(module_warehouse, shop)))
    assert {name for name in after - before if "." in name.rpartition("/")[2]} == set()
    assert rows(module_session, f"SELECT count(*) FROM {shop}") == [(0,)]


def test_continue_leaves_bad_rows_out_and_keeps_them_in_a_table(
    module_session: Session, shop: str, tmp_path: Path
) -> None:
    folder = put(tmp_path / "in", a_csv="7,Al,1\n", b_csv=BAD, c_csv="x,y,z\n")
    statement = (
        f"COPY INTO {shop} FROM '{folder}' {CSV} ON_ERROR = CONTINUE REJECTED_ROWS = bad_{shop}"
    )
    assert copy(module_session, statement) == [
        ("a.csv", "LOADED", 1, 1, 0),
        ("b.csv", "PARTIALLY_LOADED", 2, 5, 3),
        ("c.csv", "LOAD_FAILED", 0, 1, 1),
    ]
    assert rows(module_session, f"SELECT id FROM {shop} ORDER BY id") == [(1,), (5,), (7,)]
    rejected = rows(
        module_session,
        f"SELECT substring_index(file_path, '/', -1), record, error FROM bad_{shop} ORDER BY error",
    )
    assert [(name, record) for name, record, _ in rejected] == [
        ("b.csv", '{"_c0":"4","_c1":"Di","_c2":"x"}'),
        ("b.csv", '{"_c0":"abc","_c1":"Bob","_c2":"2"}'),
        ("c.csv", '{"_c0":"x","_c1":"y","_c2":"z"}'),
        ("b.csv", "3,Cy"),
    ]
    again = copy(module_session, statement)
    assert again == [
        ("c.csv", "LOAD_FAILED", 0, 1, 1),
        ("a.csv", "SKIPPED", 0, 0, 0),
        ("b.csv", "SKIPPED", 0, 0, 0),
    ]
    assert rows(module_session, f"SELECT count(*), count(DISTINCT load_id) FROM bad_{shop}") == [
        (5, 2)
    ]


def test_skip_file_leaves_out_files_with_bad_rows(
    module_session: Session, shop: str, tmp_path: Path
) -> None:
    folder = put(tmp_path / "in", a_csv="7,Al,1\n", b_csv=BAD)
    statement = f"COPY INTO {shop} FROM '{folder}' {CSV} ON_ERROR = SKIP_FILE"
    assert copy(module_session, statement) == [
        ("a.csv", "LOADED", 1, 1, 0), ("b.csv", "LOAD_FAILED", 0, 5, 3)
    ]  # fmt: skip
    assert rows(module_session, f"SELECT id FROM {shop}") == [(7,)]
    (folder / "b.csv").write_text("8,Fy,1\n")
    assert copy(module_session, statement)[0] == ("b.csv", "LOADED", 1, 1, 0)


@pytest.mark.parametrize(
    ("definition", "value", "why"),
    [
        ("v VARCHAR(2)", "abc", "more than 2 characters"),
        ("v INT NOT NULL", "", "NOT NULL"),
        ("v DECIMAL(4, 2)", "123.4", "'123.4' can't be converted to DECIMAL"),
        ("v DATE", "2026-02-30", "'2026-02-30' can't be converted to DATE"),
        ("v BOOLEAN", "perhaps", "can't be converted to BOOLEAN"),
    ],
)
def test_values_that_do_not_fit_are_reported(
    module_session: Session,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    definition: str,
    value: str,
    why: str,
) -> None:
    name = f"f{abs(hash(request.node.nodeid))}"
    module_session.run(f"CREATE TABLE {name} (id INT, {definition})")
    folder = put(tmp_path / "in", a_csv=f"1,{value}\n")
    statement = f"COPY INTO {name} FROM '{folder}' {CSV}"
    assert why in refused(module_session, statement).message
    (row,) = module_session.run(f"{statement} ON_ERROR = CONTINUE").to_pylist()
    assert (row["status"], row["errors_seen"]) == ("LOAD_FAILED", 1)
    assert why in row["first_error"]


def test_bytes_that_are_no_characters_are_an_error(
    module_session: Session, shop: str, tmp_path: Path
) -> None:
    folder = put(tmp_path / "in", a_csv="")
    (folder / "a.csv").write_bytes(b"1,Caf\xe9,1\n")
    error = refused(module_session, f"COPY INTO {shop} FROM '{folder}' {CSV}")
    assert "not characters of its encoding" in error.message and "ENCODING" in error.hint
    module_session.run(
        f"COPY INTO {shop} FROM '{folder}' "
        "FILE_FORMAT = (TYPE = CSV, REPLACE_INVALID_CHARACTERS = TRUE)"
    )
    assert rows(module_session, f"SELECT name FROM {shop}") == [("Caf\ufffd",)]


def test_validate_checks_rows_and_writes_nothing(
    module_session: Session, module_warehouse: Path, shop: str, tmp_path: Path
) -> None:
    folder = put(tmp_path / "in", a_csv="7,Al,1\n", b_csv=BAD)
    before = files(folder_of(module_warehouse, shop))
    outcome = module_session.run(f"COPY INTO {shop} FROM '{folder}' {CSV} VALIDATE")
    assert [tuple(row.values())[:5] for row in outcome.to_pylist()] == [
        ("a.csv", "VALID", 0, 1, 0), ("b.csv", "INVALID", 0, 5, 3)
    ]  # fmt: skip
    assert "3 rows can't be loaded" in outcome.notes[0]
    (row,) = module_session.run(
        f"COPY INTO {shop} FROM '{folder}/b.csv' {CSV} VALIDATE 1 ROWS"
    ).to_pylist()
    assert (row["status"], row["rows_parsed"]) == ("VALID", 1)
    assert files(folder_of(module_warehouse, shop)) == before


def test_dry_run_explain_and_preview_write_nothing(
    module_session: Session, module_warehouse: Path, shop: str, tmp_path: Path
) -> None:
    folder = put(tmp_path / "in", a_csv="7,Al,1\n8,Bo,2\n")
    statement = f"COPY INTO {shop} FROM '{folder}' {CSV}"
    before = files(folder_of(module_warehouse, shop))
    assert "1 file (14 B) to load: a.csv" in module_session.run(statement, dry_run=True).message
    assert "ends the statement" in module_session.explain(statement).message
    preview = module_session.preview(statement)
    assert preview.to_pylist() == [
        {"id": 7, "name": "Al", "age": 1}, {"id": 8, "name": "Bo", "age": 2}
    ]  # fmt: skip
    assert files(folder_of(module_warehouse, shop)) == before


def test_mistakes_are_answered_before_anything_is_written(
    module_session: Session, module_warehouse: Path, shop: str, tmp_path: Path
) -> None:
    folder = put(tmp_path / "orders", a_csv="id,name,age\n1,Ann,2\n", b_json='{"ID":1}\n')
    semi = put(tmp_path / "semi", a_csv="1;Ann;2\n")
    module_session.run(f"CREATE TABLE up_{shop} (id INT) TBLPROPERTIES ('upsert-key' = 'id')")
    before = files(module_warehouse)
    cases: list[tuple[str, type[PaimonMagicsError], str, str]] = [
        (f"COPY INTO nope FROM '{folder}' {CSV}", UnknownNameError, "nope", "CREATE TABLE nope AS"),
        (f"COPY INTO {shop} FROM '{tmp_path}/ordrs' {CSV}", UnknownNameError, "ordrs", "`orders`"),
        (f"COPY INTO {shop} FROM '{tmp_path}' {CSV}", UnknownNameError, "no files", "/*/"),
        (
            f"COPY INTO {shop} FROM '{folder}' {CSV} PATTERN = 'x.*'",
            UnknownNameError, "matches none of the 2 files", "a.csv, b.json",
        ),
        (
            f"COPY INTO {shop} FROM '{folder}' {CSV} PATTERN = '*.csv'",
            InvalidValueError, "no regular expression", ".csv",
        ),
        (
            f"COPY INTO {shop} FROM '{folder}' {CSV} FILES = ('c.csv')",
            UnknownNameError, "`c.csv`", "FILES",
        ),
        (
            f"COPY INTO {shop} (id, nme) FROM '{folder}' {CSV}",
            UnknownNameError, "'nme' does not exist", "`name`",
        ),
        (
            f"COPY INTO {shop} (id, ID) FROM '{folder}' {CSV}",
            InvalidValueError, "Duplicate columns", "one of them",
        ),
        (
            f"COPY INTO {shop} FROM '{folder}/a.csv' {CSV}",
            InvalidValueError, "names of columns", "SKIP_HEADER = 1",
        ),
        (
            f"COPY INTO {shop} FROM '{folder}/b.json' FILE_FORMAT = (TYPE = JSON)",
            InvalidValueError, "no column of", "`id`",
        ),
        (
            f"COPY INTO {shop} FROM '{folder}/a.csv' FILE_FORMAT = (TYPE = PARQUET)",
            InvalidValueError, "can't be read as PARQUET", "TYPE",
        ),
        (
            f"COPY INTO {shop} FROM '{semi}' {CSV}",
            InvalidValueError, "Malformed record: 1;Ann;2", "FIELD_DELIMITER = ';'",
        ),
        (
            f"COPY INTO {shop} FROM '{semi}' {CSV} REJECTED_ROWS = {shop}_r",
            InvalidValueError, "needs ON_ERROR", "CONTINUE",
        ),
        (
            f"COPY INTO {shop} FROM '{semi}' {CSV} REJECTED_ROWS = {shop} ON_ERROR = CONTINUE",
            InvalidValueError, "which is loaded", "another table",
        ),
        (
            f"COPY INTO up_{shop} FROM '{semi}' {CSV}",
            UnsupportedStatementError, "upsert-key", "INSERT INTO",
        ),
        (
            f"COPY INTO `{shop}$files` FROM '{semi}' {CSV}",
            UnsupportedStatementError, "system table", "",
        ),
    ]  # fmt: skip
    for statement, kind, message, hint in cases:
        error = refused(module_session, statement)
        assert isinstance(error, kind), statement
        assert message in error.message, statement
        assert hint in error.hint, (statement, error.hint)
    changed = {name for name, _ in files(module_warehouse).items() ^ before.items()}
    assert {name for name in changed if "/attempts" not in name and ".paimon-magics" not in name
            and "." in name.rpartition("/")[2]} == set()  # fmt: skip


def test_file_that_is_changed_while_it_is_loaded_is_not_committed(
    module_session: Session, spark: SparkSession, shop: str, tmp_path: Path
) -> None:
    folder = put(tmp_path / "in", a_csv="".join(f"{n},x,1\n" for n in range(200_000)))

    def touch() -> None:
        while not spark.sparkContext.statusTracker().getActiveJobsIds():
            pass
        os.utime(folder / "a.csv", ns=(1, 1))

    thread = threading.Thread(target=touch)
    thread.start()
    error = refused(module_session, f"COPY INTO {shop} FROM '{folder}' {CSV}")
    thread.join()
    assert "was changed while it was loaded" in error.message
    assert rows(module_session, f"SELECT count(*) FROM {shop}") == [(0,)]


def test_two_loads_at_once_load_a_file_once(
    module_session: Session, shop: str, tmp_path: Path
) -> None:
    folder = put(tmp_path / "in", a_csv="".join(f"{n},x,1\n" for n in range(1000)))
    statement = f"COPY INTO {shop} FROM '{folder}' {CSV}"
    answers: list[str] = []

    def run() -> None:
        answers.append(copy(module_session, statement)[0][1])

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == ["LOADED", "SKIPPED", "SKIPPED"]
    assert rows(module_session, f"SELECT count(*) FROM {shop}") == [(1000,)]
    table = module_session.catalog.load(TableName(shop, "default"))
    assert {each for each in unreachable(table) if each.endswith(".parquet")} == set()


def test_python_calls_run_the_same_statement(
    module_session: Session, shop: str, tmp_path: Path
) -> None:
    folder = put(tmp_path / "it's", a_csv="id|name\n1|Ann\n")
    outcome = module_session.copy_into(
        shop, str(folder), "CSV", columns=["id", "name"],
        options={"FIELD_DELIMITER": "|", "SKIP_HEADER": 1, "NULL_IF": ["x"]},
        pattern=r"\.csv$", force=False, on_error="CONTINUE",
    )  # fmt: skip
    assert [row["status"] for row in outcome.to_pylist()] == ["LOADED"]
    assert noted_load(module_session, shop)
    with pytest.raises(InvalidValueError, match="no argument `patern` for a load"):
        module_session.copy_into(shop, str(folder), "CSV", patern="x")
    with pytest.raises(InvalidValueError, match="no argument `force` for an export"):
        module_session.copy_into(f"{tmp_path}/out", shop, "CSV", force=True)


def noted_load(session: Session, name: str) -> str:
    """The id of the load in a table's latest snapshot."""
    table = session.catalog.load(TableName(name, "default"))
    latest = table.paimon.snapshot_manager().get_latest_snapshot()
    return noted(latest.properties)["load"]


def test_file_in_another_spelling_of_its_path_is_loaded_once(
    module_session: Session, shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = put(tmp_path / "in", a_csv="1,Ann,30\n")
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "second").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    first = copy(module_session, f"COPY INTO {shop} FROM '{tmp_path}/link' {CSV}")
    assert first == [("a.csv", "LOADED", 1, 1, 0)]
    for path in (
        f"{tmp_path}/link/", f"{folder}", f"/{folder}//", f"file://{folder}", f"FILE:{folder}/*",
        "in/../in/./a.csv", f"{tmp_path}/second/a.csv",
    ):  # fmt: skip
        again = copy(module_session, f"COPY INTO {shop} FROM '{path}' {CSV}")
        assert again == [("a.csv", "SKIPPED", 0, 0, 0)], path
    (folder / "b.csv").write_text("2,Bob,1\n")
    (folder / "c.csv").symlink_to(folder / "b.csv")
    named = f"COPY INTO {shop} FROM '{folder}' {CSV} FILES = ('b.csv', './b.csv', '/b.csv')"
    assert copy(module_session, named) == [("b.csv", "LOADED", 1, 1, 0)]
    assert {each[1] for each in copy(module_session, f"COPY INTO {shop} FROM 'in' {CSV}")} == {
        "SKIPPED"
    }
    assert rows(module_session, f"SELECT id FROM {shop} ORDER BY id") == [(1,), (2,)]


DOUBLED = '1,"ja""m",1\n2,"mi,""lk""",2\n3,"""tea""",3\n4,"""",4\n'
UNDOUBLED = [(1, 'ja"m'), (2, 'mi,"lk"'), (3, '"tea"'), (4, '"')]


@pytest.mark.parametrize("option", ["", ", MULTI_LINE = TRUE", ", MULTI_LINE = FALSE"])
def test_doubled_quotes_are_one_whatever_else_is_said_of_the_files(
    module_session: Session, shop: str, tmp_path: Path, option: str
) -> None:
    folder = put(tmp_path / "in", a_csv='0,"Ann",1\n', b_csv=DOUBLED)
    statement = f"COPY INTO {shop} FROM '{folder}' FILE_FORMAT = (TYPE = CSV{option})"
    assert [each[1] for each in copy(module_session, statement)] == ["LOADED", "LOADED"]
    loaded = rows(module_session, f"SELECT id, name FROM {shop} WHERE id > 0 ORDER BY id")
    assert loaded == UNDOUBLED


def test_doubling_is_that_of_the_quote_that_is_set(
    module_session: Session, shop: str, tmp_path: Path
) -> None:
    folder = put(tmp_path / "in", a_csv="1,'it''s',1\n2,'a\"\"b',2\n")
    module_session.run(
        f"COPY INTO {shop} FROM '{folder}' FILE_FORMAT = (TYPE = CSV, QUOTE = \"'\")"
    )
    assert rows(module_session, f"SELECT name FROM {shop} ORDER BY id") == [("it's",), ('a""b',)]


@pytest.mark.parametrize("is_list", [False, True])
def test_keys_of_json_that_the_table_lacks_are_noted(
    module_session: Session, shop: str, tmp_path: Path, is_list: bool
) -> None:
    values = [{"id": number} for number in range(5)] + [{"id": 5, "extra": 1, "ID": 2}]
    lines = [json.dumps(value) for value in values]
    content = f"[{','.join(lines)}]" if is_list else "\n".join(["{bad", *lines])
    folder = put(tmp_path / "in", a_json=content)
    form = f"FILE_FORMAT = (TYPE = JSON, MULTI_LINE = {is_list})"
    outcome = module_session.run(f"COPY INTO {shop} FROM '{folder}' {form} ON_ERROR = CONTINUE")
    assert any("2 columns" in note and "`extra`, `ID`" in note for note in outcome.notes)
    (folder / "b.json").write_text(content.replace("id", "x"))
    if is_list:
        error = refused(module_session, f"COPY INTO {shop} FROM '{folder}/b.json' {form}")
        assert "no column" in error.message and "`x`" in error.message


def test_files_with_other_types_are_named_and_no_table_is_damaged(
    module_session: Session, shop: str, tmp_path: Path
) -> None:
    folder = tmp_path / "in %20"
    folder.mkdir()
    pq.write_table(pa.table({"id": pa.array([1, 2**40]), "age": [1.5, 2.0]}), folder / "x.parquet")
    ages = pa.array([Decimal("7.25")], pa.decimal128(9, 2))
    pq.write_table(pa.table({"age": ages, "id": [7]}), folder / "y.parquet")
    statement = f"COPY INTO {shop} FROM '{folder}' FILE_FORMAT = (TYPE = PARQUET)"
    for more in ("", " ON_ERROR = CONTINUE", " VALIDATE"):
        error = refused(module_session, statement + more)
        assert isinstance(error, InvalidValueError), more
        assert "`y.parquet`" in error.message and "[age]" in error.message
        assert "FILES" in error.hint and "snapshot" not in f"{error}"
        assert error.position is not None
    error = refused(module_session, f"{statement} FILES = ('x.parquet')")
    assert "`x.parquet`" in error.message and f"'{2**40}'" in error.message
    with pytest.raises(InvalidValueError, match=r"y\.parquet") as raised:
        module_session.run(f"SELECT * FROM parquet.`{folder}`").to_pylist()
    assert "snapshot" not in f"{raised.value}"
    assert rows(module_session, f"SELECT count(*) FROM {shop}") == [(0,)]


def test_files_whose_rows_were_removed_are_loaded_again_by_force(
    module_session: Session, shop: str, tmp_path: Path
) -> None:
    folder = put(tmp_path / "in", a_csv="1,Ann,30\n")
    statement = f"COPY INTO {shop} FROM '{folder}' {CSV}"
    module_session.run(statement)
    module_session.run(f"TRUNCATE TABLE {shop}", confirm=True)
    outcome = module_session.run(statement)
    assert [row["status"] for row in outcome.to_pylist()] == ["SKIPPED"]
    assert any("FORCE = TRUE" in note for note in outcome.notes)
    module_session.run(f"{statement} FORCE = TRUE")
    assert rows(module_session, f"SELECT id FROM {shop}") == [(1,)]


@pytest.mark.parametrize("later", [0, 2])
def test_file_counts_as_new_after_a_rollback_to_before_its_load(
    module_session: Session, shop: str, tmp_path: Path, later: int
) -> None:
    """Also where other snapshots have the load's number since."""
    folder = put(tmp_path / "files", a_csv="1,x,2\n", b_csv="2,y,3\n")
    text = f"COPY INTO {shop} FROM '{folder}' {CSV} PATTERN = "
    module_session.run(f"INSERT INTO {shop} VALUES (9, 'z', 9); {text}'a.csv'; {text}'b.csv'")
    module_session.run(f"CALL sys.rollback(table => '{shop}', snapshot => 2)", confirm=True)
    for number in range(later):
        module_session.run(f"INSERT INTO {shop} VALUES (10, 'z', {number})")
    assert copy(module_session, f"{text}'a.csv'")[0][1] == "SKIPPED"
    assert copy(module_session, f"{text}'b.csv'")[0][1] == "LOADED"
    assert [row[0] for row in rows(module_session, f"SELECT id FROM {shop}")].count(2) == 1


def test_fast_forward_takes_the_loads_of_the_branch(
    module_session: Session, shop: str, tmp_path: Path
) -> None:
    folder = put(tmp_path / "files", a_csv="1,x,2\n", b_csv="2,y,3\n")
    module_session.run(f"INSERT INTO {shop} VALUES (9, 'z', 9); ALTER TABLE {shop} CREATE TAG one")
    module_session.run(f"CALL sys.create_branch('{shop}', 'side', 'one')")
    side = f"`{shop}$branch_side`"
    module_session.run(f"COPY INTO {side} FROM '{folder}' {CSV} PATTERN = 'a.csv'")
    module_session.run(f"CALL sys.fast_forward('{shop}', 'side')", confirm=True)
    assert sorted(copy(module_session, f"COPY INTO {shop} FROM '{folder}' {CSV}")) == [
        ("a.csv", "SKIPPED", 0, 0, 0),
        ("b.csv", "LOADED", 1, 1, 0),
    ]
