"""A MERGE reads only files of its target that can have rows which matter to it, and does what it
would do if it read all of them."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import PaimonMagicsError
from tests.sampling import sampled
from tests.session.evidence import jobs
from tests.session.rows import rows
from tests.session.writes.held_writes import run_while

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session that asks for the range of the source's keys whatever the size of the target."""
    folder = tmp_path_factory.mktemp("warehouse")
    with paimon_magics.connect(
        folder, spark=spark, coordinator="in-process", source_range_from_bytes=0
    ) as session:
        yield session


def stored(session: Session, table: str) -> set[Path]:
    found = session.run(f"SELECT file_path FROM `{table}$files`").to_pylist()
    return {Path(row["file_path"].removeprefix("file:")) for row in found}


@contextmanager
def away(files: set[Path]) -> Iterator[None]:
    """The files can't be read meanwhile."""
    for file in files:
        file.rename(file.with_name(f"away-{file.name}"))
    try:
        yield
    finally:
        for file in files:
            file.with_name(f"away-{file.name}").rename(file)


TABLES = {
    "keyed": "PARTITIONED BY (day) TBLPROPERTIES ('primary-key' = 'day,id', 'bucket' = '1', "
    "'write-only' = 'true')",
    "files": "TBLPROPERTIES ('write-only' = 'true')",
    "vectors": "TBLPROPERTIES ('write-only' = 'true', 'deletion-vectors.enabled' = 'true')",
    "evolving": "PARTITIONED BY (day) TBLPROPERTIES ('write-only' = 'true', "
    "'row-tracking.enabled' = 'true', 'data-evolution.enabled' = 'true')",
}


def made(session: Session, name: str, properties: str) -> list[set[Path]]:
    """A table with three files, each of ids and a day of its own; the paths of each."""
    session.run(f"CREATE TABLE {name} (id INT, day DATE, v STRING) {properties}")
    result: list[set[Path]] = []
    for day in (1, 2, 3):
        values = (f"({id}, DATE '2026-01-0{day}', 'old')" for id in range(day * 10, day * 10 + 5))
        session.run(f"INSERT INTO {name} VALUES {', '.join(values)}")
        result.append(stored(session, name).difference(*result))
    return result


STATEMENTS = {
    "a condition": "t.day = :day AND t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET v = s.v "
    "WHEN NOT MATCHED THEN INSERT (day, id) VALUES (:day, s.id)",
    "keys": "t.id = s.id AND t.day = CAST(s.at AS DATE) "
    "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, day, v) "
    "VALUES (s.id, CAST(s.at AS DATE), s.v)",
    # Rows that the source does not have, by a condition of theirs that ON has, too.
    "orphans": "t.id = s.id AND day BETWEEN DATE '2026-01-02' AND :day "
    "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED BY SOURCE AND v = 'old' "
    "AND t.day BETWEEN DATE '2026-01-02' AND :day THEN UPDATE SET v = 'orphan'",
    "inserts": "t.day = :day AND t.id = s.id "
    "WHEN NOT MATCHED THEN INSERT (id, day) VALUES (s.id, :day)",
}
DAY = datetime.date(2026, 1, 2)
SOURCE = (
    "USING (SELECT CAST(id + 22 AS INT) AS id, 'new' AS v, "
    "TIMESTAMP '2026-01-02 23:59:00' AS at FROM range(5)) s"
)


def merged(session: Session, table: str, text: str) -> tuple[int | None, ...]:
    """Run a MERGE; how many rows it updated, deleted and inserted."""
    done = session.run(f"MERGE INTO {table} t {SOURCE} ON {text}", {"day": DAY})
    return done.rows_updated, done.rows_deleted, done.rows_inserted


@pytest.fixture(scope="module")
def unpruned(shop: Session) -> Callable[[str], tuple[Any, ...]]:
    """What a statement does where all files are read, and the rows afterwards."""

    @cache
    def done(statement: str) -> tuple[Any, ...]:
        table = f"unpruned_{[*STATEMENTS.values()].index(statement)}"
        files = made(shop, table, TABLES["files"])
        text = f"NOT NOT ({statement.replace(' WHEN', ') WHEN', 1)}"
        with away(files[0]), pytest.raises(PaimonMagicsError):
            merged(shop, table, text)
        counts = merged(shop, table, text)
        return counts, rows(shop, f"SELECT * FROM {table} ORDER BY id, day")

    return done


@pytest.mark.parametrize(
    ("name", "statement"), sampled({name: name for name in TABLES}, STATEMENTS)
)
def test_merge_does_not_read_irrelevant_files(
    shop: Session, name: str, statement: str, unpruned: Callable[[str], tuple[Any, ...]]
) -> None:
    shop.run(f"DROP TABLE IF EXISTS {name}")
    files = made(shop, name, TABLES[name])
    with away(files[0] | files[2]):
        counts = merged(shop, name, statement)
    actual = rows(shop, f"SELECT * FROM {name} ORDER BY id, day")
    assert (counts, actual) == unpruned(statement)
    assert any(counts)


def test_explain_and_preview_report_files_read(shop: Session) -> None:
    made(shop, "told", TABLES["files"])
    merge = (
        "MERGE INTO told t USING (SELECT 21 AS id UNION ALL SELECT 23) s "
        "ON t.id = s.id AND t.day <= :day WHEN MATCHED THEN DELETE"
    )
    before = jobs(shop.spark)
    text = str(shop.explain(merge, {"day": DAY}).message)
    assert jobs(shop.spark) == before
    assert "all files: 3 files" in text and "values: 2 files" in text
    assert "day <= '2026-01-02'" in text
    assert "the least and the greatest s.id of the source" in text
    seen = shop.preview(merge, {"day": DAY})
    assert "2 deleted" in seen.notes[0] and "3 files of the table, 1 read" in seen.notes[0]


HAZARDS = {
    "NULL equals NULL": ("t.n <=> s.n", "CAST(NULL AS INT) AS n UNION ALL SELECT 50"),
    "NaN and -0.0": ("t.f = s.f", "double('NaN') AS f UNION ALL SELECT 0.0D"),
    "padding": ("t.c = s.c", "'ab  ' AS c"),
    "long texts": ("t.v = s.v", "concat(repeat('é', 20), 'b') AS v"),
    "collations": ("t.v = (s.v COLLATE UTF8_LCASE)", "'ABC' AS v"),
    "texts that are numbers": ("t.n = s.x", "'+0001' AS x"),
    "numbers that are rounded": ("t.m = s.x", "CAST(0.1D AS DOUBLE) AS x"),
    "a DOUBLE": ("t.m = 1e-1", "1 AS x"),
    "wider decimals": ("t.m = s.x", "CAST(0.1 AS DECIMAL(38, 37)) AS x"),
    "moments of a day": ("t.d = s.x", "TIMESTAMP '1969-12-31 00:00:00' AS x"),
    "moments": ("t.at = s.x", "TIMESTAMP '1969-12-31 23:59:59.999999' AS x"),
}


@pytest.fixture(scope="module")
def matching(shop: Session) -> dict[str, int]:
    """The table `odd`, whose files each have one row; how many of its rows match by each hazard."""
    shop.run(
        "CREATE TABLE odd (n INT, f DOUBLE, c CHAR(4), v STRING, m DECIMAL(20, 18), d DATE, "
        "at TIMESTAMP) TBLPROPERTIES ('write-only' = 'true')"
    )
    for values in (
        "NULL, double('NaN'), 'ab', concat(repeat('é', 20), 'b'), 0.1, DATE '1969-12-31', "
        "TIMESTAMP '1969-12-31 23:59:59.999999'",
        "1, -0.0D, 'AB', 'abc', 0.100000000000000001, DATE '2026-01-01', NULL",
        "50, 7.0D, 'zz', 'zz', 9, DATE '2026-01-01', TIMESTAMP '2026-01-01 00:00:00'",
    ):
        shop.run(f"INSERT INTO odd VALUES ({values})")
    counts = (
        f"SELECT '{why}' AS why, count(*) AS n FROM odd t JOIN (SELECT {source}) s "
        f"ON NOT NOT ({on})"
        for why, (on, source) in HAZARDS.items()
    )
    found = shop.run(" UNION ALL ".join(counts)).to_pylist()
    return {row["why"]: row["n"] for row in found}


@pytest.mark.parametrize("why", HAZARDS)
def test_pruning_keeps_every_matching_row(
    shop: Session, why: str, matching: dict[str, int]
) -> None:
    on, source = HAZARDS[why]
    seen = shop.preview(
        f"MERGE INTO odd t USING (SELECT {source}) s ON {on} WHEN MATCHED THEN DELETE"
    )
    assert matching[why] > 0
    assert f" {matching[why]} deleted, " in seen.notes[0]


def test_nondeterministic_source_is_read_once(shop: Session) -> None:
    made(shop, "drawn", TABLES["files"])
    from pyspark.sql import functions as F

    spark = shop.spark
    kept = spark.sparkContext._jsc.getPersistentRDDs().size()  # type: ignore[attr-defined]
    draw = F.udf(lambda: random.randrange(1000, 2**31), "int").asNondeterministic()
    spark.udf.register("draw", draw)
    done = shop.run(
        "MERGE INTO drawn t USING (SELECT draw() AS id FROM range(50)) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = 'b' "
        "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    )
    spark.sql("DROP TEMPORARY FUNCTION draw")
    assert done.rows_inserted == 50
    assert kept == spark.sparkContext._jsc.getPersistentRDDs().size()  # type: ignore[attr-defined]
    # A frame that is kept already stays so.
    frame = spark.createDataFrame([(21, "c")], "id int, v string").cache()
    assert shop.merge(frame, "drawn", on="id").when_matched_update({"v": "s.v"}).run().rows_updated
    assert rows(shop, "SELECT v FROM frame", frames={"frame": frame}) == [("c",)]
    assert frame.storageLevel.useMemory
    frame.unpersist()
    # Without rows in the source there is nothing to read.
    with away(stored(shop, "drawn")):
        none = shop.merge(frame.limit(0), "drawn", on="id").when_matched_delete().run()
    assert none.rows_deleted == 0


def test_irrelevant_concurrent_rows_cause_no_rerun(shop: Session, tmp_path: Path) -> None:
    made(shop, "beside", TABLES["files"])
    rest = (
        "s ON t.id = s.id AND t.day = DATE '2026-01-02' "
        "WHEN MATCHED THEN UPDATE SET v = concat('a', held(s.id)) "
        "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    )

    def notes(source: str, meanwhile: str) -> str:
        merge = f"MERGE INTO beside t USING {source} {rest}"
        return str(run_while(lambda: shop.run(meanwhile), shop, merge, tmp_path).notes)

    other_day = "INSERT INTO beside VALUES (20, DATE '2026-01-03', 'x')"
    assert notes("(SELECT 20 AS id)", other_day) == "()"
    other_id = "INSERT INTO beside VALUES (29, DATE '2026-01-02', 'x')"
    assert notes("(SELECT 20 AS id)", other_id) == "()"
    same_id = "INSERT INTO beside VALUES (20, DATE '2026-01-02', 'x')"
    assert "added rows" in notes("(SELECT 20 AS id)", same_id)
    # Rows of another day make other rows of a source that reads the table.
    assert "added rows" in notes("(SELECT min(id) + 9 AS id FROM beside)", other_day)
