"""The emulators of other clouds than S3, by name: for tests that hold on each of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.backends.azurite import Azurite, Container, azurite
from tests.backends.fake_gcs import FakeGcs, GcsBucket, fake_gcs
from tests.backends.fake_oss import FakeOss, OssBucket, fake_oss

__all__ = ["CLOUDS", "Cloud", "CloudBucket", "running"]

Cloud = Azurite | FakeGcs | FakeOss
CloudBucket = Container | GcsBucket | OssBucket

# Google's emulator is built by Go, which takes minutes: `make soak` does that.
CLOUDS = ["azure", "oss", pytest.param("gcs", marks=pytest.mark.soak)]
_SERVERS: dict[str, Callable[[], contextlib.AbstractContextManager[Cloud]]] = {
    "azure": azurite,
    "gcs": fake_gcs,
    "oss": fake_oss,
}


@contextlib.contextmanager
def running(name: str) -> Iterator[Cloud]:
    """The emulator of a cloud until the end of the block."""
    with _SERVERS[name]() as server:
        yield server
