"""Compacts the buckets that a statement has written, as Paimon's writers do after their flush.

The statement's rows are committed before. So whatever becomes of the compaction, no row depends on
it: a failure or an interrupt leaves it out, and a note says so.
"""

from __future__ import annotations

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.compaction.inline import INLINE_BYTES_MAX, compacts_inline, is_full
from paimon_magics.planning.formatting import size_text
from paimon_magics.session.connection import Connection
from paimon_magics.session.writes.compaction import compact_plan, planned_compaction
from paimon_magics.statements.clauses.names import table_text
from paimon_magics.tables.compaction.planning import CompactionScope
from paimon_magics.tables.compaction.plans import may_be_due
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.written_buckets import BucketKey

__all__ = ["compact_written"]

_CLAIMS_WAIT_MS = 60_000  # the rows are committed, and show after the next compaction


def compact_written(
    connection: Connection,
    table: Table,
    buckets: frozenset[BucketKey],
    statement: str,
    *,
    overwritten: int | None = None,
    added: tuple[int, int] | None = None,
) -> tuple[str, ...]:
    """Compact the buckets that were written, if the table's options ask for it; return notes.
    `overwritten` is the snapshot in which their rows replaced others. `added` is the snapshot that
    added files to them, and how many at most to each."""
    if not (connection.settings.inline_compaction and compacts_inline(table.schema)):
        return ()
    try:
        if not buckets:
            return ()
        if added is not None and table.schema.is_primary_key_table:
            manifests = connection.manifests(table.location, lambda: ManifestCache(table.paimon))
            if not may_be_due(table, added[0], buckets, added[1], manifests):
                return ()
        scope = CompactionScope(
            is_full(table.schema), buckets=buckets, overwritten_snapshot=overwritten
        )
        plan = planned_compaction(connection, table, scope)
        if plan is None:
            return ()
        if plan.read_bytes > INLINE_BYTES_MAX:
            return (
                f"{size_text(plan.read_bytes)} of `{table.name}` wait for a compaction, too "
                f"much to do after a statement: CALL sys.compact('{table_text(table.name)}').",
            )
        # Where rows show without a compaction, another one that runs on the bucket is enough.
        wait_ms = _CLAIMS_WAIT_MS if table.schema.looks_up else 0
        compact_plan(connection, plan, scope, statement, claims_wait_ms=wait_ms)
        return ()
    except Exception as error:
        reason = error.message if isinstance(error, PaimonMagicsError) else repr(error)
        return (f"The rows are committed; compacting them failed: {reason}",)
    except KeyboardInterrupt:
        return ("The rows are committed; the compaction after it was interrupted.",)
