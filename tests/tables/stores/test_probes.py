"""What a connection finds out about its store: each mistake in words of its own, in seconds."""

from __future__ import annotations

import http.server
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from paimon_magics.errors import SetupError
from paimon_magics.session.connect_target import _compared
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.stores.probes import probe_store
from paimon_magics.tables.stores.s3_access import check_option_names
from tests.backends.s3 import Between, Bucket, Reply, S3Server, s3_server

SECONDS_MAX = 12
SECRET = "only-for-me-to-know"


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="module")
def options(server: S3Server) -> dict[str, str]:
    return Bucket(server.endpoint, key="AKIAABCDEFGHIJKLMNOP", secret=SECRET).options


def refused(options: Mapping[str, str]) -> SetupError:
    started = time.monotonic()
    with pytest.raises(SetupError) as raised:
        probe_store(options)
    assert time.monotonic() - started < SECONDS_MAX
    assert SECRET not in str(raised.value) and SECRET not in repr(raised.value.__cause__)
    return raised.value


def changed(options: Mapping[str, str], **changes: str | None) -> dict[str, str]:
    wanted = {f"s3.{key.replace('_', '-')}": value for key, value in changes.items()}
    return {k: v for k, v in {**options, **wanted}.items() if v is not None}


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        ({"region": None}, "The region of s3://", "'s3.region'"),
        ({"endpoint": "http://127.0.0.1:1"}, "127.0.0.1:1 can't be reached", "'s3.endpoint'"),
        ({"endpoint": "http://no-such-host.invalid:9000"}, "there is no host", "Correct the host"),
        ({"endpoint": "http://"}, "not the address of a store", "https://HOST:PORT"),
        ({"endpoint": "ftp://x:1"}, "not the address of a store", "https://HOST:PORT"),
        ({"endpoint": "http://x:99999"}, "not the address of a store", "https://HOST:PORT"),
        ({"endpoint": "http://127.0.0.256:9"}, "which is not an IP address", "four numbers"),
        ({"path_style_access": "false"}, "is an IP address, so the bucket", "path-style"),
        ({"path_style_access": None}, "is an IP address, so the bucket", "path-style"),
        ({"secret_key": None}, "'s3.access-key' and no 's3.secret-key'", "Give both"),
        ({"access_key": None}, "'s3.secret-key' and no 's3.access-key'", "Give both"),
    ],
)
def test_wrong_options_are_explained(
    options: dict[str, str], changes: dict[str, str | None], message: str, hint: str
) -> None:
    error = refused(changed(options, **changes))
    assert message in error.message
    assert hint in error.hint


def test_missing_or_unnamed_bucket_is_reported(options: dict[str, str]) -> None:
    error = refused(options | {"warehouse": "s3://no-such-bucket/w"})
    assert "there is no bucket `no-such-bucket` at http://127.0.0.1" in error.message
    assert "names no bucket" in refused(options | {"warehouse": "s3:///w"}).message


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        ("403 Forbidden", "InvalidAccessKeyId", "does not know the access key AKIA…MNOP"),
        ("403 Forbidden", "SignatureDoesNotMatch", "the secret key does not belong to the access"),
        ("400 Bad Request", "ExpiredToken", "the session token is no longer valid"),
        ("403 Forbidden", "AccessDenied", "has no permission to list it (AccessDenied)"),
        ("400 Bad Request", "AuthorizationHeaderMalformed", "is not in the region us-east-1"),
        ("400 Bad Request", "InvalidBucketName", "can't be the name of a bucket at http:"),
        ("403 Forbidden", "RequestTimeTooSkewed", "the clock of this machine"),
    ],
)
def test_refusals_of_the_store_are_explained(
    server: S3Server, options: dict[str, str], status: str, code: str, message: str
) -> None:
    with between(server, lambda *_: Reply.error(status, code)):
        assert message in refused(options).message


def test_read_only_warehouse_passes_the_probe(server: S3Server, options: dict[str, str]) -> None:
    def no_writing(environment: dict[str, object], hand_on: object) -> Reply:
        if environment["REQUEST_METHOD"] in ("PUT", "POST", "DELETE"):
            return Reply.error("403 Forbidden", "AccessDenied")
        return hand_on()  # type: ignore[operator, no-any-return]

    with between(server, no_writing):
        report = probe_store(options)
    assert report.read_only == "its credentials have no write permission there"
    assert "(read only: its credentials have no write permission there)" in str(report)
    assert "read and written" in str(probe_store(options))


class Web(http.server.BaseHTTPRequestHandler):
    """A web server that is no store, and answers everything with the status of its server."""

    def do_GET(self) -> None:
        body = b"<html>Welcome</html>"
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("status", [200, 404, 403, 400])
def test_endpoint_without_a_store_is_reported(options: dict[str, str], status: int) -> None:
    with web_server(status) as port:
        error = refused(changed(options, endpoint=f"http://127.0.0.1:{port}"))
    assert f"http://127.0.0.1:{port} answers, but not as an S3 server" in error.message
    assert "with MinIO port 9000" in error.hint


def test_mismatch_of_http_and_https_is_reported(options: dict[str, str], tmp_path: Path) -> None:
    plain = options["s3.endpoint"]
    error = refused(changed(options, endpoint=plain.replace("http:", "https:")))
    assert "does not speak https" in error.message and f"as {plain}" in error.hint
    pem = tmp_path / "pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj",
         "/CN=localhost", "-keyout", f"{pem}.key", "-out", pem],
        check=True,
        capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, f"{pem}.key")
    with web_server(200, context) as port:
        error = refused(changed(options, endpoint=f"http://127.0.0.1:{port}"))
        assert f"127.0.0.1:{port} speaks https" in error.message
        error = refused(changed(options, endpoint=f"https://127.0.0.1:{port}"))
        assert "is not trusted" in error.message and "SSL_CERT_FILE" in error.hint


def test_region_is_taken_from_the_environment(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    opened = Catalog.open(changed(options, region=None))
    assert opened.options["s3.region"] == "eu-west-1"


def test_differing_coordinator_options_are_reported(
    options: dict[str, str],
) -> None:
    report = probe_store(options)
    theirs = dict(report.facts)
    assert _compared(report, "http://c:1", theirs) == report
    (note,) = _compared(report, "http://c:1", theirs | {"region": "eu-west-1"}).notes
    assert "reaches the store with other options: region eu-west-1 (here us-east-1)" in note


@pytest.mark.parametrize(
    ("metastore", "hint"),
    [("hive", "as a filesystem catalog"), ("dlf", "a rest catalog"),
     ("filesytem", "Did you mean `filesystem`?")],
)  # fmt: skip
def test_unsupported_metastores_are_refused_with_alternatives(metastore: str, hint: str) -> None:
    with pytest.raises(SetupError) as raised:
        Catalog.open({"warehouse": "/x", "metastore": metastore})
    assert hint in raised.value.hint
    assert "filesystem, jdbc, rest" in str(raised.value)


class between:
    """In the body, `reply` stands between clients and the server."""

    def __init__(self, server: S3Server, reply: Between) -> None:
        self._server, self._reply = server, reply

    def __enter__(self) -> None:
        self._before, self._server.between = self._server.between, self._reply

    def __exit__(self, *_: object) -> None:
        self._server.between = self._before


class web_server:
    """A `Web` server in the body; gives its port."""

    def __init__(self, status: int, context: ssl.SSLContext | None = None) -> None:
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web)
        self._server.status = status  # type: ignore[attr-defined]
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def __enter__(self) -> int:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self._server.server_port

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.mark.parametrize("place", ["/proc/nope", "/proc/nope/deeper", "{}/file", "{}/file/below"])
def test_uncreatable_local_warehouse_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="does not exist and can't be created"):
        probe_store({"warehouse": place.format(tmp_path)})


def test_probe_does_not_create_a_local_warehouse(tmp_path: Path) -> None:
    assert probe_store({"warehouse": str(tmp_path / "a" / "b")}).is_new
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("s3.endpont", "s3.endpoint"),
        ("s3.acces-key", "s3.access-key"),
        ("fs.s3a.path-style-acces", "fs.s3a.path-style-access"),
    ],
)
def test_mistyped_s3_option_is_named_with_a_suggestion(key: str, meant: str) -> None:
    with pytest.raises(SetupError, match=f"no option '{key}'") as refused:
        Catalog.open({"warehouse": "s3://lake/w", key: "x"})
    assert refused.value.hint == f"Did you mean `{meant}`?"


def test_hadoop_options_are_accepted() -> None:
    for key in ("fs.s3a.endpoint.region", "fs.s3a.connection.maximum", "s3.signer-type"):
        check_option_names({key: "x"})
