"""Views of what a session gives back, as notebook widgets with a static twin.

`%load_ext paimon_magics` calls `register`. Nothing heavy is imported before something is shown, and
nothing is fetched from anywhere: scripts and styles are part of the package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["register", "unregister"]

_LAYOUTS = "paimon_magics.session.layouts"


def register(shell: InteractiveShell) -> None:
    """Show layouts and health as pictures in this shell."""
    formatter = shell.display_formatter.mimebundle_formatter  # type: ignore[union-attr]
    formatter.for_type(f"{_LAYOUTS}.Layout", _layout)
    formatter.for_type(f"{_LAYOUTS}.Health", _health)


def unregister(shell: InteractiveShell) -> None:
    """Show them as text again."""
    formatter = shell.display_formatter.mimebundle_formatter  # type: ignore[union-attr]
    for name in ("Layout", "Health"):
        formatter.pop(f"{_LAYOUTS}.{name}", None)


def _layout(layout: Any, **_: Any) -> dict[str, Any]:
    from paimon_widgets.layout_view import layout_bundle

    return layout_bundle(layout)


def _health(health: Any, **_: Any) -> dict[str, Any]:
    from paimon_widgets.health_page import health_bundle

    return health_bundle(health)
