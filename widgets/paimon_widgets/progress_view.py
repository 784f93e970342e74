"""The progress of jobs as a widget: a bar and a line, which the kernel updates.

Only the widget's state changes. The notebook has only the widget's id and an empty text, so that
nothing of it can be saved when the kernel dies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from paimon_widgets.assets import PROGRESS, WIDGET, script, style

if TYPE_CHECKING:
    from paimon_magics.planning.job_progress import Progress


class ProgressView(anywidget.AnyWidget):
    """The widget. `text` is the line; `share` is the finished share of the work, -1 if unknown."""

    _esm = script("progress")
    _css = style("progress")

    text = traitlets.Unicode().tag(sync=True)
    share = traitlets.Float(-1.0).tag(sync=True)

    def __init__(self, progress: Progress) -> None:
        super().__init__(**_state(progress))

    def tell(self, progress: Progress) -> None:
        """Show new progress."""
        state = _state(progress)
        with self.hold_sync():  # one message for both
            self.text, self.share = state["text"], state["share"]

    def bundle(self) -> dict[str, Any]:
        """The MIME bundle of the cell's output."""
        repr_mimebundle = self._repr_mimebundle_()
        data = repr_mimebundle[0] if isinstance(repr_mimebundle, tuple) else repr_mimebundle or {}
        return {"text/plain": "", PROGRESS: {}, WIDGET: data[WIDGET]}


def _state(progress: Progress) -> dict[str, Any]:
    share = progress.share
    return {"text": progress.text(), "share": -1.0 if share is None else share}
