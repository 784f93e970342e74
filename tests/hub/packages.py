"""Packages of hubs that the tests' environment does not have: installed for one test."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest


def install(packages: Sequence[str], folder: Path) -> None:
    """Install packages, without what they need, into a folder. Where that is impossible the test
    ends here, as a failure where CI=true.
    """
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    words += ["--disable-pip-version-check", f"--target={folder}", *packages]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=300)
    if done.returncode == 0:
        return
    reason = f"{', '.join(packages)} can't be installed: {done.stderr[-300:]}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def installed(packages: Sequence[str], folder: Path) -> Iterator[None]:
    """Packages that can be imported."""
    target = folder / "packages"
    install(packages, target)
    before = set(sys.modules)
    sys.path.insert(0, str(target))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(target))
        for name in set(sys.modules) - before:
            if str(target) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
