"""The form in which a log keeps the answers to inserts with labels, or in channels. Pure."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from paimon_magics.coordinator.inserts.log.interface import Keyed, Remembered

__all__ = ["key_rows", "remembered_of"]

_LSN = struct.Struct(">QB")


def key_rows(keys: Sequence[Keyed]) -> list[tuple[str, int, int, bytes]]:
    """Rows of `log_keys`: one for each label, and one for each run of offsets of a channel."""
    rows: list[tuple[str, int, int, bytes]] = []
    runs: dict[str, list[Keyed]] = {}
    for one in keys:
        run = runs.get(one.key)
        if run is not None and one.offset >= 0 and run[-1].offset + 1 == one.offset:
            run.append(one)
            continue
        if run is not None:
            rows.append(_key_row(run))
        runs[one.key] = [one]
    return [*rows, *(_key_row(run) for run in runs.values())]


def _key_row(run: Sequence[Keyed]) -> tuple[str, int, int, bytes]:
    answers = b"".join(_LSN.pack(one.lsn, len(one.digest)) + one.digest for one in run)
    return run[-1].key, run[-1].offset, run[-1].lsn, answers


def remembered_of(rows: Sequence[tuple[int, bytes]]) -> Remembered:
    """What is known of a key, from its rows in order: each its offset and answers."""
    inserts: dict[int, tuple[int, bytes]] = {}
    for last, answers in rows:
        found = []
        at = 0
        while at < len(answers):
            lsn, length = _LSN.unpack_from(answers, at)
            at += _LSN.size
            found.append((lsn, answers[at : at + length]))
            at += length
        inserts.update(enumerate(found, last - len(found) + 1))
    last_offset = rows[-1][0]
    return Remembered(inserts, last_offset if last_offset >= 0 else None)
