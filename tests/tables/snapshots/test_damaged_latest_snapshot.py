"""Whoever reads the latest snapshot is told by name that it is damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from paimon_magics.errors import TableDamagedError
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.planning.commits.requests import Append, CommitRequest, Transaction
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.table_changes import AlterTable
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.stored_tables import load_stored
from paimon_magics.tables.commits.decoded_request import decoded
from paimon_magics.tables.commits.publication_checks import (
    examine,
    republished_as,
    unnamed_receipt,
)
from paimon_magics.tables.commits.receipts import find_commit
from paimon_magics.tables.commits.replaced_partitions import sizes_of_replaced
from paimon_magics.tables.commits.republishing import repetition
from paimon_magics.tables.manifests.partitions import list_partitions, partition_documents
from paimon_magics.tables.snapshots import latest
from paimon_magics.tables.snapshots.chain import latest_document
from paimon_magics.tables.snapshots.latest import latest_snapshot, latest_snapshot_id, read_snapshot
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.bucket_counts import bucket_counts, check_cross_partition_size
from tests.tables.compaction.compacted_tables import write
from tests.tables.manifest_files import TABLE, create

PUBLICATION = Publication("id", TABLE, "", 1, "list", "user", 1, "APPEND", 0)
TRANSACTION = Transaction(
    table=TABLE, commit_user="user", file_prefix="pm-", base_snapshot_id=0, commit_identifier=1
)


def _with(**members: object) -> bytes:
    """A snapshot file that only `members` make wrong."""
    whole = {
        **{"version": 3, "id": 1, "schemaId": 0, "totalRecordCount": 0, "deltaRecordCount": 0},
        **{"baseManifestList": "a", "deltaManifestList": "b", "commitUser": "u"},
        **{"commitIdentifier": 1, "commitKind": "APPEND", "timeMillis": 1},
    }
    return json.dumps({**whole, **members}).encode()


DAMAGES = {
    "empty": b"",
    "truncated": b'{\n  "version" : 3,\n  "id" : 1,\n  "schemaI',
    "no text": b"\xff\xfe\x00\x80",
    "no object": b"[]",
    "no snapshot": b"{}",
    "null": b"null",
    "id of 133 bits": _with(id=10**40),
    "id as a fraction": _with(id=1.5),
    "watermark of 65 bits": _with(watermark=2**64),
    "version as a text": _with(version="3"),
    "lone surrogate": _with(commitUser="\ud800"),
    "depth of 100,000": b'{"id": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}


def alter(catalog: Catalog) -> None:
    statement = parse_statement("ALTER TABLE t ADD COLUMN more INT")
    assert isinstance(statement, AlterTable)
    catalog.alter_table(TABLE, statement.changes)


READS: dict[str, Callable[[Catalog, Table], object]] = {
    "latest snapshot": lambda _, table: latest_snapshot(table.paimon),
    "snapshot by id": lambda _, table: read_snapshot(table.paimon, 1),
    "document": lambda catalog, _: latest_document(load_stored(catalog, TABLE)),
    "partitions": lambda _, table: list_partitions(table),
    "partition documents": lambda catalog, _: partition_documents(load_stored(catalog, TABLE)),
    "replaced partitions": lambda _, table: sizes_of_replaced(table),
    "bucket counts": lambda _, table: bucket_counts(table, 1),
    "rows of a table": lambda _, table: check_cross_partition_size(table, 10),
    "altering": lambda catalog, _: alter(catalog),
    "the base of a commit": lambda _, table: latest_snapshot_id(table),
    "a commit": lambda _, table: find_commit(table, TRANSACTION),
    "a publication": lambda _, table: examine(table, [PUBLICATION]),
    "its repetition": lambda _, table: republished_as(table, PUBLICATION),
    "repeating it": lambda _, table: repetition(table, PUBLICATION, None),
    "its receipt": lambda _, table: unnamed_receipt(
        decoded(table, CommitRequest(TRANSACTION, Append()))
    ),
}

OF_A_GIVEN_ONE = ("snapshot by id", "bucket counts", "a publication")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return create(
        tmp_path,
        "CREATE TABLE t (k INT NOT NULL, p STRING) PARTITIONED BY (p) "
        "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '-1')",
    )


def snapshots(table: Table) -> Path:
    folder = Path(table.location) / "snapshot"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.mark.parametrize("read", READS)
def test_error_names_a_damaged_latest_snapshot(table: Table, tmp_path: Path, read: str) -> None:
    folder = snapshots(table)
    (folder / "LATEST").write_bytes(b"1")
    catalog = Catalog.open({"warehouse": str(tmp_path)})
    told = {}
    for name, content in DAMAGES.items():
        (folder / "snapshot-1").write_bytes(content)
        with pytest.raises(TableDamagedError) as error:
            READS[read](catalog, table)
        told[name] = str(error.value)
    assert all("/snapshot/snapshot-1" in text for text in told.values()), told


@pytest.mark.parametrize("read", [read for read in READS if read not in OF_A_GIVEN_ONE])
def test_hint_to_missing_snapshots_is_reported(table: Table, tmp_path: Path, read: str) -> None:
    folder = snapshots(table)
    (folder / "LATEST").write_bytes(b"7")
    catalog = Catalog.open({"warehouse": str(tmp_path)})
    with pytest.raises(TableDamagedError, match=r"latest snapshot in .*/snapshot"):
        READS[read](catalog, table)


@pytest.mark.parametrize("hint", [b"", b"\n", b"one", b"\xff\xfe\x00\x80", b"-1", b"9", None])
@pytest.mark.parametrize("read", READS)
def test_damaged_hint_is_ignored(
    table: Table, tmp_path: Path, read: str, hint: bytes | None
) -> None:
    folder = snapshots(table)
    if hint is not None:
        (folder / "LATEST").write_bytes(hint)
    (folder / "snapshot-1").write_bytes(DAMAGES["truncated"])
    catalog = Catalog.open({"warehouse": str(tmp_path)})
    with pytest.raises(TableDamagedError, match=r"/snapshot/snapshot-1"):
        READS[read](catalog, table)


def test_first_snapshot_published_during_listing_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing finds nothing, and the hint that is read after it names the snapshot."""
    table = create(tmp_path, "CREATE TABLE t (k INT NOT NULL)")
    write(table, [{"k": 1}])
    folder = Path(table.location) / "snapshot"
    snapshot = (folder / "snapshot-1").read_bytes()
    hint = latest._hint
    asked: list[bytes] = []

    def published_before_the_hint(paimon: object, manager: object) -> bytes:
        if len(asked) == 1:
            (folder / "snapshot-1").write_bytes(snapshot)
        asked.append(hint(paimon, manager))
        return asked[-1]

    (folder / "snapshot-1").unlink()
    monkeypatch.setattr(latest, "_hint", published_before_the_hint)
    actual = latest_snapshot(table.paimon)
    assert actual is not None and actual.id == 1
