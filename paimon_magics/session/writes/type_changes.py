"""What ALTER TABLE does to stored rows, in words: in the question before it runs, and in the
Outcome after it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.schemas.alterations import plan_alteration
from paimon_magics.planning.schemas.type_changes import can_retype
from paimon_magics.session.connection import Connection
from paimon_magics.statements.clauses.names import quoted, table_text
from paimon_magics.statements.data_types import as_nullable
from paimon_magics.statements.table_changes import RetypeColumn, SetColumnNullability, TableChange
from paimon_magics.statements.types.type_text import to_spark_sql
from paimon_magics.tables.reading.retyping import Harm, harm_of
from paimon_magics.tables.table import Table

__all__ = ["HarmTold", "harm_told"]


@dataclass(frozen=True, slots=True)
class HarmTold:
    """What happens to stored rows ("" if no harm was found), how that was found out, how to undo
    the change, and what could not be checked ("" for nothing)."""

    what: str
    examined: str
    way_back: str
    not_looked_at: str

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the Outcome of the change."""
        said = (self.what, f"{self.examined} {self.way_back}") if self.what else ()
        return (*said, self.not_looked_at) if self.not_looked_at else said


def harm_told(
    connection: Connection, table: Table, changes: Sequence[TableChange]
) -> HarmTold | None:
    """Return what the changes do to stored rows; None if everything was checked and no harm was
    found. Errors in the changes themselves are ignored: running them raises those."""
    if not any(isinstance(one, RetypeColumn | SetColumnNullability) for one in changes):
        return None
    try:
        planned = plan_alteration(table.schema, changes).schema
    except PaimonMagicsError:
        return None
    try:
        rows_max = connection.settings.alter_check_rows_max
        harms = harm_of(table, planned, rows_max, connection.zone)
    except PaimonMagicsError as error:
        return HarmTold("", "", "", _unknown([error.message]))
    if not harms:
        return None
    not_looked_at = _unknown(dict.fromkeys(one for harm in harms for one in harm.not_looked_at))
    harms = [harm for harm in harms if harm]
    if not harms:
        return HarmTold("", "", "", not_looked_at)
    by_id = {column.id: column for column in planned.columns}
    said, back = [], []
    for harm in harms:
        old = table.schema.column(harm.column)
        new = by_id[old.id]
        wanted = to_spark_sql(new.type)
        said += _sentences(harm, to_spark_sql(old.type), wanted)
        column = f"ALTER TABLE {table_text(table.name)} ALTER COLUMN {quoted(new.name)}"
        if as_nullable(old.type, True) == as_nullable(new.type, True):
            back.append(f"{column} DROP NOT NULL")
        elif can_retype(new.type, old.type, allow_explicit=True):
            back.append(f"{column} TYPE {to_spark_sql(old.type)}")
    way_back = (
        "To go back: " + "; ".join(back)
        if back
        else "There is no way back by ALTER TABLE: Paimon has no cast from the new type to this one"
    )
    return HarmTold(" ".join(said), f"{harms[0].examined}.", f"{way_back}.", not_looked_at)


def _unknown(why: Collection[str]) -> str:
    """The sentence on what could not be checked, for these reasons."""
    if not why:
        return ""
    more = f" (and {len(why) - 1:,} more)" if len(why) > 1 else ""
    return (
        "Whether all stored rows can be read as the new type is not known, since they could not be "
        f"read: {next(iter(why))}{more}"
    )


def _sentences(harm: Harm, old: str, new: str) -> list[str]:
    said = []
    if harm.impossible:
        said.append(
            f"Stored files have `{harm.column}` as {old}, which can't be read as {new} here: "
            "the whole table could not be read."
        )
    if harm.unreadable:
        values = ", ".join(one.told for one in harm.unreadable)
        said.append(
            f"`{harm.column}` has values that can't be read as {new}, nor can rows beside them: "
            f"{values}."
        )
    if harm.changed:
        values = ", ".join(one.told for one in harm.changed)
        said.append(f"`{harm.column}` has values that would change as {new}: {values}.")
    if harm.nulls:
        said.append(f"`{harm.column}` has {count_text(harm.nulls, 'NULL')}, and would be NOT NULL.")
    return said
