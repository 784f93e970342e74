"""Directory buckets of S3 Express for tests: moto's S3 server with their peculiarities.

A function before the server lists in another order than that of names, and refuses what Amazon's
"Differences for directory buckets" says that they lack. There is no emulator in the registries.
"""

from __future__ import annotations

import contextlib
import re
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import trustme
from werkzeug.serving import make_server

from tests.backends.relay import relay
from tests.backends.s3 import Bucket, Environment, Reply, S3Server, s3_server

__all__ = ["EXPRESS", "AmazonExpress", "FakeExpress", "fake_express"]

EXPRESS = "--use1-az4--x-s3"
"""What the names of buckets end with."""

_LISTED = re.compile(rb"(<Contents>.*</Contents>)", re.DOTALL)
_SESSION = b"""<?xml version='1.0'?><CreateSessionResult><Credentials>
<AccessKeyId>a-key-of-a-session</AccessKeyId><SecretAccessKey>a-secret-of-a-session</SecretAccessKey>
<SessionToken>a-session-of-nobody</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>
</Credentials></CreateSessionResult>"""
_BETWEEN = re.compile(rb"(?<=</Contents>)\s*(?=<Contents>)")


class FakeExpress:
    """The server."""

    def __init__(self, server: S3Server) -> None:
        self.endpoint = server.endpoint
        server.between = _as_express

    def bucket(self) -> Bucket:
        """A new, empty bucket."""
        return Bucket(self.endpoint, suffix=EXPRESS)


def _as_express(environment: Environment, hand_on: Callable[[], Reply]) -> Reply:
    """The reply of a directory bucket to a request."""
    asked = parse_qs(environment["QUERY_STRING"], keep_blank_values=True)
    if "HTTP_CONTENT_MD5" in environment:
        return Reply.error("400 Bad Request", "MD5NotSupported")
    if asked.get("list-type") != ["2"]:
        return hand_on()
    prefix, delimiter = asked.get("prefix", [""])[0], asked.get("delimiter", ["/"])
    if "start-after" in asked or delimiter != ["/"] or not (prefix.endswith("/") or not prefix):
        return Reply.error("400 Bad Request", "InvalidRequest")
    reply = hand_on()
    match = _LISTED.search(reply.body)
    if match is None:
        return reply
    others = b"".join(reversed(_BETWEEN.split(match[1])))
    body = reply.body[: match.start()] + others + reply.body[match.end() :]
    headers = [(name, value) for name, value in reply.headers if name.lower() != "content-length"]
    return Reply(reply.status, headers, body)


@contextlib.contextmanager
def fake_express() -> Iterator[FakeExpress]:
    """The server until the end of the block; what was stored goes with it."""
    with s3_server() as server:
        yield FakeExpress(server)


class AmazonExpress:
    """The server under Amazon's own names, to be reached through `proxy`, by the environment's
    HTTPS_PROXY. Requests are refused that are not signed by a session's key, but for those that
    begin a session with the key of `options`."""

    def __init__(self, server: S3Server, certificate: trustme.LeafCert) -> None:
        made = Bucket(server.endpoint, suffix=EXPRESS)
        self.name, self.objects = made.name, made.objects
        self.options = {
            "warehouse": f"s3://{self.name}/warehouse",
            "s3.region": "us-east-1",
            "s3.access-key": made.options["s3.access-key"],
            "s3.secret-key": made.options["s3.secret-key"],
        }
        self.sessions = 0
        self._server = server
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(context)
        self._front = make_server(
            "127.0.0.1", 0, self._answered, threaded=True, ssl_context=context
        )
        self._front.daemon_threads = True
        threading.Thread(target=self._front.serve_forever, daemon=True).start()
        self._proxy = _Proxy(self._front.server_port)
        threading.Thread(target=self._proxy.serve_forever, daemon=True).start()
        self.proxy = f"http://127.0.0.1:{self._proxy.server_address[1]}"

    @staticmethod
    def host(bucket: str) -> str:
        """Amazon's name for the server of a bucket in the region and zone of these tests."""
        return f"{bucket}.s3express-use1-az4.us-east-1.amazonaws.com"

    def close(self) -> None:
        """Refuse connections."""
        for server in (self._front, self._proxy):
            server.shutdown()
            server.server_close()

    def _answered(self, environment: Environment, start_response: Any) -> Iterable[bytes]:
        reply = self._reply(environment)
        start_response(reply.status, reply.headers)
        return [reply.body]

    def _reply(self, environment: Environment) -> Reply:
        signed_by = environment.get("HTTP_AUTHORIZATION", "")
        if environment["HTTP_HOST"] != self.host(self.name):
            return Reply.error("404 Not Found", "NoSuchBucket")
        if environment["QUERY_STRING"] == "session":
            if f"Credential={self.options['s3.access-key']}/" not in signed_by:
                return Reply.error("403 Forbidden", "AccessDenied")
            self.sessions += 1
            return Reply("200 OK", [("Content-Type", "application/xml")], _SESSION)
        is_of_session = environment.get("HTTP_X_AMZ_S3SESSION_TOKEN") == "a-session-of-nobody"
        if not is_of_session or "Credential=a-key-of-a-session/" not in signed_by:
            return Reply.error("403 Forbidden", "AccessDenied")
        return self._server.reply(
            environment
            | {
                "HTTP_HOST": urlsplit(self._server.endpoint).netloc,
                "PATH_INFO": f"/{self.name}{environment['PATH_INFO']}",
                "RAW_URI": f"/{self.name}{environment['RAW_URI']}",
                "REQUEST_URI": f"/{self.name}{environment['REQUEST_URI']}",
                "wsgi.url_scheme": "http",
            }
        )


class _Proxy(socketserver.ThreadingTCPServer):
    """Connects whoever asks for Amazon's names, and nobody else, to a port of this machine."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Connecting)
        self.port = port


class _Connecting(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        asked = self.rfile.readline().decode().split()
        while self.rfile.readline().strip():
            pass
        if asked[0] != "CONNECT" or not asked[1].endswith(".amazonaws.com:443"):
            self.wfile.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            return
        assert isinstance(self.server, _Proxy)
        with socket.create_connection(("127.0.0.1", self.server.port)) as target:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            back = threading.Thread(target=relay, args=(target, self.connection), daemon=True)
            back.start()
            relay(self.connection, target)
            back.join()
