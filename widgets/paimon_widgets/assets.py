"""Scripts and styles of the widgets: part of the package, sent by the kernel."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["PROGRESS", "WIDGET", "script", "style", "with_widget"]

WIDGET = "application/vnd.jupyter.widget-view+json"
PROGRESS = "application/vnd.paimon-magics.progress+json"
"""Marks an output that has a progress widget, which nothing stands in for when it is gone."""
_STATIC = Path(__file__).with_name("static")


@cache
def script(name: str) -> str:
    """A widget's module, with the pieces that all share before it."""
    parts = (_STATIC / "elements.js", _STATIC / f"{name}.js")
    return "\n".join(part.read_text(encoding="utf-8") for part in parts)


@cache
def style(name: str) -> str:
    """A widget's style, with what all share before it."""
    parts = (_STATIC / "elements.css", _STATIC / f"{name}.css")
    return "\n".join(part.read_text(encoding="utf-8") for part in parts)


def with_widget(bundle: dict[str, Any], view: Any) -> dict[str, Any]:
    """A bundle of text and a static page, and the widget where one can be shown."""
    made = view._repr_mimebundle_()
    found = made[0] if isinstance(made, tuple) else made
    return {**bundle, WIDGET: found[WIDGET]} if found and WIDGET in found else bundle
