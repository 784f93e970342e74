"""Checks publications, and publishes a commit again that an outside writer has overwritten.

The core decides; this module acts, in the coordinator's pool of threads. Code that changes a table
outside transactions (the REST catalog) reports to it which snapshots it publishes and which it
removes on purpose. If the process dies while a commit is published again, the next check finds the
new snapshot by its property, before anything else is published on its table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from paimon_magics.coordinator.core.events import (
    ChainCut,
    CheckFinished,
    CheckRequested,
    Event,
    Noted,
    NotPublished,
    Republished,
    ResumeRequested,
    TableDropped,
    TableMoved,
)
from paimon_magics.coordinator.core.values import Answer, Pause, TransactionState
from paimon_magics.coordinator.protocol.clock import machine_ms, now_ms
from paimon_magics.coordinator.service.state_thread import StateThread
from paimon_magics.coordinator.store.state_store import StateStore
from paimon_magics.coordinator.turns import Turns
from paimon_magics.errors import (
    CommitConflictError,
    PaimonMagicsError,
    SetupError,
    StatementError,
    UnknownNameError,
    UnknownOutcomeError,
)
from paimon_magics.faults import reach
from paimon_magics.planning.commits.publications import Publication, PublicationFinding, Verdict
from paimon_magics.planning.commits.requests import CommitReceipt, CommitRequest
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.decoded_request import DecodedRequest, decoded
from paimon_magics.tables.commits.fencing import Fence, commit_fenced
from paimon_magics.tables.commits.message_checks import has_other_creation
from paimon_magics.tables.commits.publication_checks import created_since, examine, moved
from paimon_magics.tables.commits.republishing import (
    ChangedFiles,
    changed_by_request,
    repetition,
    unrepeatable,
)
from paimon_magics.tables.expiry.expired_files import repetition_token
from paimon_magics.tables.table import Table, publishes_itself


def publication_of(
    id: str, decoded_request: DecodedRequest, receipt: CommitReceipt, at_ms: int
) -> Publication | None:
    """Return the publication that a transaction's commit made.

    None when there is no snapshot, or when a catalog behind this catalog published it.
    """
    table, request = decoded_request.table, decoded_request.request
    if receipt.snapshot_id is None or receipt.manifest_list is None or publishes_itself(table):
        return None
    return Publication(
        id=id,
        table=table.name,
        location=table.location,
        snapshot_id=receipt.snapshot_id,
        manifest_list=receipt.manifest_list,
        commit_user=request.transaction.commit_user,
        commit_identifier=request.transaction.commit_identifier,
        commit_kind=receipt.commit_kind or "",
        published_at_ms=at_ms,
        rests_on=receipt.rests_on,
        changes_index=decoded_request.changes_index,
        has_read=request.read_set is not None,
        table_creation=request.transaction.table_creation,
    )


class PublicationMonitor:
    """The part of a coordinator that knows the publications. For any thread."""

    def __init__(
        self,
        catalog: Catalog,
        store: StateStore,
        turns: Turns,
        state_thread: StateThread,
        fence: Callable[[], Fence] | None = None,
    ) -> None:
        self._now_ms = state_thread.now_ms
        self._catalog = catalog
        self._store = store
        self._turns = turns
        self._state_thread = state_thread
        self._ask = state_thread.ask_event
        self._fence = fence

    # ---- in the pool ----

    def look(self, location: str, loaded: Table | None = None) -> tuple[PublicationFinding, ...]:
        """Return a finding for each of a table's publications. Raises the errors of reading them.

        `loaded` is the table, or a branch of it, if the caller has just loaded it.
        """
        with self._turns(location):
            by_name: dict[TableName, list[Publication]] = {}
            for publication in self._state_thread.state.watched.get(location, ()):
                by_name.setdefault(publication.table, []).append(publication)
            return tuple(
                finding
                for name, publications in by_name.items()
                for finding in self._look(location, name, publications, loaded)
            )

    def check(self, location: str) -> Event:
        """Check the publications of a table on which nothing else is under way. Raises the errors
        of reading them.
        """
        return self.finished_check(location, self.look(location), before="")

    def finished_check(
        self, location: str, findings: tuple[PublicationFinding, ...], before: str
    ) -> Event:
        """The event that reports findings to the core. `before` is the commit that was put off for
        them, "" for none.
        """
        if any(finding.verdict is Verdict.OVERWRITTEN for finding in findings):
            reach("watch.found")
        return CheckFinished(location, findings, self._now_ms(), self._finished(findings), before)

    def republish(self, publication: Publication) -> Event:
        """Publish an overwritten commit again, unless it is in the table or must not come back.
        Raises DeposedError; after any other error it is unknown whether it is in the table."""
        location = publication.location
        try:
            with self._turns(location):
                finding = self._republished(publication)
        except (UnknownOutcomeError, SetupError):
            raise
        except PaimonMagicsError as error:
            finding = PublicationFinding(
                publication.id, Verdict.LOST, _not_again(publication, error)
            )
        reach("republish.published")
        finished = self._finished((finding,))
        return Republished(location, finding, self._now_ms(), finished[0] if finished else None)

    # ---- for changes outside transactions ----

    def before_change(self, location: str) -> Answer:
        """Check a table before something is published on it; Done, Halted or Unchecked."""
        return self._ask(lambda ask: CheckRequested(location, ask))

    def forget_predecessor(self, table: Table) -> None:
        """Let a new table at the location of a stopped table, which was dropped, take commits."""
        stopped = self._state_thread.state.stopped.get(table.location)
        if stopped is not None and created_since(
            table, machine_ms(stopped.since_ms, self._now_ms())
        ):
            self.table_dropped(table.location)

    def pause(self) -> Pause | None:
        """The coordinator's pause, None when it is not paused."""
        return self._state_thread.state.pause

    def note(self, publication: Publication) -> Answer:
        """Remember a publication that was made, or (not `certain`) is about to be."""
        return self._ask(lambda ask: Noted(publication, self._now_ms(), ask))

    def not_published(self, publication: Publication) -> Answer:
        """Forget a publication that was announced and not made."""
        return self._ask(lambda ask: NotPublished(publication, ask))

    def chain_cut(self, location: str, branch: str | None, above: int) -> Answer:
        """Note that the snapshots above an id will be removed on purpose: they are no longer
        watched, even if their removal fails. First it is determined which of them were published:
        afterwards nobody could. Raises the errors of reading them.
        """
        unclear = {
            p.id: p
            for p in self._state_thread.state.watched.get(location, ())
            if p.table.branch == branch and p.snapshot_id > above and not p.certain
        }
        for finding in self.look(location) if unclear else ():
            if finding.verdict is Verdict.INTACT and finding.id in unclear:
                self.note(replace(unclear[finding.id], certain=True))
        return self._ask(lambda ask: ChainCut(location, branch, above, ask))

    def table_dropped(self, location: str) -> Answer:
        """Note that a table was dropped."""
        return self._ask(lambda ask: TableDropped(location, ask))

    def table_moved(
        self, location: str, to_location: str, to: TableName, *, branch: str | None = None
    ) -> Answer:
        """Note that a table was renamed, or one of its branches."""
        return self._ask(lambda ask: TableMoved(location, to_location, to, ask, branch))

    def resume(self, location: str) -> Answer:
        """Let a stopped table take commits again, as it is."""
        return self._ask(lambda ask: ResumeRequested(location, ask))

    def published_by(self, location: str, commit_user: str) -> list[Publication]:
        """The publications of a commit user to a table that are still kept."""
        return self._store.publications.by(location, commit_user)

    # ---- their parts ----

    def _look(
        self,
        location: str,
        name: TableName,
        publications: Sequence[Publication],
        loaded: Table | None = None,
    ) -> tuple[PublicationFinding, ...]:
        try:
            is_loaded = loaded is not None and loaded.name == name
            table = loaded if is_loaded else self._catalog.load(name)
        except UnknownNameError:
            table = None
        if table is None or table.location != location:  # dropped or renamed by others
            return tuple(PublicationFinding(p.id, Verdict.SETTLED) for p in publications)

        def changed_files(publication: Publication) -> ChangedFiles | None:
            request = self._request_of(publication)
            try:
                return None if request is None else changed_by_request(decoded(table, request))
            except (StatementError, CommitConflictError):
                return None  # the table has another definition, or is another one: not repeatable

        return _of_this_table(table, publications, examine(table, publications, changed_files))

    def _republished(self, publication: Publication) -> PublicationFinding:
        findings = self._look(publication.location, publication.table, [publication])
        if findings[0].verdict is not Verdict.OVERWRITTEN:
            return findings[0]
        table = self._catalog.load(publication.table)
        original = self._request_of(publication)
        if original is None and (why := unrepeatable(publication)):
            account = f"{findings[0].account[:-1]}, and can't be published again: {why}."
            return PublicationFinding(publication.id, Verdict.LOST, account)
        request = repetition(table, publication, original)
        fence = None if self._fence is None else self._fence()
        token = repetition_token(publication, self._store.publications.repetition_runs(publication))
        receipt = commit_fenced(decoded(table, request), self._catalog.publish, fence, token=token)
        return moved(publication, receipt, now_ms())

    def _request_of(self, publication: Publication) -> CommitRequest | None:
        if not publication.is_transaction:
            return None
        return self._state_thread.stored.request(publication.id)

    def _finished(self, findings: Sequence[PublicationFinding]) -> tuple[TransactionState, ...]:
        """The finished transactions whose publications were published again or lost."""
        transactions = (
            self._store.transactions.finished(finding.id)
            for finding in findings
            if finding.verdict in (Verdict.REPUBLISHED, Verdict.LOST)
        )
        return tuple(transaction for transaction in transactions if transaction is not None)


def _of_this_table(
    table: Table, publications: Sequence[Publication], findings: tuple[PublicationFinding, ...]
) -> tuple[PublicationFinding, ...]:
    """The findings, without those about another table that had the place before: somebody has
    moved tables beside the coordinator. The store is asked only when something seems wrong."""
    creations = {p.id: p.table_creation for p in publications}

    def is_of_another(finding: PublicationFinding) -> bool:
        is_wrong = finding.verdict in (Verdict.OVERWRITTEN, Verdict.LOST)
        return is_wrong and has_other_creation(table, creations[finding.id])

    return tuple(
        PublicationFinding(finding.id, Verdict.SETTLED) if is_of_another(finding) else finding
        for finding in findings
    )


def _not_again(publication: Publication, error: PaimonMagicsError) -> str:
    return (
        f"Snapshot {publication.snapshot_id} of `{publication.table}` was overwritten, and can't "
        f"be published again: {error.message}"
    )
