"""The idempotency keys of small inserts: what a log remembers of them, and in which form. Pure.

A key is the label of one insert (`Idempotency-Key`), or a channel, in which each insert has an
offset. A repeated insert gets the answer of the first: `queue.step` decides that.

A row of `log_keys` has the answers to a run of a channel's inserts that ends at the offset `off`,
each an lsn and a digest; or, with `off` -1, the answer to a label's one insert. `lsn` is the last
of them. With `off` -2 it has no answers, and `lsn` is the channel's first offset. It exists as long
as another row of the channel. Older versions write no such row, and skip it: it sorts before all
others. They forget it by its age, and then the first offset is unknown.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paimon_magics.coordinator.store.database import Change

FIRST_OFFSET = -2

_LSN = struct.Struct(">QB")


@dataclass(frozen=True, slots=True)
class Keyed:
    """What a log remembers of one insert with a label (`offset` -1) or in a channel. `begins` marks
    the channel's first insert in the log.
    """

    key: str
    offset: int
    lsn: int
    digest: bytes
    begins: bool = False


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the log remembers of one key: inserts (lsn, digest) by their offsets, and the channel's
    last and first offset, None for a label. The first offset is also None for a channel that an
    older version began.
    """

    inserts: Mapping[int, tuple[int, bytes]]
    last_offset: int | None
    first_offset: int | None = None


def remembering(table_id: str, keys: Sequence[Keyed], at_ms: int) -> list[Change]:
    """The changes that note a table's inserts."""
    firsts = [(key.key, FIRST_OFFSET, key.offset, b"") for key in keys if key.begins]
    return [
        *(
            Change("INSERT INTO log_keys VALUES (?, ?, ?, ?, ?, ?)", (table_id, *row, at_ms))
            for row in key_rows(keys)
        ),
        *(
            Change(
                "INSERT INTO log_keys VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (table_id, key, off) "
                "DO UPDATE SET lsn = excluded.lsn, at_ms = excluded.at_ms",
                (table_id, *row, at_ms),
            )
            for row in firsts
        ),
    ]


def forgetting(before_ms: int) -> list[Change]:
    """The changes that remove labels and channels that were last used before a running time. A
    channel's first offset is removed with the last of its answers.
    """
    return [
        Change(
            "DELETE FROM log_keys WHERE off = ? AND (table_id, key) IN "
            "(SELECT table_id, key FROM log_keys WHERE at_ms < ? AND off >= 0) "
            "AND NOT EXISTS (SELECT 1 FROM log_keys AS others WHERE "
            "others.table_id = log_keys.table_id AND others.key = log_keys.key "
            "AND others.off >= 0 AND others.at_ms >= ?)",
            (FIRST_OFFSET, before_ms, before_ms),
        ),
        Change("DELETE FROM log_keys WHERE at_ms < ? AND off <> ?", (before_ms, FIRST_OFFSET)),
    ]


def key_rows(keys: Sequence[Keyed]) -> list[tuple[str, int, int, bytes]]:
    """Rows of `log_keys`: one for each label, and one for each run of offsets of a channel."""
    rows: list[tuple[str, int, int, bytes]] = []
    runs: dict[str, list[Keyed]] = {}
    for key in keys:
        run = runs.get(key.key)
        if run is not None and key.offset >= 0 and run[-1].offset + 1 == key.offset:
            run.append(key)
            continue
        if run is not None:
            rows.append(_key_row(run))
        runs[key.key] = [key]
    return [*rows, *(_key_row(run) for run in runs.values())]


def _key_row(run: Sequence[Keyed]) -> tuple[str, int, int, bytes]:
    answers = b"".join(_LSN.pack(key.lsn, len(key.digest)) + key.digest for key in run)
    return run[-1].key, run[-1].offset, run[-1].lsn, answers


def remembered_of(rows: Sequence[tuple[int, int, bytes]]) -> Remembered:
    """What the log remembers of a key, from its rows in order: each row has its offset, lsn and
    answers.
    """
    inserts: dict[int, tuple[int, bytes]] = {}
    first_offset = None
    for last, lsn_or_first, answers in rows:
        if last == FIRST_OFFSET:
            first_offset = lsn_or_first
            continue
        run = []
        at = 0
        while at < len(answers):
            lsn, length = _LSN.unpack_from(answers, at)
            at += _LSN.size
            run.append((lsn, answers[at : at + length]))
            at += length
        inserts.update(enumerate(run, last - len(run) + 1))
    last_offset = rows[-1][0]
    return Remembered(inserts, last_offset if last_offset >= 0 else None, first_offset)
