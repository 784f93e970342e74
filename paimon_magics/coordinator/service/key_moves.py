"""Moves keys of a table with dynamic buckets to where a streaming job has put them, before the
job's commit: a COMPACT snapshot of the coordinator's own, after which the job's commit fits.

The job's client prepares its commit again on that snapshot. If this process dies before the
snapshot is published, the table is unchanged, and the transaction's files are removed. If it dies
after, the rows are the same as before, in other buckets, with or without the job's commit.

Only the keys of a writer that commits checkpoints, and that is the only such writer, may be moved.
A batch job can be started again. The last commit of an ending stream looks like a batch job's
commit, but other commits of its user came before. If two streaming jobs put a key into two buckets,
each would write the key to its own bucket.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from paimon_magics.coordinator.core.values import (
    Cause,
    Committed,
    Gone,
    Origin,
    Refusal,
    reason_of,
)
from paimon_magics.coordinator.service.transactions import Purpose, Transactions
from paimon_magics.coordinator.turns import Turns
from paimon_magics.errors import CommitConflictError
from paimon_magics.planning.commits.requests import (
    BATCH_COMMIT_IDENTIFIER,
    CommitRequest,
    Compact,
    Transaction,
)
from paimon_magics.planning.compaction.schedule import obstacle_to_moves
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.dynamic_keys import KEYS_MOVED_FOR
from paimon_magics.tables.compaction.key_moves import KeyMoves, plan_key_moves
from paimon_magics.tables.manifests.hash_indexes import Bucket, HashIndexes, StaleIndexError
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.snapshots.other_engines import streaming_jobs
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import write_message

_TRIES_MAX = 5  # others may write the same buckets meanwhile; then the client must retry
_HEARTBEAT_SECONDS = 5.0
_OWNER = "the coordinator, for keys of a streaming job"

_log = logging.getLogger(__name__)

Document = Mapping[str, Any]


class KeyMover:
    """Moves keys for commits of streaming jobs, one move of a table at a time."""

    def __init__(self, catalog: Catalog, transactions: Transactions) -> None:
        self._catalog = catalog
        self._transactions = transactions
        self._indexes = HashIndexes()
        self._turns = Turns()

    def move(
        self,
        name: TableName,
        commit: Document,
        refused: StaleIndexError,
        first: Mapping[Bucket, int],
    ) -> None:
        """Move the keys for which the `commit` of an engine was `refused`. `first` has the least
        sequence number of its new rows in each bucket.

        Raises `refused`, with the reason, if they must not be moved; CommitConflictError when
        others keep writing the same buckets; PausedError in a pause.
        """
        targets = {(keys.partition, keys.bucket) for keys in refused.misplaced}
        if not (targets and targets <= first.keys()):
            raise refused
        numbers = {bucket: first[bucket] - 1 for bucket in targets}
        reason = ""
        with self._turns(self._catalog.load(name).location):
            for _ in range(_TRIES_MAX):
                table = self._catalog.load(name)
                latest = latest_snapshot(table.paimon)
                self._check(table, latest, commit, refused)
                moves = plan_key_moves(table, latest, refused.misplaced, numbers, self._indexes)
                if moves is None:
                    return
                reason = self._run(moves, str(commit["commitUser"]))
                if not reason:
                    return
                _log.info("Keys of `%s` are moved again: %s", name, reason)
        raise CommitConflictError(f"Keys of `{name}` could not be moved: {reason}")

    def _check(self, table: Table, latest: Any, commit: Document, refused: StaleIndexError) -> None:
        user = str(commit["commitUser"])
        jobs = {job.user: job for job in streaming_jobs(table.paimon, latest.id)}
        own = jobs.pop(user, None)
        if commit["commitIdentifier"] == BATCH_COMMIT_IDENTIFIER and own is None:
            raise refused
        obstacle = obstacle_to_moves(table.schema)
        first = 0 if own is None else own.first_id
        others = [job.user for job in jobs.values() if job.last_id > first]
        why = ""
        if obstacle is not None:
            why = f"In a table with {obstacle}, keys must stay in their buckets."
        elif others:
            why = f"The streaming job {others[0]} also writes the table."
        if why:
            raise StaleIndexError(f"{refused.message} {why}", hint=refused.hint) from refused

    def _run(self, moves: KeyMoves, user: str) -> str:
        """Move the keys; return why they could not be, "" when they were."""
        table = moves.table
        id, transaction, _ = self._transactions.begin(
            table.name,
            moves.snapshot_id,
            _OWNER,
            Origin(engine="coordinator"),
            purpose=Purpose.COMPACTION,
        )
        try:
            request = self._request(id, moves, transaction, user)
        except BaseException:
            self._transactions.abort(id, "the keys could not be moved")
            raise
        match self._transactions.commit(id, request):
            case Committed():
                return ""
            case Refusal(reason=reason, cause=Cause.OUTDATED | Cause.COMPACTION | Cause.CONFLICT):
                self._transactions.abort(id, reason)
                return reason
            case Refusal(reason=reason) | Gone(reason=reason):
                return reason
            case answer:
                raise CommitConflictError(
                    f"Whether keys of `{table.name}` were moved is unknown: {reason_of(answer)}"
                )

    def _request(
        self, id: str, moves: KeyMoves, transaction: Transaction, user: str
    ) -> CommitRequest:
        renewed = time.monotonic()

        def renew() -> None:
            nonlocal renewed
            if time.monotonic() - renewed > _HEARTBEAT_SECONDS:
                self._transactions.heartbeat(id)
                renewed = time.monotonic()

        messages = moves.messages(transaction, renew)
        return CommitRequest(
            transaction,
            Compact(moves_keys=True),
            tuple(write_message(moves.table.paimon, message) for message in messages),
            ((KEYS_MOVED_FOR, user),),
        )
