"""Aliyun OSS for tests: moto's S3 server, spoken to in OSS's words.

OSS and S3 have the same requests and answers, but for the signature (which moto does not check),
the names of headers, and the condition of a create. A function before the server puts the one into
the other; moto decides. There is no emulator of OSS in the registries.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from tests.backends.s3 import Bucket, Environment, Reply, S3Server, s3_server

__all__ = ["FakeOss", "OssBucket", "fake_oss"]

_OSS, _S3 = "HTTP_X_OSS_", "HTTP_X_AMZ_"
_CONDITION = f"{_OSS}FORBID_OVERWRITE"


class OssBucket:
    """A new bucket, with the options with which a catalog reaches it."""

    def __init__(self, endpoint: str) -> None:
        self._bucket = Bucket(endpoint)
        self.name = self._bucket.name
        self.options = {
            "warehouse": f"oss://{self.name}/warehouse",
            "fs.oss.endpoint": endpoint,
            "fs.oss.accessKeyId": "key",
            "fs.oss.accessKeySecret": "a-secret-key",
        }

    def objects(self, below: str = "") -> list[str]:
        """The keys of the objects below a folder, without empty ones."""
        return self._bucket.objects(below)


class FakeOss:
    """The server. `keeps_conditions` may be unset: then a create overwrites, as it does in a bucket
    with versions."""

    def __init__(self, server: S3Server) -> None:
        self.keeps_conditions = True
        self.endpoint = server.endpoint
        server.between = self._in_other_words

    def bucket(self) -> OssBucket:
        """A new, empty bucket."""
        return OssBucket(self.endpoint)

    def _in_other_words(self, environment: Environment, hand_on: Callable[[], Reply]) -> Reply:
        if not environment.get("HTTP_AUTHORIZATION", "").startswith("OSS"):
            return hand_on()
        environment["HTTP_AUTHORIZATION"] = "AWS key:moto-does-not-check"
        is_create = environment.pop(_CONDITION, "false") == "true" and self.keeps_conditions
        for name in [name for name in environment if name.startswith(_OSS)]:
            environment[name.replace(_OSS, _S3, 1)] = environment.pop(name)
        if is_create:
            environment["HTTP_IF_NONE_MATCH"] = "*"
        reply = hand_on()
        if is_create and reply.status.startswith("412"):
            return Reply.error("409 Conflict", "FileAlreadyExists")
        headers = [(name.replace("x-amz-", "x-oss-", 1), value) for name, value in reply.headers]
        return Reply(reply.status, headers, reply.body)


@contextlib.contextmanager
def fake_oss() -> Iterator[FakeOss]:
    """The server until the end of the block; what was stored goes with it."""
    with s3_server() as server:
        yield FakeOss(server)
