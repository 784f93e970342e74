"""Lines of files that don't fit the columns are counted, left out, or refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from paimon_magics import Outcome, Session
from paimon_magics.errors import InvalidValueError, UnknownNameError
from paimon_magics.planning.copying.file_formats import check_file_options

pytestmark = pytest.mark.spark

RAGGED = "id,item,price\n1,tea,2.5\n2,milk\n3,jam,4.0,more\n4,rice,1.0\n"


def rows(outcome: Outcome) -> list[dict[str, object]]:
    return outcome.to_arrow().to_pylist()


def note_of(notes: tuple[str, ...], part: str) -> str:
    (result,) = [each for each in notes if part in each]
    return result


def test_lines_with_too_few_or_too_many_values_are_counted(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ragged.csv").write_text(RAGGED)
    said = (
        "2 lines of `ragged.csv` do not fit its 3 columns; missing values are NULL, those beyond "
        "the last column are cut: ragged.csv, line 3, '2,milk'. WITH ('mode' = 'FAILFAST')"
    )
    outcome = session.run("SELECT price FROM csv.`ragged.csv`")
    assert note_of(outcome.notes, "do not fit").startswith(said)
    assert len(rows(outcome)) == 4
    outcome = session.run("CREATE TEMP VIEW seen AS SELECT * FROM csv.`ragged.csv`")
    assert note_of(outcome.notes, "do not fit").startswith(said)


def test_writes_refuse_ragged_lines_unless_mode_allows_them(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ragged.csv").write_text(RAGGED)
    session.run("CREATE TABLE filled (id INT, item STRING, price DOUBLE)")
    for statement in (
        "CREATE TABLE made_of_ragged AS SELECT * FROM csv.`ragged.csv`",
        "INSERT INTO filled SELECT * FROM csv.`ragged.csv`",
        "MERGE INTO filled USING csv.`ragged.csv` AS s ON filled.id = s.id "
        "WHEN NOT MATCHED THEN INSERT *",
    ):
        with pytest.raises(InvalidValueError, match=r"ragged\.csv, line 3, '2,milk'") as raised:
            session.run(statement)
        assert "with 'PERMISSIVE' they are stored" in raised.value.hint
    assert rows(session.run("SHOW TABLES LIKE 'made_of_ragged'")) == []
    session.run("INSERT INTO filled SELECT * FROM csv.`ragged.csv` WITH ('mode' = 'PERMISSIVE')")
    session.run("INSERT INTO filled SELECT * FROM csv.`ragged.csv` WITH ('mode' = 'DROPMALFORMED')")
    assert rows(session.run("SELECT count(*) AS n FROM filled")) == [{"n": 6}]


def test_mode_refuses_or_drops_ragged_lines_for_any_columns(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ragged.csv").write_text(RAGGED)
    session.run("CREATE TABLE strict_copy (id INT)")
    with pytest.raises(InvalidValueError) as caught:
        session.run(
            "INSERT INTO strict_copy SELECT id FROM csv.`ragged.csv` WITH ('mode' = 'failfast')"
        )
    assert "2 lines of `ragged.csv` do not fit its 3 columns: ragged.csv, line 3" in str(
        caught.value
    )
    assert rows(session.run("SELECT count(*) AS n FROM strict_copy")) == [{"n": 0}]
    dropped = session.run("SELECT id FROM csv.`ragged.csv` WITH ('mode' = 'DROPMALFORMED')")
    assert "do not fit its 3 columns and were left out" in note_of(dropped.notes, "left out")
    assert [each["id"] for each in rows(dropped)] == [1, 4]
    counted = session.run(
        "SELECT count(*) AS n FROM csv.`ragged.csv` WITH ('mode' = 'DROPMALFORMED')"
    )
    assert rows(counted) == [{"n": 2}]
    as_spark = session.run("SELECT id FROM csv.`ragged.csv` WITH ('mode' = 'PERMISSIVE')")
    assert not [each for each in as_spark.notes if "fit" in each] and len(rows(as_spark)) == 4
    with pytest.raises(InvalidValueError, match="`mode` of a file can't be 'STRICT'"):
        session.run("SELECT id FROM csv.`ragged.csv` WITH ('mode' = 'strict')")


def test_rows_with_invalid_characters_are_counted(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("latin.csv").write_bytes("id,item\n1,tea\n2,k\u00e4se\n".encode("latin-1"))
    outcome = session.run("SELECT * FROM csv.`latin.csv`")
    assert "1 row of `latin.csv` has bytes that are not characters" in note_of(
        outcome.notes, "characters"
    )
    with pytest.raises(InvalidValueError, match=r"1 row of `latin\.csv` has bytes"):
        session.run("SELECT * FROM csv.`latin.csv` WITH ('mode' = 'FAILFAST')")
    read = session.run(
        "SELECT item FROM csv.`latin.csv` WITH ('encoding' = 'ISO-8859-1', 'mode' = 'FAILFAST')"
    )
    assert rows(read)[1] == {"item": "k\u00e4se"}


def test_valid_files_give_no_note_and_ragged_file_is_named(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text('id,item\n1,"tea, green"\n2,\n')
    outcome = session.run("SELECT * FROM csv.`a.csv`")
    assert not [each for each in outcome.notes if "fit" in each]
    Path("b.csv.gz").write_bytes(gzip.compress(b"id,item\n5,rice\n6\n"))
    outcome = session.run("SELECT * FROM csv.`*.csv*`")
    assert "b.csv.gz, line 3, '6'" in note_of(outcome.notes, "does not fit")


def test_unreadable_json_objects_are_counted(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("some.json").write_text('{"id": 1, "item": "tea"}\n{"id": 2, "item"\n')
    outcome = session.run("SELECT id, item FROM json.`some.json`")
    note = note_of(outcome.notes, "1 object of `some.json` does not fit its columns")
    assert "some.json, line 2" in note
    with pytest.raises(InvalidValueError, match=r"1 object of `some\.json`"):
        session.run("SELECT id FROM json.`some.json` WITH ('mode' = 'FAILFAST')")
    kept = session.run("SELECT * FROM json.`some.json` WITH ('mode' = 'DROPMALFORMED')")
    assert rows(kept) == [{"id": 1, "item": "tea"}]


@pytest.mark.parametrize(
    ("statement", "option", "hint"),
    [
        ("SELECT * FROM csv.`f.csv` WITH ('seperator' = ';')", "seperator", "`sep`"),
        ("SELECT * FROM csv.`f.csv` WITH ('haeder' = 'true')", "haeder", "`header`"),
        ("SELECT * FROM csv.`f.csv` WITH ('quoteAll' = 'true')", "quoteAll", "writing"),
        ("SELECT * FROM json.`f.json` WITH ('multLine' = 'true')", "multLine", "`multiLine`"),
        ("SELECT * FROM text.`f.csv` WITH ('header' = 'true')", "header", "options are `basePath`"),
        ("SELECT * FROM parquet.`f` WITH (mergeSchemas = true)", "mergeSchemas", "`mergeSchema`"),
        (
            "CREATE TEMPORARY VIEW v USING csv OPTIONS (path 'f.csv', 'seperator' ';')",
            "seperator",
            "`sep`",
        ),
        ("CREATE TABLE s USING json OPTIONS (multLine = true) AS SELECT 1", "multLine", "`multi"),
        (
            "INSERT OVERWRITE DIRECTORY 'out' USING csv OPTIONS (haeder 'true') SELECT 1 AS a",
            "haeder",
            "`header`",
        ),
    ],
)
def test_unknown_options_of_files_are_refused_by_name(
    session: Session,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    statement: str,
    option: str,
    hint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.csv").write_text("a;b\n1;2\n")
    Path("f.json").write_text('{"a": 1}\n')
    with pytest.raises(UnknownNameError, match=f"no option `{option}`") as raised:
        session.run(statement)
    assert hint in raised.value.hint
    assert not Path("out").exists()


def test_options_of_files_have_synonyms_and_any_case(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.csv").write_text('a;b\n1;"x ""y""\nz"\n')
    for option in ("sep", "SEP", "delimiter"):
        outcome = session.run(f"SELECT * FROM csv.`f.csv` WITH ('{option}' = ';')")
        assert rows(outcome) == [{"a": 1, "b": 'x "y"\nz'}], option
    path = tmp_path / "f.csv"  # Spark's own statements begin paths where it was started
    session.run(f"CREATE TEMP VIEW w USING csv OPTIONS (path '{path}', delimiter ';', HEADER true)")
    with pytest.raises(InvalidValueError, match="`sep` of csv files is there twice"):
        session.run("SELECT * FROM csv.`f.csv` WITH ('sep' = ';', 'delimiter' = ',')")


@pytest.mark.parametrize(
    ("kind", "of_spark"),
    [
        ("csv", "catalyst.csv.CSVOptions"),
        ("json", "catalyst.json.JSONOptions"),
        ("text", "execution.datasources.text.TextOptions"),
        ("parquet", "execution.datasources.parquet.ParquetOptions"),
        ("orc", "execution.datasources.orc.OrcOptions"),
        ("csv", "execution.datasources.FileIndexOptions"),
    ],
)
def test_every_option_of_sparks_formats_is_known(
    session: Session, kind: str, of_spark: str
) -> None:
    jvm = session.spark._jvm
    assert jvm is not None
    names = jvm.java.lang.Class.forName(f"org.apache.spark.sql.{of_spark}$")
    options = names.getField("MODULE$").get(None).getAllOptions().toSeq()
    check_file_options(kind, [options.apply(place) for place in range(options.size())])


def test_csv_files_in_utf_16_are_read_as_a_whole(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("marked.csv").write_bytes("id,name\n1,é\n2,b\n".encode("utf-16"))
    Path("plain.csv").write_bytes("id,name\n1,é\n2,b\n".encode("utf-16-le"))
    expected = [{"id": 1, "name": "é"}, {"id": 2, "name": "b"}]
    outcome = session.run("SELECT * FROM csv.`marked.csv`")
    assert rows(outcome) == expected
    assert note_of(outcome.notes, "is in UTF-16")
    for name, encoding in (("marked", "UTF-16"), ("plain", "utf-16le")):
        query = f"SELECT * FROM csv.`{name}.csv` WITH ('encoding' = '{encoding}')"
        assert rows(session.run(query)) == expected
    notes = session.run("SELECT * FROM csv.`plain.csv`").notes
    assert "'encoding' = 'UTF-16'" in note_of(notes, "not characters")
    session.run("CREATE TABLE wide (id INT, name STRING)")
    load = "COPY INTO wide FROM 'marked.csv' FILE_FORMAT = (TYPE = CSV, SKIP_HEADER = 1{})"
    with pytest.raises(InvalidValueError, match="are in UTF-16") as raised:
        session.run(load.format(""))
    assert "ENCODING = 'UTF-16'" in raised.value.hint
    session.run(load.format(", ENCODING = 'UTF-16'"))
    assert rows(session.run("SELECT * FROM wide ORDER BY id")) == expected
