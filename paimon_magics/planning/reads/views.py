"""Views of a table's rows: the rows, their changes, only compacted files, or with row ids."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum

from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.data_types import (
    ArrayType,
    AtomicType,
    RowField,
    RowType,
    as_nullable,
)
from paimon_magics.statements.queries.rewriting import (
    BUCKET,
    FILE_PATH,
    METADATA_COLUMNS,
    PARTITION,
    ROW_ID_COLUMNS,
    ROW_INDEX,
)

ROW_ID, SEQUENCE_NUMBER = ROW_ID_COLUMNS
# Field ids as in `SpecialFields`.
_ROWKIND = Column(2147483643, "rowkind", AtomicType("STRING"))
_SEQUENCE = Column(2147483646, SEQUENCE_NUMBER, AtomicType("BIGINT", (), nullable=False))
_ROW_ID = Column(2147483642, ROW_ID, AtomicType("BIGINT", (), nullable=False))
# Field ids as in `PaimonMetadataColumn`.
_METADATA = {
    ROW_INDEX: Column(2147483547, ROW_INDEX, AtomicType("BIGINT")),
    FILE_PATH: Column(2147483546, FILE_PATH, AtomicType("STRING")),
    BUCKET: Column(2147483544, BUCKET, AtomicType("INT")),
}
COMMIT_VERSION, COMMIT_TIMESTAMP = COMMIT_COLUMNS = ("_commit_version", "_commit_timestamp")
CHANGE_TYPE = "_change_type"
"""What CHANGES adds to a table's columns, named as in Spark's `Changelog`."""
_OF_COMMITS = (
    Column(0, COMMIT_VERSION, AtomicType("BIGINT")),
    Column(0, COMMIT_TIMESTAMP, AtomicType("TIMESTAMP_LTZ", (6,))),
)
PLACE_COLUMNS = (FILE_PATH, ROW_INDEX)
"""The metadata columns of rows that are each stored in one file."""


INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)

KIND_NAMES = ("+I", "-U", "+U", "-D")
"""Their names in `$audit_log` and in `rowkind.field`."""

OLDER, UNCHANGED, PARTLY = range(len(KIND_NAMES), len(KIND_NAMES) + 3)
"""What an UPDATE computes in place of UPDATE_AFTER for a row that the merge engine would not apply
as a whole: the row is older than the stored one, would change nothing, or is applied in part. The
first two are not written, the third is a +U in files."""

UPDATED_KINDS = (UPDATE_AFTER, PARTLY)
"""The kinds of rows that an UPDATE writes."""


class ViewKind(Enum):
    """The table itself, or one of the system tables that show its data."""

    TABLE = ""
    AUDIT_LOG = "audit_log"
    BINLOG = "binlog"
    READ_OPTIMIZED = "ro"
    ROW_TRACKING = "row_tracking"


@dataclass(frozen=True, slots=True)
class RowView:
    """How rows are shown. `sequence_numbers` adds the column `_SEQUENCE_NUMBER`
    (`table-read.sequence-number.enabled`). `metadata` are columns on where a row is stored, behind
    all others."""

    kind: ViewKind
    sequence_numbers: bool = False
    metadata: tuple[Column, ...] = ()

    @property
    def keeps_retracts(self) -> bool:
        """Whether rows of the kinds -U and -D are shown."""
        return self.kind in (ViewKind.AUDIT_LOG, ViewKind.BINLOG)

    @property
    def shows_places(self) -> bool:
        """Whether the rows have their numbers in their files."""
        return any(column.name == ROW_INDEX for column in self.metadata)

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """The partition columns that the metadata columns show."""
        types = (column.type for column in self.metadata)
        return tuple(f.name for type in types if isinstance(type, RowType) for f in type.fields)


def view_named(system_table: str | None) -> ViewKind | None:
    """The view of that name in upper or lower case; None for other system tables."""
    wanted = (system_table or "").lower()
    return next((kind for kind in ViewKind if kind.value == wanted), None)


def shown_kind(
    schema: TableSchema, system_table: str | None, *, names_row_ids: bool
) -> ViewKind | None:
    """The view that a query of a table, or of one of its system tables, shows; None for system
    tables that don't show rows. A table with row tracking shows the ids of its rows to a query that
    may name them, unless it has columns of such names."""
    kind = view_named(system_table)
    if kind is not ViewKind.TABLE or not names_row_ids or not schema.row_tracking_enabled:
        return kind
    has_own = not set(schema.column_names).isdisjoint(ROW_ID_COLUMNS)
    return kind if has_own else ViewKind.ROW_TRACKING


def row_id_columns(schema: TableSchema, names: Collection[str] | None) -> tuple[Column, ...]:
    """The columns of ids and sequence numbers that a table shows to a statement which uses `names`
    (in lower case; None for any name)."""
    if shown_kind(schema, None, names_row_ids=True) is not ViewKind.ROW_TRACKING:
        return ()
    both = (_ROW_ID, _SEQUENCE)
    return tuple(column for column in both if names is None or column.name.lower() in names)


def metadata_columns(
    schema: TableSchema, kind: ViewKind | None, names: frozenset[str]
) -> tuple[Column, ...]:
    """The metadata columns among `names` that a view of a table shows. A column of the table's own
    goes before one of the same name. An audit log has those of commits alone."""
    if kind is ViewKind.AUDIT_LOG and not names.isdisjoint(COMMIT_COLUMNS):
        return _OF_COMMITS
    if kind not in (ViewKind.TABLE, ViewKind.READ_OPTIMIZED, ViewKind.ROW_TRACKING):
        return ()
    own = {name.lower() for name in schema.column_names}
    keys = (schema.column(key) for key in schema.partition_keys)
    fields = tuple(RowField(key.name, as_nullable(key.type, True)) for key in keys)
    partition = Column(2147483545, PARTITION, RowType(fields))
    return tuple(
        _METADATA.get(name, partition)
        for name in METADATA_COLUMNS
        if name in names and name not in own
    )


def shown_columns(columns: Iterable[Column], view: RowView) -> tuple[Column, ...]:
    """The columns of the view on a table with `columns`."""
    if view.kind is ViewKind.ROW_TRACKING:
        return (*columns, _ROW_ID, _SEQUENCE, *view.metadata)
    if not view.keeps_retracts:
        return (*columns, *view.metadata)
    system = (_ROWKIND, _SEQUENCE) if view.sequence_numbers else (_ROWKIND,)
    if view.kind is ViewKind.BINLOG:
        columns = (
            Column(c.id, c.name, ArrayType(as_nullable(c.type, True)), c.comment) for c in columns
        )
    return (*system, *columns, *view.metadata)
