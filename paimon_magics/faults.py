"""Fault injection: steps at which a test can make this process die, fail or stop.

`PAIMON_MAGICS_FAULTS` arms steps of a process, as `step=action` pairs separated by commas. `kill`
ends the process at once, `raise` raises an OSError, `stop` stops it until a SIGCONT. An armed step
acts the first time that it is reached. `@PATH` names a file instead, which a test may write at any
time; the process that reaches the step removes the file before it acts. Without the variable the
steps do nothing.
"""

from __future__ import annotations

import os
import signal
import threading

STEPS = (
    "begin.stored",  # the transaction is stored, its client has no answer yet
    "statement.begun",  # a statement has its transaction, and has written nothing
    "statement.written",  # its files are written, no commit is requested
    "load.noted",  # a COPY INTO has noted its files in the table's history, nothing is committed
    "load.committed",  # it is committed, the history of loaded files is not complete
    "load.published",  # a coordinator has committed it, and not completed the history
    "epoch.noted",  # a stream's epoch has its transaction, which is noted; nothing is written
    "epoch.committed",  # it is committed, and Spark does not know it yet
    "attempt.noted",  # a task has noted where it will write, and has written nothing
    "attempt.written",  # a task has written its files, and reported nothing
    "compaction.claimed",  # a compaction has its buckets, nothing is rewritten
    "compaction.written",  # a compaction has written its files, nothing refers to them
    "compaction.rewritten",  # index files are written, too; no commit is requested
    "commit.stored",  # the request is stored, nothing is published
    "manifest.written",  # the commit's entries are in a manifest, no list names it
    "manifests.merged",  # manifests are merged, nothing refers to the new ones
    "commit.prepared",  # manifests are written, the snapshot is not
    "publish.linked",  # the snapshot's file has its name, nothing else is updated
    "commit.published",  # the commit has succeeded, its success is not stored
    "receipt.stored",  # the receipt is stored, the client has no answer yet
    "watch.found",  # an overwritten snapshot was found, nothing is done about it
    "republish.published",  # an overwritten commit is published again, this is not stored
    "republish.stored",  # the new publication is stored
    "expiry.decided",  # the EARLIEST hint is past the expiring snapshots, nothing is removed
    "expiry.data_removed",  # their data files are removed, their manifests are not
    "expiry.metadata_removed",  # only the snapshots' own files are left
    "expiry.changelog_kept",  # a snapshot is stored as a changelog, and still as a snapshot
    "expiry.snapshot_removed",  # the first of them is removed
    "expiry.changelogs_decided",  # like `expiry.decided`, for changelogs
    "expiry.changelog_data_removed",  # a changelog's files are removed, its manifests are not
    "orphans.deleted",  # some orphans are deleted, others wait
    "abort.stored",  # the abort is stored, the files still exist
    "tag.renamed",  # the tag has both its new name and the old one
    "log.sealed",  # inserts have their numbers, none is in the log
    "log.appended",  # they are in the log, none is acknowledged
    "flush.begun",  # a batch has its transaction, none of it is written
    "flush.changed",  # its changes are decided, nothing is written
    "flush.written",  # its files are written, nothing refers to them
    "flush.noted",  # the log names its transaction, no commit is requested
    "flush.committed",  # it is committed, the log does not know
    "flush.forgotten",  # its records are removed from the log, nothing else is updated
    "rename.noted",  # the log has noted the new name, the table still has the old one
    "rename.done",  # the table has the new name, the log still uses the old one
    "rename.moved",  # the log uses the new name, the client has no answer yet
    "pair.stored",  # the store has the mark of a start, the warehouse has not
    "pair.noted",  # the warehouse has it, too, which is not confirmed in the store
    "rights.compared",  # rights were taken away, the warehouse does not have the count yet
    "restore.written",  # the restored files are beside those that they replace
    "restore.exchanged",  # a file of the state folder is exchanged
    "restore.filled",  # the store has what the backup has
    "restore.rights_settled",  # rights that may have been taken away have ended
    "restore.settled",  # what is in the tables waits no more; the store takes no start yet
    "move.noted",  # a note says where the warehouse goes, nothing has moved
    "move.renamed",  # its folder has the new name, the note came along
    "move.copied",  # all files are in the new place, the old one is the warehouse
    "move.marked",  # the new place has the warehouse's id, the old one, too
    "move.unmarked",  # only the new place has it, the old files are there
    "rotate.replaced",  # a file is exchanged, no audit entry is kept
    "chain.cut",  # snapshots are rolled back, their changelogs and tags are still there
    "branch.begun",  # a new branch has its snapshot and tag, and no schema yet: it is none
    "branch.unnamed",  # a dropped branch has lost its first schema, its other files are there
    "forward.schemas",  # a fast-forward has taken the branch's schemas, none of its snapshots
    "replace.emptied",  # a table that is replaced has no rows any more, and its old schema
    "replace.detached",  # a table that another takes the place of has no name, the other none yet
    "drop.detached",  # a dropped table has no name any more, all its files are there
    "drop.schema_removed",  # on a store without folders: only its schemas are removed
    "drop.unnamed",  # there: only files are left whose names no table uses again
    "removal.claimed",  # the transaction is certainly not committed, its files still exist
    "files.removed",  # the files are removed, this is not stored
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
    """Report that the process has reached `step`; act if the step is armed."""
    if not _actions and _file is None:
        return
    match _actions.pop(step, None) if _file is None else _taken(_file, step):
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            # Not to the whole process: another thread could take the signal, and this one go on.
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
