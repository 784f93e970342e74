"""How far jobs are, as a widget: a bar and a line, which the kernel keeps telling.

All that changes is the widget's state. The notebook has the name of the widget alone, and an empty
text beside it: when the kernel dies, there is nothing to be saved of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from paimon_widgets.assets import PROGRESS, WIDGET, script, style

if TYPE_CHECKING:
    from paimon_magics.planning.jobs.progress import Progress

__all__ = ["ProgressView"]


class ProgressView(anywidget.AnyWidget):
    """The widget. `text` is the line; `share` what is done of all, -1 where nobody knows."""

    _esm = script("progress")
    _css = style("progress")

    text = traitlets.Unicode().tag(sync=True)
    share = traitlets.Float(-1.0).tag(sync=True)

    def __init__(self, progress: Progress) -> None:
        super().__init__(**_state(progress))

    def tell(self, progress: Progress) -> None:
        """Show this from now on."""
        state = _state(progress)
        with self.hold_sync():  # one message for both
            self.text, self.share = state["text"], state["share"]

    def bundle(self) -> dict[str, Any]:
        """What the output of a cell is made of."""
        made = self._repr_mimebundle_()
        found = made[0] if isinstance(made, tuple) else made or {}
        return {"text/plain": "", PROGRESS: {}, WIDGET: found[WIDGET]}


def _state(progress: Progress) -> dict[str, Any]:
    share = progress.share
    return {"text": progress.text(), "share": -1.0 if share is None else share}
