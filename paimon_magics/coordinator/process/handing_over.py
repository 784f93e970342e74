"""From a process that has lost a warehouse to the one that stands by in its place.

The next process has the same id and command, and nothing of the memory before, except what is in
`HandedOver`: above all the socket, so that nobody who connects meanwhile is refused.

A signal that would end the process must not be lost in between. One that came before the last look
is noted by the system in a pipe, in whatever thread it arrives; a later one waits until the next
process has begun. Nothing has begun there, so it ends at once.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from paimon_magics.coordinator.process.server import END_SIGNALS

_VARIABLE = "PAIMON_COORDINATOR_HANDED_OVER"
_HARMLESS = "SIGHUP"  # files are read anew in any case
_PIPE_BYTES = 512


@dataclass(frozen=True, slots=True)
class HandedOver:
    """What the next process gets: the socket on which the coordinator listens, and digests of the
    tokens that have read its metrics. Without a process before, there is nothing."""

    listening: socket.socket | None = None
    scrapers: tuple[str, ...] = ()


def hand_over(
    handed: HandedOver,
    command: Sequence[str],
    environment: Mapping[str, str],
    was_signalled: Callable[[], bool],
) -> None:
    """Become the next process. Return only if a signal came, so that this one ends instead."""
    assert handed.listening is not None
    noted, noting = os.pipe()
    os.set_blocking(noting, False)
    os.set_blocking(noted, False)
    signal.set_wakeup_fd(noting, warn_on_full_buffer=False)
    signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    if was_signalled():  # Python has called the handlers of those that came before
        handed.listening.close()
        return
    for file in (noted, handed.listening.fileno()):
        os.set_inheritable(file, True)
    document = {
        "listening": handed.listening.fileno(),
        "signals": noted,
        "scrapers": handed.scrapers,
    }
    os.execve(sys.executable, list(command), {**environment, _VARIABLE: json.dumps(document)})


def take_over_signals() -> bool:
    """Begin as the next process, if it is one: return whether a signal that came in between ends
    it. Until its own handlers are there, a signal ends it at once, with the code 0."""
    if _VARIABLE not in os.environ:
        return False
    came = {signal.Signals(number) for number in signal.sigpending()}
    with contextlib.suppress(BlockingIOError):
        came |= {signal.Signals(number) for number in os.read(_document()["signals"], _PIPE_BYTES)}
    os.close(_document()["signals"])
    if any(each in END_SIGNALS and each.name != _HARMLESS for each in came):
        return True
    for number in END_SIGNALS:
        is_harmless = signal.Signals(number).name == _HARMLESS
        signal.signal(number, signal.SIG_IGN if is_harmless else lambda *_: os._exit(0))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)
    return False


@functools.cache
def handed_over() -> HandedOver:
    """What the process before has left to this one."""
    if _VARIABLE not in os.environ:
        return HandedOver()
    document = _document()
    os.environ.pop(_VARIABLE)  # child processes are no next ones
    os.set_inheritable(document["listening"], False)
    return HandedOver(socket.socket(fileno=document["listening"]), tuple(document["scrapers"]))


def _document() -> dict[str, object]:
    document: dict[str, object] = json.loads(os.environ[_VARIABLE])
    return document
