"""`python -m paimon_magics.coordinator`: run a coordinator for one warehouse.

It prints one line when it is ready: its address, and the file that holds its token. Signals such as
SIGTERM end it after the commits under way; SIGHUP reads the certificate and the file of permissions
again, where there are any. The exit code is 0 after a signal, 2 when it can't start, 3 when another
coordinator has taken the warehouse over, and 4 when its store or its log is not as this process
left it.

With `--standby`, a process that no longer owns the warehouse starts again as a standby instead.
With `--hub`, a process that can't start answers why, and tries again: a hub would end with it.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import NoReturn

from paimon_magics.coordinator.process.arguments import parsed
from paimon_magics.coordinator.process.backup_commands import backup_command, restore_command
from paimon_magics.coordinator.process.hub_process import HubProcess, answer_only
from paimon_magics.coordinator.process.moving import move_command
from paimon_magics.coordinator.process.right_commands import grant_command, token_command
from paimon_magics.coordinator.process.rotate_commands import rotate_command
from paimon_magics.coordinator.process.server import (
    HandedOver,
    hand_over,
    take_over_signals,
)
from paimon_magics.coordinator.process.succession import begin
from paimon_magics.errors import PaimonMagicsError

_UNABLE = 2  # exit codes
_DEPOSED = 3
_FAILED = 4
_COMMANDS: Mapping[str, Callable[[Sequence[str]], list[str]]] = {
    "token": lambda words: token_command(words[1:]),
    **dict.fromkeys(("grant", "revoke", "grants"), grant_command),
    "backup": lambda words: backup_command(words[1:]),
    "move": lambda words: move_command(words[1:]),
    "rotate": lambda words: rotate_command(words[1:]),
    "restore": lambda words: restore_command(words[1:]),
}
_ENDING_SECONDS = 3.0  # for what a thread still does; all requests have been answered


def main(arguments: list[str] | None = None) -> int:
    """Run until a signal, or carry out a command; return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        command = _COMMANDS.get(arguments[0]) if arguments else None
        if command is not None:
            print("\n".join(command(arguments)))
            return 0
        return _serve(parsed(arguments), arguments)
    except PaimonMagicsError as error:
        print(error.text(), file=sys.stderr, flush=True)
        if "--hub" in arguments:
            answer_only(error)
        return _UNABLE
    except OSError as error:
        print(f"The coordinator can't continue: {error}", file=sys.stderr)
        return _UNABLE


def command() -> NoReturn:
    """Carry out the command line and end the process with its exit code. The process ends even if a
    thread waits forever for a file of a warehouse.
    """
    code = main()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(_ENDING_SECONDS)
            if thread.is_alive():
                print(
                    "A thread is still blocked on a file. The process ends anyway.", file=sys.stderr
                )
                logging.shutdown()
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
    raise SystemExit(code)


def _serve(options: argparse.Namespace, arguments: list[str]) -> int:
    with contextlib.suppress(OSError):  # its errors may go to no file
        faulthandler.enable()  # a fault in native code leaves a line, too
    environment = dict(os.environ)  # what is read from it is removed
    if take_over_signals():
        return 0
    with ExitStack() as ending:
        process = HubProcess(options, ending) if options.hub else begin(options, ending)
        print(process.announcement, flush=True)
        port = process.entrance.listening.getsockname()[1]
        process.serve()
    parts, demoted = process.parts, process.demoted
    if demoted is not None and demoted.next_socket is not None:
        # A new process of the same command at the same port: nothing that was in memory stays.
        command = [sys.executable, "-m", "paimon_magics.coordinator", *arguments, f"--port={port}"]
        handed = HandedOver(demoted.next_socket, tuple(demoted.app.scrapers))
        hand_over(handed, command, environment, lambda: process.shutdown.was_signalled)
        return 0
    if parts is None or (options.standby and process.shutdown.was_signalled and parts.is_deposed):
        return 0
    if parts.coordinator.state_thread.deposed is not None:
        print(parts.coordinator.state_thread.deposed.text(), file=sys.stderr)
        return _DEPOSED
    if parts.coordinator.state_thread.failure is not None:
        print(parts.coordinator.problem, file=sys.stderr)
        return _FAILED
    if parts.group is not None and parts.group.problem is not None:
        print(parts.group.problem, file=sys.stderr)
        return _FAILED
    return 0


if __name__ == "__main__":
    command()
