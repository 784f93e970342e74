"""`input_file_name()` is the path of the row's data file, or refused by name."""

from __future__ import annotations

import pytest

from paimon_magics import Session
from paimon_magics.errors import UnsupportedStatementError

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def shop(module_session: Session) -> Session:
    return module_session


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_input_file_name_returns_paths_of_small_files(shop: Session, kind: str) -> None:
    shop.run(
        f"CREATE TABLE {kind} (a INT, b STRING) TBLPROPERTIES ('file.format' = '{kind}');"
        f"INSERT INTO {kind} VALUES (1, 'x'); INSERT INTO {kind} VALUES (2, 'y')"
    )
    paths = {row["file_path"] for row in shop.run(f"SELECT * FROM {kind}$files").to_pylist()}
    for columns in ("input_file_name() AS f", "a, INPUT_FILE_NAME ( ) AS f"):
        actual = shop.run(f"SELECT {columns} FROM {kind}").to_pylist()
        assert {row["f"] for row in actual} == {
            path.replace("file:/", "file:///") for path in paths
        }
    by_file = f"SELECT f, count(*) AS n FROM (SELECT input_file_name() AS f FROM {kind}) GROUP BY f"
    assert [row["n"] for row in shop.run(by_file).to_pylist()] == [1, 1]
    lengths = shop.run(f"SELECT input_file_block_length() AS n FROM {kind}").to_pylist()
    assert all(row["n"] > 0 for row in lengths)


def test_input_file_name_is_refused_for_merged_rows(shop: Session) -> None:
    shop.run(
        "CREATE TABLE keyed (k INT NOT NULL, v STRING, PRIMARY KEY (k) NOT ENFORCED) "
        "TBLPROPERTIES ('bucket' = '1', 'write-only' = 'true');"
        "INSERT INTO keyed VALUES (1, 'a'), (2, 'a'); INSERT INTO keyed VALUES (1, 'b')"
    )
    with pytest.raises(
        UnsupportedStatementError, match=r"input_file_name.*`default.keyed`"
    ) as caught:
        shop.run("SELECT k, input_file_name() FROM keyed")
    assert "keyed$files" in (caught.value.hint or "")
    shop.run("CREATE TABLE words (input_file_name STRING) TBLPROPERTIES ('file.format' = 'avro');"
             "INSERT INTO words VALUES ('w')")  # fmt: skip
    assert shop.run("SELECT input_file_name FROM words").to_pylist() == [{"input_file_name": "w"}]
    with pytest.raises(UnsupportedStatementError, match="input_file_name"):
        shop.run("SELECT input_file_name() FROM words")
    shop.run("CALL sys.compact(table => 'keyed')")
    actual = shop.run("SELECT k, v, input_file_name() AS f FROM keyed ORDER BY k").to_pylist()
    assert [(row["k"], row["v"]) for row in actual] == [(1, "b"), (2, "a")]
    assert all(row["f"].endswith(".parquet") for row in actual)
    for statement in (
        "UPDATE keyed SET v = input_file_name() WHERE k = 1",
        "DELETE FROM keyed WHERE input_file_name() > 'x'",
        "MERGE INTO keyed t USING (SELECT 1 AS k) s ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET v = input_file_name()",
    ):
        with pytest.raises(UnsupportedStatementError, match="input_file_name"):
            shop.run(statement)
