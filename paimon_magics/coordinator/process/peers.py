"""The other coordinators to which a token may be passed on.

The address of a warehouse's owner is read from the warehouse, where everybody who writes tables
could have put another one. So a token goes to the addresses that the administrator has named, and
to this machine's loopback.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from paimon_magics.coordinator.process.network import is_loopback_host
from paimon_magics.errors import SetupError

__all__ = ["PeerNames"]

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class PeerNames:
    """The addresses, as schemes, patterns of hosts, and ports."""

    all: tuple[tuple[str, str, int], ...] = ()

    @classmethod
    def of(cls, given: Sequence[str]) -> PeerNames:
        """Read addresses, several of them with commas between. Raises SetupError."""
        found = []
        for text in (text.strip() for part in given for text in part.split(",")):
            parts = _parts(text)
            if parts is None:
                raise SetupError(
                    f"--peer can't be `{text}`.",
                    hint="Write the address of another coordinator, as "
                    "https://lake-1.example.org:8123 or https://lake-*.example.org:8123.",
                )
            found.append(parts)
        return cls(tuple(found))

    def __contains__(self, address: str) -> bool:
        parts = _parts(address)
        if parts is None:
            return False
        scheme, host, port = parts
        return is_loopback_host(host) or any(
            (scheme, port) == (one[0], one[2]) and _fits(host, one[1]) for one in self.all
        )


def _fits(host: str, pattern: str) -> bool:
    """Whether a host fits a pattern, whose `*` stand for text without dots."""
    labels, wanted = host.split("."), pattern.split(".")
    return len(labels) == len(wanted) and all(map(fnmatchcase, labels, wanted))


def _parts(address: str) -> tuple[str, str, int] | None:
    try:
        parts = urlsplit(address)
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        return None
    return (parts.scheme, parts.hostname, port) if parts.hostname else None
