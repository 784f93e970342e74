"""What a cell shows as widgets: the package of views, and the progress of Spark jobs.

The package depends on this one, so it is named here and not imported; without it everything is
shown as text.

Progress is shown while jobs run and removed when they end. In a notebook it is a widget: its state
belongs to the kernel, not to the notebook, and its output is emptied at the end. So nothing of it
is saved, or left when the kernel dies. On a terminal it is one line that is overwritten, then
wiped. Programs that run notebooks (nbconvert, nbval) get nothing, so that outputs are the same
every time.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import threading
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from paimon_magics.session.frontend import is_attended, is_kernel
from paimon_magics.spark.listening import listen

if TYPE_CHECKING:
    from paimon_magics.magics.configuration import PaimonMagics
    from paimon_magics.planning.job_progress import Progress


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


class ProgressOfCells:
    """Follows the jobs of each cell of a shell, if the setting `progress` is on."""

    def __init__(self, magics: PaimonMagics) -> None:
        self._magics = magics

    def begin(self, *_: Any) -> None:
        """Start to follow jobs; IPython calls it before a cell."""
        shell = self._magics.namespace_shell
        if not self._magics.progress or not is_attended(shell):
            return
        if is_kernel(shell):
            listen(_Display(shell.display_pub))
        elif sys.stderr.isatty():
            listen(_Line(sys.stderr))

    def end(self, *_: Any) -> None:
        """Stop following jobs; IPython calls it after a cell."""
        listen(None)


class _Display:
    """An output of the cell with a widget, created with the first progress. Without the widgets'
    package nothing is shown: plain output would be saved in the notebook."""

    def __init__(self, publisher: Any) -> None:
        self._publisher = publisher
        self._id: str | None = None
        self._view: Any = None

    def __call__(self, progress: Progress | None) -> None:
        if progress is None:
            if self._view is not None:
                # The output stays, empty, for later jobs of the cell.
                self._publish({}, update=True)
                self._view.close()
                self._view = None
            return
        if self._view is not None:
            self._view.tell(progress)
            return
        package = views_package()
        if package is None:
            return
        self._view = package.progress_widget(progress)
        is_new = self._id is None
        if is_new:
            self._id = f"paimon-progress-{uuid.uuid4().hex}"
        self._publish(self._view.bundle(), update=not is_new)

    def _publish(self, data: dict[str, Any], *, update: bool) -> None:
        transient = {"display_id": self._id}
        self._publisher.publish(data=data, metadata={}, transient=transient, update=update)


class _Line:
    """Progress as the last line of a terminal."""

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
