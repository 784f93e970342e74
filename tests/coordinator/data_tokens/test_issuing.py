"""Keys from the STS of moto, which issues them and enforces nothing."""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from paimon_magics.coordinator.data_tokens.issuing import DataTokens
from paimon_magics.coordinator.data_tokens.sts import StsIssuer, StsSettings
from paimon_magics.coordinator.process.arguments import parser
from paimon_magics.coordinator.process.place import data_tokens_of
from paimon_magics.coordinator.protocol.principals import Principal, grants_of
from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.coordinator.runtime.work import waited
from paimon_magics.errors import SetupError
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.stored_tables import load_stored
from paimon_magics.tables.stores.store import UnreachableError
from tests.backends.s3 import Bucket, Reply, S3Server, s3_server
from tests.coordinator.process import create_table

ROLE = "arn:aws:iam::123456789012:role/lake"
READER = Principal.granted("ada", grants_of(["read"]))
WRITER = Principal.granted("ada", grants_of(["write"]))


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="module")
def bucket(server: S3Server) -> Bucket:
    return server.bucket()


@pytest.fixture(scope="module")
def catalog(bucket: Bucket) -> Catalog:
    return create_table(bucket.options, "CREATE TABLE t (k INT)")


def tokens(catalog: Catalog, seconds: int = 900) -> DataTokens:
    issuer = StsIssuer(catalog.warehouse, lambda: catalog.options, StsSettings(ROLE))
    made = DataTokens(catalog, issuer, seconds)
    made.start(Runtime())
    return made


def test_key_is_given_again_for_a_third_of_its_time_and_then_another(catalog: Catalog) -> None:
    table = load_stored(catalog, TableName("t", "default"))
    issued = tokens(catalog, seconds=3)
    first = waited(issued.of_table(READER, table))
    assert waited(issued.of_table(READER, table)) is first
    assert first.renew_at_ms < first.ends_at_ms - 1_900
    time.sleep(1.1)
    second = waited(issued.of_table(READER, table))
    assert second.options["s3.session.token"] != first.options["s3.session.token"]


def test_clients_of_paimon_ask_again_when_the_next_key_can_be_had(catalog: Catalog) -> None:
    table = load_stored(catalog, TableName("t", "default"))
    token = waited(tokens(catalog).of_table(READER, table))
    # pypaimon and Paimon's Java library ask from an hour before the end that they are told.
    assert token.told_end_ms - 3_600_000 == token.renew_at_ms
    assert 0 < token.ends_at_ms - time.time() * 1000 <= 900_000


def test_key_of_other_rights_is_another_one(catalog: Catalog) -> None:
    table = load_stored(catalog, TableName("t", "default"))
    issued = tokens(catalog)
    assert waited(issued.of_table(READER, table)) is not waited(issued.of_table(WRITER, table))
    assert waited(issued.of_session(READER)) is not waited(issued.of_session(WRITER))
    assert waited(issued.of_session(READER)) is waited(issued.of_session(READER))


def test_key_has_the_stores_address_and_no_lasting_key(catalog: Catalog, bucket: Bucket) -> None:
    options = waited(tokens(catalog).of_session(WRITER)).options
    assert options["s3.endpoint"] == bucket.options["s3.endpoint"]
    assert options["s3.path-style-access"] == "true"
    assert bucket.options["s3.secret-key"] not in options.values()


def test_next_key_is_issued_by_exchanged_keys_of_the_coordinator(
    server: S3Server, catalog: Catalog
) -> None:
    askers = []

    def between(environment: dict[str, Any], hand_on: Callable[[], Reply]) -> Reply:
        askers.append(re.search(r"Credential=([^/]+)/", environment["HTTP_AUTHORIZATION"]))
        return hand_on()

    options = dict(catalog.options)
    issuer = StsIssuer(catalog.warehouse, lambda: options, StsSettings(ROLE))
    server.between = between
    try:
        issuer.issue("{}", "somebody", 900)
        options["s3.access-key"] = "exchanged"
        issuer.issue("{}", "somebody", 900)
    finally:
        server.between = lambda _, hand_on: hand_on()
    first = catalog.options["s3.access-key"]
    assert [asker and asker[1] for asker in askers] == [first, "exchanged"]


def test_sts_without_an_answer_is_unreachable(catalog: Catalog) -> None:
    settings = StsSettings(ROLE, "http://127.0.0.1:9")
    with pytest.raises(UnreachableError, match=r"STS at http://127\.0\.0\.1:9 gave no answer"):
        DataTokens(
            catalog, StsIssuer(catalog.warehouse, lambda: catalog.options, settings), 900
        ).check()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sts-role", ROLE], "--sts-role is for a coordinator that hands out keys"),
        (["--sts-endpoint", "http://x"], "--sts-endpoint is for a coordinator"),
        (["--data-token-seconds", "900"], "--data-token-seconds is for a coordinator"),
        (["--data-tokens", "sts", "--embedded"], "--embedded hands out no keys"),
        (["--data-tokens", "sts", "--data-token-seconds", "5"], "5 is not between 10 and 43200"),
        (["--data-tokens", "sts", "--sts-role", "lake"], "lake is not the ARN of a role"),
        (["--data-tokens", "sts", "--sts-endpoint", "x:9"], "x:9 is not an address"),
    ],
)
def test_half_settings_are_refused_by_name(
    catalog: Catalog, arguments: list[str], said: str
) -> None:
    options = parser().parse_args(["--state=unused", *arguments])
    with pytest.raises(SetupError, match=said):
        data_tokens_of(options, catalog)


@pytest.mark.parametrize(
    ("warehouse", "said"),
    [
        ("/data/lake", "--data-tokens sts issues keys of S3, and the warehouse is /data/lake"),
        ("hdfs://h:1/lake", "issues keys of S3"),
        ("s3://lake--use1-az4--x-s3/w", "directory bucket"),
        ("s3://lake/w", "needs a role at AWS"),
    ],
)
def test_stores_without_such_keys_are_refused_by_name(warehouse: str, said: str) -> None:
    with pytest.raises(SetupError, match=said):
        StsIssuer(warehouse, lambda: {"s3.region": "us-east-1"}, StsSettings())


def test_coordinator_without_them_hands_out_none(catalog: Catalog) -> None:
    assert data_tokens_of(parser().parse_args(["--state=unused"]), catalog) is None
