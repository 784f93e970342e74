"""Consumers: the progress of readers of changes, kept in the table itself.

As in Paimon's `ConsumerManager`, the file `consumer/consumer-ID` holds the number of the next
snapshot as JSON. A member of our own, which Paimon passes over, says that all rows of that snapshot
are still to be read, not its changes alone. Expiry keeps all snapshots from the least of these
numbers on. The file is replaced as a whole, so a reader that dies leaves the old number or the new
number.
"""

from __future__ import annotations

import json

from paimon_magics.errors import InvalidValueError, TableDamagedError
from paimon_magics.planning.reads.stream_points import check_consumer_name
from paimon_magics.tables.stores.corruption import parsing
from paimon_magics.tables.table import Table, branch_folder, write_beside

_PREFIX = "consumer-"
_ALL_ROWS = "scanSnapshot"


def list_progress(table: Table) -> dict[str, int]:
    """The next snapshot of each of the table's consumers, by their names. Raises
    TableDamagedError for a damaged file, and for a file in place of their folder."""
    progress = {}
    for consumer_id in consumer_ids(table):
        next_snapshot = progress_of(table, consumer_id)
        if next_snapshot is not None:  # it was forgotten meanwhile
            progress[consumer_id] = next_snapshot
    return progress


def consumer_ids(table: Table) -> list[str]:
    """The names of the table's consumers. Raises TableDamagedError for a file in place of their
    folder."""
    folder = _folder(table)
    with parsing(f"The consumers of `{table.name}` in {folder}", "Remove that file."):
        names = table.store.names(folder, _PREFIX)
    return [name.removeprefix(_PREFIX) for name in names]


def progress_of(table: Table, consumer_id: str) -> int | None:
    """The next snapshot that a consumer will read; None for an unknown consumer. Raises as
    `position_of` does."""
    position = position_of(table, consumer_id)
    return None if position is None else position[0]


def position_of(table: Table, consumer_id: str) -> tuple[int, bool] | None:
    """The next snapshot that a consumer will read, and whether it will read all its rows; None for
    an unknown consumer.

    Raises InvalidValueError for a name that can't be a consumer's, TableDamagedError for a damaged
    file.
    """
    path = _path(table, consumer_id)
    with parsing(f"The consumer file {path}", "Remove the folder in its place."):
        body = table.store.read(path)
    if body is None:
        return None
    try:
        document = json.loads(body)
        return int(document["nextSnapshot"]), document.get(_ALL_ROWS) is True
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TableDamagedError(
            f"The consumer file {path} can't be read: {error}.",
            hint="Remove the file, and give the snapshot to continue from.",
        ) from error


def keep_progress(
    table: Table, consumer_id: str, next_snapshot: int, *, all_rows: bool = False
) -> None:
    """Store the next snapshot that a consumer will read, and whether it reads all its rows. Raises
    InvalidValueError for a name that can't be a consumer's, and for a number that no snapshot has.
    """
    if next_snapshot < 1:
        raise InvalidValueError(
            f"The next snapshot of the consumer '{consumer_id}' can't be {next_snapshot}: "
            "snapshots are numbered from 1.",
            hint="Give the number of the snapshot that the consumer reads next.",
        )
    path = _path(table, consumer_id)
    document = {"nextSnapshot": next_snapshot} | ({_ALL_ROWS: True} if all_rows else {})
    body = json.dumps(document, indent=2).encode()
    with parsing(f"The consumers of `{table.name}` in {_folder(table)}", "Remove that file."):
        write_beside(table, path, body)


def forget_progress(table: Table, consumer_id: str) -> None:
    """Forget a consumer, so that it keeps no snapshots any more. Raises InvalidValueError for a
    name that can't be a consumer's."""
    table.store.delete([_path(table, consumer_id)])


def _path(table: Table, consumer_id: str) -> str:
    check_consumer_name(consumer_id)
    return f"{_folder(table)}/{_PREFIX}{consumer_id}"


def _folder(table: Table) -> str:
    return f"{branch_folder(table)}/consumer"
