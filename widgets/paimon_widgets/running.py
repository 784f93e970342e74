"""What a view's page has asked for and Spark works on: in a thread of its own, so that the view can
be asked for other things meanwhile, and to stop it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.spark.listening import listen, listener
from paimon_magics.spark.stopping import Stop, stoppable

if TYPE_CHECKING:
    from paimon_magics.planning.jobs.progress import Progress

__all__ = ["Running", "in_background"]


class Running:
    """Runs one piece of work at a time. `send` gets messages of its progress for the page."""

    def __init__(self, send: Callable[[dict[str, Any]], object]) -> None:
        self._send = send
        self._turns = threading.Lock()
        self._stop: Stop | None = None  # of what runs

    def stop(self) -> None:
        """Stop what runs, if anything does."""
        stop = self._stop
        if stop is not None:
            stop.ask()

    def run(
        self,
        work: Callable[[], dict[str, Any]],
        about: dict[str, Any],
        stopped: str,
        problem_text: Callable[[PaimonMagicsError], str] = PaimonMagicsError.text,
    ) -> dict[str, Any]:
        """The answer that `work` returns, or {"problem": …}; the text `stopped` where somebody
        stops it. Messages of progress have the members of `about`."""

        def tell(progress: Progress | None) -> None:
            if progress is not None:
                share = -1 if progress.share is None else progress.share
                self._send({"of": "progress", "text": progress.text(), "share": share, **about})

        with self._turns:
            self._stop = stop = Stop()
            before = listener()
            listen(tell)
            try:
                with stoppable(stop):
                    return work()
            except KeyboardInterrupt:
                return {"problem": stopped}
            except PaimonMagicsError as error:
                return {"problem": problem_text(error)}
            except Exception as error:  # the page waits for an answer, whatever it is
                return {"problem": f"{type(error).__name__}: {error}"}
            finally:
                listen(before)
                self._stop = None


def in_background(work: Callable[[], object]) -> None:
    """Do it in a thread, with the context of this one."""
    threading.Thread(target=copy_context().run, args=(work,), daemon=True).start()
