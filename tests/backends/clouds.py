"""The emulators of other clouds than S3, and of S3 Express, by name: for tests that hold on each of
them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.backends.azurite import Azurite, Container, azurite
from tests.backends.fake_express import FakeExpress, fake_express
from tests.backends.fake_gcs import FakeGcs, GcsBucket, fake_gcs
from tests.backends.fake_oss import FakeOss, OssBucket, fake_oss
from tests.backends.s3 import Bucket

__all__ = ["CLOUDS", "Cloud", "CloudBucket", "running"]

Cloud = Azurite | FakeExpress | FakeGcs | FakeOss
CloudBucket = Bucket | Container | GcsBucket | OssBucket

# Google's emulator is built by Go, which takes minutes: `make soak` does that.
CLOUDS = ["azure", "express", "oss", pytest.param("gcs", marks=pytest.mark.soak)]
_SERVERS: dict[str, Callable[[], contextlib.AbstractContextManager[Cloud]]] = {
    "azure": azurite,
    "express": fake_express,
    "gcs": fake_gcs,
    "oss": fake_oss,
}


@contextlib.contextmanager
def running(name: str) -> Iterator[Cloud]:
    """The emulator of a cloud until the end of the block."""
    with _SERVERS[name]() as server:
        yield server
