"""The emulators of other clouds than S3, by name: for tests that hold on each of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.backends.azurite import Azurite, Container, azurite
from tests.backends.fake_gcs import FakeGcs, GcsBucket, fake_gcs

__all__ = ["CLOUDS", "Cloud", "CloudBucket", "running"]

Cloud = Azurite | FakeGcs
CloudBucket = Container | GcsBucket

# Google's emulator is built by Go, which takes minutes: `make soak` does that.
CLOUDS = ["azure", pytest.param("gcs", marks=pytest.mark.soak)]


@contextlib.contextmanager
def running(name: str) -> Iterator[Cloud]:
    """The emulator of a cloud until the end of the block."""
    with azurite() if name == "azure" else fake_gcs() as server:
        yield server
