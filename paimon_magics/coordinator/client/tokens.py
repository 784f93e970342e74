"""Where a client's token comes from, and how it gets another one when that has expired.

A token is a text, a file that somebody else keeps up to date (as Kubernetes does), or a function
that asks an issuer. A request that is answered 401 is sent once more with a new token, so that a
long statement survives the end of the one that it began with.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from paimon_magics.errors import SetupError
from paimon_magics.forks import renew_after_fork
from paimon_magics.redaction import conceal

__all__ = ["GivenToken", "Token", "token_of_user"]

GivenToken = str | Callable[[], str]
"""A token, or a function that returns one that is valid now."""

_VARIABLE = "PAIMON_COORDINATOR_TOKEN"
_FILE_VARIABLE = "PAIMON_COORDINATOR_TOKEN_FILE"


class Token:
    """A token that may be renewed. For any thread.

    `read` returns the one that is valid now; without it the `text` is all there is.
    """

    def __init__(self, text: str = "", read: Callable[[], str] | None = None) -> None:
        self._read = read
        self._turn = threading.Lock()
        self._text = text if read is None else _checked(read())
        conceal(self._text)
        renew_after_fork(self)

    def after_fork(self) -> None:
        """See `Renewed`."""
        self._turn = threading.Lock()

    @property
    def text(self) -> str:
        """The token as it was read last."""
        return self._text

    def renewed(self, refused: str) -> str | None:
        """The token to use instead of a refused one; None if there is no other. Raises SetupError
        if none can be read."""
        with self._turn:
            if self._text == refused and self._read is not None:
                self._text = _checked(self._read())
                conceal(self._text)
            return self._text if self._text != refused else None


def token_of_user(given: GivenToken | None, environment: Mapping[str, str], address: str) -> Token:
    """The token that is given, else the environment's. Raises SetupError without one."""
    if callable(given):
        return Token(read=given)
    if given or environment.get(_VARIABLE):
        return Token(given or environment[_VARIABLE])
    file = environment.get(_FILE_VARIABLE)
    if file:
        return Token(read=lambda: _content(Path(file)))
    raise SetupError(
        f"The coordinator at {address} asks for a token, and none was given.",
        hint=f"Pass token=…, or set {_VARIABLE} to it or {_FILE_VARIABLE} to its file. When the "
        "coordinator starts, it prints the path of the file that holds its own.",
    )


def _content(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SetupError(
            f"The token in {file} can't be read: {why}.",
            hint=f"{_FILE_VARIABLE} must name a file with the token.",
        ) from error


def _checked(text: str) -> str:
    found = text.strip() if isinstance(text, str) else ""
    if not found or not found.isascii() or not found.isprintable():
        raise SetupError(
            "There is no token where one should be read.",
            hint="The file, or the function that was given as token=…, must have a token of "
            "printable ASCII characters.",
        )
    return found
