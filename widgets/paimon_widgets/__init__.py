"""Views of what a session gives back, as notebook widgets with a static twin.

`%load_ext paimon_magics` calls `register`. Nothing heavy is imported before something is shown, and
nothing is fetched from anywhere: scripts and styles are part of the package.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from paimon_magics.planning.jobs.progress import Progress
    from paimon_widgets.progress_view import ProgressView

__all__ = ["load", "progress_widget", "register", "unregister"]

_VIEWS = {
    "paimon_magics.session.reports.layout.Layout": "layout_view.layout_bundle",
    "paimon_magics.session.reports.health.Health": "health_view.health_bundle",
    "paimon_magics.session.outcome.Outcome": "report_view.outcome_bundle",
    "paimon_magics.session.reports.report.Report": "report_view.report_bundle",
}
"""What is shown, and what shows it: named, so that neither is imported before it is there."""


def register(shell: InteractiveShell) -> None:
    """Show layouts, reports and rows as pictures and tables to work with in this shell."""
    formatter = shell.display_formatter.mimebundle_formatter  # type: ignore[union-attr]
    for shown, view in _VIEWS.items():
        formatter.for_type(shown, _bundle_of(view, shell))


def unregister(shell: InteractiveShell) -> None:
    """Show them as text again."""
    formatter = shell.display_formatter.mimebundle_formatter  # type: ignore[union-attr]
    for shown in _VIEWS:
        formatter.pop(shown, None)


def load() -> None:
    """Import what is needed to show any of it."""
    for module in ("progress_view", *(view.partition(".")[0] for view in _VIEWS.values())):
        importlib.import_module(f"{__name__}.{module}")


def progress_widget(progress: Progress) -> ProgressView:
    """A widget that says how far jobs are, beginning with `progress`."""
    made: ProgressView = importlib.import_module(f"{__name__}.progress_view").ProgressView(progress)
    return made


def _bundle_of(view: str, shell: InteractiveShell) -> Callable[..., dict[str, Any]]:
    module, _, name = view.partition(".")

    def bundle(shown: Any, **_: Any) -> dict[str, Any]:
        from paimon_magics.magics.frontend import is_attended, is_kernel

        make = getattr(importlib.import_module(f"{__name__}.{module}"), name)
        # A program would keep a widget's state in the notebook, and what shows that later fetches
        # code from elsewhere in place of the static page.
        made: dict[str, Any] = make(shown, live=is_attended(shell) or not is_kernel(shell))
        return made

    return bundle
