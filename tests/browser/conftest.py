"""One JupyterLab for all tests with a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.lab import Lab


@pytest.fixture(scope="session")
def shared_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The server; it starts when the first test needs it."""
    lab = Lab(tmp_path_factory.mktemp("lab"))
    yield lab
    lab.stop()


@pytest.fixture(scope="module")
def lab(shared_lab: Lab) -> Iterator[Lab]:
    """The server; a module's kernels, and Spark with them, end when the module does."""
    yield shared_lab
    shared_lab.end_kernels()
