"""Create-if-absent on other clouds than S3 and on S3 Express, and the files that are read and
written."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pypaimon.common.file_io import FileIO
from pypaimon.common.options import Options

from paimon_magics.errors import SetupError, UnsupportedStatementError
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.stores.object_file_io import ObjectFileIO, know_object_stores
from paimon_magics.tables.stores.object_store import ObjectReader
from paimon_magics.tables.stores.probes import endpoint_of, probe_store
from paimon_magics.tables.stores.store import Stores, open_store
from tests.backends.clouds import CLOUDS, Cloud, CloudBucket, running
from tests.backends.fake_gcs import FakeGcs
from tests.backends.fake_oss import FakeOss
from tests.backends.object_buckets import opened, path_in


@pytest.fixture(scope="module", params=CLOUDS)
def cloud(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    with running(request.param) as server:
        yield server


@pytest.fixture
def bucket(cloud: Cloud) -> CloudBucket:
    return cloud.bucket()


def test_second_create_fails_and_keeps_the_content(bucket: CloudBucket) -> None:
    store = opened(bucket)
    path = path_in(bucket, "snapshot-1")
    assert store.read(path) is None
    assert store.create(path, b"first")
    assert not store.create(path, b"second")
    assert store.read(path) == b"first"
    store.write(path, b"replaced")
    assert store.read(path) == b"replaced"
    assert bucket.objects() == ["warehouse/default.db/t/dt=a%20b#c?d/snapshot-1"], (
        "a probe was left"
    )
    store.delete([path_in(bucket, "missing"), path])
    assert bucket.objects() == []


def test_racing_writers_create_each_object_exactly_once(bucket: CloudBucket) -> None:
    start = threading.Barrier(8)

    def write(writer: int) -> list[int]:
        store = opened(bucket)
        start.wait()
        order = [(number + writer // 2 * 3) % 12 for number in range(12)]
        return [n for n in order if store.create(path_in(bucket, str(n)), b"%d" % writer)]

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(8)))
    assert sorted(name for names in won for name in names) == list(range(12))
    store = opened(bucket)
    for writer, names in enumerate(won):
        assert {store.read(path_in(bucket, str(n))) for n in names} <= {b"%d" % writer}


def test_names_are_listed_by_prefix_and_folders_deleted(bucket: CloudBucket) -> None:
    store = opened(bucket)
    for name in ("snapshot-1", "snapshot-2", "LATEST", "deeper/snapshot-3"):
        store.write(path_in(bucket, name), b"1")
    folder = path_in(bucket, "x").rpartition("/")[0]
    assert store.names(folder, "snapshot-") == ["snapshot-1", "snapshot-2"]
    assert store.names(f"{folder}/no") == []
    assert store.entries(folder) == [
        ("LATEST", 1), ("deeper", None), ("snapshot-1", 1), ("snapshot-2", 1)
    ]  # fmt: skip
    assert (store.modified_ms(f"{folder}/LATEST") or 0) > 1.7e12
    store.delete_folder(f"{folder}/deeper")
    assert not store.has_folder(f"{folder}/deeper")
    assert store.has_folder(folder)


def test_probe_reads_and_writes_the_warehouse(bucket: CloudBucket) -> None:
    report = probe_store(bucket.options)
    assert report.is_new and not report.read_only and report.tried == "read and written"
    assert endpoint_of(bucket.options) in str(report)
    assert bucket.objects() == []
    scheme, _, rest = bucket.options["warehouse"].partition("://")
    missing = bucket.options | {"warehouse": f"{scheme}://no-such-{rest}"}
    with pytest.raises(SetupError, match=r"can't be used: .*(404|no bucket named|is no bucket)"):
        probe_store(missing)


def test_renewed_options_apply_to_later_requests(bucket: CloudBucket) -> None:
    stores = Stores(bucket.options)
    place = bucket.options["warehouse"]
    store = stores.of(place)
    assert store.create(f"{place}/a", b"1")
    gone = {key: value for key, value in bucket.options.items() if "endpoint" not in key}
    name = next(key for key in bucket.options if key.endswith(".endpoint"))
    stores.renew(gone | {name: "http://127.0.0.1:1"})
    with pytest.raises(SetupError, match="can't be reached"):
        store.delete([f"{place}/a"])
    stores.renew(bucket.options)
    assert store.read(f"{place}/a") == b"1"


def test_files_are_written_whole_and_read_by_ranges(bucket: CloudBucket) -> None:
    know_object_stores()
    files = FileIO.get(bucket.options["warehouse"], Options(bucket.options))
    assert isinstance(files, ObjectFileIO)
    files = pickle.loads(pickle.dumps(files))
    path = f"{bucket.options['warehouse']}/a b/f.parquet"
    table = pa.table({"k": range(100_000), "v": [f"text {n}" for n in range(100_000)]})
    files.write_parquet(path, table)
    with files.new_input_stream(path) as stream:
        assert pq.read_table(stream, columns=["v"]) == table.select(["v"])
    assert pq.read_table(files.to_filesystem_path(path), filesystem=files.filesystem) == table
    assert files.get_file_size(path) == files.get_file_status(path).size > 100_000
    assert [info.base_name for info in files.list_status(path.rpartition("/")[0])] == ["f.parquet"]
    assert files.exists(path) and not files.exists(f"{path}.no")
    with pytest.raises(FileNotFoundError):
        files.new_input_stream(f"{path}.no")
    assert files.rename(path, f"{path}.moved") and not files.exists(path)
    assert files.delete(path.rpartition("/")[0], True)
    assert bucket.objects() == []


@pytest.mark.parametrize("size", [0, 1000, 1_000_000])
def test_object_reader_reads_like_a_file_with_few_requests(size: int) -> None:
    content = bytes(n * 7 % 251 for n in range(size))
    asked: list[tuple[int, int]] = []

    def fetch(start: int, end: int) -> bytes:
        asked.append((start, end))
        return content[start:end]

    reader = ObjectReader(size, fetch)
    for start, length in ((0, 4), (4, 100), (500_000, 10), (500_005, 300_000), (999_990, 50)):
        assert reader.seek(start) == start
        assert reader.read(length) == content[start : start + length]
    reader.seek(0)
    assert reader.read() == content
    reader.seek(-min(8, size), 2)
    assert reader.read(20) == content[-8:]
    assert len(asked) == {0: 0, 1000: 1}.get(size, 5)


def test_database_exists_before_its_first_table(bucket: CloudBucket) -> None:
    catalog = Catalog.open(bucket.options)
    assert catalog.stored_databases() == []
    catalog.create_database("orders")
    assert Catalog.open(bucket.options).stored_databases() == ["orders"]
    assert catalog.list_tables("orders") == []
    catalog.drop_database("orders")
    assert catalog.stored_databases() == []


@pytest.mark.parametrize(
    ("warehouse", "said"),
    [
        ("gs:///lake", "names no bucket"),
        ("oss:///lake", "names no bucket"),
        ("abfs://lake/warehouse", "names no container and account"),
        ("abfss://@account.dfs.core.windows.net/w", "names no container and account"),
    ],
)
def test_warehouse_without_bucket_or_container_is_refused(warehouse: str, said: str) -> None:
    with pytest.raises(SetupError, match=said):
        Catalog.open({"warehouse": warehouse})


@pytest.mark.parametrize(
    ("name", "condition"),
    [
        ("oss", "x-oss-forbid-overwrite"),
        pytest.param("gcs", "x-goog-if-generation-match", marks=pytest.mark.soak),
    ],
)
def test_server_ignoring_the_condition_is_refused_for_writing(name: str, condition: str) -> None:
    with running(name) as server:
        assert isinstance(server, FakeGcs | FakeOss)
        bucket = server.bucket()
        server.keeps_conditions = False
        store = open_store(bucket.options["warehouse"], bucket.options)
        with pytest.raises(UnsupportedStatementError, match=condition):
            store.check()
        assert "ignores the header" in probe_store(bucket.options).read_only
        assert bucket.objects() == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "The address of OSS for oss://lake/w is missing.*fs.oss.endpoint"),
        ({"fs.oss.endpoint": "http://127.0.0.1:1"}, "no credentials were found"),
    ],
)
def test_error_names_missing_oss_settings(options: dict[str, str], said: str) -> None:
    with pytest.raises(SetupError, match=said):
        probe_store({"warehouse": "oss://lake/w", **options})


def test_oss_without_its_client_explains_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opendal", None)
    options = {"warehouse": "oss://lake/w", "fs.oss.endpoint": "http://127.0.0.1:1"}
    with pytest.raises(SetupError, match=r"pip install 'paimon-magics\[oss\]'"):
        open_store("oss://lake/w", options).check()


def test_hadoop_option_names_work_and_secrets_stay_hidden(tmp_path: Path) -> None:
    from paimon_magics.tables.stores.clouds import azure_access, gcs_access, oss_access

    place = "wasbs://lake@account.blob.core.windows.net/w"
    key = {"fs.azure.account.key.account.blob.core.windows.net": "an-account's-key"}
    actual = azure_access(place, key)
    assert (actual.container, actual.account) == ("lake", "account")
    assert (actual.endpoint, actual.account_key) == (
        "https://account.blob.core.windows.net", "an-account's-key"
    )  # fmt: skip
    assert "an-account's-key" not in f"{actual} {actual.facts()}"
    assert azure_access("abfss://c@a.dfs.core.windows.net/", {}).endpoint == (
        "https://a.blob.core.windows.net"
    )
    signed = {"azure.sas-token": "sv=2024&sig=of-nobody"}
    assert dict(azure_access(place, signed).facts())["credentials"] == "shared access signature"
    given = gcs_access("gs://lake/w", {"fs.gs.auth.service.account.json.keyfile": "/key.json"})
    assert given.key_file == "/key.json" and "/key.json" in dict(given.facts())["credentials"]
    secret = gcs_access("gs://lake/w", {"gcs.access-token": "a-token-of-nobody"})
    keys = {"fs.oss.accessKeyId": "an-id", "fs.oss.accessKeySecret": "a-secret-of-nobody"}
    oss = oss_access("oss://lake/w", {"fs.oss.endpoint": "oss-cn-hangzhou.aliyuncs.com/", **keys})
    assert dict(oss.facts())["endpoint"] == "https://oss-cn-hangzhou.aliyuncs.com"
    assert "a-secret-of-nobody" not in f"{oss} {oss.facts()}"
    assert oss_access("oss://lake/w", keys).endpoint is None
    assert "a-token-of-nobody" not in f"{secret} {secret.facts()}"
