"""COPY INTO a table: files are found, read and cast, and their rows written in one transaction.

A file is loaded once: the history of the table (`tables/snapshots/load_history.py`) has its path,
size and time of change. It is noted before the commit, by the coordinator where there is one, and
completed after it. So a process that dies between the two loads nothing twice. Two loads into one
table at the same time don't, either: the commit of the second one is refused, and it is planned
again.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.errors import (
    InvalidValueError,
    JobError,
    OutdatedPlanError,
    PaimonMagicsError,
    SetupError,
    TableDamagedError,
    UnknownOutcomeError,
    UnsupportedStatementError,
)
from paimon_magics.faults import reach
from paimon_magics.planning.commits.read_sets import RowSearch, read_rows
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.copying.file_formats import ReadOptions, read_options
from paimon_magics.planning.copying.load_history import LoadRecord, PendingLoad
from paimon_magics.planning.copying.results import (
    FileErrors,
    FileResult,
    checked,
    columns,
    is_recorded,
    loaded,
    skipped,
)
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.row_changes.merges import Upsert
from paimon_magics.session.copying.source_files import (
    FileCopies,
    SourceFile,
    check_unchanged,
    source_files,
)
from paimon_magics.session.copying.source_rows import check_rejected, keep_rejected, rows_of_files
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.provenance import Operation
from paimon_magics.session.scope import Attachment, StatementScope, errors_translated
from paimon_magics.session.writes.outcomes import finished, of_write, with_losses, write_outcome
from paimon_magics.session.writes.prepare import GivenRows, PreparedWrite, prepare_insert
from paimon_magics.session.writes.transactions import run_again
from paimon_magics.session.writes.write_jobs import run_job, run_write
from paimon_magics.spark.copied_rows import (
    Origins,
    SourceRows,
    checked_rows,
    errors_by_file,
    good_rows,
    loaded_frame,
    rejected_rows,
)
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.writing import JobWritten
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.copying import CopyIntoTable
from paimon_magics.statements.statement import Insert, QueryText, TextRange
from paimon_magics.tables.snapshots.latest import latest_state
from paimon_magics.tables.snapshots.load_history import LoadHistory
from paimon_magics.tables.snapshots.provenance import LOAD, PREFIX
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.write_spec import WriteSpec

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

KIND = "COPY INTO"
_PREVIEW_ROWS = 10
_TYPES = {"errors_seen": pa.int64(), "rows_loaded": pa.int64(), "rows_parsed": pa.int64()}


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A checked COPY INTO: the table with its state before the history was read, the options, the
    files to load and those that were loaded before."""

    table: Table
    state: tuple[int, str]
    options: ReadOptions
    to_load: tuple[SourceFile, ...]
    known: tuple[SourceFile, ...]


def plan_load(scope: StatementScope, copy: CopyIntoTable) -> LoadPlan:
    """Check a COPY INTO, find its files, and leave out those that were loaded; no file is read.

    Raises InvalidValueError for options, UnknownNameError for tables, columns and files.
    """
    options = read_options(copy.format, copy.text)
    table = scope.load(copy.target, copy.text, copy.target_position)
    if Upsert.of(table.schema) is not None:
        raise UnsupportedStatementError(
            f"COPY INTO `{table.name}` is not offered: its option 'upsert-key' makes each INSERT a "
            "MERGE.",
            hint=f"Write INSERT INTO {table.name} SELECT … FROM csv.`path`.",
            statement=copy.text,
            position=copy.target_position,
        )
    if copy.rejected is not None:
        check_rejected(scope, copy, copy.rejected)
    state = latest_state(table)  # before the history is read: a later load counts as newer
    files = source_files(scope, copy)
    known: set[str] = set()
    if not copy.force:
        sources = {path: file.state for file in files for path in file.spellings}
        settles = not scope.committer.keeps_loads
        known = LoadHistory(table).loaded(sources, _now_ms(), settles=settles)
    return LoadPlan(
        table,
        state,
        options,
        tuple(file for file in files if not file.spellings & known),
        tuple(file for file in files if file.spellings & known),
    )


def run_load(scope: StatementScope, copy: CopyIntoTable) -> Outcome:
    """Run COPY INTO a table; return a row for each file.

    Raises errors of ours before anything is written for a statement that doesn't fit; and
    InvalidValueError for rows that can't be loaded. Then the table is as it was.
    """
    plan = plan_load(scope, copy)
    if copy.validate:
        return _validated(scope, copy, plan)
    return run_again(
        plan,
        lambda current, attempts: _run_once(scope, copy, current, attempts),
        lambda outdated: _planned_again(scope, copy),
        reruns_max=scope.settings.conflict_reruns_max,
        may_run_again=lambda outdated: True,
    )


def _run_once(
    scope: StatementScope, copy: CopyIntoTable, plan: LoadPlan, attempts: Attempts
) -> Outcome:
    load = _Load(scope, copy, plan)
    try:
        return load.run(attempts)
    finally:
        load.copies.remove()


def prepare_load(scope: StatementScope, copy: CopyIntoTable, plan: LoadPlan) -> PreparedWrite:
    """Plan the write of a COPY INTO that has files to load; nothing runs but what reads the first
    lines of a file. Copies of files are removed with the plan, which refers to them."""
    return _Load(scope, copy, plan).prepared(plan)


def _planned_again(scope: StatementScope, copy: CopyIntoTable) -> LoadPlan:
    scope.tables.renew()
    return plan_load(scope, copy)


@dataclass
class _Load:
    """One run of a COPY INTO. `plan` and what follows are those of the rows that were written."""

    scope: StatementScope
    copy: CopyIntoTable
    plan: LoadPlan
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    seen: dict[str, FileErrors] = field(default_factory=dict)
    origins: Origins | None = None
    transaction: Transaction | None = None
    pending: PendingLoad | None = None
    counts: dict[str, int] = field(default_factory=dict)
    unread: PaimonMagicsError | None = None
    copies: FileCopies = field(default_factory=FileCopies)

    def run(self, attempts: Attempts) -> Outcome:
        """Check the rows where ON_ERROR asks for it, write the good ones, and commit."""
        plan, copy = self.plan, self.copy
        if not plan.to_load:
            return self._outcome(None, [], "no new file to load")
        if copy.on_error != "ABORT_STATEMENT":
            self._check()
            if not self._to_write():
                return self._outcome(None, self._results(), "no file could be loaded")
        prepared = self.prepared(plan)
        try:
            scope = self.scope.attaching(Attachment(self._begun, ((PREFIX + LOAD, self.id),)))
            current, receipt, files = run_write(
                scope, prepared, attempts, copy.text, self._write, self._operation
            )
        except UnknownOutcomeError:
            raise  # the note stays, for the next load to settle
        except (InvalidValueError, JobError, TableDamagedError) as error:
            self._forget()
            raise self._explained(error) from error
        except PaimonMagicsError:  # certainly not committed; after any other error it may be
            self._forget()
            raise
        reach("load.committed")
        notes = self._recorded(receipt.snapshot_id)
        done = f"{count_text(files.rows, 'row')} of {count_text(len(self.counts), 'file')} loaded"
        written = of_write(files)
        outcome = write_outcome(copy.text, KIND, current.table, receipt, written, done)
        outcome = with_losses(outcome, current.table, files.losses)
        outcome = finished(
            self.scope, outcome, current.table, files.buckets, files_each=files.files_each
        )
        outcome.notes = (*notes, *outcome.notes)
        return self._outcome(outcome, self._results(), "")

    def validated(self) -> dict[str, FileErrors]:
        """What is wrong in the files, or in as many of their rows as VALIDATE names."""
        scope, copy = self.scope, self.copy
        rows, origins = self._rows(self.plan.to_load, tolerant=True)
        prepare_insert(scope, _insert_of(copy, rows), {}, GivenRows(loaded_frame(rows, rows.frame)))
        frame = checked_rows(rows)
        if copy.validated_rows is not None:
            frame = frame.limit(copy.validated_rows)
        return self.errors_in(frame, origins)

    def prepared(self, plan: LoadPlan) -> PreparedWrite:
        """Plan the write of the rows that can be loaded."""
        self.plan = plan
        scope, copy = self.scope, self.copy
        files = self._to_write()
        rows, self.origins = self._rows(files, tolerant=bool(self._errors()))
        source = good_rows(checked_rows(rows)) if self._errors() else rows.frame
        insert = _insert_of(copy, rows)
        new_rows = GivenRows(loaded_frame(rows, source))
        prepared = prepare_insert(scope, insert, {}, new_rows)
        prepared.check()
        read = None if copy.force else read_rows(
            plan.state[0], RowSearch(), manifest_list=plan.state[1]
        )  # fmt: skip
        return replace(
            prepared,
            read_set=read,
            base_snapshot_id=plan.state[0],
            base_manifest_list=plan.state[1],
            again=self._again,
        )

    def _again(self) -> PreparedWrite:
        """Plan the same files on the table as it is now. Raises OutdatedPlanError if some of them
        were loaded meanwhile."""
        plan = _planned_again(self.scope, self.copy)
        if not set(self.plan.to_load) <= set(plan.to_load):
            raise OutdatedPlanError(
                f"Files of `{self.copy.path}` were changed, or loaded by another COPY INTO.",
                hint="Nothing was written. Run the statement again.",
            )
        return self.prepared(replace(plan, to_load=self.plan.to_load))

    def _errors(self) -> bool:
        return any(file.errors for file in self.seen.values())

    def _to_write(self) -> list[SourceFile]:
        """The files whose rows are written."""
        if self.copy.on_error != "SKIP_FILE":
            return [
                file
                for file in self.plan.to_load
                if (errors := self.seen.get(file.place)) is None
                or errors.rows > errors.errors
                or not errors.errors
            ]
        return [
            file for file in self.plan.to_load if not self.seen.get(file.place, FileErrors()).errors
        ]

    def _rows(self, files: Sequence[SourceFile], *, tolerant: bool) -> tuple[SourceRows, Origins]:
        plan = self.plan
        return rows_of_files(
            *(self.scope, self.copy, plan.table.schema, plan.options, files, self.copies),
            tolerant=tolerant,
        )

    def _check(self) -> None:
        """Find the rows that can't be loaded, and keep them where the statement asks for it."""
        frame, rows = self.look()
        if self.copy.rejected is not None and self._errors():
            bad = rejected_rows(frame, rows, self.id)
            keep_rejected(self.scope, self.copy.rejected, bad)

    def look(self) -> tuple[DataFrame, SourceRows]:
        """Find the rows that can't be loaded; return all rows, checked and as they are read."""
        rows, origins = self._rows(self.plan.to_load, tolerant=True)
        frame = checked_rows(rows)
        self.seen = self.errors_in(frame, origins)
        return frame, rows

    def errors_in(self, frame: DataFrame, origins: Origins) -> dict[str, FileErrors]:
        """What is wrong in each file of `checked_rows`, by the files' places. Raises
        InvalidValueError for a file that can't be read."""
        try:
            with errors_translated(self.copy.text, self.copy.path_position):
                return _by_place(errors_by_file(self.scope.spark, frame), origins)
        except PaimonMagicsError as error:
            self.unread = _of_file(self.copy, origins, error)
            if self.unread is None:
                raise
            raise self.unread from error

    def _begun(self, transaction: Transaction) -> None:
        self.transaction = transaction

    def _write(self, prepared: PreparedWrite, task: WriteSpec) -> JobWritten:
        job = run_job(self.scope, prepared, task)
        files = self._to_write()
        check_unchanged(self.scope, files)
        assert self.origins is not None
        self.counts = dict.fromkeys((file.place for file in files), 0) | {
            self.origins.by_number[origin]: rows for origin, rows in job.written.origins
        }
        results = {result.file_name for result in self._results() if is_recorded(result)}
        now_ms = _now_ms()
        records = tuple(
            LoadRecord(
                *(path, file.size_bytes, file.modified_ms, now_ms, 0),
                self.counts.get(file.place, 0),
            )
            for file in files
            if file.name in results
            for path in file.recorded_paths
        )
        self._note(prepared.table, now_ms, records)
        reach("load.noted")
        return job

    def _note(self, table: Table, now_ms: int, records: tuple[LoadRecord, ...]) -> None:
        transaction = self.transaction
        assert transaction is not None
        if self.scope.committer.note_load(transaction, records):
            return
        base = transaction.base_snapshot_id
        self.pending = PendingLoad(transaction.commit_user, base, now_ms, records)
        LoadHistory(table).note(self.pending)

    def _operation(self, files: object) -> Operation:
        return Operation(KIND, inserted=sum(self.counts.values()))

    def _recorded(self, snapshot_id: int | None) -> list[str]:
        """Complete the history, which is a coordinator's work where there is one; return notes."""
        if self.pending is None:
            return []
        try:
            LoadHistory(self.plan.table).complete(self.pending, snapshot_id)
        except (SetupError, OSError) as error:
            reason = error.message if isinstance(error, PaimonMagicsError) else str(error)
            return [
                "The rows are committed; the next COPY INTO completes the history of loaded files, "
                f"which could not be written: {reason}"
            ]
        return []

    def _forget(self) -> None:
        if self.pending is not None:
            with suppress(SetupError, OSError):  # it is settled by the next load
                LoadHistory(self.plan.table).forget(self.pending.commit_user)
            self.pending = None

    def _explained(self, error: PaimonMagicsError) -> PaimonMagicsError:
        """The error for rows that can't be loaded, which names the first one and its file; `error`
        if all can."""
        if self.copy.on_error != "ABORT_STATEMENT":
            return error
        try:
            self._check()
        except Exception:  # that one is about the statement, or a file that can't be read
            of_file = self.origins and _of_file(self.copy, self.origins, error)
            return self.unread or of_file or error
        bad = {file: self.seen[file.place] for file in self.plan.to_load if file.place in self.seen}
        bad = {file: errors for file, errors in bad.items() if errors.errors}
        if not bad:
            return error
        return _rows_refused(self.copy, self.plan.options, bad)

    def _results(self) -> list[FileResult]:
        names = {file.place: file.name for file in self.plan.to_load}
        return loaded(names, self.counts, self.seen, self.copy.on_error)

    def _outcome(
        self, outcome: Outcome | None, results: Sequence[FileResult], message: str
    ) -> Outcome:
        rows = [*results, *skipped(file.name for file in self.plan.known)]
        answer = answer_of(self.scope, self.copy, rows)
        answer.table = str(self.plan.table.name)
        if outcome is None:
            answer.rows_written = answer.files_written = answer.bytes_written = 0
            answer.notes = (f"{KIND} `{self.plan.table.name}`: {message} (no new snapshot).",)
            if self.plan.known:
                known = count_text(len(self.plan.known), "file")
                answer.notes += (
                    f"{known} loaded before. Where their rows were removed since, FORCE = TRUE "
                    "loads them again.",
                )
            return answer
        answer.snapshot_id, answer.commit_kind = outcome.snapshot_id, outcome.commit_kind
        answer.rows_written, answer.files_written = outcome.rows_written, outcome.files_written
        answer.bytes_written = outcome.bytes_written
        answer.values_changed = outcome.values_changed
        answer.notes = (outcome.message, *outcome.notes)
        return answer


def answer_of(scope: StatementScope, copy: CopyIntoTable, results: Sequence[FileResult]) -> Outcome:
    """The outcome with a row for each file."""
    table = pa.table(
        {
            name: pa.array(values, type=_TYPES.get(name, pa.string()))
            for name, values in columns(results).items()
        }
    )
    return Outcome.of_rows(scope.spark, copy.text, KIND, table, query="")


def _validated(scope: StatementScope, copy: CopyIntoTable, plan: LoadPlan) -> Outcome:
    """VALIDATE: read and check the rows; nothing is written."""
    results: list[FileResult] = []
    if plan.to_load:
        load = _Load(scope, copy, plan)
        try:
            seen = load.validated()
        finally:
            load.copies.remove()
        results = checked({file.place: file.name for file in plan.to_load}, seen)
    answer = answer_of(scope, copy, [*results, *skipped(file.name for file in plan.known)])
    bad = sum(result.errors_seen for result in results)
    verdict = f"{count_text(bad, 'row')} can't be loaded" if bad else "all rows can be loaded"
    answer.notes = (f"VALIDATE: {verdict}. Nothing was written.",)
    return answer


def _insert_of(copy: CopyIntoTable, rows: SourceRows) -> Insert:
    """The INSERT that writes the rows. The text of its source is never read."""
    names = tuple(column.name for column in rows.columns)
    source = QueryText(TextRange(copy.path_position, len(copy.text)))
    return Insert(copy.text, copy.offset, copy.target, copy.target_position, False, source, names)


def _by_place(by_path: Mapping[str, FileErrors], origins: Origins) -> dict[str, FileErrors]:
    """What was found, by the places of the files."""
    return {origins.by_path[path]: errors for path, errors in by_path.items()}


def _of_file(
    copy: CopyIntoTable, origins: Origins, error: PaimonMagicsError
) -> InvalidValueError | None:
    """The error for a file of the user's that Spark could not read; None if `error` names none, as
    that of a cast doesn't. Spark's may be about a table's file, which could be restored."""
    messages = (error.message, unquote(error.message))
    path = next((path for path in origins.by_path if any(path in text for text in messages)), None)
    if path is None:
        return None
    name = origins.by_path[path].rpartition("/")[2]
    return InvalidValueError(
        f"`{name}` can't be read as {copy.format.type} with the columns of the first file: "
        f"{error.message.partition(': ')[2].removeprefix('//') or error.message}",
        hint="Nothing was written. Load files with other types by a statement of their own, with "
        "FILES or PATTERN; write the file again if it is damaged.",
        statement=copy.text,
        position=copy.path_position,
    )


def _rows_refused(
    copy: CopyIntoTable, options: ReadOptions, bad: Mapping[SourceFile, FileErrors]
) -> InvalidValueError:
    rows = sum(errors.errors for errors in bad.values())
    file, first = next(iter(bad.items()))
    hints = ["Nothing was written."]
    text = first.first_error or ""
    separator = next((s for s in (";", "|", "\t") if s in text), None)
    if options.type == "CSV" and not options.header_is_set and first.errors == 1:
        hints.append("If the first line has the columns' names, add SKIP_HEADER = 1.")
    if text.startswith("Malformed") and separator and options.spark.get("sep", ",") == ",":
        hints.append(f"FIELD_DELIMITER = '{separator}' splits lines there.")
    elif "characters of its encoding" in text:
        hints.append("Add ENCODING = 'ISO-8859-1', 'UTF-16' or whichever the file has.")
    hints.append(
        "Correct the files; or leave such rows out with ON_ERROR = CONTINUE, their files with "
        "SKIP_FILE. VALIDATE at the end lists all files."
    )
    of = f"{count_text(len(bad), 'file')}" if len(bad) > 1 else f"`{file.name}`"
    return InvalidValueError(
        f"ON_ERROR = ABORT_STATEMENT: {count_text(rows, 'row')} of {of} can't be loaded. The first "
        f"in `{file.name}`: {text}",
        hint=" ".join(hints),
        statement=copy.text,
        position=copy.path_position,
    )


def _now_ms() -> int:
    return int(time.time() * 1000)


def first_rows(scope: StatementScope, copy: CopyIntoTable, plan: LoadPlan) -> pa.Table:
    """The first rows of the files as the table would store them; at most 10."""
    if not plan.to_load:
        return pa.table({})
    load = _Load(scope, copy, plan)
    try:
        if copy.on_error != "ABORT_STATEMENT":
            load.look()
        if not load._to_write():
            return pa.table({})
        prepared = load.prepared(plan)
        names = prepared.table.schema.column_names
        rows = prepared.frame.select(*map(quoted, names)).limit(_PREVIEW_ROWS)
        with errors_translated(copy.text, copy.path_position), cancellable(scope.spark):
            return rows.toArrow()
    finally:
        load.copies.remove()
