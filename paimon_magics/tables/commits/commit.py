"""Commits a request: looks it up, checks it, prepares a snapshot on the latest snapshot and
publishes it by a primitive that the caller passes. If another commit was faster, prepares the
snapshot again.

pypaimon's own commit checks and then renames on a file system, which loses commits under concurrent
writers, and it never merges manifests. So only its conflict detection and its file formats are used
here. A REST catalog publishes by its own compare-and-swap.

If the process dies, either nothing or everything is committed. Metadata files of the run that no
snapshot names stay until `remove_run` removes them by the run's token.
"""

from __future__ import annotations

import contextlib
import random
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pypaimon.common.json_util import JSON
from pypaimon.manifest import avro_codec
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.table.row.generic_row import GenericRowSerializer
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import (
    CommitConflictError,
    CompactionConflictError,
    OutdatedPlanError,
    PaimonMagicsError,
    SetupError,
    UnknownOutcomeError,
    UnsupportedStatementError,
    with_one_stop,
)
from paimon_magics.faults import reach
from paimon_magics.planning.commits.requests import (
    CommitReceipt,
    Compact,
    OverwritePartitions,
    OverwriteTouched,
    Transaction,
)
from paimon_magics.planning.compaction.keyed_tables import PickOptions
from paimon_magics.planning.compaction.schedule import compacts_inline, is_full
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.tables.commits.changes import Changes, plan_changes
from paimon_magics.tables.commits.commit_checks import (
    FileConflicts,
    bucket_check,
    other_commits,
    overwrite_check,
)
from paimon_magics.tables.commits.compaction_conflicts import (
    CompactionConflicts,
    overlapping_places,
)
from paimon_magics.tables.commits.decoded_request import (
    DecodedRequest,
    file_is_gone,
    file_paths,
)
from paimon_magics.tables.commits.dynamic_keys import streamed_keys_check
from paimon_magics.tables.commits.message_checks import check_creation, check_messages
from paimon_magics.tables.commits.prepare import Prepared, SnapshotPreparation
from paimon_magics.tables.commits.read_checks import read_check, read_properties
from paimon_magics.tables.commits.receipts import find_commit, find_snapshot, log_check, receipt_of
from paimon_magics.tables.manifests.names import MetadataNames, manifest_folder, remove_metadata
from paimon_magics.tables.manifests.partitions import partition_statistics
from paimon_magics.tables.snapshots.latest import latest_snapshot, write_hint
from paimon_magics.tables.stores.local_store import begin_sync, sync_files
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.stores.store import Publish, failure, store_errors
from paimon_magics.tables.table import Table, publishes_itself
from paimon_magics.tables.writing.bucket_counts import compacted_bucket_counts, own_bucket_counts

_RETRIES_MAX = 100
# What pypaimon and pyarrow raise for bad content; stores raise other errors.
_DATA_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
_NOTHING = CommitReceipt(snapshot_id=None, commit_kind=None, total_rows=None, delta_rows=0)


def check_can_publish(table: Table) -> None:
    """Raise UnsupportedStatementError for a table whose manifests can't be written, or a store in
    which snapshots can't be created safely; SetupError if the store can't be written."""
    if (table.schema.option("manifest.format") or "avro").lower() != "avro":
        raise UnsupportedStatementError(
            f"Table `{table.name}` has 'manifest.format' = "
            f"'{table.schema.option('manifest.format')}'; only avro can be written.",
            hint="Write it with another engine.",
        )
    try:
        avro_codec(table.paimon.options.manifest_compression())
    except ValueError:
        raise UnsupportedStatementError(
            f"Table `{table.name}` has 'manifest.compression' = "
            f"'{table.schema.option('manifest.compression')}', which can't be written.",
            hint="Use zstd (the default), snappy, deflate or null.",
        ) from None
    if not publishes_itself(table):
        table.store.check()


def commit(
    decoded: DecodedRequest,
    publish: Publish,
    *,
    token: str | None = None,
    is_first_run: bool = False,
    properties: Mapping[str, str] | None = None,
    check_before: Callable[[int], None] | None = None,
) -> CommitReceipt:
    """Commit a request. A request that was committed before gets the same receipt.

    With `is_first_run` the caller knows that the request was never published. `token` marks the
    metadata files of this run, for `remove_run`; each run needs its own. `properties` go into the
    snapshot besides those of the request. `check_before` is called with the id of each snapshot
    right before it is published, and raises one of our errors to refuse it.

    Raises CommitConflictError if it certainly was not published, UnknownOutcomeError if that is
    unknown, TableDamagedError for messages that contradict each other. An overwrite conflicts with
    rows that were added, after it was planned, to what it replaces. CompactionConflictError says
    which messages of a compaction conflict with other commits.
    """
    if not is_first_run:
        receipt = _find_again(decoded)
        if receipt is not None:
            return receipt
    table = decoded.table
    check_creation(table, decoded.request.transaction)
    check_messages(decoded.messages, table, decoded.request.transaction)
    if isinstance(decoded.request.change, Compact):
        compacted_bucket_counts(table, decoded.messages)
    else:
        own_bucket_counts(table, decoded.messages)
        if isinstance(decoded.request.change, OverwritePartitions | OverwriteTouched):
            _upgrade_overwritten(table, decoded.messages)
    with store_errors(f"The commit to `{table.name}`"), _conflict_if_gone(table):
        begin_sync(file_paths(decoded))
    try:
        run = _Run(decoded, publish, token or uuid.uuid4().hex, properties or {})
    except _DATA_ERRORS as error:
        raise _unexpected(table, error) from error
    return run.commit(check_before or (lambda _: None))


def remove_run(table: Table, transaction: Transaction, token: str) -> int:
    """Remove the metadata files that a run of the transaction's commit left; return how many.

    Call it for a run that died. Files that the transaction's snapshot names stay. Raises
    UnknownOutcomeError if it is unknown whether there is such a snapshot.
    """
    latest = latest_snapshot(table.paimon)
    snapshot = find_snapshot(table, transaction, latest, transaction.base_snapshot_id)
    keep = set() if snapshot is None else _metadata_of(table, snapshot)
    return remove_metadata(table.paimon, token, keep)


def _find_again(decoded: DecodedRequest) -> CommitReceipt | None:
    """The receipt of a request if an earlier run published it, else None."""
    table = decoded.table
    try:
        return find_commit(table, decoded.request.transaction)
    except OSError as error:
        raise UnknownOutcomeError(
            f"Whether this statement was committed to `{table.name}` is unknown: {error}",
            hint=f"Look at `{table.name}$snapshots` before running it again.",
        ) from error


class _Run:
    """One run of a commit: makes attempts until one is published or refused."""

    def __init__(
        self, decoded: DecodedRequest, publish: Publish, token: str, properties: Mapping[str, str]
    ) -> None:
        table, request, messages = decoded.table, decoded.request, decoded.messages
        self._table = table
        self._messages = messages
        self._transaction = request.transaction
        self._changes_on = plan_changes(table, request.change, messages)
        self._checks = [
            overwrite_check(table, request, messages),
            log_check(table, request),
            bucket_check(table, request, messages),
            streamed_keys_check(table, request, messages),
            read_check(table, request, messages),
        ]
        self._may_run_again = request.read_set is not None
        self._conflicts = (
            CompactionConflicts(table, messages, decoded.positions)
            if isinstance(request.change, Compact)
            else FileConflicts(table, messages)
        )
        self._names = MetadataNames(token)
        self._preparation = SnapshotPreparation(
            table,
            request,
            {**dict(request.properties), **properties, **read_properties(request)},
            self._names,
        )
        self._create = publish
        # Asked for before any attempt: a catalog that does not answer has published nothing then.
        environment, snapshots = table.paimon.catalog_environment, table.paimon.snapshot_manager()
        self._catalog = environment.snapshot_commit(snapshots) if publishes_itself(table) else None
        self._unsynced = file_paths(decoded)
        self._tried: list[Prepared] = []
        # The attempts whose snapshot may still appear, and the failure of the last one.
        self._unclear: list[Prepared] = []
        self._failure: Exception | None = None
        self._searched_to = request.transaction.base_snapshot_id
        self._rests_on: str | None = None

    def commit(self, check_before: Callable[[int], None]) -> CommitReceipt:
        try:
            published = self._attempts(check_before)
        except BaseException as error:  # also when it is interrupted
            self._remove_unneeded(None)
            is_known = isinstance(error, (PaimonMagicsError, OSError, *_DATA_ERRORS))
            if is_known and self._may_appear():
                raise self._without_answer() from error
            if isinstance(error, OSError):
                raise failure(
                    error,
                    f"The commit to `{self._table.name}` failed: {error}",
                    hint="Nothing was committed. Run the statement again when the store is "
                    "available.",
                ) from error
            if isinstance(error, _DATA_ERRORS):
                raise _unexpected(self._table, error) from error
            raise
        self._remove_unneeded(published)
        if published is None:
            return _NOTHING
        return replace(receipt_of(published), rests_on=self._rests_on)

    def _attempts(self, check_before: Callable[[int], None]) -> Any:
        """The snapshot that was published, None if there was nothing to commit."""
        options = self._table.paimon.options
        retries_max = _retries_max(self._table)
        started = time.monotonic()
        attempt = 0
        while True:
            latest = latest_snapshot(self._table.paimon)
            if attempt:
                published = self._find_published(latest)
                if published is not None:
                    return published
            self._searched_to = 0 if latest is None else latest.id
            self._check_base()
            changes = self._changes_on(latest)
            if not (changes.makes_snapshot and self._preparation.changes_something(latest)):
                return None
            if self._check(latest, changes):
                prepared = self._prepare(latest, changes)
                self._sync(prepared)
                check_creation(self._table, self._transaction)
                check_before(prepared.snapshot.id)
                if self._publish(prepared):
                    self._rests_on = None if latest is None else latest.delta_manifest_list
                    return prepared.snapshot
            elapsed_ms = (time.monotonic() - started) * 1000
            if attempt >= retries_max or elapsed_ms > options.commit_timeout():
                raise self._out_of_attempts(attempt + 1)
            _wait(options, attempt)
            attempt += 1

    def _check_base(self) -> None:
        """Raise CommitConflictError where the table was rolled back to before the transaction's
        base: its snapshot is searched for after the base, and would never be found there."""
        base_id = self._transaction.base_snapshot_id
        if self._searched_to < base_id:
            raise self._refused()(
                f"`{self._table.name}` was rolled back to before snapshot {base_id}, on which this "
                "statement began.",
                hint="Nothing was written. Run the statement again.",
            )

    def _refused(self) -> type[CommitConflictError]:
        return OutdatedPlanError if self._may_run_again else CommitConflictError

    def _find_published(self, latest: Any) -> Any:
        """The snapshot of an attempt whose result is unknown, None if there is none."""
        try:
            return find_snapshot(self._table, self._transaction, latest, self._searched_to)
        except UnknownOutcomeError:
            if self._unclear:
                raise
            return None  # the snapshots that expired were others': all attempts were refused

    def _check(self, latest: Any, changes: Changes) -> bool:
        """Raise CommitConflictError for a conflict; return False if a conflicting compaction was
        rolled back."""
        for check in filter(None, self._checks):
            check(latest)
        conflict = self._conflicts.find(latest, changes)
        if conflict is None:
            return True
        if self._conflicts.roll_back(latest, changes):
            return False
        others = other_commits(
            self._table, self._transaction.base_snapshot_id, self._messages, latest
        )
        if isinstance(conflict, CompactionConflictError):
            text = f"{conflict.message} {others}".rstrip()
            raise CompactionConflictError(text, conflict.conflicting, hint=conflict.hint)
        if isinstance(conflict, PaimonMagicsError):
            raise conflict
        text = with_one_stop(f"The commit to `{self._table.name}` was refused: {conflict}.")
        raise self._refused()(
            f"{text} {others}".rstrip(),
            hint="Nothing was written. Run the statement again: it plans on the current snapshot.",
        ) from conflict

    def _prepare(self, latest: Any, changes: Changes) -> Prepared:
        try:
            return self._preparation.prepare(latest, changes)
        except PaimonMagicsError:
            raise
        except Exception as error:
            raise failure(
                error,
                f"The commit to `{self._table.name}` could not be prepared: {error}",
                hint="Nothing was committed. Fix the cause that the message names, then run the "
                "statement again.",
            ) from error

    def _sync(self, prepared: Prepared) -> None:
        """Sync all files that the snapshot names to disk: data files, manifests and their lists."""
        folder = manifest_folder(self._table.paimon)
        manifests = [f"{folder}/{name}" for name in prepared.names]
        with _conflict_if_gone(self._table):
            sync_files([*self._unsynced, *prepared.index_paths, *manifests])
        self._unsynced = []

    def _publish(self, prepared: Prepared) -> bool:
        """Whether the snapshot was published. Also False if that is unknown; the next attempt then
        searches for it first."""
        self._tried.append(prepared)
        self._unclear.append(prepared)
        try:
            is_published = (
                _publish_file(self._table, prepared, self._create)
                if self._catalog is None
                else _publish_by_catalog(self._table, prepared, self._catalog)
            )
        except PaimonMagicsError:
            self._unclear.pop()
            raise
        except Exception as error:
            self._failure = error
            return False
        self._unclear.pop()
        return is_published

    def _may_appear(self) -> bool:
        """Whether the snapshot of an attempt with unknown result may still appear: its id is not
        taken."""
        return any(prepared.snapshot.id > self._searched_to for prepared in self._unclear)

    def _without_answer(self) -> UnknownOutcomeError:
        return UnknownOutcomeError(
            f"The commit to `{self._table.name}` failed without a clear answer: {self._failure}",
            hint=f"Look at `{self._table.name}$snapshots` before running the statement again.",
        )

    def _out_of_attempts(self, attempts: int) -> PaimonMagicsError:
        return OutdatedPlanError(
            f"Other commits to `{self._table.name}` preceded this one {attempts} times.",
            hint="Nothing was written. Run the statement again, or raise 'commit.max-retries'.",
        )

    def _remove_unneeded(self, published: Any) -> None:
        """Remove the run's metadata files that no snapshot names, newest first.

        Files of an attempt with unknown result stay unless its id is taken: its snapshot may still
        appear.
        """
        taken_to = self._searched_to if published is None else published.id
        staying = [attempt for attempt in self._unclear if attempt.snapshot.id > taken_to]
        file_io = self._table.paimon.file_io
        for prepared in self._tried:
            if published is not None and prepared.snapshot.uuid == published.uuid:
                staying.append(prepared)
                for path in prepared.superseded:
                    file_io.delete_quietly(path)
            elif not any(attempt is prepared for attempt in staying):
                for path in prepared.index_paths:
                    file_io.delete_quietly(path)
        needed = {name for prepared in staying for name in prepared.names}
        folder = manifest_folder(self._table.paimon)
        for name in reversed(self._names.issued):
            if name not in needed:
                file_io.delete_quietly(f"{folder}/{name}")


def _retries_max(table: Table) -> int:
    """The table's `commit.max-retries`, if set. Paimon's default of 10 is too low for eight writers
    on a store that takes tenths of a second, and an append need never fail."""
    stored = table.schema.stored_option("commit.max-retries")
    return _RETRIES_MAX if stored is None else int(table.paimon.options.commit_max_retries())


def _wait(options: Any, attempt: int) -> None:
    """Wait before the next attempt as Paimon does: `commit.min-retry-wait`, doubled each time."""
    wait_ms = min(options.commit_min_retry_wait() * 2**attempt, options.commit_max_retry_wait())
    time.sleep(wait_ms * random.uniform(1.0, 1.2) / 1000)


def _metadata_of(table: Table, snapshot: Any) -> set[str]:
    """The names of all metadata files that a snapshot refers to."""
    lists = ManifestListManager(table.paimon)
    names = {snapshot.base_manifest_list, snapshot.delta_manifest_list}
    manifests = lists.read_all(snapshot)
    if snapshot.changelog_manifest_list is not None:
        names.add(snapshot.changelog_manifest_list)
        manifests += lists.read_changelog(snapshot)
    if snapshot.index_manifest is not None:
        names.add(snapshot.index_manifest)
    return names | {meta.file_name for meta in manifests}


@contextlib.contextmanager
def _conflict_if_gone(table: Table) -> Iterator[None]:
    """Raise CommitConflictError if the body finds a file missing."""
    try:
        yield
    except FileNotFoundError as error:
        raise file_is_gone(table, str(error.filename)) from error


def _unexpected(table: Table, error: BaseException) -> SetupError:
    """The error for unexpected messages or table files."""
    return SetupError(
        f"The commit to `{table.name}` failed unexpectedly: {error!r}",
        hint="Nothing was committed. Report this with the table's definition.",
    )


# Puts the files of an overwrite on the highest level, where nothing is below them any more.
#
# As Paimon's `FileStoreCommitImpl.tryUpgrade` (the option `overwrite-upgrade`). Files of tables
# whose compactions look rows up, or are full after every write, stay on level 0: the compaction
# after the statement moves them. So do files with deletes, which those tables would show as rows.


def _upgrade_overwritten(table: Table, messages: Sequence[CommitMessage]) -> None:
    """Set the level of the new files of an overwrite, which replace all files of their buckets."""
    schema = table.schema
    if not schema.is_primary_key_table or not schema.flag("overwrite-upgrade"):
        return
    if schema.flag("pk-clustering-override"):
        return
    files = [file for message in messages for file in message.new_files]
    if any(file.level > 0 for file in files) or any(m.bucket < 0 for m in messages if m.new_files):
        return
    options = PickOptions.of(schema)
    buckets: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for message in messages:
        buckets[tuple(message.partition), message.bucket] += message.new_files
    candidates = [of for of in buckets.values() if not _is_compacted(schema, options, len(of))]
    candidates = [of for of in candidates if all(file.delete_row_count == 0 for file in of)]
    overlapping = _overlapping(schema, candidates)
    for place, members in enumerate(candidates):
        if place not in overlapping:
            for file in members:
                file.level = options.level_count - 1


def _is_compacted(schema: TableSchema, options: PickOptions, files: int) -> bool:
    """Whether a writer compacts a bucket of so many new files after the statement."""
    if not compacts_inline(schema):
        return False
    return options.forces_level_0_up or is_full(schema) or files >= options.compaction_trigger


def _overlapping(schema: TableSchema, buckets: Sequence[Sequence[Any]]) -> set[int]:
    """The places of buckets in which the keys of two files overlap."""
    places = [place for place, files in enumerate(buckets) if len(files) > 1 for _ in files]
    several = [file for files in buckets if len(files) > 1 for file in files]
    if not several:
        return set()
    columns = {
        "place": pa.array(places, pa.int64()),
        "level": pa.array([0] * len(several), pa.int64()),
        "file_name": pa.array([file.file_name for file in several]),
        "min_key": _keys(file.min_key for file in several),
        "max_key": _keys(file.max_key for file in several),
    }
    return set(overlapping_places(pa.table(columns), schema))


def _keys(rows: Any) -> pa.Array:
    return pa.array([GenericRowSerializer.to_bytes(row) for row in rows], pa.large_binary())


# Publishes a prepared snapshot: creates its file if that is absent, or asks a REST catalog.
#
# The caller has synced all files that the snapshot names to disk before (`stores.syncing`). Both
# return False if the snapshot was not published because another commit has its id. They raise one
# of our errors if it was certainly not published. After any other exception the result is unknown.


def _publish_file(table: Table, prepared: Prepared, publish: Publish) -> bool:
    manager = table.paimon.snapshot_manager()
    snapshot = prepared.snapshot
    path = manager.get_snapshot_path(snapshot.id)
    reach("commit.prepared")
    content = JSON.to_json(snapshot, indent=2).encode()
    created = publish(local_path(path) or path, content)
    if created:
        reach("publish.linked")
        write_hint(table.store, manager.latest_file, snapshot.id)
    return created


def _publish_by_catalog(table: Table, prepared: Prepared, catalog: Any) -> bool:
    statistics = partition_statistics(table.paimon, prepared.entries)
    return bool(catalog.commit(prepared.base_uuid, prepared.snapshot, statistics))
