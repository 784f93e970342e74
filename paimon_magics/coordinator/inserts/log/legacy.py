"""What older versions left in a log: they identified tables by location and creation time.

Opening such a log in a database upgrades it to the present form, in steps that the next start can
continue. A table's id follows from its location and creation time. After a completed rename that
was under way, the table gets the id of its new name. Labels begin to age then, in the log's own
time, since the machine's clock may have jumped before.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from paimon_magics.coordinator.store.database import Change, Database
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.tables.schema.history import table_id_of_legacy

Renamed = Callable[[str], str | None]
"""The location and creation time of the table that now has a stored name; None if there is no such
table.
"""


@dataclass(frozen=True, slots=True)
class Move:
    """A rename that was under way: the table's identity before (`text`), its new name, and its
    identity under that name. The last is None if the rename was not done.
    """

    text: str
    target: str
    done_as: str | None


_ROWS_AT_ONCE = 1_000
_OLD = "%@%"  # no id has an @
_KEYED = ("log_tables", "log_segments", "log_keys", "log_dead_letters")


def upgrade(database: Database, renamed: Renamed | None) -> None:
    """Upgrade a log to the present form, if it has an older form."""
    if database.read("SELECT format FROM log_meta") == [(1,)]:
        integer = database.dialect.integer
        database.write(
            [
                *(Change(f"ALTER TABLE {t} RENAME COLUMN location TO table_id") for t in _KEYED),
                Change("ALTER TABLE log_tables ADD COLUMN legacy TEXT NOT NULL DEFAULT ''"),
                Change("ALTER TABLE log_meta ADD COLUMN warehouse_id TEXT NOT NULL DEFAULT ''"),
                Change(f"ALTER TABLE log_meta ADD COLUMN running_ms {integer} NOT NULL DEFAULT 0"),
                Change("UPDATE log_meta SET format = 2"),
            ]
        )
    for (text,) in database.read(
        # Of two spellings of one table the one with waiting records gets its id.
        "SELECT table_id FROM log_tables WHERE table_id LIKE ? "
        "ORDER BY CASE WHEN acknowledged > published THEN 0 ELSE 1 END, table_id",
        _OLD,
    ):
        _give_id(database, text, _id_of(database, text), text)
    for (text,) in database.read(
        "SELECT DISTINCT table_id FROM log_dead_letters WHERE table_id LIKE ?", _OLD
    ):
        _give_id(database, text, _id_of(database, text), text)
    for move in settled_moves(database, renamed):
        if move.done_as is not None:
            move_table(database, move.text, move.done_as, move.target)
        else:
            begin_move(database, move.text, "")


def settled_moves(database: Database, renamed: Renamed | None) -> list[Move]:
    """The renames that were under way, as far as their outcome is known now."""
    moves = []
    for text, target in database.read("SELECT location, target FROM log_moves"):
        with contextlib.suppress(PaimonMagicsError, OSError):
            if renamed is not None:
                identity = renamed(target)
                is_same = (
                    identity is not None and identity.rpartition("@")[2] == text.rpartition("@")[2]
                )
                moves.append(Move(text, target, identity if is_same else None))
    return moves


def adopt(database: Database, text: str, name: str = "") -> str:
    """The id of a table in an older version's entry; it is noted, with a `name`."""
    id = _id_of(database, text)
    if name:
        insertion = Change(
            "INSERT INTO log_tables (table_id, name, published, chain, acknowledged, legacy) "
            "VALUES (?, ?, 0, 0, 0, ?) ON CONFLICT (table_id) DO NOTHING",
            (id, name, text),
        )
        database.write([insertion])
    return id


def begin_move(database: Database, text: str, target: str) -> None:
    """Note the new name of a table before its rename, or ("") that it keeps its own."""
    changes = [Change("DELETE FROM log_moves WHERE location = ?", (text,))]
    if target:
        changes.append(Change("INSERT INTO log_moves VALUES (?, ?)", (text, target)))
    database.write(changes)


def move_table(database: Database, text: str, to_text: str, name: str) -> None:
    """Move everything known of a table to the identity that it has by its new name."""
    id = _id_of(database, text)
    database.write([Change("UPDATE log_tables SET name = ? WHERE table_id = ?", (name, id))])
    _give_id(database, id, _id_of(database, to_text), to_text)
    begin_move(database, text, "")


def _id_of(database: Database, text: str) -> str:
    """The id of a table that an older version identified by its location and creation time."""
    known = database.read("SELECT table_id FROM log_tables WHERE legacy = ?", text)
    if known:
        return str(known[0][0])
    id = table_id_of_legacy(text)
    if database.read("SELECT 1 FROM log_tables WHERE table_id = ? AND legacy <> ''", id):
        # The same table, by another spelling. Its records must not get between those.
        id = uuid.uuid5(uuid.NAMESPACE_URL, f"{text}#").hex
    return id


def _give_id(database: Database, before: str, id: str, legacy: str) -> None:
    """Give the rows of a table its id, some at a time."""
    if before == id:
        return
    for table, column, values in (
        ("log_keys", "key", "table_id = ?, at_ms = 0"),
        ("log_segments", "first", "table_id = ?"),
    ):
        some = f"(SELECT {column} FROM {table} WHERE table_id = ? ORDER BY {column} LIMIT ?)"
        change = Change(
            f"UPDATE {table} SET {values} WHERE table_id = ? AND {column} IN {some}",
            (id, before, before, _ROWS_AT_ONCE),
        )
        while database.read(f"SELECT 1 FROM {table} WHERE table_id = ? LIMIT 1", before):
            database.write([change])
    database.write(
        [
            Change("UPDATE log_dead_letters SET table_id = ? WHERE table_id = ?", (id, before)),
            Change(
                "UPDATE log_tables SET table_id = ?, legacy = ? WHERE table_id = ?",
                (id, legacy, before),
            ),
        ]
    )
