"""What a failed request to an object store means, told from what its client raises."""

from __future__ import annotations

import re

from paimon_magics.errors import SetupError
from paimon_magics.tables.stores.object_client import NeverSentError
from paimon_magics.tables.stores.store import StoreRefusedError, UnreachableError

__all__ = ["check_bucket", "failure", "is_failure", "is_final", "said", "was_never_sent"]

_REFUSED = re.compile(r"status code: 40[13] ")
_NO_BUCKET = re.compile(r"(<Code>|\()(NoSuchBucket|ContainerNotFound|ContainerBeingDeleted)\b")


def is_failure(error: BaseException) -> bool:
    """Whether an exception is a failure, and not an interrupt or an exit. The PanicException of a
    library in Rust is a failure, though it is no Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def failure(done: str, path: str, error: BaseException) -> SetupError:
    """The error for an object at `path` that can't be `done` ("read", "written")."""
    kind = StoreRefusedError if is_final(error) else UnreachableError
    return kind(
        f"{path} can't be {done}: {said(error)}",
        hint="Check that the store can be reached, that the bucket is there, and that the "
        "credentials among the catalog options may write to it.",
    )


def is_final(error: BaseException) -> bool:
    """Whether the store has understood the request and refused it: nothing was done."""
    from obstore import exceptions

    # A refused listing raises a general error: only its text tells.
    return _REFUSED.search(str(error)) is not None or isinstance(
        error,
        FileNotFoundError  # the bucket
        | PermissionError
        | exceptions.PermissionDeniedError
        | exceptions.UnauthenticatedError
        | exceptions.NotSupportedError
        | exceptions.InvalidPathError
        | ValueError,
    )


def was_never_sent(error: BaseException) -> bool:
    """Whether a request certainly did not leave. Only the text tells: without it, it counts as
    sent."""
    return isinstance(error, NeverSentError) or "kind: Connect," in str(error)


def check_bucket(error: FileNotFoundError) -> None:
    """Raise the error if it is the bucket that is missing, not the object."""
    if _NO_BUCKET.search(str(error)):
        raise error


def said(error: BaseException) -> str:
    """The message of a store's client on one line, without the details for its developers."""
    if was_never_sent(error):
        return "it can't be reached"
    text = str(error).split("\n\nDebug source", 1)[0]
    code = re.search(r"<Code>(.*?)</Code>", text)
    status = re.search(r"status code: (\d+ [A-Za-z ]+)", text)
    if status is not None:
        message = re.search(r"<Message>(.*?)</Message>", text)
        detail = ": ".join(found[1] for found in (code, message) if found is not None)
        return f"{status[1].strip()} ({detail})" if detail else status[1].strip()
    return " ".join(text.rsplit(" - ", 1)[-1].split())
