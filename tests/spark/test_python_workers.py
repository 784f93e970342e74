"""What a task's process keeps: modules are there, and changed archives are still noticed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import gc, importlib, sys, zipfile
from zipimport import zipimporter
archive = sys.argv[1]

def pack(*names):
    with zipfile.ZipFile(archive, "w") as packed:
        for name in names:
            packed.writestr(f"{name}.py", f"name = '{name}'")

pack("one")
sys.path.insert(0, archive)
import one
from paimon_magics.spark import python_workers as worker_memory
worker_memory.keep_modules()
assert gc.get_freeze_count() > 1000, gc.get_freeze_count()
read = []
whole = zipimporter.invalidate_caches
zipimporter.invalidate_caches = lambda finder: (read.append(finder.archive), whole(finder))
importlib.invalidate_caches()
assert archive not in read, read
pack("one", "two")
importlib.invalidate_caches()
assert read.count(archive) == 1, read
import two
assert two.name == "two"
frozen = gc.get_freeze_count()
worker_memory.keep_modules()  # few modules more: not worth a collection
assert gc.get_freeze_count() <= frozen
"""


def test_workers_keep_modules_and_reread_changed_archives(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "packed.zip")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
