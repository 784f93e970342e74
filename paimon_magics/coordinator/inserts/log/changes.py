"""The changes of a log in a store: their form as documents with parts, and their effect on a log in
a database.

A change is written as an entry (`object_codec`); each reader of the entry applies it again. Entries
of older versions know tables by their locations (`legacy`), and have no ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paimon_magics.coordinator.inserts.log.database import DatabaseLog
from paimon_magics.coordinator.inserts.log.idempotency_keys import Keyed
from paimon_magics.coordinator.inserts.log.legacy import adopt, begin_move, move_table
from paimon_magics.coordinator.inserts.log.log import Appended, DeadLetter, StoredFlush, append_id
from paimon_magics.coordinator.inserts.log.object_codec import DamagedObjectError, Entry
from paimon_magics.coordinator.inserts.log.records import Segment
from paimon_magics.coordinator.protocol.json_text import storable_text
from paimon_magics.coordinator.store.database import UnstorableError

_CALLS = (
    *("drop_flush", "close_table", "accept_loss", "drop_table"),
    *("drop_dead_letter", "rename_table"),
)
"""The changes that are methods of a log, with the members of the document as their parameters."""


def append_document(groups: Sequence[Appended], at_ms: int) -> dict[str, Any]:
    """The document of an `append` at a running time. The segments' bodies are its parts."""
    return {
        "change": "append",
        "at_ms": at_ms,
        "groups": [
            {
                "table_id": group.table_id,
                "name": group.name,
                "first": group.segment.first,
                "last": group.segment.last,
                "chain": group.segment.chain,
                "keys": [[k.key, k.offset, k.lsn, k.digest.hex()] for k in group.keys],
                # Older versions pass over it.
                "begun": [k.key for k in group.keys if k.begins],
            }
            for group in groups
        ],
    }


def letters_document(dead: Sequence[DeadLetter]) -> list[list[object]]:
    """Dead letters for a document. Their bodies are the change's parts."""
    return [
        [letter.table_id, letter.lsn, storable_text(letter.why), letter.at_ms] for letter in dead
    ]


def replayed_id(entry: Entry) -> str:
    """The id of the change in an entry. Older versions wrote no id: the number replaces it, or for
    an append its unique content, since they may have written an append twice.
    """
    id = entry.document.get("id")
    if id is None and entry.document.get("change") == "append":
        groups = entry.document["groups"]
        return append_id([(group["location"], group["first"], group["chain"]) for group in groups])
    return str(entry.number if id is None else id)


def check(log: DatabaseLog, document: Mapping[str, Any]) -> None:
    """Raise StoreLostError if a change does not follow the log's contents."""
    if document["change"] == "append":
        for group in document["groups"]:
            log.check_next(group["table_id"], group["first"])


def replay(log: DatabaseLog, entry: Entry) -> None:
    """Apply an entry that was read. Raises DamagedObjectError if that is impossible."""
    try:
        apply(log, entry.document, entry.parts)
    except (KeyError, TypeError, ValueError, UnstorableError) as error:
        raise DamagedObjectError(f"it can't be carried out: {error!r}") from error


def apply(log: DatabaseLog, document: Mapping[str, Any], parts: Sequence[bytes]) -> None:
    """Apply a change, its document and parts, to a log in a database."""
    if "location" in document or any("location" in group for group in document.get("groups", ())):
        document = _present(log, document)
    rest = {key: value for key, value in document.items() if key not in ("change", "id")}
    match document["change"]:
        case "append":
            groups = zip(document["groups"], parts, strict=True)
            appended = [_appended(group, body) for group, body in groups]
            log.append_at(appended, document["at_ms"], follows=False)
        case "begin_flush":
            flush = StoredFlush(**document["flush"])
            log.begin_flush(document["table_id"], flush, _dead(document["dead"], parts))
        case "publish":
            log.publish(**{**rest, "dead": _dead(document["dead"], parts)})
        case "open":
            pass
        case "forget" if "now_ms" not in rest:
            pass  # of an older version, by another clock
        case "forget":
            log.forget_until(**rest)
        case change if change in _CALLS:
            getattr(log, change)(**rest)
        case "begin_move":
            begin_move(log.database, rest["location"], rest["target"])
        case "move_table":
            move_table(log.database, rest["location"], rest["to_location"], rest["name"])
        case change:
            raise ValueError(f"no such change: {change}")


def _present(log: DatabaseLog, document: Mapping[str, Any]) -> dict[str, Any]:
    """The document of an older version in the present form. Labels are as old as the log."""
    changed = dict(document)
    match document["change"]:
        case "begin_move" | "move_table":  # about both identities of the table
            return changed
        case "append":
            changed["at_ms"] = 0
            changed["groups"] = [
                {**group, "table_id": adopt(log.database, group["location"], group["name"])}
                for group in document["groups"]
            ]
            return changed
    changed["table_id"] = adopt(log.database, changed.pop("location"))
    if "dead" in document:
        changed["dead"] = [[changed["table_id"], *letter[1:]] for letter in document["dead"]]
    return changed


def _appended(group: Mapping[str, Any], body: bytes) -> Appended:
    begun = set(group.get("begun", ()))
    keys = []
    for key, offset, lsn, digest in group["keys"]:
        keys.append(Keyed(key, offset, lsn, bytes.fromhex(digest), key in begun))
        begun.discard(key)
    segment = Segment(group["first"], group["last"], group["chain"], body)
    return Appended(group["table_id"], group["name"], segment, tuple(keys))


def _dead(letters: Sequence[Any], parts: Sequence[bytes]) -> list[DeadLetter]:
    return [
        DeadLetter(table_id, lsn, why, at_ms, body)
        for (table_id, lsn, why, at_ms), body in zip(letters, parts, strict=True)
    ]
