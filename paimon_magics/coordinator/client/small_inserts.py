"""The client's side of small inserts: gathered, sent in order, repeated until there is an answer.

Rows are sent as Arrow streams, changes of rows as JSON, in one order. Inserts are gathered while a
request is under way, and for `linger_ms` after the first of them. Inserts without labels are sent
together under one label that is made here, so that repeating them is safe; an insert with its own
label is a request of its own.

If the process dies, answered inserts are durable; the others were not answered.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from paimon_magics.coordinator.inserts.log.records import DamagedError, read_segments
from paimon_magics.coordinator.protocol.documents import change_document
from paimon_magics.coordinator.protocol.json_text import LABEL_CHARACTERS_MAX
from paimon_magics.errors import (
    CommitConflictError,
    InvalidValueError,
    SetupError,
    UnknownOutcomeError,
)
from paimon_magics.forks import renew_after_fork
from paimon_magics.origin import user_name
from paimon_magics.planning.row_changes.logged_changes import LoggedChange
from paimon_magics.statements.statement import TableName

if TYPE_CHECKING:
    import pyarrow
    import pyarrow as pa

    from paimon_magics.coordinator.client.administration import BufferedInserts
    from paimon_magics.tables.reading.applied_changes import Change
    from paimon_magics.tables.table import Table

Send = Callable[[str, bytes, dict[str, str]], Any]
"""Posts a body with headers to a path until there is an answer; returns the answer's document."""

_ARROW = {"content-type": "application/vnd.apache.arrow.stream"}
_JSON = {"content-type": "application/json"}
_ROWS_MAX = 50_000
_BYTES_MAX = 8 * 2**20
_KEY_BYTES = 64  # of a change: about


@dataclass(frozen=True, slots=True)
class InsertReceipt:
    """The acknowledgement of an insert, with the lsn of its record; or of a change of rows, where
    `rows` is the number of keys.

    `mode` is `async_mode` (durable), or `sync_mode` or `off_mode` (visible, in `snapshot_id` if
    that is known). `fallback` is why the mode differs from the requested mode. `duplicate` is
    whether the label was used before with the same rows. `trouble` is why the table's last load
    failed.
    """

    lsn: int
    mode: str
    rows: int
    label: str | None = None
    duplicate: bool = False
    fallback: str = ""
    snapshot_id: int | None = None
    trouble: str = ""


@dataclass(slots=True)
class _Waiting:
    table: TableName
    content: pyarrow.Table | LoggedChange
    label: str | None
    mode: str | None
    version: str | None
    answer: Future[InsertReceipt]

    @property
    def kind(self) -> tuple[object, ...]:
        """The key that inserts must share to be sent together."""
        content = self.content
        schema = None if isinstance(content, LoggedChange) else content.schema
        return self.table, self.mode, self.version, schema

    @property
    def rows(self) -> int:
        """The number of rows or keys."""
        content = self.content
        return len(content.keys) if isinstance(content, LoggedChange) else content.num_rows

    @property
    def size_bytes(self) -> int:
        """About the size of what is sent."""
        content = self.content
        if isinstance(content, LoggedChange):
            return _KEY_BYTES * len(content.keys)
        return int(content.nbytes)


class SmallInserts:
    """Sends inserts in the order in which they came. Safe for several threads.

    `linger_ms` is how long an insert waits for others to be sent with it.
    """

    def __init__(self, send: Send, linger_ms: float = 2.0) -> None:
        self._send = send
        self._linger_seconds = linger_ms / 1000
        self._inbox: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._turn = threading.Lock()
        self._thread: threading.Thread | None = None
        self._unanswered: set[Future[InsertReceipt]] = set()
        self._closed = False
        renew_after_fork(self)

    def after_fork(self) -> None:
        """See `Renewed`: the parent sends the inserts that it was given, and gets the answers."""
        self._inbox = queue.SimpleQueue()
        self._turn = threading.Lock()
        self._thread = None
        inherited, self._unanswered = self._unanswered, set()
        for answer in inherited:
            Future.__init__(answer)  # with a lock that no other thread holds
            answer.set_exception(
                UnknownOutcomeError(
                    "The parent of this forked process sends this insert, and receives its answer.",
                    hint="Wait for the answer there; don't insert the rows here again.",
                )
            )

    def insert(
        self,
        table: TableName,
        content: pyarrow.Table | LoggedChange,
        *,
        label: str | None = None,
        mode: str | None = None,
        version: str | None = None,
    ) -> Future[InsertReceipt]:
        """Send rows whose columns are some of the table's, by name, or a change of rows. The future
        gets the receipt, or the coordinator's error. `version` is the table's version as the
        caller has seen it (`schema.history.version_of`). Raises InvalidValueError for an invalid
        label, and SetupError after `close`."""
        if label is not None:
            _check_label(label)
        waiting = _Waiting(table, content, label, mode, version, Future())
        with self._turn:
            if self._closed:
                raise SetupError("The session is closed.")
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="inserts", daemon=True)
                self._thread.start()
            self._unanswered.add(waiting.answer)
            self._inbox.put(waiting)
        waiting.answer.add_done_callback(self._unanswered.discard)
        return waiting.answer

    def close(self) -> None:
        """Send all given inserts, and end."""
        with self._turn:
            self._closed = True
            thread = self._thread
        if thread is not None:
            self._inbox.put(None)
            thread.join()

    def _work(self) -> None:
        following = self._inbox.get()
        while following is not None:
            together, following, is_read = self._gathered(following)
            self._post(together)
            if not is_read:
                following = self._inbox.get()

    def _gathered(self, first: _Waiting) -> tuple[list[_Waiting], _Waiting | None, bool]:
        """The inserts to send together with the first; the next item, None for the end; and whether
        a next item was read.
        """
        together = [first]
        if first.label is not None:
            return together, None, False
        deadline = time.monotonic() + self._linger_seconds
        rows, size_bytes = first.rows, first.size_bytes
        while rows < _ROWS_MAX and size_bytes < _BYTES_MAX:
            try:
                following = self._inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            if following is None or following.label is not None or following.kind != first.kind:
                return together, following, True
            together.append(following)
            rows += following.rows
            size_bytes += following.size_bytes
        return together, None, False

    def _post(self, together: list[_Waiting]) -> None:
        first = together[0]
        try:
            receipt = self._sent(together)
        except InvalidValueError as error:
            if len(together) == 1:
                first.answer.set_exception(error)
                return
            for insert in together:  # so that an insert is refused only for its own rows
                self._post([insert])
            return
        except BaseException as error:
            for insert in together:
                with contextlib.suppress(InvalidStateError):
                    insert.answer.set_exception(error)
            return
        for insert in together:
            insert.answer.set_result(replace(receipt, rows=insert.rows, label=insert.label))

    def _sent(self, together: list[_Waiting]) -> InsertReceipt:
        first = together[0]
        content_type, body = _body([insert.content for insert in together])
        headers = {**content_type, "idempotency-key": first.label or uuid.uuid4().hex}
        user = user_name()
        if user.isascii() and user.isprintable():
            headers["paimon-user"] = user
        if first.mode is not None:
            headers["group_commit"] = first.mode
        if first.version is not None:
            headers["paimon-table"] = first.version
        try:
            document = self._send(table_path(first.table), body, headers)
        except UnknownOutcomeError as error:
            raise _unknown(together, headers["idempotency-key"], error) from error
        return InsertReceipt(
            lsn=int(document["lsn"]),
            mode=str(document["mode"]),
            rows=sum(insert.rows for insert in together),
            label=first.label,
            # With a label made here, a duplicate is this client's own repetition.
            duplicate=first.label is not None and bool(document.get("duplicate", False)),
            fallback=str(document.get("fallback", "")),
            snapshot_id=document.get("snapshot_id"),
            trouble=str(document.get("trouble", "")),
        )


def _unknown(
    together: Sequence[_Waiting], key: str, error: UnknownOutcomeError
) -> UnknownOutcomeError:
    """The error of inserts that may have been taken. One that was sent alone can be repeated by its
    label."""
    first = together[0]
    full = f"{first.table.database}.{first.table.table}"
    hint = f"Insert them again with label={key!r}: what was taken is not inserted twice."
    if len(together) > 1:
        hint = (
            f"Look whether they are in `{full}`, or wait in `%paimon queue {full}`, before you "
            "insert them again. An insert with a label can be repeated without a look."
        )
    return UnknownOutcomeError(
        f"Whether the rows were inserted into `{full}` is unknown. {error.message}", hint=hint
    )


def _body(contents: Sequence[pyarrow.Table | LoggedChange]) -> tuple[dict[str, str], bytes]:
    """The request of rows, or of changes: its content type and body."""
    changes = [change_document(each) for each in contents if isinstance(each, LoggedChange)]
    if changes:
        return _JSON, json.dumps({"statements": changes}).encode()
    import pyarrow as pa

    rows = pa.concat_tables([each for each in contents if not isinstance(each, LoggedChange)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return _ARROW, sink.getvalue().to_pybytes()


def _check_label(label: str) -> None:
    """Raise InvalidValueError for a label that would not arrive unchanged."""
    hint = ""
    if not 0 < len(label) <= LABEL_CHARACTERS_MAX or label.strip() != label:
        hint = f"A label has 1 to {LABEL_CHARACTERS_MAX} characters, with no space at its ends."
    elif not label.isprintable():
        hint = "A label is one line of printable characters."
    if hint:
        raise InvalidValueError(f"The label {label!r} is not valid.", hint=hint)


def table_path(table: TableName) -> str:
    """The path of a table's small inserts at the coordinator."""
    return f"/v1/inserts/{quote(table.database or '', safe='')}/{quote(table.table, safe='')}"


def buffered_entries(buffered: BufferedInserts, table: Table) -> list[pa.RecordBatch | Change]:
    """The rows of `buffered`, in the present columns of `table`, and the changes between them.
    Records of older schemas are converted as loading will convert them. Records that can't be
    loaded, and will be dead letters, are left out. Raises CommitConflictError for damaged records.
    """
    from paimon_magics.coordinator.inserts.loading.rows import entries_of
    from paimon_magics.tables.schema.history import Definitions

    try:
        records, _ = read_segments(
            buffered.segments, buffered.published, upto=buffered.acknowledged
        )
    except DamagedError as error:
        raise CommitConflictError(
            f"The acknowledged rows of `{table.name}` that are not loaded yet can't be read: "
            f"{error}.",
            hint=f"`%paimon queue {table.name}` shows the state of its queue.",
        ) from error
    entries, _ = entries_of(records, Definitions().of(table), table.schema)
    return entries
