"""Options that shape files and folders: what is written under them, Java reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_magics import Session
from paimon_magics.errors import UnsupportedStatementError
from tests.oracle.java_reader import JavaPaimon
from tests.session.evidence import files

pytestmark = [pytest.mark.spark, pytest.mark.java]

KEYED = "'primary-key' = 'k', 'bucket' = '2'"


@pytest.mark.parametrize(
    ("options", "file"),
    [
        (
            f"{KEYED}, 'file.compression' = 'lz4', 'changelog-producer' = 'input', "
            "'changelog-file.format' = 'avro', 'changelog-file.compression' = 'snappy', "
            "'metadata.stats-mode' = 'full', 'data-file.path-directory' = 'data'",
            "data/bucket-*/*.avro",
        ),
        (
            f"{KEYED}, 'file.compression' = 'gzip', 'changelog-producer' = 'input', "
            "'changelog-file.compression' = 'snappy', 'changelog-file.stats-mode' = 'none', "
            "'metadata.stats-mode' = 'counts', 'metadata.stats-dense-store' = 'false'",
            "bucket-*/*changelog*.parquet",
        ),
        (
            f"{KEYED}, 'data-file.thin-mode' = 'true', 'file.format.per.level' = '0:avro', "
            "'file-index.bloom-filter.columns' = 'v', 'file.suffix.include.compression' = 'true'",
            "bucket-*/*.avro",
        ),
        (
            f"{KEYED}, 'sequence.snapshot-ordering' = 'true', 'write-only' = 'true', "
            "'metadata.stats-keep-first-n-columns' = '1', 'file.compression' = 'none'",
            "bucket-*/*.parquet",
        ),
        (
            f"{KEYED}, 'deletion-vectors.enabled' = 'true', "
            "'deletion-vectors.merge-on-read' = 'true', 'manifest.compression' = 'null'",
            "bucket-*/*.parquet",
        ),
        (
            "'target-file-row-num' = '10', 'partition.default-name' = 'nil', "
            "'partition.legacy-name' = 'false'",
            "d=nil/bucket-*/*.parquet",
        ),
        ("'file.format' = 'orc', 'file.compression' = 'none'", "d=19723/bucket-*/*.orc"),
        (
            "'file.format' = 'avro', 'file.compression' = 'none', 'partition.legacy-name' = "
            "'false', 'data-file.path-directory' = 'data'",
            "data/d=2024-01-01/bucket-*/*.avro",
        ),
    ],
)
def test_files_lie_where_options_say_and_are_read_by_java(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, options: str, file: str
) -> None:
    keyed = "primary-key" in options
    session.run(
        "CREATE TABLE t (k INT NOT NULL, v STRING, d DATE) "
        f"{'' if keyed else 'PARTITIONED BY (d) '}TBLPROPERTIES ({options})"
    )
    session.run("INSERT INTO t VALUES (1, 'a', DATE'2024-01-01'), (2, NULL, NULL), (3, 'c', NULL)")
    session.run("INSERT INTO t SELECT CAST(id AS INT), 'new', NULL FROM range(3, 30)")
    actual = sorted(
        tuple(row.values()) for row in session.run("SELECT * FROM t").to_arrow().to_pylist()
    )
    assert [row[:2] for row in actual if row[0] < 3] == [(1, "a"), (2, None)]
    assert len(actual) == (29 if keyed else 30)
    assert sorted(java_paimon.rows(warehouse, "default.t")) == actual
    assert list((warehouse / "default.db" / "t").glob(file))


def test_outcome_notes_unapplied_options_and_unseen_rows(session: Session) -> None:
    session.run(
        "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('commit.user-prefix' = 'v'); "
        f"CREATE TABLE u (k INT, v STRING) TBLPROPERTIES ({KEYED}, 'merge-engine' = 'first-row', "
        "'write-only' = 'true')"
    )
    notes = session.run("INSERT INTO t VALUES (1, 'a')").notes
    assert len(notes) == 1 and "'commit.user-prefix'" in notes[0]
    notes = session.run("INSERT INTO u VALUES (1, 'a')").notes
    assert len(notes) == 1 and "after the next compaction" in notes[0]
    assert session.run("SELECT * FROM u").to_arrow().num_rows == 0


@pytest.mark.parametrize("compression", ["lz4", "none"])
def test_unsupported_manifest_compression_is_refused_before_write(
    session: Session, warehouse: Path, compression: str
) -> None:
    session.run(f"CREATE TABLE t (k INT) TBLPROPERTIES ('manifest.compression' = '{compression}')")
    before = files(warehouse)
    for statement in ("INSERT INTO t VALUES (1)", "TRUNCATE TABLE t"):
        with pytest.raises(UnsupportedStatementError, match=r"manifest\.compression"):
            session.run(statement)
    assert files(warehouse) == before
