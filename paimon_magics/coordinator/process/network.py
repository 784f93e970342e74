"""Where a coordinator listens, and how its tokens are protected on the network.

Loopback needs no protection. On any other address, others could read a request's token. So it
requires TLS, a proxy in front that ends TLS, or an explicit option that the network is trusted.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import logging
import os
import re
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from paimon_magics.columnar.time_zones import UTC, moment_text
from paimon_magics.coordinator.http.forwarding import Peers, is_loopback
from paimon_magics.coordinator.service.health import Fact
from paimon_magics.errors import SetupError

LOOPBACK = "127.0.0.1"

_PORT_MAX = 65_535
_ANY = ("0.0.0.0", "::")
_ROOT = re.compile(r"(/[\w.~-]+)+")
_HOST = re.compile(r"[\w.:%-]+")

_LEFT_SECONDS_MIN = 7 * 86_400
_TIME = re.compile(rb"(?:\x17\r(\d{12})Z|\x18\x0f(\d{14})Z)")  # in DER, of either form

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Network:
    """The network options of the command line.

    `port` 0 means any free port. `certificate` and `key` are PEM files, or None without TLS.
    `peers` are the proxies whose headers about the client are trusted. `root` is the path prefix of
    all endpoints, "" or such as "/lake". `advertised` is the URL by which clients reach it, "" for
    the address that it listens on. With `is_insecure`, tokens may come unencrypted.
    """

    host: str = LOOPBACK
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    peers: Peers = field(default_factory=Peers)
    root: str = ""
    advertised: str = ""
    is_insecure: bool = False

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        return is_loopback(self.host)

    @property
    def differs(self) -> bool:
        """Whether it differs from plain HTTP at the loopback's root, regardless of the port."""
        return self != Network(port=self.port, is_insecure=self.is_insecure)

    @property
    def needs_inner_port(self) -> bool:
        """Whether the coordinator's own processes need a port of their own on the loopback."""
        return self.certificate is not None or self.host != LOOPBACK

    def address(self, port: int) -> str:
        """The URL at which others reach it."""
        if self.advertised:
            return self.advertised
        scheme = "http" if self.certificate is None else "https"
        host = socket.gethostname() if self.host in _ANY else self.host
        shown = f"[{host}]" if ":" in host else host
        return f"{scheme}://{shown}:{port}{self.root}"


def network_of(options: argparse.Namespace) -> Network:
    """Return the network options of the command line. Raises SetupError for options that contradict
    each other, and for unencrypted tokens. The path prefix of a hub's service is the hub's.
    """
    network = Network(
        options.host,
        options.port,
        _file(options.tls_cert, "--tls-cert"),
        _file(options.tls_key, "--tls-key"),
        Peers.of(options.behind_proxy),
        _root(options.root_path),
        _advertised(options.advertise),
        options.insecure_http,
    )
    if not _HOST.fullmatch(network.host):
        raise SetupError(
            f"The coordinator can't listen on `{network.host}`: it is not an address.",
            hint="Name an address of this machine with --host, or 0.0.0.0 for all its addresses.",
        )
    if network.key is not None and network.certificate is None:
        raise SetupError(
            "--tls-key is given without --tls-cert.",
            hint="Give the certificate's file with --tls-cert.",
        )
    if options.embedded and network.differs:
        raise SetupError(
            f"A coordinator with --embedded listens only on {LOOPBACK}, without TLS.",
            hint="Leave out --embedded, or --host, --tls-cert, --behind-proxy, --root-path and "
            "--advertise.",
        )
    if options.hub and network.root:
        raise SetupError(
            "A coordinator with --hub has the path that the hub gives its service.",
            hint="Leave out --root-path.",
        )
    is_safe = network.certificate is not None or network.peers.all or network.is_insecure
    if not network.is_local and not is_safe:
        raise SetupError(
            f"On {network.host} tokens would travel unencrypted, and everybody on the network "
            "could use them.",
            hint="Give --tls-cert and --tls-key; or --behind-proxy with the address of the proxy "
            "that ends TLS; or --insecure-http where the network itself is trusted.",
        )
    return network


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; port 0 means any free port. Raises SetupError for a port
    that is invalid or in use, and an address that this machine does not have.
    """
    try:
        if not 0 <= port <= _PORT_MAX:  # `create_server` would leave its socket open
            raise OSError("it is not a port")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        reason = str(error.strerror or error).rstrip(".")
        raise SetupError(
            f"The coordinator can't listen on port {port} of {host}: {reason}.",
            hint="Name a free port with --port and an address of this machine with --host, or both "
            "in the `url` of the hub's service.",
        ) from error
    # Accepted connections inherit this. Without it answers wait 40 ms for an acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _file(name: str | None, option: str) -> Path | None:
    if name is None:
        return None
    path = Path(name)
    if not path.is_file():
        raise SetupError(f"{option} names {name}, which is not a file.", hint="Name a PEM file.")
    return path


def _root(text: str) -> str:
    root = text.rstrip("/")
    if root and not _ROOT.fullmatch(root):
        raise SetupError(
            f"--root-path can't be `{text}`.",
            hint="Write the path that the proxy sends, such as /lake or /services/lake.",
        )
    return root


def _advertised(url: str) -> str:
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or parts.query or parts.fragment or parts.username is not None:
        raise SetupError(
            f"--advertise can't be `{url}`.",
            hint="Write the address that clients use, such as https://lake.example.org/coordinator.",
        )
    return url.rstrip("/")


class Certificate:
    """A certificate with its chain, and its key; both may be in one PEM file. They are read again
    when the files change; open connections keep the certificate that they began with.

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
            ends = moment_text(int(self._ends_at * 1000), UTC)
            word = "ends" if left > 0 else "ended"
            problem = f"The certificate {self._files[0]} {word} at {ends}."
        yield Fact("certificate_seconds", left, problem)

    def look(self) -> bool:
        """Read the files again if they have changed; return whether a new certificate is in use. If
        the new certificate can't be used, the old one stays: the files may be in the middle of a
        replacement.
        """
        try:
            state = self._looked()
        except OSError:  # one is just being replaced
            return False
        if state == self._state:
            return False
        self._state = state
        try:
            self._loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))  # both files, or neither
            self._loaded(self.context)
        except (OSError, ValueError) as error:
            _log.error("The new certificate %s can't be used: %s", self._files[0], _reason(error))
            return False
        return True

    def _loaded(self, context: ssl.SSLContext) -> ssl.SSLContext:
        # An empty pass phrase, since OpenSSL would ask a terminal for one.
        context.load_cert_chain(*self._files, password="")
        self._ends_at = _end_of(self._files[0])
        return context

    def _looked(self) -> tuple[tuple[int, int, int], ...]:
        # A Secret of Kubernetes is replaced by another symbolic link: the file has another number.
        states = [os.stat(file) for file in self._files if file is not None]
        return tuple((state.st_ino, state.st_mtime_ns, state.st_size) for state in states)


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
