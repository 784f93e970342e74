"""The handler of MERGE INTO."""

from __future__ import annotations

from collections.abc import Mapping

from paimon_magics.errors import UnconfirmedError
from paimon_magics.planning.reads.predicate_texts import condition_text
from paimon_magics.planning.row_changes.merges import PlannedClause
from paimon_magics.session.connection import Connection
from paimon_magics.session.statements.handler import Handler
from paimon_magics.session.statements.read_plans import steps_text
from paimon_magics.session.writes.merge_previews import preview_merge
from paimon_magics.session.writes.merging import PreparedMerge, prepare_merge, run_merge
from paimon_magics.session.writes.prepare import distribution
from paimon_magics.session.writes.replaced import rows_taken
from paimon_magics.statements.merge_into import DeleteAction, MergeInto
from paimon_magics.statements.subjects import subject_of
from paimon_magics.tables.commits.replaced_partitions import sizes_of_replaced

__all__ = ["merge_handler"]

_JOINS = {
    "INNER": "the pairs of target and source rows that match",
    "LEFT OUTER": "all target rows, with the source rows that match",
    "RIGHT OUTER": "all source rows, with the target rows that match",
    "FULL OUTER": "all rows of both sides",
    "LEFT ANTI": "the target rows that no source row matches",
    "RIGHT ANTI": "the source rows that match no target row",
}


def merge_handler(
    connection: Connection, merge: MergeInto, parameters: Mapping[str, object]
) -> Handler:
    """MERGE INTO."""

    def lines() -> list[str]:
        prepared = prepare_merge(connection, merge, parameters)
        insert = prepared.insert
        return [
            f"{insert.table.name}: rows of snapshot {insert.base_snapshot_id} are joined once with "
            f"the source: {_JOINS[prepared.plan.join]}.",
            *_read(merge, prepared),
            *(_clause(merge, one) for one in prepared.plan.clauses),
            _written(prepared),
            f"Distribution: {distribution(connection, insert)}.",
        ]

    return Handler(
        run=lambda: run_merge(connection, merge, parameters),
        dry_run=lambda: "Would run. " + " ".join(lines()),
        explain=lambda mode: lines(),
        preview=lambda: preview_merge(connection, merge, parameters),
        unconfirmed=lambda mode: _unconfirmed(connection, merge),
        changed=lambda: (merge.target,),
        needs=(
            merge.target,
            *subject_of(merge).sources,
            *(reference.name for reference in merge.within.references),
        ),
    )


def _unconfirmed(connection: Connection, merge: MergeInto) -> UnconfirmedError | None:
    """The question before all rows go that the source does not have: an empty source takes all."""
    clauses = merge.of_kind("NOT MATCHED BY SOURCE")
    if not any(isinstance(one.action, DeleteAction) and one.condition is None for one in clauses):
        return None
    table = connection.load(merge.target, merge.text, merge.target_position)
    sizes = sizes_of_replaced(table, specs=())
    if not sizes:
        return None
    return UnconfirmedError(
        "MERGE with WHEN NOT MATCHED BY SOURCE THEN DELETE takes away each row of "
        f"`{table.name}` that the source does not have; the table has {rows_taken(sizes)}.",
        hint="To run it, begin the cell with %%paimon --yes. %%paimon --preview counts the rows. "
        "WHEN NOT MATCHED BY SOURCE AND a condition THEN DELETE does not ask.",
        statement=merge.text,
        position=0,
    )


def _read(merge: MergeInto, prepared: PreparedMerge) -> list[str]:
    """Which files of the target are read."""
    target, keys = prepared.target, prepared.keys
    lines = [f"Files read: {steps_text(target.pruning_steps)}."] if target.pruning_steps else []
    if target.predicates:
        lines.append(f"Chosen by {' AND '.join(condition_text(one) for one in target.predicates)}.")
    if keys:
        values = " and ".join(merge.text[one.value.start : one.value.end] for one in keys)
        lines.append(
            f"A job finds the least and the greatest {values} of the source first; then files that "
            "can't match are left out, too."
        )
    return lines


def _written(prepared: PreparedMerge) -> str:
    if prepared.plan.only_inserts:
        return "The rows are added; no file changes."
    if prepared.places is None:
        return "The changed rows are written with their kinds, and merged by key."
    return f"Rows are changed by {prepared.method.value}; inserted ones are added."


def _clause(merge: MergeInto, clause: PlannedClause) -> str:
    condition = ""
    if clause.condition is not None:
        condition = f" AND {merge.text[clause.condition.start : clause.condition.end]}"
    return f"{clause.kind}{condition}: {clause.effect}."
