"""The headers of insert requests, and the answers as documents.

A client may send these headers with the rows: `Idempotency-Key`, a label by which a repeat gets the
first answer; or `Paimon-Channel` with `Paimon-Offset`, for streams; and `group_commit`, the mode.
Nothing here waits.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import Any, NamedTuple

from starlette.requests import HTTPConnection
from starlette.responses import Response

from paimon_magics.coordinator.http.answers import NEW_CREDENTIALS, JSONResponse, error_answer
from paimon_magics.coordinator.inserts.queue.values import (
    Accepted,
    Answer,
    Flushed,
    Granted,
    Mode,
    Reason,
    Refused,
)
from paimon_magics.coordinator.protocol.json_text import (
    LABEL_CHARACTERS_MAX,
    is_storable,
    storable_text,
)
from paimon_magics.coordinator.protocol.principals import Principal
from paimon_magics.errors import InvalidValueError, with_one_stop
from paimon_magics.statements.statement import TableName

ARROW = "application/vnd.apache.arrow.stream"
_DIGEST_BYTES = 16
_OFFSET_MAX = 2**63 - 2
_USER_CHARACTERS_MAX = 100

_REFUSALS = {
    Reason.FULL: (429, "TooMuchWaits", "The table's queue is full", "Send the insert again later."),
    Reason.LARGE: (
        413,
        "TooLarge",
        "The insert is larger than the table's queue",
        "Send less at once, or raise the coordinator's limit: --log-bytes-max.",
    ),
    Reason.BUSY: (503, "TableBusy", "The table accepts no inserts now", "Send the insert again."),
    Reason.CLOSED: (
        409,
        "TableClosed",
        "The table accepts no inserts",
        "`%paimon queue` shows its state. An administrator can open it again with `%paimon queue "
        "TABLE reopen`.",
    ),
    Reason.MISMATCH: (
        422,
        "LabelUsed",
        "The label, or channel and offset, was used before",
        "Give each insert its own label, or channel and offset. Repeat it with the same rows only.",
    ),
    Reason.RANGE: (
        416,
        "OffsetOutOfRange",
        "An insert is missing before this insert",
        "Send the insert with the next offset first.",
    ),
    Reason.BEFORE: (
        416,
        "OffsetOutOfRange",
        "The insert comes before the first insert of its channel",
        "Send it in another channel, or with a label. Wait for the answer to a new channel's first "
        "insert before you send others.",
    ),
    Reason.DEAD: (
        422,
        "DeadLetter",
        "The rows were accepted, but could not be loaded",
        "They are kept as a dead letter: `%paimon queue` shows it.",
    ),
    Reason.STORE: (
        502,
        "StoreRefusedError",
        "The rows are durable in the coordinator's log, but can't be loaded, because the store "
        "refuses the coordinator's credentials",
        NEW_CREDENTIALS,
    ),
    Reason.NEW: (
        400,
        "NotRepeated",
        "The insert repeats no accepted insert",
        "Send the insert with rows that fit the table.",
    ),
    Reason.LATE: (
        504,
        "TooLate",
        "The statement did not get its turn at the queue",
        "Run the statement again.",
    ),
}
"""The status, type, message and hint for each reason of a refusal."""


class Named(NamedTuple):
    """The name of an insert: `key` and `offset` as in `log.records.Record`, `label` as the client
    gave it. `digest` distinguishes a repeat from another insert with the same name."""

    key: str = ""
    offset: int = -1
    label: str | None = None
    digest: bytes = b""

    def of(self, body: bytes, *, is_stream: bool = False) -> Named:
        """The name with the digest of a JSON body, or of an Arrow stream, as it was sent. JSON is
        normalized, since a repeat may have different spaces, or its members in another order.

        The table's schema has no influence: it may change before the repeat.
        """
        if not self.key:
            return self
        if not is_stream:
            with contextlib.suppress(ValueError, RecursionError):  # not JSON: it is refused anyway
                normal = json.dumps(json.loads(body), sort_keys=True, separators=(",", ":"))
                body = normal.encode()
        return self._replace(digest=hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest())


NAMELESS = Named()
"""The name of an insert that has none: a repeat is a new insert."""

_DURABLE = Accepted(0, Mode.ASYNC)[1:]


def header_text(value: bytes) -> str:
    """The text of a header: decoded as UTF-8, which most clients send, else as HTTP's Latin-1.
    Surrounding white space is not part of it (RFC 9110, 5.5).
    """
    value = value.strip(b" \t")
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def table_of(request: HTTPConnection) -> TableName:
    """The table that a request's path names."""
    return TableName(request.path_params["table"], request.path_params["database"])


def header_of(request: HTTPConnection, name: str) -> str | None:
    """The text of a request's header; None if it is missing."""
    value = header_bytes(request, name)
    return None if value is None else header_text(value)


def header_bytes(request: HTTPConnection, name: str) -> bytes | None:
    """The content of a request's header; None if it is missing. Raises InvalidValueError for a
    repeated header: it is ambiguous.
    """
    values = request.headers.getlist(name)
    if len(values) > 1:
        raise InvalidValueError(
            f"The request has {len(values)} headers `{name}`.", hint="Send it once."
        )
    return values[0].encode("latin-1") if values else None


def sender_of(principal: Principal, claimed: bytes | None) -> str:
    """The sender of an insert: the name of their token. If the token has no name, the name in the
    header `Paimon-User` ("" without it).
    """
    if principal.name is not None:
        return storable_text(principal.name)
    text = header_text(claimed or b"")[:_USER_CHARACTERS_MAX]
    return text if text.isprintable() else ""


def named_by(label: str | None, channel: str | None, offset: str | int | None) -> Named:
    """The name that a client gives its insert: a label, a channel and offset, or none.

    Raises InvalidValueError for other combinations, and for invalid names.
    """
    if label is None and channel is None and offset is None:
        return NAMELESS
    if label is not None:
        if channel is not None or offset is not None:
            raise InvalidValueError(
                "An insert can't have both a label and a channel with an offset."
            )
        return Named(f"l:{_checked(label, 'label')}", -1, label)
    if channel is None or offset is None:
        raise InvalidValueError(
            "An insert needs both a channel and an offset, or neither.",
            hint=(
                "Send the headers Paimon-Channel and Paimon-Offset, and number the inserts of a "
                "channel consecutively."
            ),
        )
    return Named(f"c:{_checked(channel, 'channel')}", offset_of(offset))


def offset_of(text: str | int) -> int:
    """An offset in a channel. Raises InvalidValueError."""
    digits = str(text)
    # int() takes signs, spaces and underscores too. The length is limited before it is parsed.
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(str(_OFFSET_MAX))
    number = int(digits) if is_number else -1
    if not 0 <= number <= _OFFSET_MAX:
        raise InvalidValueError(f"`{text}` is not an offset.", hint="Offsets are 0, 1, 2, …")
    return number


def answer_document(answer: Answer, label: str | None = None) -> dict[str, Any]:
    """The document of an answer to an insert, or to a wait."""
    match answer:
        case Accepted(lsn=lsn, mode=mode):
            document: dict[str, Any] = {"lsn": lsn, "label": label, "mode": mode.value}
            for key in ("duplicate", "fallback", "trouble"):
                if value := getattr(answer, key):
                    document[key] = value
            if mode is not Mode.ASYNC:
                document["snapshot_id"] = answer.snapshot_id
            return document
        case Flushed(lsn=lsn, snapshot_id=snapshot_id):
            return {"lsn": lsn, "snapshot_id": snapshot_id}
        case Granted(lsn=lsn):
            return {"lsn": lsn}
        case Refused():  # `answer_of` has its status
            return {"error": refusal(answer)}


def answer_json(answer: Answer, label: str | None = None) -> bytes:
    """The document of an answer as JSON. Most answers only say that an insert is durable: their
    document is not built each time.
    """
    if label is None and isinstance(answer, Accepted) and answer[1:] == _DURABLE:
        return b'{"lsn": %d, "label": null, "mode": "async_mode"}' % answer.lsn
    return json.dumps(answer_document(answer, label)).encode()


def refusal(answer: Refused) -> dict[str, str]:
    """The error document of a refused insert: type, message and hint, as in every error."""
    _, kind, what, hint = _REFUSALS[answer.reason]
    return {"type": kind, "message": with_one_stop(f"{what}: {answer.message}."), "hint": hint}


def answer_of(answer: Answer, label: str | None = None) -> Response:
    """The response to an insert, or to a wait."""
    if not isinstance(answer, Refused):
        return JSONResponse(answer_document(answer, label))
    response = error_answer(_REFUSALS[answer.reason][0], *refusal(answer).values())
    if answer.retry_after_ms:
        response.headers["retry-after"] = str(-(-answer.retry_after_ms // 1000))
    return response


def _checked(text: str, what: str) -> str:
    if not 0 < len(text) <= LABEL_CHARACTERS_MAX:
        raise InvalidValueError(
            f"A {what} has 1 to {LABEL_CHARACTERS_MAX} characters, not {len(text):,}."
        )
    if not is_storable(text):
        raise InvalidValueError(f"A {what} can't contain NUL or a lone surrogate.")
    return text
