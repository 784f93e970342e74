"""The certificate of a coordinator, read again when its files change.

Connections that are open keep the certificate that they began with; the next one gets the new one.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import re
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

from paimon_magics.coordinator.service.health import Fact
from paimon_magics.errors import SetupError

__all__ = ["Certificate"]

_LEFT_SECONDS_MIN = 7 * 86_400
_TIME = re.compile(rb"(?:\x17\r(\d{12})Z|\x18\x0f(\d{14})Z)")  # in DER, of either form

_log = logging.getLogger(__name__)


class Certificate:
    """A certificate with its chain, and its key; both may be in one PEM file.

    Raises SetupError for files that can't be read, are encrypted, or don't belong together.
    """

    def __init__(self, certificate: Path, key: Path | None = None) -> None:
        self._files = certificate, key
        self._ends_at: float | None = None
        self._state = self._looked()
        try:
            self.context = self._loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise SetupError(
                f"The certificate {certificate} can't be used: {_reason(error)}.",
                hint="Give a PEM file with the certificate and its chain to --tls-cert, and its "
                "key, without a pass phrase, to --tls-key.",
            ) from error
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2

    def facts(self) -> Iterator[Fact]:
        """The fact for the coordinator's health."""
        if self._ends_at is None:
            return
        left = self._ends_at - time.time()
        problem = ""
        if left < _LEFT_SECONDS_MIN:
            ends = datetime.datetime.fromtimestamp(self._ends_at, datetime.UTC)
            word = "ends" if left > 0 else "ended"
            problem = f"The certificate {self._files[0]} {word} at {ends:%Y-%m-%d %H:%M} UTC."
        yield Fact("certificate_seconds", left, problem)

    def look(self) -> bool:
        """Read the files again if they have changed; return whether a new certificate is in use.
        One that can't be used leaves the old one: they may be in the middle of being replaced."""
        try:
            state = self._looked()
        except OSError:  # one is just being replaced
            return False
        if state == self._state:
            return False
        try:
            self._loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))  # both files, or neither
            self._loaded(self.context)
        except (OSError, ValueError) as error:
            _log.error("The new certificate %s can't be used: %s", self._files[0], _reason(error))
            self._state = state
            return False
        self._state = state
        return True

    def _loaded(self, context: ssl.SSLContext) -> ssl.SSLContext:
        # An empty pass phrase, since OpenSSL would ask a terminal for one.
        context.load_cert_chain(*self._files, password="")
        self._ends_at = _end_of(self._files[0])
        return context

    def _looked(self) -> tuple[tuple[int, int, int], ...]:
        # A Secret of Kubernetes is replaced by another symbolic link: the file has another number.
        found = [os.stat(file) for file in self._files if file is not None]
        return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in found)


def _end_of(file: Path) -> float | None:
    """The end of the first certificate in a file, in seconds since 1970; None if it is not clear.
    The second time in a certificate is its end."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
        text = file.read_text()
        text = text[text.index(begin) : text.index(end) + len(end)]
        short, long = _TIME.findall(ssl.PEM_cert_to_DER_cert(text))[1]
        form = "%y%m%d%H%M%S" if short else "%Y%m%d%H%M%S"
        when = datetime.datetime.strptime((short or long).decode(), form)
        return when.replace(tzinfo=datetime.UTC).timestamp()
    return None


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return str(reason).replace("_", " ").lower().rstrip(".")
