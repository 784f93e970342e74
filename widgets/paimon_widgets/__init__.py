"""Notebook widgets for the results of a session, each with a static page.

`%load_ext paimon_magics` calls `register`. Heavy imports wait until a result is shown. Nothing is
fetched from the network: scripts and styles are part of the package.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from paimon_magics.planning.job_progress import Progress
    from paimon_widgets.progress_view import ProgressView

_VIEWS = {
    "paimon_magics.session.reports.layout.Layout": "layout_view.layout_bundle",
    "paimon_magics.session.reports.health.Health": "health_view.health_bundle",
    "paimon_magics.session.outcome.Outcome": "report_view.outcome_bundle",
    "paimon_magics.session.reports.report.Report": "report_view.report_bundle",
    "paimon_magics.session.streams.Stream": "report_view.stream_bundle",
}
"""The classes that are shown, with the functions that show them, by name: so neither is imported
before it is needed."""


def register(shell: InteractiveShell) -> None:
    """Show layouts, health, reports, streams and rows as interactive views in this shell."""
    formatter = shell.display_formatter.mimebundle_formatter  # type: ignore[union-attr]
    for shown, view in _VIEWS.items():
        formatter.for_type(shown, _bundle_of(view, shell))


def unregister(shell: InteractiveShell) -> None:
    """Show results as text again."""
    formatter = shell.display_formatter.mimebundle_formatter  # type: ignore[union-attr]
    for shown in _VIEWS:
        formatter.pop(shown, None)


def load() -> None:
    """Import all modules that show results."""
    for module in ("progress_view", *(view.partition(".")[0] for view in _VIEWS.values())):
        importlib.import_module(f"{__name__}.{module}")


def progress_widget(progress: Progress) -> ProgressView:
    """Return a widget that shows the progress of jobs, beginning with `progress`."""
    from paimon_widgets import progress_view

    return progress_view.ProgressView(progress)


def _bundle_of(view: str, shell: InteractiveShell) -> Callable[..., dict[str, Any]]:
    module, _, name = view.partition(".")

    def bundle(shown: Any, **_: Any) -> dict[str, Any]:
        from paimon_magics.session.frontend import is_attended, is_kernel

        make = getattr(importlib.import_module(f"{__name__}.{module}"), name)
        # A program that runs the notebook would save the widget's state in it. Viewers would then
        # fetch code from the network instead of showing the static page.
        mime_bundle: dict[str, Any] = make(shown, live=is_attended(shell) or not is_kernel(shell))
        return mime_bundle

    return bundle
