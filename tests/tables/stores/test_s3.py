"""Create-if-absent on S3: who made an object is known whatever the server answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import boto3
import obstore
import pytest

from paimon_magics.errors import SetupError, UnsupportedStatementError
from paimon_magics.tables.stores import object_store
from paimon_magics.tables.stores.s3_access import s3_access
from paimon_magics.tables.stores.store import Stores, open_store
from tests.backends.object_buckets import opened, path_in
from tests.backends.s3 import Bucket, Environment, Reply, S3Server, s3_server


@pytest.fixture(scope="module")
def module_server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def server(module_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server whose clients lose patience soon."""
    monkeypatch.setattr(object_store, "_PATIENCE_SECONDS", 0.3)
    before = module_server.between
    yield module_server
    module_server.between = before


@pytest.fixture
def bucket(server: S3Server) -> Bucket:
    return server.bucket()


def test_second_create_fails_and_keeps_the_content(bucket: Bucket) -> None:
    store = opened(bucket)
    path = path_in(bucket, "snapshot-1")
    assert store.read(path) is None
    assert store.create(path, b"first")
    assert not store.create(path, b"second")
    assert store.read(path) == b"first"
    assert bucket.objects() == ["warehouse/default.db/t/dt=a%20b#c?d/snapshot-1"], (
        "a probe was left"
    )


def test_racing_writers_create_each_object_exactly_once(bucket: Bucket) -> None:
    names = list(range(24))
    start = threading.Barrier(8)

    def write(writer: int) -> list[int]:
        store = opened(bucket)
        # Pairs begin at the same name, and who lost one may win the next.
        first = writer // 2 * 6
        mine = names[first:] + names[:first]
        start.wait()
        return [n for n in mine if store.create(path_in(bucket, str(n)), b"%d" % writer)]

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(8)))
    assert sorted(name for names_won in won for name in names_won) == names
    assert sum(map(bool, won)) > 1, "one writer did everything: they did not race"
    store = opened(bucket)
    for writer, names_won in enumerate(won):
        assert {store.read(path_in(bucket, str(n))) for n in names_won} <= {b"%d" % writer}


def is_create(request: Environment) -> bool:
    return request["REQUEST_METHOD"] == "PUT" and request.get("HTTP_IF_NONE_MATCH") == "*"


def once(reply: Callable[[Callable[[], Reply]], Reply]) -> Callable[..., Reply]:
    """The first conditional PUT is answered by `reply`, everything else by the server."""
    left = [True]

    def between(request: Environment, hand_on: Callable[[], Reply]) -> Reply:
        if is_create(request) and left:
            left.clear()
            return reply(hand_on)
        return hand_on()

    return between


def reply_lost(hand_on: Callable[[], Reply]) -> Reply:
    assert hand_on().status.startswith("200")
    return Reply.error("500 Internal Server Error", "InternalError")


def sent_twice(hand_on: Callable[[], Reply]) -> Reply:
    """A proxy that did not see the first answer sends the request again."""
    assert hand_on().status.startswith("200")
    return Reply.error("412 Precondition Failed", "PreconditionFailed")


def refused_for_now(_: Callable[[], Reply]) -> Reply:
    return Reply.error("409 Conflict", "ConditionalRequestConflict")


def not_arrived(_: Callable[[], Reply]) -> Reply:
    return Reply.error("503 Slow Down", "SlowDown")


ANSWERS = [reply_lost, sent_twice, refused_for_now, not_arrived]


@pytest.mark.parametrize("answer", ANSWERS)
def test_unclear_answer_about_our_own_object_is_resolved(
    server: S3Server, bucket: Bucket, answer: Callable[[Callable[[], Reply]], Reply]
) -> None:
    store = opened(bucket)
    server.between = once(answer)
    assert store.create(path_in(bucket, "snapshot-1"), b"ours")
    assert store.read(path_in(bucket, "snapshot-1")) == b"ours"
    assert not store.create(path_in(bucket, "snapshot-1"), b"ours"), "as it would say to another"


@pytest.mark.parametrize("answer", [refused_for_now, not_arrived])
def test_unclear_answer_about_a_foreign_object_is_resolved(
    server: S3Server, bucket: Bucket, answer: Callable[[Callable[[], Reply]], Reply]
) -> None:
    store = opened(bucket)
    # Even one of the same content, put by an engine that leaves no mark.
    obstore.put(bucket.store, "warehouse/default.db/t/dt=a%20b#c?d/snapshot-1", b"same")
    server.between = once(answer)
    assert not store.create(path_in(bucket, "snapshot-1"), b"same")


def test_persistently_unclear_answer_raises_an_error(server: S3Server, bucket: Bucket) -> None:
    store = opened(bucket)
    server.between = lambda _, __: Reply.error("500 Internal Server Error", "InternalError")
    with pytest.raises(OSError, match=r"snapshot-1 may have been created: 500 .*InternalError"):
        store.create(path_in(bucket, "snapshot-1"), b"")


def test_refusal_after_an_unclear_answer_leaves_the_outcome_open(
    server: S3Server, bucket: Bucket
) -> None:
    store = opened(bucket)
    answers = [
        Reply.error("500 Internal Server Error", "InternalError"),
        Reply.error("500 Internal Server Error", "InternalError"),
    ]

    def between(_: Environment, __: Callable[[], Reply]) -> Reply:
        return answers.pop() if answers else Reply.error("403 Forbidden", "AccessDenied")

    server.between = between
    with pytest.raises(OSError, match="may have been created"):
        store.create(path_in(bucket, "snapshot-1"), b"")


def test_a_server_that_ignores_the_condition_is_refused(server: S3Server, bucket: Bucket) -> None:
    def ignoring(request: Environment, hand_on: Callable[[], Reply]) -> Reply:
        request.pop("HTTP_IF_NONE_MATCH", None)
        return hand_on()

    server.between = ignoring
    stores = Stores(bucket.options)
    with pytest.raises(UnsupportedStatementError, match="ignores the header If-None-Match"):
        stores.publish(path_in(bucket, "snapshot-1"), b"")
    assert bucket.objects() == []
    server.between = lambda _, hand_on: hand_on()
    assert stores.publish(path_in(bucket, "snapshot-1"), b"1"), "an update is noticed"


def test_server_not_supporting_the_condition_is_refused(server: S3Server, bucket: Bucket) -> None:
    def unknown(request: Environment, hand_on: Callable[[], Reply]) -> Reply:
        if is_create(request):
            return Reply.error("501 Not Implemented", "NotImplemented")
        return hand_on()

    server.between = unknown
    with pytest.raises(SetupError, match="501 Not Implemented") as raised:
        opened(bucket)
    assert "If-None-Match" in raised.value.hint


def test_read_only_credentials_are_refused_before_any_write(
    server: S3Server, bucket: Bucket
) -> None:
    def read_only(request: Environment, hand_on: Callable[[], Reply]) -> Reply:
        if request["REQUEST_METHOD"] in ("PUT", "POST", "DELETE"):
            return Reply.error("403 Forbidden", "AccessDenied")
        return hand_on()

    server.between = read_only
    with pytest.raises(SetupError, match=r"can't be created: 403 Forbidden .AccessDenied"):
        opened(bucket)


def test_error_names_a_missing_bucket(bucket: Bucket) -> None:
    store = open_store("s3://no-such-lake/warehouse", bucket.options)
    with pytest.raises(SetupError, match=r"s3://no-such-lake/.*NoSuchBucket"):
        store.check()
    with pytest.raises(SetupError, match="NoSuchBucket"):
        store.read("s3://no-such-lake/warehouse/x")


def test_unreachable_server_creates_nothing_and_may_come_back(
    server: S3Server, bucket: Bucket
) -> None:
    store = opened(bucket)
    server.stop()
    try:
        with pytest.raises(SetupError, match="snapshot-1 can't be created: it can't be reached"):
            store.create(path_in(bucket, "snapshot-1"), b"")
    finally:
        server.start()
    assert store.create(path_in(bucket, "snapshot-1"), b"")


def test_names_lists_direct_children_with_a_prefix(bucket: Bucket) -> None:
    store = opened(bucket)
    folder = path_in(bucket, "bucket-0")
    for name in ("a-1", "b-1", "b-2", "b", "c-1", "d/b-3"):
        store.write(f"{folder}/{name}", b"1")
    store.write(f"{folder}0/b-4", b"1")
    assert store.names(folder, "b-") == ["b-1", "b-2"]
    assert store.names(folder) == ["a-1", "b", "b-1", "b-2", "c-1"]
    assert store.names(path_in(bucket, "bucket-7")) == []
    store.delete([f"{folder}/b-1", f"{folder}/not-there"])
    assert store.names(folder, "b-") == ["b-2"]


SPELLINGS = {
    "s3": {"s3.endpoint": "E", "s3.access-key": "K", "s3.secret-key": "S", "s3.region": "R"},
    "hadoop": {
        "fs.s3a.endpoint": "E",
        "fs.s3a.access.key": "K",
        "fs.s3a.secret.key": "S",
        "fs.s3a.region": "R",
    },
    "pypaimon": {
        "fs.s3.endpoint": "E",
        "fs.s3.accessKeyId": "K",
        "fs.s3.accessKeySecret": "S",
        "fs.s3.region": "R",
        "s3.access-key": "a less preferred one",
    },
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_options_are_understood_in_every_spelling(spelling: str) -> None:
    access = s3_access(SPELLINGS[spelling] | {"s3.path.style.access": "true"})
    assert access.native_options() == {
        "s3.endpoint": "https://E",
        "s3.access-key": "K",
        "s3.secret-key": "S",
        "s3.region": "R",
        "s3.path-style-access": "true",
    }
    assert "K" not in repr(access) and repr(access) == "S3Access(https://E, R)"


def test_store_without_conditional_create_is_refused() -> None:
    with pytest.raises(UnsupportedStatementError, match="in a viewfs:// store are read-only"):
        Stores({"warehouse": "viewfs://lake/w"}).publish("viewfs://lake/w/x", b"")


def test_versioned_bucket_behaves_like_a_plain_bucket(bucket: Bucket) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=bucket.options["s3.endpoint"],
        region_name=bucket.options["s3.region"],
        aws_access_key_id=bucket.options["s3.access-key"],
        aws_secret_access_key=bucket.options["s3.secret-key"],
    )
    enabled = {"Status": "Enabled"}
    client.put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration=enabled)
    store = opened(bucket)
    path = path_in(bucket, "snapshot-1")
    assert store.create(path, b"first") and not store.create(path, b"second")
    store.write(path, b"replaced")
    assert store.read(path) == b"replaced"
    store.delete([path])
    folder = path.rpartition("/")[0]
    assert (store.read(path), store.modified_ms(path), store.names(folder)) == (None, None, [])
    assert store.create(path, b"anew") and not store.create(path, b"once more")
    assert store.read(path) == b"anew"
    kept = client.list_object_versions(Bucket=bucket.name, Prefix=store.key(path))
    assert (len(kept["Versions"]), len(kept["DeleteMarkers"])) == (3, 1)
