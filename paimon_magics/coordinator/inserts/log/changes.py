"""The changes of a log in a store: their form as documents with parts, and their effect on a log in
a database.

A change is written as an entry (`object_codec`); each reader of the entry applies it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paimon_magics.coordinator.inserts.log.database import DatabaseLog
from paimon_magics.coordinator.inserts.log.ids import append_id
from paimon_magics.coordinator.inserts.log.interface import Appended, DeadLetter, Keyed, StoredFlush
from paimon_magics.coordinator.inserts.log.object_codec import DamagedObjectError, Entry
from paimon_magics.coordinator.inserts.log.records import Segment
from paimon_magics.coordinator.store.database import UnstorableError

__all__ = ["append_document", "apply", "check", "letters_document", "replay", "replayed_id"]


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
    except (KeyError, TypeError, ValueError, UnstorableError) as error:
        raise DamagedObjectError(f"it can't be carried out: {error!r}") from error


def replayed_id(entry: Entry) -> str:
    """The id of the change in an entry. Older versions wrote none: the number stands for it, or
    what makes an append unique, since they may have written one twice."""
    id = entry.document.get("id")
    if id is None and entry.document.get("change") == "append":
        groups = entry.document["groups"]
        return append_id([(one["location"], one["first"], one["chain"]) for one in groups])
    return str(entry.number if id is None else id)


def check(log: DatabaseLog, document: Mapping[str, Any]) -> None:
    """Raise StoreLostError where a change does not follow what the log has."""
    if document["change"] == "append":
        for group in document["groups"]:
            log.check_next(group["location"], group["first"])


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
