"""A directory bucket of S3 Express under Amazon's own names: the session by which its requests are
signed. What else is peculiar to these buckets is in the tests of all clouds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from paimon_magics.tables.stores.store import is_directory_bucket, is_reached_by_client
from tests.backends.fake_express import AmazonExpress
from tests.backends.s3 import s3_server

JOURNEY = """
import sys
from pathlib import Path

from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.stores.probes import probe_store
from tests.coordinator.process import create_table

options = dict(one.split("=", 1) for one in sys.argv[1:])
print(probe_store(options))
catalog = create_table(options, "CREATE TABLE t (k BIGINT NOT NULL) TBLPROPERTIES ('bucket' = '1')")
print(Catalog.open(options).list_tables("default"))
place = options["warehouse"]
store = catalog.stores.of(place)
Path("large").write_bytes(b"x" * (20 << 20))
store.upload(Path("large"), f"{place}/files/large")
for number in range(3):
    assert store.create(f"{place}/files/new-{number}", b"1")
assert not store.create(f"{place}/files/new-1", b"2")
print(store.names(f"{place}/files", "new-"), store.status(f"{place}/files/large")[0])
print(len(store.open(f"{place}/files/large").read()))
store.delete([f"{place}/files/new-0", f"{place}/files/new-2"])
print(store.entries(f"{place}/files"))
catalog.drop_table(TableName("t", "default"))
catalog.drop_database("default")
store.delete_folder(f"{place}/files")
"""

TRIED = """
import sys
from paimon_magics.errors import SetupError
from paimon_magics.tables.stores.probes import probe_store

try:
    print(probe_store(dict(one.split("=", 1) for one in sys.argv[1:])))
except SetupError as error:
    print(error.message, error.hint)
"""


@pytest.fixture
def amazon(tmp_path: Path) -> Iterator[tuple[AmazonExpress, dict[str, str]]]:
    """The server, and the environment with which it is found and trusted."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    with s3_server() as server:
        certificate = authority.issue_cert("*.s3express-use1-az4.us-east-1.amazonaws.com")
        made = AmazonExpress(server, certificate)
        found = {
            "HTTPS_PROXY": made.proxy,
            "https_proxy": made.proxy,
            "NO_PROXY": "",
            "no_proxy": "",
            "SSL_CERT_FILE": str(tmp_path / "authority.pem"),
        }
        try:
            yield made, {**os.environ, **found}
        finally:
            made.close()


def test_requests_are_signed_with_an_express_session(
    amazon: tuple[AmazonExpress, dict[str, str]], tmp_path: Path
) -> None:
    server, environment = amazon
    completed = subprocess.run(
        [sys.executable, "-c", JOURNEY, *(f"{key}={each}" for key, each in server.options.items())],
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.splitlines()[1:] == [
        "['t']",
        f"['new-0', 'new-1', 'new-2'] {20 << 20}",
        str(20 << 20),
        f"[('large', {20 << 20}), ('new-1', 1)]",
    ]
    assert "endpoint AWS" in completed.stdout and "(read and written)" in completed.stdout
    assert server.objects() == [] and server.sessions > 0


@pytest.mark.parametrize(
    ("location", "is_of_express"),
    [
        ("s3://lake--use1-az4--x-s3/w", True),
        ("s3a://lake--use1-az4--x-s3", True),
        ("s3://lake--use1-az4/w--x-s3", False),
        ("gs://lake--use1-az4--x-s3/w", False),
    ],
)
def test_directory_bucket_is_recognised_by_its_name(location: str, is_of_express: bool) -> None:
    assert is_directory_bucket(location) == is_of_express
    assert is_reached_by_client(location) == (is_of_express or location.startswith("gs:"))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"s3.access-key": "another-key"}, "Ask for the permission s3express:CreateSession"),
        ({"s3.region": "eu-west-1"}, "Check the network, and 's3.region'"),
        ({"warehouse": "s3://another--use1-az4--x-s3/w"}, "there is no bucket `another--use1-az4"),
    ],
)
def test_wrong_settings_are_explained(
    amazon: tuple[AmazonExpress, dict[str, str]], wrong: dict[str, str], said: str
) -> None:
    server, environment = amazon
    options = server.options | wrong
    completed = subprocess.run(
        [sys.executable, "-c", TRIED, *(f"{key}={each}" for key, each in options.items())],
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert completed.returncode == 0, completed.stderr
    assert said in completed.stdout
