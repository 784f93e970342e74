"""Reads ALTER TABLE into its changes, in the order written."""

from __future__ import annotations

from itertools import chain

from paimon_magics.errors import nearest
from paimon_magics.statements.clauses.names import table_name
from paimon_magics.statements.clauses.properties import (
    read_partition,
    read_properties,
    read_property_keys,
)
from paimon_magics.statements.grammar.calls import at_tag_change, read_alter_tags
from paimon_magics.statements.grammar.tables import read_details, read_path, read_position
from paimon_magics.statements.lexing.cursor import Cursor, RefusedHere
from paimon_magics.statements.statement import PartitionItem
from paimon_magics.statements.table_changes import (
    AddColumn,
    AddPartitions,
    AlterTable,
    DropColumn,
    DropPartitions,
    RenameColumn,
    RenameTable,
    ReorderColumn,
    RetypeColumn,
    SetColumnComment,
    SetColumnDefault,
    SetColumnNullability,
    SetOptions,
    TableChange,
    UnsetOptions,
)
from paimon_magics.statements.types.sql_types import read_type
from paimon_magics.statements.version_changes import AlterTags

_VERBS = ("ADD", "DROP", "RENAME", "ALTER", "CHANGE", "SET", "UNSET", "REPLACE", "CREATE", "DELETE")
_REFUSED_VERBS = ("REPLACE", "CREATE", "DELETE", "RECOVER", "PARTITION", "CLUSTER", "COMPACT")
_ACTIONS = ("TYPE", "COMMENT", "FIRST", "AFTER", "SET", "DROP")


def read_alter_table(cursor: Cursor) -> AlterTable | AlterTags:
    """Read what follows ALTER TABLE."""
    name, position = table_name(cursor)
    if at_tag_change(cursor):
        return read_alter_tags(cursor, name, position)
    changes = _changes(cursor)
    return AlterTable(cursor.text, cursor.offset, name, position, changes)


def _changes(cursor: Cursor) -> tuple[TableChange, ...]:
    if cursor.accept("ADD"):
        return _add(cursor)
    if cursor.accept("DROP"):
        return _drop(cursor)
    if cursor.accept("RENAME"):
        return _rename(cursor)
    if cursor.accept_any("ALTER", "CHANGE"):
        cursor.accept("COLUMN")
        return tuple(chain.from_iterable(cursor.listed(lambda: _alter_column(cursor))))
    if cursor.accept("SET", "TBLPROPERTIES"):
        return (SetOptions(read_properties(cursor)),)
    if cursor.accept("UNSET", "TBLPROPERTIES"):
        if_exists = cursor.accept("IF", "EXISTS")
        return (UnsetOptions(read_property_keys(cursor), if_exists),)
    if cursor.accept("CREATE", "OR"):
        raise RefusedHere(f"ALTER TABLE … CREATE OR {cursor.peek().upper} {cursor.peek(1).upper}")
    if cursor.at_any(*_REFUSED_VERBS, "SET") and cursor.peek(1).kind != "end":
        raise RefusedHere(f"ALTER TABLE … {_two_words(cursor)}")
    token = cursor.peek()
    hint = nearest(token.text, _VERBS, what="changes") if token.kind == "word" else ""
    cursor.fail("a change of the table", hint=hint)


def _two_words(cursor: Cursor) -> str:
    words = [cursor.peek().upper]
    if cursor.peek(1).kind == "word":
        words.append(cursor.peek(1).upper)
    return " ".join(words)


def _add(cursor: Cursor) -> tuple[TableChange, ...]:
    if not cursor.accept_any("COLUMN", "COLUMNS"):
        if cursor.at("PARTITION") or cursor.at("IF", "NOT", "EXISTS", "PARTITION"):
            return (_add_partitions(cursor),)
        if cursor.at_any("CONSTRAINT", "PRIMARY", "CHECK", "UNIQUE", "FOREIGN"):
            named = cursor.accept("CONSTRAINT") and cursor.peek(1).kind == "word"
            kind = cursor.peek(1 if named else 0).upper
            raise RefusedHere(f"ALTER TABLE … ADD {kind}".rstrip())
        cursor.fail("COLUMN or COLUMNS")
    if cursor.at("IF", "NOT", "EXISTS"):
        raise RefusedHere("ALTER TABLE … ADD COLUMN IF NOT EXISTS")
    in_brackets = cursor.accept("(")
    changes = cursor.listed(lambda: _added_column(cursor))
    if in_brackets:
        cursor.expect(")")
    return changes


def _added_column(cursor: Cursor) -> AddColumn:
    path = read_path(cursor)
    details = read_details(cursor, "ALTER TABLE", positioned=True)
    return AddColumn(
        path, details.type, details.comment, details.default, details.first, details.after
    )


def _drop(cursor: Cursor) -> tuple[TableChange, ...]:
    if cursor.at("IF", "EXISTS", "PARTITION") or cursor.at("PARTITION"):
        if_exists = cursor.accept("IF", "EXISTS")
        return (_drop_partitions(cursor, if_exists),)
    if not cursor.accept_any("COLUMN", "COLUMNS"):
        if cursor.at_any("CONSTRAINT", "PRIMARY", "FEATURE"):
            raise RefusedHere(f"ALTER TABLE … DROP {cursor.peek().upper}")
        cursor.fail("COLUMN, COLUMNS or PARTITION")
    if_exists = cursor.accept("IF", "EXISTS")
    in_brackets = cursor.accept("(")
    changes = cursor.listed(lambda: DropColumn(read_path(cursor), if_exists))
    if in_brackets:
        cursor.expect(")")
    return changes


def _add_partitions(cursor: Cursor) -> AddPartitions:
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    specs = []
    while cursor.accept("PARTITION"):
        specs.append(read_partition(cursor, values_needed=True))
        if cursor.at("LOCATION"):
            cursor.fail(
                "PARTITION or the end of the statement",
                hint="A partition has no location of its own: its files are in the table's folder. "
                "Leave LOCATION out, and write the rows by INSERT INTO.",
            )
        cursor.accept(",")
    return AddPartitions(tuple(specs), if_not_exists)


def _drop_partitions(cursor: Cursor, if_exists: bool) -> DropPartitions:
    def partition() -> tuple[PartitionItem, ...]:
        cursor.expect("PARTITION")
        return read_partition(cursor, values_needed=True, comparisons=True)

    partitions = cursor.listed(partition)
    cursor.accept("PURGE")
    return DropPartitions(partitions, if_exists)


def _rename(cursor: Cursor) -> tuple[TableChange, ...]:
    if cursor.accept("TO"):
        name, _ = table_name(cursor, "the new name")
        return (RenameTable(name),)
    if cursor.accept("COLUMN"):
        path = read_path(cursor)
        cursor.expect("TO")
        return (RenameColumn(path, cursor.identifier("the new name")),)
    if cursor.at_any("TAG", "BRANCH"):
        raise RefusedHere(f"ALTER TABLE … RENAME {cursor.peek().upper}")
    cursor.fail("TO or COLUMN")


def _alter_column(cursor: Cursor) -> tuple[TableChange, ...]:
    path = read_path(cursor)
    if not cursor.at_any(*_ACTIONS):
        return _hive_change(cursor, path)
    if cursor.accept("TYPE"):
        return (RetypeColumn(path, read_type(cursor)),)
    if cursor.accept("COMMENT"):
        return (SetColumnComment(path, cursor.string("the comment in quotes")),)
    if cursor.at_any("FIRST", "AFTER"):
        return (ReorderColumn(path, *read_position(cursor)),)
    if cursor.accept_any("SET", "DROP") == "SET":
        if cursor.accept("NOT", "NULL"):
            return (SetColumnNullability(path, False),)
        if cursor.accept("DEFAULT"):
            return (SetColumnDefault(path, cursor.text_until(",", what="the default value")),)
        if cursor.accept("DATA", "TYPE"):
            return (RetypeColumn(path, read_type(cursor)),)
        cursor.fail("NOT NULL or DEFAULT")
    if cursor.accept("NOT", "NULL"):
        return (SetColumnNullability(path, True),)
    if cursor.accept("DEFAULT"):
        return (SetColumnDefault(path, None),)
    cursor.fail("NOT NULL or DEFAULT")


def _hive_change(cursor: Cursor, path: tuple[str, ...]) -> tuple[TableChange, ...]:
    """Read `new_name type …` after `CHANGE COLUMN old_name`; each part is a change of its own."""
    new_name = cursor.identifier("TYPE, COMMENT, FIRST, AFTER, SET, DROP or a new name and type")
    details = read_details(cursor, "ALTER TABLE", positioned=True)
    changes: list[TableChange] = []
    if new_name != path[-1]:
        changes.append(RenameColumn(path, new_name))
        path = (*path[:-1], new_name)
    changes.append(RetypeColumn(path, details.type))
    if not details.type.nullable:
        changes.append(SetColumnNullability(path, False))
    if details.comment is not None:
        changes.append(SetColumnComment(path, details.comment))
    if details.default is not None:
        changes.append(SetColumnDefault(path, details.default))
    if details.first or details.after is not None:
        changes.append(ReorderColumn(path, details.first, details.after))
    return tuple(changes)
