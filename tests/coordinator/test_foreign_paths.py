"""Whoever may write one database reaches no file outside it: not by paths in commits, manifests and
options, and not by names."""

from __future__ import annotations

import base64
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pypaimon import CatalogFactory
from pypaimon.data.timestamp import Timestamp
from pypaimon.index.deletion_vector_meta import DeletionVectorMeta
from pypaimon.index.index_file_meta import IndexFileMeta
from pypaimon.manifest.index_manifest_entry import IndexManifestEntry
from pypaimon.manifest.schema.data_file_meta import DataFileMeta
from pypaimon.manifest.schema.simple_stats import SimpleStats
from pypaimon.table.row.generic_row import GenericRow
from pypaimon.write.commit_message import CommitMessage
from pypaimon.write.commit_message_serializer import serialize_commit_message

from tests.coordinator.process import Process

FIELDS = [{"id": 0, "name": "id", "type": "BIGINT"}, {"id": 1, "name": "v", "type": "STRING"}]
ROWS = pa.table({"id": pa.array([1], pa.int64()), "v": ["a"]})


class Lake:
    """A coordinator over HTTP, with the table `secret.orders` and a client for `mine` alone."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.process = Process(folder / "warehouse", folder / "state", *options)
        self.process.start()
        self.http = httpx.Client(timeout=60, trust_env=False)
        self.owner = (folder / "state/token").read_text().strip()
        for database in ("mine", "secret"):
            self.rest("POST", "/databases", {"name": database, "options": {}}, self.owner)
        self.create("secret", "orders", token=self.owner)
        self.write("secret.orders", token=self.owner)
        body = {"name": "mallory", "allow": ["write=mine"]}
        self.token = self.call("POST", "/v1/tokens", body, self.owner).json()["token"]
        self.victims = [
            folder / "warehouse/secret.db/orders/snapshot/snapshot-1",
            folder / "warehouse/secret.db/orders/schema/schema-0",
            folder / "state/token",
            next((folder / "warehouse/.paimon-magics").glob("owner-*")),
        ]

    def call(
        self, method: str, path: str, body: Any = None, token: str | None = None
    ) -> httpx.Response:
        headers = {"authorization": f"Bearer {token or self.token}"}
        address = self.process.address + path
        return self.http.request(method, address, json=body, headers=headers)

    def rest(
        self, method: str, path: str, body: Any = None, token: str | None = None
    ) -> httpx.Response:
        return self.call(method, f"/v1/paimon{path}", body, token)

    def create(
        self, database: str, table: str, options: dict[str, str] | None = None, token: str = ""
    ) -> httpx.Response:
        schema = {
            "fields": FIELDS,
            "partitionKeys": [],
            "primaryKeys": [],
            "options": options or {},
            "comment": "",
        }
        identifier = {"database": database, "object": table}
        body = {"identifier": identifier, "schema": schema}
        return self.rest("POST", f"/databases/{database}/tables", body, token or None)

    def paimon(self, name: str, token: str) -> Any:
        options = {
            "metastore": "rest",
            "uri": self.process.address,
            "warehouse": str(self.folder / "warehouse"),
            "token.provider": "bear",
            "token": token,
        }
        return CatalogFactory.create(options).get_table(name)

    def write(self, name: str, token: str, change: Any = lambda message: None) -> None:
        """Commit rows as an engine does: with manifests of its own, after `change`."""
        builder = self.paimon(name, token).new_batch_write_builder()
        writer, commit = builder.new_write(), builder.new_commit()
        writer.write_arrow(ROWS)
        messages = writer.prepare_commit()
        for message in messages:
            change(message)
        commit.commit(messages)

    def transaction(self, table: str) -> tuple[str, str]:
        body = {"table": {"database": "mine", "table": table}}
        opened = self.call("POST", "/v1/transactions", body)
        assert opened.status_code == 200, opened.text
        return opened.json()["id"], opened.json()["transaction"]["file_prefix"]

    def commit(self, id: str, message: CommitMessage) -> httpx.Response:
        messages = [base64.b64encode(serialize_commit_message(message, [])).decode()]
        body = {"change": {"kind": "append"}, "messages": messages, "properties": {}}
        return self.call("POST", f"/v1/transactions/{id}/commit", body)

    def snapshots(self, table: str) -> int:
        return len(list((self.folder / f"warehouse/mine.db/{table}").glob("snapshot/snapshot-*")))


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path)
    yield lake
    assert all(victim.exists() for victim in lake.victims)
    lake.process.close()
    lake.http.close()


def data_file(name: str, **more: Any) -> DataFileMeta:
    return DataFileMeta(
        file_name=name,
        file_size=10,
        row_count=2,
        min_key=GenericRow([], []),
        max_key=GenericRow([], []),
        key_stats=SimpleStats.empty_stats(),
        value_stats=SimpleStats.empty_stats(),
        min_sequence_number=0,
        max_sequence_number=1,
        schema_id=0,
        level=0,
        extra_files=[],
        creation_time=Timestamp.from_epoch_millis(1),
        delete_row_count=0,
        **more,
    )


def index(kind: int, name: str, external_path: str | None) -> IndexManifestEntry:
    ranges = {"data-1.parquet": DeletionVectorMeta("data-1.parquet", 0, 1, 1)}
    meta = IndexFileMeta("DELETION_VECTORS", name, 1, 1, ranges, external_path)
    return IndexManifestEntry(kind, GenericRow([], []), 0, meta)


def messages_naming(prefix: str, victim: str, relative: str) -> Iterator[CommitMessage]:
    own = f"{prefix}data-0.parquet"
    outside = data_file(own, external_path=victim)
    escaping = data_file(f"{prefix}/{relative}")
    for file in (outside, escaping, replace(data_file(own), extra_files=[f"{prefix}/{relative}"])):
        yield CommitMessage((), 0, [file])
        yield CommitMessage((), 0, [], changelog_files=[file])
        yield CommitMessage((), 0, [], deleted_files=[file])
        yield CommitMessage((), 0, [], compact_before=[file])
        yield CommitMessage((), 0, [], compact_after=[file])
        yield CommitMessage((), 0, [], compact_changelog_files=[file])
    for name, path in (("index-1", victim), (relative, None)):
        yield CommitMessage((), 0, [], index_adds=[index(0, name, path)])
        yield CommitMessage((), 0, [], index_deletes=[index(1, name, path)])
        yield CommitMessage((), 0, [], compact_index_adds=[index(0, name, path)])
        yield CommitMessage((), 0, [], compact_index_deletes=[index(1, name, path)])


def test_commit_message_naming_outside_files_is_refused(lake: Lake) -> None:
    options = {
        "deletion-vectors.enabled": "true",
        "data-file.external-paths": f"file://{lake.folder}",
    }
    assert lake.create("mine", "t", options).status_code == 200
    relative = "../../../secret.db/orders/snapshot/snapshot-1"
    spellings = [str(lake.victims[0]), *(f"file://{victim}" for victim in lake.victims)]
    for victim in spellings:
        for number, message in enumerate(messages_naming("", victim, relative)):
            if victim != spellings[0] and not message.index_adds:
                continue
            id, prefix = lake.transaction("t")
            message = list(messages_naming(prefix, victim, relative))[number]
            answer = lake.commit(id, message)
            assert answer.status_code == 400, (message, answer.text)
            assert "outside the folders" in answer.text or "does not belong" in answer.text
    assert lake.snapshots("t") == 0
    assert lake.rest("DELETE", "/databases/mine/tables/t").status_code == 200


def test_manifest_naming_outside_files_is_refused(lake: Lake) -> None:
    options = {"commit.max-retries": "0"}
    assert lake.create("mine", "t", options).status_code == 200
    lake.write("mine.t", lake.token)
    before = lake.snapshots("t")
    relative = "../../../secret.db/orders/snapshot/snapshot-1"

    def outside(message: CommitMessage) -> None:
        message.new_files[0].external_path = str(lake.victims[0])

    def escaping(message: CommitMessage) -> None:
        message.new_files[0].file_name = relative

    def beside(message: CommitMessage) -> None:
        message.new_files[0].extra_files = [relative]

    def indexed(message: CommitMessage) -> None:
        meta = IndexFileMeta("HASH", "index-1", 4, 1, None, str(lake.victims[0]))
        message.index_adds = [IndexManifestEntry(0, GenericRow([], []), 0, meta)]

    for change in (outside, escaping, beside, indexed):
        with pytest.raises(Exception, match=r"[Cc]ommit") as caught:
            lake.write("mine.t", lake.token, change)
        text = "".join(traceback.format_exception(caught.value))
        assert "outside the folders" in text or "is not the name of a file" in text
        assert lake.snapshots("t") == before, change
    assert lake.rest("DELETE", "/databases/mine/tables/t").status_code == 200


def test_branch_and_tag_names_cannot_escape_the_table(lake: Lake) -> None:
    assert lake.create("mine", "t").status_code == 200
    lake.write("mine.t", lake.token)
    table = {"database": "mine", "table": "t"}
    tables = "/databases/mine/tables/t"
    assert lake.rest("POST", f"{tables}/branches", {"branch": "x"}).status_code == 200
    assert lake.rest("POST", f"{tables}/tags", {"tagName": "x"}).status_code == 200
    evil = "x/../../../../secret.db/orders"
    tag = "x/../../../../secret.db/orders/snapshot/snapshot-1"
    for change in (
        {"kind": "DeleteBranches", "branches": [evil]},
        {"kind": "RenameBranch", "branch": evil, "new_name": "y"},
        {"kind": "RenameBranch", "branch": "x", "new_name": evil},
        {"kind": "FastForward", "branch": evil},
        {"kind": "CreateBranch", "branch": evil, "tag": None, "if_not_exists": False},
        {"kind": "CreateBranch", "branch": "z", "tag": tag, "if_not_exists": False},
        {"kind": "DeleteTags", "tags": [tag]},
        {"kind": "RenameTag", "tag": tag, "new_name": "y"},
        {"kind": "RenameTag", "tag": "x", "new_name": tag},
        {"kind": "RollBackToTag", "tag": tag},
    ):
        body = {"table": table, "change": change, "repeated": False}
        answer = lake.call("POST", "/v1/tables/versions", body)
        assert answer.status_code in (400, 404), (change, answer.text)
    for named in ("t$branch_x/../../../../secret.db/orders", "../../secret.db/orders"):
        for where in (
            {"database": "mine", "table": named},
            {"database": f"mine.db/{named}/..", "table": "t"},
        ):
            answer = lake.call("POST", "/v1/transactions", {"table": where})
            assert answer.status_code in (400, 403, 404), answer.text


def test_external_folder_allowed_by_the_administrator_is_usable(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    lake = Lake(tmp_path, f"--external-root=file://{elsewhere}")
    assert lake.create("mine", "t").status_code == 200
    other = elsewhere / "of-somebody.txt"
    other.touch()

    def outside(message: CommitMessage) -> None:
        file = message.new_files[0]
        path = elsewhere / file.file_name
        Path(str(file.file_path).removeprefix("file:")).rename(path)
        file.external_path = f"file://{path}"

    lake.write("mine.t", lake.token, outside)
    assert lake.snapshots("t") == 1
    assert len(list(elsewhere.glob("*.parquet"))) == 1
    assert lake.rest("DELETE", "/databases/mine/tables/t").status_code == 200
    assert [path.name for path in elsewhere.iterdir()] == [other.name]
    lake.process.close()
