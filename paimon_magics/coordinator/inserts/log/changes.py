"""The changes of a log in a store: their form as documents with parts, and their effect on a log in
a database.

A change is written as an entry (`object_codec`); each reader of the entry applies it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paimon_magics.coordinator.inserts.log.database import DatabaseLog
from paimon_magics.coordinator.inserts.log.interface import Appended, DeadLetter, Keyed, StoredFlush
from paimon_magics.coordinator.inserts.log.object_codec import DamagedObjectError, Entry
from paimon_magics.coordinator.inserts.log.records import Segment

__all__ = ["append_document", "apply", "letters_document", "replay"]


def append_document(groups: Sequence[Appended]) -> dict[str, Any]:
    """The document of an `append`. The segments' bodies are the change's parts."""
    return {
        "change": "append",
        "groups": [
            {
                "location": group.location,
                "name": group.name,
                "at_ms": group.at_ms,
                "first": group.segment.first,
                "last": group.segment.last,
                "chain": group.segment.chain,
                "keys": [[k.key, k.offset, k.lsn, k.digest.hex()] for k in group.keys],
            }
            for group in groups
        ],
    }


def letters_document(dead: Sequence[DeadLetter]) -> list[list[object]]:
    """Dead letters for a document. Their bodies are the change's parts."""
    return [[one.location, one.lsn, one.why, one.at_ms] for one in dead]


def replay(log: DatabaseLog, entry: Entry) -> None:
    """Apply an entry that was read. Raises DamagedObjectError where that is impossible."""
    try:
        apply(log, entry.document, entry.parts)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedObjectError(f"it can't be carried out: {error!r}") from error


def apply(log: DatabaseLog, document: Mapping[str, Any], parts: Sequence[bytes]) -> None:
    """Apply a change, its document and parts, to a log in a database."""
    rest = {key: value for key, value in document.items() if key not in ("change", "id")}
    match document["change"]:
        case "append":
            groups = zip(document["groups"], parts, strict=True)
            log.append([_appended(group, body) for group, body in groups])
        case "begin_flush":
            flush = StoredFlush(**document["flush"])
            log.begin_flush(document["location"], flush, _dead(document["dead"], parts))
        case "publish":
            log.publish(**{**rest, "dead": _dead(document["dead"], parts)})
        case "open":
            pass
        case "drop_flush" | "close_table" | "accept_loss" | "drop_table" as change:
            getattr(log, change)(**rest)
        case "drop_dead_letter" | "forget" | "begin_move" | "move_table" as change:
            getattr(log, change)(**rest)
        case change:
            raise ValueError(f"no such change: {change}")


def _appended(group: Mapping[str, Any], body: bytes) -> Appended:
    keys = (Keyed(key, offset, lsn, bytes.fromhex(d)) for key, offset, lsn, d in group["keys"])
    segment = Segment(group["first"], group["last"], group["chain"], body)
    return Appended(group["location"], group["name"], segment, tuple(keys), group["at_ms"])


def _dead(letters: Sequence[Any], parts: Sequence[bytes]) -> list[DeadLetter]:
    return [
        DeadLetter(location, lsn, why, at_ms, body)
        for (location, lsn, why, at_ms), body in zip(letters, parts, strict=True)
    ]
