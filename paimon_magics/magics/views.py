"""The package that shows results as widgets. It depends on this one, so it is named here and not
imported; without it everything is shown as text."""

from __future__ import annotations

import importlib
import threading
from contextlib import suppress
from typing import Any


def views_package() -> Any:
    """The package, or None where it is not installed."""
    try:
        return importlib.import_module("paimon_widgets")
    except ModuleNotFoundError:
        return None


def load_views_aside() -> None:
    """Import the widgets' package in a thread while Spark starts, which saves the first result half
    a second."""
    views = views_package()
    if views is not None:
        threading.Thread(target=_load, args=(views,), daemon=True).start()


def _load(views: Any) -> None:
    # Showing a result raises the error again.
    with suppress(Exception):
        views.load()
