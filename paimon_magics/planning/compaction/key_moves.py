"""Whether keys of a table can be moved to other buckets by new files alone.

They can where a deletion takes any earlier row away, for readers and compactions alike, and where
no changelog is made of what compactions find: that would tell of a deletion, in another bucket's
changelog than the row that comes back, and so in any order.
"""

from __future__ import annotations

from paimon_magics.planning.schemas.table_schema import TableSchema


def obstacle_to_moves(schema: TableSchema) -> str | None:
    """The option because of which keys can't be moved, None where they can."""
    if not schema.engine.keeps_last_row:
        return f"'merge-engine' = '{schema.merge_engine}'"
    if schema.producer.of_compactions:
        return f"'changelog-producer' = '{schema.changelog_producer}'"
    for key in (
        "ignore-delete",
        "deletion-vectors.enabled",
        "force-lookup",
        "sequence.snapshot-ordering",
        "pk-clustering-override",
    ):
        if schema.flag(key):
            return f"'{key}' = 'true'"
    return None
