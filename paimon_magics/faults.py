"""Places where a test may make this process die, fail or stand still; in use they do nothing.

`PAIMON_MAGICS_FAULTS` arms them for a process, as `step=action` pairs with commas between: `kill`
ends the process at once, `raise` raises an OSError, `stop` stops it until somebody continues it. A
step that is armed acts the first time that it is reached. `@PATH` names a file instead, which may
hold one pair at any time: it is removed by whoever reaches that step, before it acts.
"""

from __future__ import annotations

import os
import signal
import threading

__all__ = ["STEPS", "reach"]

STEPS = (
    "begin.stored",  # the transaction is stored, its owner has not heard of it
    "attempt.noted",  # a task has noted where it is going to write, and wrote nothing
    "attempt.written",  # a task's files are there, nobody has heard of them
    "commit.stored",  # the request is stored, nothing has been published
    "manifest.written",  # what the commit adds is in a manifest, no list names it
    "manifests.merged",  # manifests are merged, nothing refers to the new ones
    "commit.prepared",  # manifests are written, the snapshot is not
    "publish.linked",  # the snapshot has its name, nobody knows yet
    "commit.published",  # the commit has succeeded, that is not stored
    "receipt.stored",  # the receipt is stored, its owner has not heard of it
    "watch.found",  # an overwritten snapshot was noticed, nobody knows yet
    "republish.published",  # an overwritten commit is in the table again, that is not stored
    "republish.stored",  # and now it is
    "expiry.decided",  # the EARLIEST hint is past the snapshots that go, nothing is removed
    "expiry.data_removed",  # their data files are gone, their manifests are not
    "expiry.metadata_removed",  # nothing is left of them but the snapshots' files
    "expiry.changelog_kept",  # a snapshot is a changelog too, and still a snapshot
    "expiry.snapshot_removed",  # the first of them is gone
    "expiry.changelogs_decided",  # as for snapshots
    "expiry.changelog_data_removed",  # a changelog's files are gone, its manifests are not
    "abort.stored",  # the end is stored, the files are there
    "tag.renamed",  # the tag has its new name and the old one
    "log.sealed",  # inserts have their numbers, nothing of them is in the log
    "log.appended",  # they are in the log, nobody has heard of it
    "flush.begun",  # a batch has its transaction, nothing of it is written
    "flush.written",  # its files are there, nobody has heard of them
    "flush.noted",  # the log names its transaction, no commit was asked for
    "flush.committed",  # it is in the table, the log does not know
    "flush.forgotten",  # its records are gone from the log, nobody has heard of it
    "rename.noted",  # the log names the table's new name, it has its old one
    "rename.done",  # the table has its new name, the log knows it by its old one
    "rename.moved",  # the log knows it by the new one, nobody has heard of it
    "removal.claimed",  # the transaction is certainly not in the table, its files are there
    "files.removed",  # the files are gone, that is not stored
)


def _armed(text: str) -> dict[str, str]:
    pairs = dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair)
    unknown = set(pairs) - set(STEPS)
    if unknown:
        raise ValueError(f"PAIMON_MAGICS_FAULTS names no step: {', '.join(sorted(unknown))}")
    return pairs


_text = os.environ.get("PAIMON_MAGICS_FAULTS", "")
_file = _text[1:] if _text.startswith("@") else None
_actions = _armed("" if _file else _text)


def reach(step: str) -> None:
    """Say that the process is at `step`."""
    if not _actions and _file is None:
        return
    match _actions.pop(step, None) if _file is None else _taken(_file, step):
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            # Not to the process as a whole: another thread would take it, and this one go on a bit.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        case "raise":
            raise OSError(f"armed at {step}")
        case _:
            pass


def _taken(path: str, step: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            action = _armed(file.read()).get(step)
        if action is not None:
            os.unlink(path)
    except FileNotFoundError:  # nothing is armed, or another thread was faster
        return None
    return action
