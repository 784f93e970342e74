"""The addresses of a coordinator that runs as a service, and whom a client trusts there.

Several addresses are those of coordinators that may own the same warehouse's commits, or of one by
several ways. A token goes to an address in this list, and to this machine's own, but to none that
somebody else has named.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from paimon_magics.errors import SetupError

__all__ = ["Addresses", "ca_of", "is_address", "tls_context", "trusting"]

_SCHEMES = ("http://", "https://")


@dataclass(frozen=True, slots=True)
class Addresses:
    """URLs without a slash at their ends, in the order in which they are tried; at least one."""

    all: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Addresses:
        """Read one address, or several with commas between. Raises SetupError."""
        given = [part.strip().rstrip("/") for part in text.split(",")]
        for address in given:
            _check(address, text)
        return cls(tuple(dict.fromkeys(given)))

    def __str__(self) -> str:
        return ", ".join(self.all)

    def __contains__(self, address: str) -> bool:
        return address in self.all

    def after(self, failed: str) -> tuple[str, ...]:
        """All but `failed`, those behind it first."""
        if failed not in self.all:
            return self.all
        at = self.all.index(failed)
        return self.all[at + 1 :] + self.all[:at]


def is_address(text: str) -> bool:
    """Whether a text names a coordinator by its address, or several."""
    return text.startswith(_SCHEMES)


def ca_of(given: str, environment: Mapping[str, str]) -> str:
    """The file of certificates that a client trusts: the given one, else PAIMON_COORDINATOR_CA; ""
    for those that the system trusts."""
    return given or environment.get("PAIMON_COORDINATOR_CA") or ""


def tls_context(addresses: Addresses | None, ca: str = "") -> ssl.SSLContext:
    """Whom a client of these addresses trusts: the certificates in the PEM file `ca`, else the
    system's. Raises SetupError for a file that can't be used.

    Without an https address it trusts nobody, since reading the system's certificates takes 20 ms.
    """
    if addresses is None or not any(one.startswith("https://") for one in addresses.all):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return trusting(ca)


def trusting(ca: str) -> ssl.SSLContext:
    """A client's context of TLS that trusts the certificates in the PEM file `ca`, else the
    system's. Raises SetupError for a file that can't be used."""
    try:
        return ssl.create_default_context(cafile=ca or None)
    except OSError as error:  # ssl.SSLError is one
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
            f"`{address}` is no address of a coordinator"
            + (f", in `{text}`." if address != text else "."),
            hint="Write it as https://lake.example.org:8123, several with commas between.",
        )
    if parts.username is not None:
        raise SetupError(
            "The address of the coordinator holds a user or password.",
            hint="Leave it out: the token comes from token=… or PAIMON_COORDINATOR_TOKEN.",
        )
