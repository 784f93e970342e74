"""The package that shows results as widgets. Named here and not imported: it stands above this one,
and without it everything is shown as text."""

from __future__ import annotations

import importlib
import threading
from contextlib import suppress
from typing import Any

__all__ = ["load_views_aside", "views_package"]


def views_package() -> Any:
    """The package, or None where it is not installed."""
    try:
        return importlib.import_module("paimon_widgets")
    except ModuleNotFoundError:
        return None


def load_views_aside() -> None:
    """Load what shows results in a thread, for the time in which Spark starts: half a second that
    the first result would wait for."""
    views = views_package()
    if views is not None:
        threading.Thread(target=_load, args=(views,), daemon=True).start()


def _load(views: Any) -> None:
    # Who shows something is told what is wrong with it.
    with suppress(Exception):
        views.load()
