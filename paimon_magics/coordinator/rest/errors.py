"""The errors of Paimon's REST catalog: a status code and a body that clients understand.

Clients choose their own error by `code` and `resourceType`, so both must be right. A missing table
is 404 TABLE also if its database or branch is missing, because the Java client ignores other types
when it alters a table.
"""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from paimon_magics.coordinator.http.answers import JSONResponse
from paimon_magics.coordinator.protocol.errors import (
    RETRY_AFTER,
    BrokeOffError,
    NotTheirsError,
    PausedError,
    StoppedError,
)
from paimon_magics.coordinator.store.database import StoreLostError, StoreUnavailableError
from paimon_magics.errors import (
    CommitConflictError,
    LayoutChangedError,
    PaimonMagicsError,
    SetupError,
    StatementError,
    TableDamagedError,
    UnsupportedStatementError,
)
from paimon_magics.tables.catalog.rest_documents import MalformedDocumentError
from paimon_magics.tables.commits.dynamic_keys import StreamedKeysError
from paimon_magics.tables.commits.fencing import NotOwnerError
from paimon_magics.tables.manifests.hash_indexes import StaleIndexError
from paimon_magics.tables.stores.store import UnreachableError, UnreachableFileError

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)

_ANOTHER_ENGINE = re.compile(r"\bengine\b|\bFlink\b|\bSpark\b")

_log = logging.getLogger(__name__)

_WORDS = {
    "token": "key",
    "tokens": "keys",
    "password": "pass phrase",
    "secret": "pass phrase",
    "secrets": "pass phrases",
    "credentials": "access data",
    "authorization": "permission",
    "signature": "sign",
}
_MARKERS = (
    "password",
    "secret",
    "token",
    "credential",
    "accesskey",
    "accountkey",
    "encryptionkey",
    "authorization",
    "privatekey",
    "apikey",
    "signature",
    "sas",
)
_LITERAL_MARKERS = ("sig=", '"sig"', "'sig'")
_KNOWN_WORD = re.compile(rf"(?<![\w.`'-])(?:{'|'.join(_WORDS)})(?![\w.`'-])", re.IGNORECASE)
# `sas` of several words, such as "has a snapshot" and "sessions ask".
_ACROSS = re.compile(r"(?<=s)([^a-z0-9]+)(?=a[^a-z0-9]*s)", re.IGNORECASE)
_BETWEEN = "[^a-z0-9]*"
_PERCENT = "\uff05"  # looks like one and is none; two of % would be shown as two by other clients
_MARKED = re.compile(
    "|".join(
        [_BETWEEN.join(marker) for marker in _MARKERS] + [re.escape(m) for m in _LITERAL_MARKERS]
    ),
    re.IGNORECASE,
)


class RestError(Exception):
    """An error answer. `resource_type` is one of the protocol's, such as TABLE or TAG."""

    def __init__(
        self,
        code: int,
        message: str,
        resource_type: str | None = None,
        resource_name: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.resource_type = resource_type
        self.resource_name = resource_name


def not_found(resource_type: str, name: str, message: str = "") -> RestError:
    """404 for a database, table, column, snapshot, tag, branch, view or function."""
    text = message or f"There is no {resource_type.lower()} `{name}`."
    return RestError(404, text, resource_type, name)


@contextmanager
def suppress_missing() -> Iterator[None]:
    """Continue if the body finds that a resource is missing, or too damaged to be described: one
    such table must not affect others.
    """
    try:
        yield
    except TableDamagedError as error:
        _log.warning("Left out: %s", error)
    except RestError as error:
        if error.code != 404:
            raise


def already_exists(resource_type: str, name: str, message: str = "") -> RestError:
    """409 for an existing name."""
    text = message or f"The {resource_type.lower()} `{name}` exists already."
    return RestError(409, text, resource_type, name)


def bad_request(message: str) -> RestError:
    """400: the client must send something else."""
    return RestError(400, message)


def not_offered(what: str) -> RestError:
    """501: a part of the protocol that this catalog does not support."""
    return RestError(501, f"This catalog does not offer {what}.")


def error_response(error: Exception) -> JSONResponse:
    """The answer to a request that raised `error`. An unexpected error is logged, and its text is
    not sent."""
    known = _known(error)
    body = {
        "message": unmasked(known.message),
        "resourceType": known.resource_type,
        "resourceName": known.resource_name,
        "code": known.code,
    }
    is_for_later = isinstance(error, (PausedError, StoreUnavailableError))
    headers = {"retry-after": RETRY_AFTER} if is_for_later else None
    return JSONResponse(body, status_code=known.code, headers=headers)


def _known(error: Exception) -> RestError:
    match error:
        case RestError():
            return error
        case NotTheirsError():
            return RestError(403, str(error))
        case MalformedDocumentError():
            return RestError(400, str(error))
        case UnsupportedStatementError():
            return RestError(501, _for_engines(error))
        case StatementError():
            return RestError(400, _for_engines(error))
        case StaleIndexError() | StreamedKeysError() | LayoutChangedError():
            # Clients repeat a request that was answered 503 or 429, and no other.
            return RestError(409, str(error), "TABLE")
        case CommitConflictError() | NotOwnerError() | BrokeOffError():
            return RestError(503, str(error))
        case StoreUnavailableError() | StoreLostError() | StoppedError() | PausedError():
            return RestError(503, str(error))
        case UnreachableError() | UnreachableFileError():
            _log.error("A store does not answer: %s", error)
            return RestError(503, str(error))
        case OSError() if _is_unwritable(error):
            _log.error("The warehouse can't be written: %s", error)
            return RestError(507, f"The warehouse can't be written: {error.strerror}.")
        case SetupError() if _is_unwritable(error):
            _log.error("The warehouse can't be written: %s", error)
            return RestError(507, str(error))
        case SetupError() | PaimonMagicsError():
            _log.error("A request failed: %s", error, exc_info=error)
            return RestError(500, str(error))
        case _:
            _log.error("A request failed unexpectedly", exc_info=error)
            return RestError(500, f"Internal error: {type(error).__name__}. See the server's log.")


def _for_engines(error: PaimonMagicsError) -> str:
    """The error's text, without a hint that refers a person to another engine: an engine has
    asked."""
    return error.message if _ANOTHER_ENGINE.search(error.hint) else str(error)


def _is_unwritable(error: BaseException | None) -> bool:
    """Whether an error's cause is a full or read-only disk, or a missing permission."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _UNWRITABLE:
            return True
        error = error.__cause__
    return False


# Keeps out of messages the texts that Paimon's Java client can't show. The client replaces a whole
# message by `******` if its letters and digits, without everything between them, contain one of
# some markers (`SensitiveConfigUtils.redactText`). "The table has a snapshot" contains `sas`.
# Messages contain no secrets here (`paimon_magics.redaction`), so they use other words. It also
# takes most messages for formats of `String.format`, some of them twice, and fails where one has a
# `%`, such as that in the name of a table (`BadRequestException`, `NotImplementedException`).


def unmasked(message: str) -> str:
    """The message without markers: in other words, or with `…` if the marker is part of a name. The
    percent sign becomes another character.
    """
    message = message.replace("%", _PERCENT)
    message = _KNOWN_WORD.sub(lambda match: _WORDS[match[0].lower()], message)
    message = _ACROSS.sub(lambda match: f"{match[1]}just ", message)
    while _MARKED.search(message):
        message = _MARKED.sub("…", message)
    return message
