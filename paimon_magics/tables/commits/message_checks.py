"""Checks the messages of a commit by themselves: before the table's files are looked at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import (
    CommitConflictError,
    InvalidValueError,
    LayoutChangedError,
    TableDamagedError,
    UnsupportedStatementError,
)
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.schemas.option_changes import layout_change
from paimon_magics.planning.schemas.replacements import has_replaced
from paimon_magics.tables.commits.decoded_request import (
    COMPACTION_PARTS,
    ROW_PARTS,
    replaced_since,
    written_files,
)
from paimon_magics.tables.schema.alterations import schema_of
from paimon_magics.tables.schema.history import creation_of, is_replaced
from paimon_magics.tables.stores.store import store_errors
from paimon_magics.tables.table import Table


def has_other_creation(table: Table, creation: str) -> bool:
    """Whether the table has been replaced by another one at its place since it had this
    `creation_of`, "" if unknown. Raises SetupError if the store can't be read."""
    if not creation:
        return False
    with store_errors(f"The check that `{table.name}` is still the same table"):
        present = creation_of(table)
    return present not in ("", creation)


def check_creation(table: Table, transaction: Transaction) -> None:
    """Raise CommitConflictError if `has_other_creation` is true."""
    if has_other_creation(table, transaction.table_creation):
        raise CommitConflictError(
            f"`{table.name}` is another table now: the table was dropped or renamed after this "
            "statement began.",
            hint="Nothing was committed. If the statement is meant for the new table, run it "
            "again.",
        )


def check_messages(
    messages: Sequence[CommitMessage], table: Table, transaction: Transaction
) -> None:
    """Raise TableDamagedError if two tasks wrote one bucket, CommitConflictError for files of a
    schema that was rolled back or replaced meanwhile, LayoutChangedError as `check_layout`."""
    _check_owners(messages, table)
    _check_schemas(messages, table)
    if messages:
        check_base_schema(table, transaction)
    check_layout(table, {file.schema_id for m in messages for file in written_files(m)})


def check_layout(table: Table, schema_ids: Iterable[int]) -> None:
    """Raise LayoutChangedError for files of a schema that the table's schema does not follow by
    ALTER TABLE alone: it was replaced since, or an option that is fixed on a table with data was
    changed while there was no data.
    """
    newest = table.schema
    ids = sorted({*schema_ids} - {newest.schema_id})
    if not ids:
        return
    stored = map(table.paimon.schema_manager.get_schema, range(ids[0], newest.schema_id + 1))
    schemas = [schema_of(schema) for schema in stored if schema is not None]
    if any(has_replaced(before, after) for before, after in pairwise(schemas)):
        raise replaced_since(table)
    for schema in schemas:
        key = layout_change(schema, newest) if schema.schema_id in ids else ""
        if key:
            raise LayoutChangedError(
                f"The option '{key}' of `{table.name}` was changed since these rows were written: "
                "they do not fit the table any more.",
                hint="Nothing was written. Run the statement again.",
            )


def _check_owners(messages: Sequence[CommitMessage], table: Table) -> None:
    """Raise TableDamagedError if two tasks wrote one bucket of a primary-key table. They would give
    its keys equal sequence numbers, so that either of two rows could win."""
    if not table.schema.is_primary_key_table:
        return
    seen: set[tuple[Any, ...]] = set()
    for message in messages:
        if message.bucket < 0:  # rows that wait for their bucket get their numbers there
            continue
        owner = (tuple(message.partition), message.bucket)
        if owner in seen:
            raise TableDamagedError(
                f"Two tasks wrote bucket {message.bucket} of partition {message.partition} of "
                f"`{table.name}`. Nothing was committed.",
                hint="Run the statement again, and report this with the table's definition.",
            )
        seen.add(owner)


def _check_schemas(messages: Sequence[CommitMessage], table: Table) -> None:
    """Raise CommitConflictError for files of a schema that was rolled back meanwhile."""
    newest = table.paimon.table_schema.id
    for message in messages:
        for file in written_files(message):
            if file.schema_id > newest:
                raise CommitConflictError(
                    f"This statement wrote with schema {file.schema_id} of `{table.name}`, which "
                    f"is gone: the table was rolled back to schema {newest}.",
                    hint="Nothing was written. Run the statement again.",
                )


def check_base_schema(table: Table, transaction: Transaction) -> None:
    """Raise CommitConflictError if the schema on which the transaction began is no longer the one
    with its number: its columns would be taken for those of another schema. Earlier schemas are
    replaced together with it."""
    if is_replaced(table, transaction.base_schema):
        number = transaction.base_schema.partition("@")[0]
        raise CommitConflictError(
            f"The schema {number} of `{table.name}` is another one than when this statement began: "
            "the table was fast-forwarded to a branch, or its schema was rolled back.",
            hint="Nothing was written. Run the statement again.",
        )


def check_rows(table: Table, messages: Sequence[CommitMessage]) -> None:
    """Raise UnsupportedStatementError for messages that add or replace rows by kinds of files that
    are not committed here."""
    for message in messages:
        if any(getattr(message, part) for part in COMPACTION_PARTS):
            raise UnsupportedStatementError(
                f"A writer of `{table.name}` compacted while it wrote. Such files can't be "
                "committed here.",
                hint="Set 'write-only' = 'true' for the writer.",
            )
        if message.check_from_snapshot is None and any(
            file.first_row_id is not None for file in message.new_files
        ):
            raise InvalidValueError(
                f"A writer of `{table.name}` wrote columns of existing rows (data evolution), but "
                "its message does not name the snapshot that it read them from.",
                hint="Nothing was committed. Name the snapshot in the message.",
            )


def check_compaction(table: Table, messages: Sequence[CommitMessage]) -> None:
    """Raise InvalidValueError for messages that add rows, TableDamagedError for those that
    contradict themselves."""
    for message in messages:
        if any(getattr(message, part) for part in ROW_PARTS):
            raise InvalidValueError(
                f"A message of the compaction of `{table.name}` adds or removes rows. A compaction "
                "can't add or remove rows.",
                hint="Nothing was committed. Commit the rows by a transaction of their own.",
            )
        _check_moves(table, message)


def _check_moves(table: Table, message: CommitMessage) -> None:
    """Raise TableDamagedError if a message names a file twice, or changes more of a file that it
    moves to another level or gives another index."""
    before = {file.file_name: file for file in message.compact_before}
    after = {file.file_name: file for file in message.compact_after}
    problem = None
    if len(before) < len(message.compact_before) or len(after) < len(message.compact_after):
        problem = "names a file twice"
    for name in before.keys() & after.keys():
        old, new = before[name], after[name]
        if old.level == new.level and file_index(old) == file_index(new):
            problem = f"removes the file {name} and adds it again unchanged"
        elif _content(old) != _content(new):
            problem = f"changes which rows the file {name} has"
    if problem is not None:
        raise TableDamagedError(
            f"A message of the compaction of `{table.name}` {problem}. Nothing was committed.",
            hint="Compact the table again, and report this with the table's definition.",
        )


def file_index(file: Any) -> tuple[Any, ...]:
    """The index of a data file, beside it or in the manifest."""
    return tuple(file.extra_files or ()), file.embedded_index or None


def _content(file: Any) -> tuple[Any, ...]:
    """What a file has at every level."""
    return (
        file.file_size,
        file.row_count,
        file.min_sequence_number,
        file.max_sequence_number,
        file.schema_id,
        file.delete_row_count,
        file.external_path,
    )
