"""Scripts and styles of the widgets: part of the package, sent by the kernel."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

WIDGET = "application/vnd.jupyter.widget-view+json"
PROGRESS = "application/vnd.paimon-magics.progress+json"
"""The MIME type that marks the output of a progress widget, which has no static page."""
_STATIC = Path(__file__).with_name("static")


@cache
def script(name: str) -> str:
    """A widget's JavaScript module, after the parts that all widgets share."""
    parts = (_STATIC / "elements.js", _STATIC / f"{name}.js")
    return "\n".join(part.read_text(encoding="utf-8") for part in parts)


@cache
def style(name: str) -> str:
    """A widget's style sheet, after the parts that all widgets share."""
    parts = (_STATIC / "elements.css", _STATIC / f"{name}.css")
    return "\n".join(part.read_text(encoding="utf-8") for part in parts)


def with_widget(bundle: dict[str, Any], view: Any) -> dict[str, Any]:
    """Return the bundle of text and static page, with the widget added if it can be shown."""
    repr_mimebundle = view._repr_mimebundle_()
    data = repr_mimebundle[0] if isinstance(repr_mimebundle, tuple) else repr_mimebundle
    return {**bundle, WIDGET: data[WIDGET]} if data and WIDGET in data else bundle
