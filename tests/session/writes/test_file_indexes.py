"""File indexes that a table asks for lie with its files, and Java leaves files out by them."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_magics import Session
from paimon_magics.errors import InvalidTableError, UnknownNameError
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.snapshots.latest import latest_snapshot
from tests.oracle.java_reader import JavaPaimon
from tests.sampling import sampled
from tests.tables.expiry.test_expire_snapshots import expire
from tests.tables.reachability import missing, unreachable

pytestmark = [pytest.mark.spark, pytest.mark.java]

OF_MAP = ", 'file-index.bloom-filter.attributes.items' = '10'"
ALL = (
    "'file-index.bloom-filter.columns' = 'b, attributes[colour]', "
    f"'file-index.bloom-filter.b.items' = '200'{OF_MAP}, "
    "'file-index.bitmap.columns' = 'm', 'file-index.range-bitmap.columns' = 'r', "
    "'file-index.bsi.columns' = 's'"
)
KINDS = {
    "parquet": "'bucket' = '-1'",
    "orc": "'file.format' = 'orc'",
    "avro": "'file.format' = 'avro'",
    "keyed": "'primary-key' = 'k', 'bucket' = '1'",
    "in files": "'file-index.in-manifest-threshold' = '10 b', 'data-file.path-directory' = 'data'",
}
ABSENT = [("b", "=", ["51"]), ("m", "=", [51]), ("r", "=", ["51"]), ("s", "=", [51])]
THERE = [("b", "=", ["52"]), ("m", "=", [52]), ("r", "=", ["52"]), ("s", "=", [52])]


def filled(session: Session, options: str) -> None:
    columns = "k INT NOT NULL, b STRING, m INT, r STRING, s BIGINT"
    values = "CAST(id AS INT), STRING(2 * id), CAST(2 * id AS INT), STRING(2 * id), 2 * id"
    if "avro" in options:  # where no MAP is written
        options = options.replace(", attributes[colour]", "").replace(OF_MAP, "")
    else:
        columns += ", attributes MAP<STRING, STRING>"
        values += ", map('colour', STRING(id))"
    session.run(f"CREATE TABLE t ({columns}) TBLPROPERTIES ({options})")
    session.run(f"INSERT INTO t SELECT {values} FROM range(0, 100, 1, 1)")


@pytest.mark.parametrize("kind", sampled([*KINDS]))
def test_java_skips_files_without_the_value(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, kind: str
) -> None:
    filled(session, f"{KINDS[kind]}, {ALL}")
    assert java_paimon.left(warehouse, "default.t", ABSENT) == [[], [], [], []]
    left = java_paimon.left(warehouse, "default.t", THERE)
    assert all(26 in rows for rows in left)
    files = list((warehouse / "default.db" / "t").glob("**/*.index"))
    assert len(files) == 1
    assert len(java_paimon.rows(warehouse, "default.t")) == 100
    assert session.run("SELECT count(*) AS n FROM t WHERE m = 52").to_arrow().to_pylist() == [
        {"n": 1}
    ]


def test_compaction_writes_file_indexes(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    filled(session, f"{KINDS['keyed']}, 'write-only' = 'true', {ALL}")
    session.run("INSERT INTO t SELECT * FROM t WHERE k < 50")
    before = set((warehouse / "default.db" / "t").glob("**/*.index"))
    session.run("CALL sys.compact(table => 'default.t', compact_strategy => 'full')")
    assert set((warehouse / "default.db" / "t").glob("**/*.index")) > before
    assert java_paimon.left(warehouse, "default.t", ABSENT) == [[], [], [], []]
    assert all(26 in rows for rows in java_paimon.left(warehouse, "default.t", THERE))


def named(options: str) -> dict[str, str]:
    """Options as they are named one after the other."""
    pairs = (pair.split(" = ") for pair in options.split(", '"))
    return {key.strip("' "): value.strip("' ") for key, value in pairs}


def changed(session: Session, options: str) -> None:
    """Set the options of a table that exists."""
    pairs = ", ".join(f"'{key}' = '{value}'" for key, value in named(options).items())
    session.run(f"ALTER TABLE t SET TBLPROPERTIES ({pairs})")


REWRITE = "CALL sys.rewrite_file_index(table => 'default.t')"


@pytest.mark.parametrize("kind", sampled(["orc", "parquet", "keyed", "in files"]))
def test_rewrite_file_index_adds_and_removes_indexes(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, kind: str
) -> None:
    filled(session, KINDS[kind])
    session.run("ALTER TABLE t RENAME COLUMN m TO n")
    files = 1 if kind == "keyed" else 2  # where files overlap, Java leaves out none
    if files == 2:
        session.run("INSERT INTO t SELECT * FROM t WHERE k >= 50")
    session.run("ALTER TABLE t RENAME COLUMN n TO m")
    rows = session.run("SELECT * FROM t ORDER BY k, b").to_pylist()
    assert session.run(REWRITE).to_pylist() == [{"written_partitions": 0, "written_indexes": 0}]
    changed(session, ALL)
    planned = session.run(REWRITE, dry_run=True)
    assert f"would read {files} file" in planned.message and "bitmap of m" in planned.message
    outcome = session.run(REWRITE)
    assert outcome.to_pylist() == [{"written_partitions": 1, "written_indexes": files}]
    assert (outcome.snapshot_id, outcome.commit_kind) == (files + 1, "COMPACT")
    assert java_paimon.left(warehouse, "default.t", ABSENT) == [[], [], [], []]
    assert all(26 in rows for rows in java_paimon.left(warehouse, "default.t", THERE))
    assert session.run("SELECT * FROM t ORDER BY k, b").to_pylist() == rows
    assert len(java_paimon.rows(warehouse, "default.t")) == len(rows)
    assert len(list((warehouse / "default.db" / "t").glob("**/*.index"))) == files
    session.run("INSERT INTO t SELECT * FROM t WHERE k < 3")
    keys = ", ".join(f"'{key}'" for key in named(ALL))
    session.run(f"ALTER TABLE t UNSET TBLPROPERTIES ({keys})")
    session.run(REWRITE)
    table = Catalog.open({"warehouse": str(warehouse)}).load(TableName("t", database="default"))
    left = live_files(ManifestCache(table.paimon), latest_snapshot(table.paimon))
    assert not any(left["embedded_file_index"].to_pylist() + left["extra_files"].to_pylist())
    expire(table)
    assert missing(table) == unreachable(table) == set()
    assert not list((warehouse / "default.db" / "t").glob("**/*.index"))
    count = len(session.run("SELECT * FROM t").to_pylist())
    assert count == len(java_paimon.rows(warehouse, "default.t"))


def test_index_rewrite_covers_deleted_rows_of_chosen_partition_only(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    session.run(
        "CREATE TABLE t (k INT NOT NULL, m INT, dt STRING NOT NULL) PARTITIONED BY (dt) "
        "TBLPROPERTIES ('primary-key' = 'k,dt', 'bucket' = '1', 'num-levels' = '3', "
        "'deletion-vectors.enabled' = 'true')"
    )
    session.run("INSERT INTO t SELECT id, 2 * id, if(id < 100, 'x', 'y') FROM range(200)")
    session.run("INSERT INTO t VALUES (26, 1000, 'x')")
    changed(session, "'file-index.bitmap.columns' = 'm'")
    call = "CALL sys.rewrite_file_index(table => 't', where => \"dt = 'x'\")"
    outcome = session.run(call)
    assert outcome.to_pylist() == [{"written_partitions": 1, "written_indexes": 2}]
    assert java_paimon.left(warehouse, "default.t", [("m", "=", [51])]) == [[]]
    (left,) = java_paimon.left(warehouse, "default.t", [("m", "=", [54])])
    assert 27 in left
    with pytest.raises(UnknownNameError, match="k = 1"):
        session.run("CALL sys.rewrite_file_index('t', 'k = 1')")


def test_small_index_is_stored_in_the_manifest(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    filled(
        session,
        "'file-index.bloom-filter.columns' = 'm', 'file-index.bloom-filter.m.items' = '200'",
    )
    assert java_paimon.left(warehouse, "default.t", [("m", "=", [51])]) == [[]]
    assert not list((warehouse / "default.db" / "t").glob("**/*.index"))


def test_java_reads_files_without_index(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    filled(session, "'file.format' = 'avro'")
    assert all(java_paimon.left(warehouse, "default.t", ABSENT))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("'file-index.bloom-filter.columns' = 'm', 'file-index.bloom-filter.m.fpp' = '2'", "fpp"),
        ("'file-index.bitmap.columns' = 'm', 'file-index.bitmap.m.version' = '3'", "version"),
    ],
)
def test_invalid_index_option_is_refused_before_write(
    session: Session, warehouse: Path, options: str, told: str
) -> None:
    with pytest.raises(InvalidTableError) as caught:
        filled(session, options)
    assert told in caught.value.message and caught.value.hint
    assert not list((warehouse / "default.db" / "t").glob("**/*.parquet"))
