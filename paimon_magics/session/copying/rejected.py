"""The table of rows that COPY INTO could not load: REJECTED_ROWS.

Its rows are committed before those that can be loaded. A load that dies between the two leaves
them, and finds them again when it is repeated: `load_id` tells the two apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paimon_magics.errors import InvalidValueError
from paimon_magics.session.inserts.insert import write_frame_to
from paimon_magics.session.inserts.new_tables import WantedTable, write_to_new
from paimon_magics.session.scope import StatementScope
from paimon_magics.statements.copying import CopyIntoTable
from paimon_magics.statements.statement import TableName

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

COLUMNS = ("load_id", "rejected_at", "file_path", "record", "error")
"""The columns of such a table."""


def check_rejected(scope: StatementScope, copy: CopyIntoTable, name: TableName) -> None:
    """Raise InvalidValueError for a table that can't take rejected rows: the loaded one, or one of
    other columns. It need not exist."""
    full = scope.full_name(name)
    if copy.on_error == "ABORT_STATEMENT":
        raise InvalidValueError(
            "REJECTED_ROWS needs ON_ERROR = CONTINUE or SKIP_FILE: otherwise the first row that "
            "can't be loaded ends the statement.",
            hint="Add ON_ERROR = CONTINUE.",
            statement=copy.text,
            position=max(copy.text.upper().find("REJECTED_ROWS"), 0),
        )
    if full == scope.full_name(copy.target):
        raise InvalidValueError(
            f"REJECTED_ROWS can't be `{full}`, which is loaded.",
            hint="Name another table; it is created where it is missing.",
            statement=copy.text,
            position=max(copy.text.upper().find("REJECTED_ROWS"), 0),
        )
    if not scope.catalog.table_exists(full):
        return
    names = scope.catalog.load(full).schema.column_names
    lacking = [column for column in COLUMNS if column not in names]
    if lacking:
        raise InvalidValueError(
            f"`{full}` has no column `{lacking[0]}`, so that it can't take rejected rows.",
            hint=f"Name a new table, which gets the columns {', '.join(COLUMNS)}.",
            statement=copy.text,
            position=max(copy.text.upper().find("REJECTED_ROWS"), 0),
        )


def keep_rejected(scope: StatementScope, name: TableName, bad: DataFrame) -> None:
    """Add rows to the table for rejected rows, which is created where it is missing. Adds a
    note."""
    full = scope.full_name(name)
    if scope.catalog.table_exists(full):
        outcome = write_frame_to(scope, bad, full, "append")
    else:
        outcome = write_to_new(scope, bad, full, None, WantedTable(None, None, ()))
    scope.note(
        f"{outcome.rows_written:,} rejected rows are in `{full}` (snapshot {outcome.snapshot_id})."
    )
