"""The entries of the audit log, as values."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum

from paimon_magics.redaction import redacted

_DETAIL_CHARACTERS_MAX = 1_000
_TOKEN = re.compile(r"(pmt_[0-9a-f]{12}_)[\w-]+|(?<=\beyJ)[\w-]+\.[\w.-]+")


class Outcome(StrEnum):
    """The outcome of a request. UNKNOWN: the coordinator ended before the outcome was known."""

    BEGUN = "begun"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Entry:
    """One request, or one load of small inserts.

    `id` begins with its time, so ids sort by time. `user` is the verified name; `claimed` is the
    name that the client gave if no name is verified. `credential` is how the sender was identified,
    `address` the sender's address, `status` the HTTP status.
    """

    id: str
    at_ms: int
    action: str
    user: str | None = None
    claimed: str | None = None
    credential: str = ""
    address: str = ""
    database: str | None = None
    table: str | None = None
    snapshot_id: int | None = None
    outcome: Outcome = Outcome.BEGUN
    status: int | None = None
    detail: str = ""

    @property
    def is_done(self) -> bool:
        """Whether its outcome is final."""
        return self.outcome is not Outcome.BEGUN

    @property
    def body(self) -> str:
        """Its text in the store, without secrets."""
        detail = _without_tokens(redacted(self.detail))[:_DETAIL_CHARACTERS_MAX]
        entry = replace(self, action=_without_tokens(self.action), detail=detail)
        return json.dumps(asdict(entry), ensure_ascii=False)


def _without_tokens(text: str) -> str:
    """The text with the secrets of tokens removed: somebody may have put a token into a path."""
    return _TOKEN.sub(lambda match: f"{match[1] or ''}…", text)


def entry_of(id: str, body: str) -> Entry:
    """Read an entry's text in the store; an unreadable text becomes an entry that says so."""
    try:
        document = json.loads(body)
        known = {key: value for key, value in document.items() if key in _MEMBERS}
        return Entry(**{**known, "id": id, "outcome": Outcome(document["outcome"])})
    except (ValueError, TypeError, KeyError, AttributeError):
        at_ms = int(id[:13]) if re.fullmatch("[0-9]{13}", id[:13]) else 0
        return Entry(id, at_ms, "unreadable", outcome=Outcome.UNKNOWN, detail=body)


_MEMBERS = frozenset(member.name for member in fields(Entry))  # a later version has others


def entry_id(at_ms: int, of: str = "") -> str:
    """A new id. With `of`, the id of that publication, which is the same each time."""
    return f"{at_ms:013d}-{of or uuid.uuid4().hex}"
