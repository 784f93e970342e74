"""How far a cell's Spark jobs are, shown while they run and gone when they have ended.

In a notebook it is a display that is updated, and emptied at the end: nothing of it is saved. On a
terminal it is one line that is written over, then wiped. Who runs notebooks without looking at them
(nbconvert, nbval) gets nothing, so that outputs are the same every time.
"""

from __future__ import annotations

import html
import shutil
import sys
import uuid
from typing import TYPE_CHECKING, Any, TextIO

from paimon_magics.magics.frontend import is_attended, is_kernel
from paimon_magics.spark.listening import listen

if TYPE_CHECKING:
    from paimon_magics.magics.configuration import PaimonMagics
    from paimon_magics.planning.progress import Progress

__all__ = ["ProgressOfCells", "progress_html"]


class ProgressOfCells:
    """Listens to the jobs of each cell that a shell runs, while the setting `progress` says so."""

    def __init__(self, magics: PaimonMagics) -> None:
        self._magics = magics

    def begin(self, *_: Any) -> None:
        """What IPython calls before a cell."""
        shell = self._magics.namespace_shell
        if not self._magics.progress or not is_attended(shell):
            return
        if is_kernel(shell):
            listen(_Display(shell.display_pub))
        elif sys.stderr.isatty():
            listen(_Line(sys.stderr))

    def end(self, *_: Any) -> None:
        """What IPython calls after a cell."""
        listen(None)


class _Display:
    """An output of the cell, made with the first news and updated with the others."""

    def __init__(self, publisher: Any) -> None:
        self._publisher = publisher
        self._id: str | None = None

    def __call__(self, progress: Progress | None) -> None:
        if progress is None:
            if self._id is not None:
                # Its place stays, with nothing in it: for other jobs of this cell, too.
                self._publish({}, update=True)
            return
        is_new = self._id is None
        if is_new:
            self._id = f"paimon-progress-{uuid.uuid4().hex}"
        data = {"text/plain": progress.text(), "text/html": progress_html(progress)}
        self._publish(data, update=not is_new)

    def _publish(self, data: dict[str, str], *, update: bool) -> None:
        transient = {"display_id": self._id}
        self._publisher.publish(data=data, metadata={}, transient=transient, update=update)


class _Line:
    """The last line of a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_written = False

    def __call__(self, progress: Progress | None) -> None:
        if progress is None:
            if self._is_written:
                self._write("")
            self._is_written = False
            return
        self._write(progress.text()[: shutil.get_terminal_size().columns - 1])
        self._is_written = True

    def _write(self, text: str) -> None:
        self._stream.write(f"\r\x1b[K{text}")
        self._stream.flush()


def progress_html(progress: Progress) -> str:
    """A bar of the tasks of the running stages, and the line. No scripts."""
    share = progress.share
    value = "" if share is None else f' value="{share:.3f}"'
    text = html.escape(progress.text())
    return (
        f'<div class="paimon-progress"><progress max="1"{value} aria-label="{text}" '
        f'style="width: 16em; vertical-align: middle"></progress> <small>{text}</small></div>'
    )
