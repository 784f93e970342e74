"""What the Python process of a Spark task keeps for the tasks that follow.

PySpark uses a process again. Between two tasks it collects garbage, which looks at each object of
every module that is loaded, and before 4.3 it reads the directories of zipped packages anew, its
own among them: together 0.05 to 0.2 s of a core for each task.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from zipimport import zipimporter

__all__ = ["keep_modules"]

_MORE_MODULES = 10
_modules_kept = 0


def keep_modules() -> None:
    """To be called at the end of a task: what is loaded now is neither looked at by garbage
    collections any longer, nor read again from archives that have not changed."""
    global _modules_kept
    if len(sys.modules) < _modules_kept + _MORE_MODULES:
        return
    _modules_kept = len(sys.modules)
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimporter):
            finder.invalidate_caches = _if_changed(finder)  # type: ignore[method-assign]
    gc.collect()  # what is garbage now would stay for good
    gc.freeze()


def _if_changed(finder: zipimporter) -> Callable[[], None]:
    """The finder's `invalidate_caches` for an archive that may be the same as now."""
    known = _version(finder.archive)

    def invalidate() -> None:
        nonlocal known
        found = _version(finder.archive)
        if found is None or found != known:
            known = found
            zipimporter.invalidate_caches(finder)

    return invalidate


def _version(archive: str) -> tuple[int, int] | None:
    try:
        status = os.stat(archive)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
