"""Temporary folders of a process that was killed are removed by another one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paimon_magics.temporary_folders import OwnedFolder, remove_left

OWNER = """
from paimon_magics.temporary_folders import OwnedFolder
folder = OwnedFolder("rows")
(folder.path / "some.arrow").write_bytes(b"x" * 1000)
print(folder.path, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def age(folder: Path) -> None:
    hour_ago = time.time() - 3600
    os.utime(folder / ".owner", (hour_ago, hour_ago))


def test_folder_of_a_killed_process_is_removed(temporary: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        age(folder)
        assert remove_left() == 0 and folder.exists(), "its process is alive"
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    assert remove_left() == 1
    assert list(temporary.iterdir()) == []


def test_new_and_foreign_folders_stay(temporary: Path) -> None:
    mine = OwnedFolder("rows")
    age(mine.path)
    (temporary / "paimon-magics-other").mkdir()
    assert remove_left() == 0
    mine.remove()
    assert [path.name for path in temporary.iterdir()] == ["paimon-magics-other"]


def test_unreferenced_folder_is_removed(temporary: Path) -> None:
    OwnedFolder("rows")
    assert list(temporary.iterdir()) == []


FORKING = """
import os, sys
from paimon_magics.temporary_folders import OwnedFolder, remove_left
folder = OwnedFolder("rows")
child = os.fork()
if child == 0:
    folder.remove()
    sys.exit()  # Python ends as usual, with its finalizers
os.waitpid(child, 0)
os.utime(folder.path / ".owner", (0, 0))
print(folder.path.exists(), remove_left(), folder.path.exists())
"""


def test_forked_child_keeps_its_parents_folder(temporary: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "0", "True"]
    assert list(temporary.iterdir()) == [], "it goes with its own process"
