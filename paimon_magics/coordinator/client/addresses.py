"""The address of a coordinator that runs as a service: which certificates a client trusts there,
and which token it sends.

Several addresses may be those of several coordinators that can own the same warehouse's commits, or
several addresses of one coordinator. A token goes to an address in this list, and to this machine's
own address, but never to an address from another source.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from paimon_magics.errors import SetupError
from paimon_magics.forks import renew_after_fork
from paimon_magics.redaction import conceal

_SCHEMES = ("http://", "https://")

TokenSource = str | Callable[[], str]
"""A token, or a function that returns a currently valid token."""

_VARIABLE = "PAIMON_COORDINATOR_TOKEN"
_FILE_VARIABLE = "PAIMON_COORDINATOR_TOKEN_FILE"


@dataclass(frozen=True, slots=True)
class Addresses:
    """URLs without a slash at their ends, in the order in which they are tried; at least one."""

    all: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Addresses:
        """Read one address, or several with commas between. Raises SetupError."""
        addresses = [part.strip().rstrip("/") for part in text.split(",")]
        for address in addresses:
            _check(address, text)
        return cls(tuple(dict.fromkeys(addresses)))

    def __str__(self) -> str:
        return ", ".join(self.all)

    def __contains__(self, address: str) -> bool:
        return address in self.all

    def after(self, failed: str) -> tuple[str, ...]:
        """All addresses except `failed`, first those after it."""
        if failed not in self.all:
            return self.all
        at = self.all.index(failed)
        return self.all[at + 1 :] + self.all[:at]


def is_address(text: str) -> bool:
    """Whether a text is the address of a coordinator, or several addresses."""
    return text.startswith(_SCHEMES)


def ca_of(option: str, environment: Mapping[str, str]) -> str:
    """The file of trusted certificates: the option, else PAIMON_COORDINATOR_CA. "" means those that
    the system trusts."""
    return option or environment.get("PAIMON_COORDINATOR_CA") or ""


def tls_context(addresses: Addresses | None, ca: str = "") -> ssl.SSLContext:
    """The TLS context of a client of these addresses. It trusts the certificates in the PEM file
    `ca`, else the system's. Raises SetupError for an unusable file.

    Without an https address it trusts no certificate, since reading the system's certificates takes
    20 ms.
    """
    if addresses is None or not any(each.startswith("https://") for each in addresses.all):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return trusting(ca)


def trusting(ca: str) -> ssl.SSLContext:
    """A client's TLS context, which trusts the certificates in the PEM file `ca`, else the
    system's. Raises SetupError for an unusable file.
    """
    try:
        return ssl.create_default_context(cafile=ca or None)
    except OSError as error:  # ssl.SSLError is an OSError
        reason = error.strerror or getattr(error, "reason", None) or str(error)
        raise SetupError(
            f"The certificates in {ca} can't be used: {reason}.",
            hint="Set coordinator_ca, or PAIMON_COORDINATOR_CA, to a PEM file with the certificate "
            "of the authority that signed the coordinator's.",
        ) from error


def _check(address: str, text: str) -> None:
    try:
        parts = urlsplit(address)
        is_good = address.startswith(_SCHEMES) and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or parts.query or parts.fragment:
        raise SetupError(
            f"`{address}` is not a coordinator's address"
            + (f", in `{text}`." if address != text else "."),
            hint="Write it as https://lake.example.org:8123. Separate several addresses by commas.",
        )
    if parts.username is not None:
        raise SetupError(
            "The coordinator's address contains a user or password.",
            hint="Remove it: the token comes from token=… or PAIMON_COORDINATOR_TOKEN.",
        )


class Token:
    """A token that may be renewed: a text, a file that somebody keeps up to date (as Kubernetes
    does), or a function that asks an issuer. For any thread.

    A request that is answered 401 is sent once more with a new token, so a long statement survives
    the end of its first one. `read` returns the token that is valid now; without it, `text` is the
    only one.
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
        """The token to use instead of a refused token; None if there is no other. Raises SetupError
        if no token can be read.
        """
        with self._turn:
            if self._text == refused and self._read is not None:
                self._text = _checked(self._read())
                conceal(self._text)
            return self._text if self._text != refused else None


def token_of_user(
    source: TokenSource | None, environment: Mapping[str, str], address: str
) -> Token:
    """The token of the source, else the environment's. Raises SetupError without one."""
    if callable(source):
        return Token(read=source)
    if source or environment.get(_VARIABLE):
        return Token(source or environment[_VARIABLE])
    file = environment.get(_FILE_VARIABLE)
    if file:
        return Token(read=lambda: _content(Path(file)))
    raise SetupError(
        f"The coordinator at {address} requires a token, and none is set.",
        hint=(
            f"Pass token=…, set {_VARIABLE} to the token, or set {_FILE_VARIABLE} to the path "
            "of its file. At its start, a coordinator prints the path of its own token file."
        ),
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
    token = text.strip() if isinstance(text, str) else ""
    if not token or not token.isascii() or not token.isprintable():
        raise SetupError(
            "The token source contains no token.",
            hint=(
                "The file, or the function in token=…, must provide a token of printable ASCII "
                "characters."
            ),
        )
    return token
