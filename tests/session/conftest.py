"""Fixtures: a coordinator in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.coordinator.process import Process


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A coordinator for the tests of a module, on a warehouse of its own."""
    folder = tmp_path_factory.mktemp("coordinated")
    (folder / "warehouse").mkdir()
    process = Process(folder / "warehouse", folder / "state")
    process.start()
    yield process
    process.close()
