"""Errors for files of a table that can't be read: they are damaged (missing, or their content can't
be right), or the store denied the access or did not answer, which is no damage.

This module reads no content. The reader names the file that it reads.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from enum import Enum

from paimon_magics.errors import (
    PaimonMagicsError,
    SetupError,
    TableDamagedError,
    UnsupportedStatementError,
)
from paimon_magics.tables.stores.paths import local_path

_FOLDERS_MIXED = "a folder stands where a file is expected, or a file where a folder is"
"""The reason of a path that is damaged in this way."""

RESTORE = "Restore the file, or go back to a snapshot that does not use it."

_RUN_AGAIN = (
    "The table may have been dropped, or its snapshot may have expired, during the read: run the "
    "statement again. If the file is still missing, "
)
_MISSING = re.compile(r"^it is gone$|FileNotFoundException|NoSuchFileException|NoSuchKey")

SNAPSHOT_VERSION = 3
SCHEMA_VERSION = 3
MANIFEST_VERSION = 2


def damaged(what: str, reason: object, hint: str = RESTORE) -> PaimonMagicsError:
    """The error that `what` can't be read, with the reason: a TableDamagedError, or a SetupError
    if the store denied the access or was out of reach (`access_failure`)."""
    other = not_accessed(f"{what} can't be read", reason)
    if other is not None:
        return other
    text = str(reason).rstrip(".")
    if isinstance(reason, FileNotFoundError) or _MISSING.search(text):
        # Usually nothing is damaged: the table was dropped during the read.
        text, hint = "it is gone", f"{_RUN_AGAIN}{hint[:1].lower()}{hint[1:]}"
    return TableDamagedError(f"{what} can't be read: {text}.", hint=hint)


def unread_by_java(path: str, reason: object) -> PaimonMagicsError:
    """The error for a file that Java could not read. In the locale C, Java can't open files whose
    names have letters outside ASCII; such a file is intact."""
    local = local_path(path)
    if local is not None and not local.isascii() and os.path.exists(local):
        return SetupError(
            f"Spark's Java can't name the file {local}: its locale lacks some of these letters.",
            hint="Start Spark with the environment variable LC_ALL=C.UTF-8 on each machine.",
        )
    return damaged(f"The file {path}", reason)


@contextlib.contextmanager
def parsing(what: str, hint: str = RESTORE) -> Iterator[None]:
    """Raise errors of the body that a malformed text causes (`misread`) as TableDamagedError for
    `what`; let other errors through."""
    try:
        yield
    except Exception as error:
        reason = misread(error)
        if reason is None:
            raise
        raise damaged(what, reason, hint) from error


def misread(error: BaseException) -> str | None:
    """The reason in an error that a malformed text has caused in a parser, or a folder in place of
    a file; None for other errors.

    The causes of the error are searched too, as pypaimon wraps the first one.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, IsADirectoryError | NotADirectoryError):
            return _FOLDERS_MIXED
        if isinstance(cause, ValueError | KeyError | TypeError | AttributeError | RecursionError):
            return f"{type(cause).__name__}: {cause}"
        cause = cause.__cause__
    return None


def check_stored(paths: Sequence[str], sizes_bytes: Sequence[int]) -> None:
    """Raise TableDamagedError for a local data file that is gone or whose size differs from the
    table's metadata. Spark's scan would silently skip an empty file."""
    for path, size in zip(paths, sizes_bytes, strict=True):
        local = local_path(path)
        if local is None:
            continue
        try:
            stored = os.stat(local).st_size
        except FileNotFoundError:
            raise damaged(f"The data file {local}", "it is gone") from None
        if stored != size:
            raise damaged(
                f"The data file {local}",
                f"it has {stored} bytes, but the table's metadata says {size}",
            )


# The newest supported versions of Paimon's metadata files.
#
# The meaning of a newer release's files is unknown, so a newer version is refused by name. Sources:
# `Snapshot.CURRENT_VERSION`, `TableSchema.CURRENT_VERSION`, and the versions of
# `ManifestEntrySerializer` and `ManifestFileMetaSerializer`.


def check_version(what: str, version: int | None, newest: int) -> None:
    """Raise UnsupportedStatementError for a version above `newest`. The first releases wrote
    none."""
    if version is not None and version > newest:
        raise UnsupportedStatementError(
            f"{what} has version {version} of its format. Only versions up to {newest} are "
            "supported.",
            hint="A newer release of Paimon wrote it. Read the table with that release.",
        )


# What a failed access to a file means: it is denied, or the store does not answer.
#
# Neither is damage: the file may be whole. Every reader and every task asks here before it calls a
# file damaged.


class AccessFailure(Enum):
    """Why a file could not be accessed, where its content says nothing about it."""

    DENIED = "denied"
    UNREACHABLE = "unreachable"


# What stores answer, as Arrow's, obstore's, OpenDAL's and Java's clients write it.
_DENIED = re.compile(
    r"ACCESS_DENIED|Access ?Denied|AccessControlException|Permission ?denied|EACCES"
    r"|status(?: code)?:? 40[13]\b|response code:? 40[13]\b|\b40[13] (?:Forbidden|Unauthorized)"
    r"|Invalid_?Access_?Key|Signature_?Does_?Not_?Match|(?:Expired|Invalid)_?(?:Client_?)?Token"
    r"|Unrecognized_?Client|Missing_?Authentication|Request_?Expired|InvalidSecurity"
    r"|No(?:Auth|Credential)\w*Exception|Unauthenticated|AuthenticationFailed"
    r"|Authorization(?:Permission)?(?:Failure|Mismatch)|not authorized to perform",
    re.IGNORECASE,
)
_UNREACHABLE = re.compile(
    r"NETWORK_CONNECTION|curlCode|Connection ?(?:refused|reset|timed out)|ConnectException"
    r"|UnknownHost|SocketTimeout|(?:resolve|find) host|can't be reached|request timed out"
    r"|operation timed out|SLOW_?DOWN|SERVICE_?UNAVAILABLE|status(?: code)?:? 50[0234]\b",
    re.IGNORECASE,
)
# As Python, Rust and Java tell it of a local disk.
_LOCAL_DENIED = re.compile(r"\[Errno (?:1|13)\]|os error (?:1|13)\b|\(Permission denied\)")
# As Python names a path, as Java does, and as others do: the first two may have spaces.
_LOCAL_PATH = re.compile(
    r"(?<=')/[^'\n]+(?=')|(?<=: )/[^\n]*?(?= \(Permission denied\))|(?<![\w:/.])/[^\s'\":]+"
)
# Names of files and values between quotes say nothing about the store.
_NAMES = re.compile(r"\S*[/\\]\S*|(?<!\w)'[^']*'|`[^`]*`|\"[^\"]*\"")

_KEYS = (
    "Nothing is known to be damaged. Check which keys are used and what they may do: those of the "
    "catalog options ('s3.access-key' and its like), else those in the environment of this process "
    "(AWS_ACCESS_KEY_ID and its like) or the machine's role. `%paimon doctor` tries them."
)
_WAIT = (
    "Nothing is known to be damaged. Check the network and that the store is running, then run the "
    "statement again."
)


def access_failure(reason: object) -> AccessFailure | None:
    """What an exception, or a text of Java, says about the access; None for other failures. The
    causes of an exception are searched too."""
    if isinstance(reason, str):
        return _of_text(reason)
    cause = reason if isinstance(reason, BaseException) else None
    while cause is not None:
        failure = _of_exception(cause)
        if failure is not None:
            return failure
        cause = cause.__cause__
    return None


def _of_exception(error: BaseException) -> AccessFailure | None:
    if isinstance(error, PermissionError):
        return AccessFailure.DENIED
    if isinstance(error, ConnectionError | TimeoutError):
        return AccessFailure.UNREACHABLE
    # A ValueError tells of content, in which any word may stand.
    of_store = isinstance(error, OSError | SetupError) and not isinstance(error, FileNotFoundError)
    return _of_text(str(error)) if of_store else None


def _of_text(text: str) -> AccessFailure | None:
    plain = _NAMES.sub(" ", text)
    if _DENIED.search(plain):
        return AccessFailure.DENIED
    return AccessFailure.UNREACHABLE if _UNREACHABLE.search(plain) else None


def not_accessed(failed: str, reason: object) -> SetupError | None:
    """The error for an access that failed: `failed` says to what ("The file … can't be read"). None
    if the store neither denied it nor was out of reach."""
    failure = access_failure(reason)
    if failure is None:
        return None
    text = " ".join(str(reason).split()).rstrip(".")
    if failure is AccessFailure.UNREACHABLE:
        return SetupError(f"{failed}: the store can't be reached ({text}).", hint=_WAIT)
    path = denied_path(reason)
    if path is not None:
        return SetupError(
            f"{failed}: {may_not(path)}.", hint=f"Nothing is known to be damaged. {ASK}"
        )
    return SetupError(f"{failed}: the store denies the access ({text}).", hint=_KEYS)


# Rights on local disks.

ASK = (
    "Ask the owner for the right: docs/coordinator.md#several-people-on-one-machine has the "
    "commands."
)


def denied_path(reason: object) -> str | None:
    """The local path that an exception, or the text of one, says was denied; None if it names
    none."""
    if isinstance(reason, PermissionError) and isinstance(reason.filename, str | bytes):
        return os.fsdecode(reason.filename)
    text = str(reason)
    named = _LOCAL_PATH.search(text) if _LOCAL_DENIED.search(text) else None
    return named and named[0].rstrip(".,;)")


def account() -> str:
    """The name of the account of this process, or its number."""
    return _name_of(os.geteuid()) if hasattr(os, "geteuid") else "of this process"


def may_not(path: str) -> str:
    """In words, what this account may not do to a local path, with its owner and mode. Of a path
    that can't be looked at, or is not there, the nearest folder is named."""
    verb = "read" if os.path.isfile(path) and not os.access(path, os.R_OK) else "write"
    if os.path.isdir(path) and os.access(path, os.W_OK):
        verb = "read"
    place = path
    while not os.path.exists(place) and os.path.dirname(place) != place:
        place = os.path.dirname(place)
    if place != path and os.access(place, os.W_OK | os.X_OK):
        # The folder that denied it, such as that of attempts, was removed since.
        return f"the account {account()} may not {verb} {path}, which is gone since"
    rights = ""
    with contextlib.suppress(OSError):
        status = os.stat(place)
        mode = stat.S_IMODE(status.st_mode)
        rights = (
            f" (owner {_name_of(status.st_uid)}, group {_group_of(status.st_gid)}, mode {mode:04o})"
        )
    return f"the account {account()} may not {verb} {place}{rights}"


def write_obstacle(folder: str) -> str | None:
    """Why this account can't write in a local folder, by its mode; None if it can, or the folder
    is elsewhere."""
    local = local_path(folder)
    if local is None or not os.path.isdir(local) or os.access(local, os.W_OK | os.X_OK):
        return None
    return may_not(local)


def _name_of(user_id: int) -> str:
    try:
        import pwd

        return pwd.getpwuid(user_id).pw_name
    except (ImportError, KeyError):  # Windows, or a container's user without a name
        return str(user_id)


def _group_of(group_id: int) -> str:
    try:
        import grp

        return grp.getgrgid(group_id).gr_name
    except (ImportError, KeyError):
        return str(group_id)
