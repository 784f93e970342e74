"""Keys that a coordinator hands out, at a store that enforces them."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import botocore.session
import httpx
import obstore
import pyarrow as pa
import pytest
from botocore.config import Config
from obstore.store import S3Store
from pypaimon import CatalogFactory, Schema

from paimon_magics.planning.commits.requests import names_of
from tests.backends.minio import minio
from tests.backends.s3 import Bucket
from tests.coordinator.commands import done
from tests.coordinator.process import Process, wait_until

SECONDS = 12
HUB = Path(__file__).parents[3] / "deploy" / "hub"
ROWS = pa.schema([("k", pa.int64()), ("v", pa.string())])
OWN = f"bucket-0/{names_of('some')}x"
CHANGED = pa.table({"k": [2], "v": ["b"]}, schema=ROWS)


@dataclass
class Lake:
    """A coordinator that hands out keys, with the tables `shop.orders` and `shop.secret`."""

    bucket: Bucket
    coordinator: Process

    def ask(self, token: str, path: str, method: str = "GET", **body: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{self.coordinator.address}{path}"
        return httpx.request(method, url, headers=headers, json=body or None)

    def token(self, name: str, *allow: str) -> str:
        root = self.coordinator.token()
        answer = self.ask(root, "/v1/tokens", "POST", name=name, allow=list(allow))
        return str(answer.json()["token"])

    def catalog(self, token: str, **options: str) -> Any:
        return CatalogFactory.create(
            {
                "metastore": "rest",
                "uri": self.coordinator.address,
                "warehouse": self.bucket.options["warehouse"],
                "token.provider": "bear",
                "token": token,
                **options,
            }
        )

    def key(self, token: str, table: str) -> S3Store:
        """A client of the bucket with the key of a table."""
        path = f"/v1/paimon/databases/shop/tables/{table}/token"
        return self.client(self.ask(token, path).json()["token"])

    def client(self, key: dict[str, str]) -> S3Store:
        return S3Store(
            self.bucket.name,
            endpoint=key["s3.endpoint"],
            region=key["s3.region"],
            access_key_id=key["s3.access-key"],
            secret_access_key=key["s3.secret-key"],
            session_token=key["s3.session.token"],
            client_options={"allow_http": True},
        )

    def data_file(self, table: str) -> str:
        return self.bucket.objects(f"warehouse/shop.db/{table}/bucket-0")[0]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with minio(tmp_path_factory.mktemp("minio")) as server:
        bucket = server.bucket()
        coordinator = Process(
            bucket.options["warehouse"],
            tmp_path_factory.mktemp("coordinator") / "state",
            *("--data-tokens=sts", f"--data-token-seconds={SECONDS}"),
            *("--audit-table=ops.audit", "--audit-every-ms=300"),
            catalog=bucket.options,
        )
        coordinator.start()
        try:
            lake = Lake(bucket, coordinator)
            catalog = lake.catalog(lake.token("owner", "write"))
            catalog.create_database("shop", True)
            for table in ("orders", "secret"):
                catalog.create_table(f"shop.{table}", Schema.from_pyarrow_schema(ROWS), False)
                write(catalog, f"shop.{table}", pa.table({"k": [1], "v": ["a"]}, schema=ROWS))
            yield lake
        finally:
            coordinator.close()


def write(catalog: Any, name: str, rows: pa.Table) -> None:
    builder = catalog.get_table(name).new_batch_write_builder()
    writer, commit = builder.new_write(), builder.new_commit()
    writer.write_arrow(rows)
    commit.commit(writer.prepare_commit())
    writer.close()
    commit.close()


def read(catalog: Any, name: str) -> list[dict[str, object]]:
    builder = catalog.get_table(name).new_read_builder()
    splits = builder.new_scan().plan().splits()
    rows: list[dict[str, object]] = builder.new_read().to_arrow(splits).to_pylist()
    return rows


def is_refused(action: Callable[[], object]) -> bool:
    """Whether the store refuses it; it succeeds otherwise."""
    try:
        action()
    except Exception as error:
        assert "AccessDenied" in str(error) or "403" in str(error), error
        return True
    return False


def test_key_of_a_reader_reads_and_cannot_write_or_delete(lake: Lake) -> None:
    store = lake.key(lake.token("reader", "read=shop.orders"), "orders")
    file = lake.data_file("orders")
    assert not is_refused(lambda: obstore.get(store, file).bytes())
    assert not is_refused(lambda: list(obstore.list(store, "warehouse/shop.db/orders/")))
    for path in (file, "warehouse/shop.db/orders/bucket-0/x", "warehouse/shop.db/secret/x"):
        assert is_refused(lambda path=path: obstore.put(store, path, b"x"))
    assert is_refused(lambda: obstore.delete(store, file))
    assert lake.data_file("orders") == file


def test_key_of_a_table_cannot_read_or_list_another(lake: Lake) -> None:
    store = lake.key(lake.token("writer", "write=shop.orders"), "orders")
    assert is_refused(lambda: obstore.get(store, lake.data_file("secret")))
    assert is_refused(lambda: list(obstore.list(store, "warehouse/shop.db/secret/")))
    assert is_refused(lambda: obstore.put(store, "warehouse/shop.db/secret/bucket-0/x", b"x"))


@pytest.mark.parametrize(
    ("allow", "written"),
    [
        ("insert=shop.orders", {OWN}),
        ("change=shop.orders", {OWN, "bucket-0/n", "manifest/n", "snapshot/EARLIEST", "tag/tag-n"}),
        ("write=shop.orders", {OWN, "bucket-0/n", "manifest/n", "snapshot/EARLIEST", "tag/tag-n"}),
    ],
)
def test_key_of_a_writer_writes_what_their_scope_takes(
    lake: Lake, allow: str, written: set[str]
) -> None:
    store = lake.key(lake.token("some", allow), "orders")
    folder = "warehouse/shop.db/orders"
    names = (
        *(OWN, "bucket-0/n", "manifest/n", "snapshot/EARLIEST", "snapshot/snapshot-99"),
        *("schema/n", "schema", "snapshot", "tag", "tag/tag-n", ".attempts/n.open"),
        ".streams/n",
        *("branch/branch-b/schema/schema-0", ".paimon-magics-table"),
    )
    done = {
        name
        for name in names
        if not is_refused(lambda name=name: obstore.put(store, f"{folder}/{name}", b"x"))
    }
    obstore.delete(lake.bucket.store, [f"{folder}/{name}" for name in done])
    assert done == written


def test_pypaimon_reads_and_writes_with_keys_and_none_of_its_own(lake: Lake) -> None:
    owner = lake.catalog(lake.token("owner", "write=shop"))
    assert owner.data_token_enabled
    write(owner, "shop.orders", CHANGED)
    reader = lake.catalog(lake.token("reader", "read=shop.orders"))
    assert {"k": 2, "v": "b"} in read(reader, "shop.orders")
    with pytest.raises(RuntimeError, match=r"(?i)access.?denied"):
        write(reader, "shop.orders", CHANGED)


def test_pypaimon_with_keys_of_its_own_may_leave_those_of_the_coordinator(lake: Lake) -> None:
    own = {key: value for key, value in lake.bucket.options.items() if key.startswith("s3.")}
    catalog = lake.catalog(lake.token("reader", "read"), **own, **{"data-token.enabled": "false"})
    assert not catalog.data_token_enabled
    assert {"k": 1, "v": "a"} in read(catalog, "shop.secret")


def test_ended_key_is_refused_renewed_for_who_may_and_not_for_who_was_revoked(lake: Lake) -> None:
    staying, leaving = lake.token("stays", "read=shop.orders"), lake.token("goes", "read")
    catalog = lake.catalog(staying)
    table = catalog.get_table("shop.orders")
    before = table.file_io.valid_token().token
    old, gone = lake.client(before), lake.key(leaving, "secret")
    file, secret = lake.data_file("orders"), lake.data_file("secret")
    assert not is_refused(lambda: obstore.get(gone, secret))
    lake.ask(lake.coordinator.token(), "/v1/tokens/goes", "DELETE")
    time.sleep(SECONDS + 1)
    assert is_refused(lambda: obstore.get(old, file)), "the key outlived its time"
    assert is_refused(lambda: obstore.get(gone, secret)), "the revoked user's key works"
    path = "/v1/paimon/databases/shop/tables/secret/token"
    assert lake.ask(leaving, path).status_code == 401
    builder = table.new_read_builder()
    rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    assert rows.num_rows >= 1, "the catalog that was open did not renew its key"
    assert table.file_io.valid_token().token != before


def test_key_of_a_session_reaches_what_its_user_may_read_and_add(lake: Lake) -> None:
    token = lake.token("analyst", "read=shop.orders", "insert=shop.staged_*")
    store = lake.client(lake.ask(token, "/v1/data-token").json()["options"])
    assert not is_refused(lambda: obstore.get(store, lake.data_file("orders")))
    assert is_refused(lambda: obstore.get(store, lake.data_file("secret")))
    shop = "warehouse/shop.db"
    assert is_refused(lambda: obstore.put(store, f"{shop}/orders/bucket-0/x", b"x"))
    own = names_of("analyst")
    assert not is_refused(lambda: obstore.put(store, f"{shop}/staged_1/bucket-0/{own}x", b"x"))
    assert not is_refused(lambda: obstore.put(store, f"{shop}/staged_1/.attempts/{own}x", b"x"))
    assert not is_refused(lambda: obstore.put(store, f"{shop}/staged_1/consumer/consumer-c", b"1"))
    assert is_refused(lambda: obstore.put(store, f"{shop}/staged_1/bucket-0/x", b"x"))
    assert is_refused(lambda: obstore.put(store, f"{shop}/staged_1/snapshot/x", b"x"))
    assert is_refused(lambda: obstore.put(store, f"{shop}/staged_1/.paimon-magics-table", b"x"))
    assert is_refused(lambda: list(obstore.list(store, "warehouse/")))
    assert is_refused(lambda: obstore.get(store, "warehouse/.paimon-magics/x"))


def test_users_who_may_read_nothing_there_get_no_key_of_a_table(lake: Lake) -> None:
    path = "/v1/paimon/databases/shop/tables/secret/token"
    answer = lake.ask(lake.token("other", "read=shop.orders"), path)
    assert answer.status_code == 404


def test_key_of_a_session_replaces_no_file_of_others_and_hides_no_folder(lake: Lake) -> None:
    token = lake.token("adder", "insert=shop.orders")
    path = "/v1/paimon/databases/shop/tables/orders/token"
    of_session = lake.ask(token, "/v1/data-token").json()["options"]
    others = names_of("another")
    names = [f".attempts/{others}.0123456789ab.0", f"bucket-0/{others}x", "schema", "snapshot"]
    names += ["manifest", "bucket-0", ".attempts", f"branch/b/{names_of('adder')}"]
    paths = [lake.data_file("orders"), *(f"warehouse/shop.db/orders/{name}" for name in names)]
    for key in (of_session, lake.ask(token, path).json()["token"]):
        store = lake.client(key)
        assert [
            p for p in paths if not is_refused(lambda s=store, p=p: obstore.put(s, p, b"x"))
        ] == []


def test_key_of_a_session_that_may_write_everywhere_reaches_tables_alone(lake: Lake) -> None:
    token = lake.token("everywhere", "write")
    store = lake.client(lake.ask(token, "/v1/data-token").json()["options"])
    own = names_of("everywhere")
    for path in (f".paimon-magics/x.db/y/{own}", f"shop.db/{own}", own, "shop.db/orders/LATEST"):
        assert is_refused(lambda path=path: obstore.put(store, f"warehouse/{path}", b"x")), path


def test_names_in_the_audit_table_are_listed_by_administrators_alone(lake: Lake) -> None:
    audit = "warehouse/ops.db/audit"
    wait_until(lambda: any("/bucket-0/" in path for path in lake.bucket.objects(audit)))
    token = lake.token("everywhere", "write")
    key = lake.ask(token, "/v1/data-token").json()["options"]
    client = botocore.session.Session().create_client(
        "s3",
        endpoint_url=key["s3.endpoint"],
        region_name=key["s3.region"],
        aws_access_key_id=key["s3.access-key"],
        aws_secret_access_key=key["s3.secret-key"],
        aws_session_token=key["s3.session.token"],
        config=Config(s3={"addressing_style": "path"}),
    )

    def lists(prefix: str) -> None:
        client.list_objects_v2(Bucket=lake.bucket.name, Prefix=f"warehouse/{prefix}")

    for prefix in ("ops.db/audit/", "ops.db/", "ops.db/au", "ops.db/audit", "ops.db/audit/day="):
        assert is_refused(lambda prefix=prefix: lists(prefix)), prefix
    assert not is_refused(lambda: lists("shop.db/orders/"))
    assert not is_refused(lambda: lists("ops.db/another/"))


@pytest.mark.parametrize("allow", ["insert", "insert=shop.orders"])
def test_key_that_adds_neither_sees_nor_ends_uploads_of_others(lake: Lake, allow: str) -> None:
    token, own = lake.token("uploads", allow), lake.bucket.options
    keys = [
        lake.ask(token, "/v1/data-token").json()["options"],
        lake.ask(token, "/v1/paimon/databases/shop/tables/orders/token").json()["token"],
    ]
    root = client_of({**own, "s3.region": "us-east-1"})
    mine = f"warehouse/shop.db/orders/bucket-0/{names_of('uploads')}1"
    for key in keys:
        client = client_of(key)
        for path in (mine, "warehouse/shop.db/orders/bucket-0/pm-of-somebody-else"):
            named = {"Bucket": lake.bucket.name, "Key": path}
            named["UploadId"] = root.create_multipart_upload(**named)["UploadId"]
            for act in (client.list_parts, client.abort_multipart_upload):
                refused = is_refused(partial(act, **named))
                assert refused == (path != mine), (act, path)
            if path != mine:
                root.abort_multipart_upload(**named)


def client_of(key: dict[str, str]) -> Any:
    return botocore.session.Session().create_client(
        "s3",
        endpoint_url=key["s3.endpoint"],
        region_name=key["s3.region"],
        aws_access_key_id=key["s3.access-key"],
        aws_secret_access_key=key["s3.secret-key"],
        aws_session_token=key.get("s3.session.token"),
        config=Config(s3={"addressing_style": "path"}),
    )


def test_keys_of_the_hubs_notebooks_put_no_object_that_hides_a_table(lake: Lake) -> None:
    own = lake.bucket.options
    sts = botocore.session.Session().create_client(
        "sts",
        endpoint_url=own["s3.endpoint"],
        region_name="us-east-1",
        aws_access_key_id=own["s3.access-key"],
        aws_secret_access_key=own["s3.secret-key"],
    )
    policy = (
        (HUB / "docker" / "notebooks.json").read_text().replace(":::lake", f":::{lake.bucket.name}")
    )
    role = "arn:x:ignored:in:minio:role"
    compact = json.dumps(json.loads(policy), separators=(",", ":"))
    key = sts.assume_role(RoleArn=role, RoleSessionName="notebook", Policy=compact)["Credentials"]
    store = lake.client(
        {
            "s3.endpoint": own["s3.endpoint"],
            "s3.region": "us-east-1",
            "s3.access-key": key["AccessKeyId"],
            "s3.secret-key": key["SecretAccessKey"],
            "s3.session.token": key["SessionToken"],
        }
    )
    table = "warehouse/shop.db/orders"
    hiding = (
        *(
            "schema",
            "snapshot",
            "manifest",
            "bucket-0",
            "index",
            ".attempts",
            ".streams",
            ".streams/n",
        ),
        *("snapshot/LATEST", "bucket-0/n", ".paimon-magics-table", "consumer/n"),
    )
    for path in (*(f"{table}/{name}" for name in hiding), table, "warehouse/.paimon-magics"):
        assert is_refused(lambda path=path: obstore.put(store, path, b"x")), path
    written = [f"{table}/{name}" for name in (OWN, "index/pm-n", "consumer/consumer-n")]
    for path in [*written, "warehouse/.paimon-magics-n"]:
        assert not is_refused(lambda path=path: obstore.put(store, path, b"x")), path
    assert is_refused(lambda: obstore.delete(store, written[0]))
    obstore.delete(lake.bucket.store, [*written, "warehouse/.paimon-magics-n"])


def test_exchange_of_the_stores_keys_says_how_long_the_old_ones_are_needed(
    lake: Lake, tmp_path: Path
) -> None:
    state = lake.coordinator.state
    file, new = state.with_suffix(".json"), tmp_path / "new.json"
    new.write_text(file.read_text())
    said = done("rotate", "keys", new, f"--catalog={file}", f"--state={state}")
    assert f"made of the old ones, for up to {SECONDS} s" in said
