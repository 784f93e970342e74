"""CALL sys.compact_manifest: a snapshot with the same files, whose manifests are merged."""

from __future__ import annotations

import pyarrow as pa

from paimon_magics.coordinator.client.attempts import Attempts
from paimon_magics.errors import InvalidValueError, PaimonMagicsError, nearest
from paimon_magics.planning.commits.requests import CommitRequest, CompactManifests
from paimon_magics.planning.formatting import count_text, size_text
from paimon_magics.planning.options.values import memory_size_bytes
from paimon_magics.session.connection import Connection, located
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.provenance import Operation, provenance
from paimon_magics.session.writes.transactions import begun, committed
from paimon_magics.statements.maintenance import CompactManifest
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.version_changes import Call
from paimon_magics.tables.manifests.merging import ManifestCounts, counted_manifests
from paimon_magics.tables.table import Table

__all__ = ["manifest_lines", "run_manifest_compaction"]

_TARGET = "manifest.target-file-size"
# All manifests are merged, so that these have no say; Paimon sets them, too.
_WITHOUT_EFFECT = ("manifest.merge-min-count", "manifest.full-compaction-threshold-size")


def run_manifest_compaction(
    connection: Connection, statement: Call, name: TableName, asked: CompactManifest, position: int
) -> Outcome:
    """Run CALL sys.compact_manifest. It returns true, also where there was nothing to do."""
    table, target_bytes = _checked(connection, statement, name, asked, position)
    rows = pa.table({"result": pa.array([True])})
    outcome = Outcome.of_rows(connection.spark, statement.text, "CALL", rows)
    outcome.table = str(table.name)
    if asked.dry_run:
        outcome.message = _described(table, counted_manifests(table, target_bytes))
        return outcome
    before = counted_manifests(table, target_bytes)
    attempts = Attempts(reruns_max=0)
    transaction = begun(connection, table.name, None, attempts, compacts=True)
    properties = provenance(connection, statement.text, Operation("COMPACT"))
    request = CommitRequest(transaction, CompactManifests(target_bytes), properties=properties)
    receipt = committed(connection, request)
    outcome.notes = attempts.notes()
    outcome.snapshot_id, outcome.commit_kind = receipt.snapshot_id, receipt.commit_kind
    if receipt.snapshot_id is None:
        outcome.message = f"`{table.name}`: no manifests to merge."
        return outcome
    after = counted_manifests(table, target_bytes)
    outcome.message = (
        f"`{table.name}`: {count_text(before.files, 'manifest')} became {after.files:,} "
        f"(snapshot {receipt.snapshot_id})."
    )
    return outcome


def manifest_lines(
    connection: Connection, statement: Call, name: TableName, asked: CompactManifest, position: int
) -> list[str]:
    """The manifests that CALL sys.compact_manifest would be about."""
    table, target_bytes = _checked(connection, statement, name, asked, position)
    return [_described(table, counted_manifests(table, target_bytes))]


def _described(table: Table, counts: ManifestCounts) -> str:
    """In the words of Paimon's `ManifestCompactDryRun`."""
    return (
        f"`{table.name}`: {count_text(counts.files, 'manifest')} ({size_text(counts.size_bytes)}); "
        f"{count_text(counts.deletions, 'deletion')} in {counts.with_deletions:,} of them, "
        f"{counts.small:,} smaller than {size_text(counts.target_bytes)}."
    )


def _checked(
    connection: Connection, statement: Call, name: TableName, asked: CompactManifest, position: int
) -> tuple[Table, int | None]:
    """The table, and the target size that `options` give."""
    table = connection.load(name, statement.text, position)
    try:
        return table, _target_bytes(asked.options)
    except PaimonMagicsError as error:
        raise located(error, statement.text, statement.procedure_position) from None


def _target_bytes(options: str | None) -> int | None:
    target = None
    for pair in filter(None, (part.strip() for part in (options or "").split(","))):
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise InvalidValueError(
                f"`options` has '{pair}', which is no pair of an option and its value.",
                hint=f"Write options => '{_TARGET}=16 mb'.",
            )
        if key not in (_TARGET, *_WITHOUT_EFFECT):
            raise InvalidValueError(
                f"The option '{key}' says nothing about merging manifests.",
                hint=nearest(key, (_TARGET, *_WITHOUT_EFFECT), what="options"),
            )
        if key == _TARGET:
            target = memory_size_bytes(key, value)
    return target
