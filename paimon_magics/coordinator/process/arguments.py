"""The command line of a coordinator."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from typing import NoReturn

from paimon_magics.coordinator.core.values import Limits
from paimon_magics.coordinator.http.hub import HUB_CACHE_MS
from paimon_magics.coordinator.http.limits import REQUEST_BYTES_MAX
from paimon_magics.coordinator.inserts.queue.values import Thresholds
from paimon_magics.coordinator.process.network import LOOPBACK
from paimon_magics.coordinator.service.compaction_scheduler import Budget
from paimon_magics.errors import SetupError
from paimon_magics.version import build

# Long enough to survive a store that does not answer for a while, short enough to wait for.
_OWNERSHIP_LEASE_MS = 30_000
_IDLE_MS = 600_000
_LABEL_RETENTION_MS = 3 * 86_400_000  # as long as Doris keeps labels
_COMPACT_SETTLE_MS = 10_000
_AUDIT_EVERY_MS = 60_000
_LOG_RESERVE_BYTES = 256 * 1024 * 1024


_EPILOG = """example:
  paimon-coordinator --warehouse /data/lake --state /var/lib/paimon-coordinator --port 8123

commands, each with a --help of its own:
  token, grant, revoke, grants   who may do what
  backup, restore                the store to a file, and back
  move                           the warehouse to another place
  rotate                         tokens, store keys and certificates, without a stop"""


class _Arguments(argparse.ArgumentParser):
    """A parser with a method for each form of option."""

    is_for_hub = False

    def __init__(self) -> None:
        super().__init__(
            prog="paimon-coordinator",
            description="Owns the commits of one Paimon warehouse.",
            epilog=_EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.text = self.add_argument
        self.file = partial(self.add_argument, metavar="FILE")
        self.flag = partial(self.add_argument, action="store_true")
        self.number = partial(self.add_argument, type=int)
        self.many = partial(self.add_argument, action="append", default=[])

    def error(self, message: str) -> NoReturn:
        """Raise SetupError where a hub would end with this process; else end it."""
        if not self.is_for_hub:
            super().error(message)
        raise SetupError(
            f"The coordinator's command line is wrong: {message}.",
            hint="Correct the command of the service. `paimon-coordinator --help` lists the "
            "options.",
        )


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command line. Ends the process after --help and mistakes; raises
    SetupError for mistakes with --hub.
    """
    reader = parser()
    reader.is_for_hub = "--hub" in arguments
    return reader.parse_args(arguments)


def parser() -> _Arguments:
    """Return the parser of the command line, with the defaults."""
    arguments = _Arguments()
    text, flag, number = arguments.text, arguments.flag, arguments.number
    text("--version", action="version", version=f"paimon-coordinator {build()}")
    text(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="the form of the lines on the error stream; each has its time, level and, within a "
        "request, its id and table (default: text)",
    )
    _add_place(arguments)
    text("--store", help="postgresql://… to keep its database there (default: in the state folder)")
    text(
        "--log",
        choices=("store", "warehouse"),
        default="store",
        help="where small inserts are kept until they are loaded: beside the database (default), "
        "or in the warehouse's own store",
    )
    _add_keys(arguments)
    _add_network(arguments)
    _add_client_limits(arguments)
    for limit in fields(Limits):
        number(f"--{limit.name.replace('_', '-')}", default=limit.default)
    _add_compaction(arguments)
    flag("--hub", help="run as a service of a JupyterHub")
    number("--hub-cache-ms", default=HUB_CACHE_MS)
    _add_issuer(arguments)
    text(
        "--audit-table",
        metavar="DATABASE.TABLE",
        help=(
            "write an audit log to this table of the warehouse, such as ops.audit (default: no "
            "audit log)"
        ),
    )
    number(
        "--audit-every-ms",
        default=_AUDIT_EVERY_MS,
        help="how often audit entries are written to the table",
    )
    number("--ownership-lease-ms", default=_OWNERSHIP_LEASE_MS)
    _add_standby(arguments)
    flag("--embedded", help="own the warehouse when needed, end when idle")
    number("--idle-ms", default=_IDLE_MS)
    number("--request-bytes-max", default=REQUEST_BYTES_MAX)
    number("--label-retention-ms", default=_LABEL_RETENTION_MS)
    number("--log-bytes-max", default=Thresholds().hard_bytes)
    number("--log-reserve-bytes", default=_LOG_RESERVE_BYTES)
    return arguments


def _add_place(arguments: _Arguments) -> None:
    arguments.text("--warehouse", help="the warehouse's folder or URI")
    arguments.text(
        "--catalog",
        help="a JSON file of catalog options, for secrets that must not be on a command line",
    )
    arguments.many(
        "--catalog-option",
        metavar="KEY=VALUE",
        help="one of Paimon's catalog options, such as s3.endpoint; may be repeated",
    )
    arguments.many(
        "--external-root",
        metavar="URI",
        help=(
            "a folder outside the warehouse where tables may have files; users with write "
            "permission on a table can have files below it deleted; may be repeated (default: "
            "none; with --embedded, the folders that tables' options name)"
        ),
    )
    arguments.text(
        "--state", required=True, help="a folder on a local disk for its database and token"
    )


def _add_keys(arguments: _Arguments) -> None:
    arguments.text(
        "--data-tokens",
        choices=("sts",),
        help=(
            "hand out keys of the store that last minutes, limited to what their user may read "
            "and write; sts: by AssumeRole, for a warehouse in S3 (default: none)"
        ),
    )
    arguments.text("--sts-role", metavar="ARN", help="the role to assume; AWS needs one")
    arguments.text(
        "--sts-endpoint",
        metavar="URL",
        help="the address of STS (default: that of the store, or AWS's)",
    )
    arguments.number(
        "--data-token-seconds", help="how long such a key lasts (default: 900, 10 to 43200)"
    )


def _add_network(arguments: _Arguments) -> None:
    arguments.text(
        "--host",
        default=LOOPBACK,
        help=(
            "the address to listen on; 0.0.0.0 means all addresses of this machine (default: "
            "127.0.0.1)"
        ),
    )
    arguments.number("--port", default=0, help="the port to listen on (default: any)")
    arguments.file(
        "--tls-cert", help="the certificate with its chain, in PEM; read again when it changes"
    )
    arguments.file("--tls-key", help="its key, in PEM")
    arguments.many(
        "--behind-proxy",
        metavar="ADDRESS",
        help=(
            "the address or network of a proxy that ends TLS: its X-Forwarded headers are "
            "trusted, and other clients may not connect without TLS; may be repeated"
        ),
    )
    arguments.flag("--insecure-http", help="accept tokens without TLS, if the network is trusted")
    arguments.text(
        "--root-path", default="", help="the path prefix of all endpoints, such as /lake"
    )
    arguments.text(
        "--advertise", default="", metavar="URL", help="the address by which clients reach it"
    )
    arguments.number(
        "--drain-ms",
        default=0,
        help="how long after SIGTERM it still answers, as not ready, while clients go elsewhere",
    )


def _add_standby(arguments: _Arguments) -> None:
    arguments.flag(
        "--standby",
        help="stand by while another coordinator owns the warehouse, and take over after it",
    )
    arguments.many(
        "--peer",
        metavar="URL",
        help=(
            "the address of another coordinator, which may receive tokens while it owns the "
            "warehouse; `*` stands for a part of its host's name; may be repeated (default: the "
            "addresses of this machine's loopback)"
        ),
    )
    arguments.file(
        "--peer-ca", help="a PEM file with the certificates to trust at the other coordinators"
    )


def _add_issuer(arguments: _Arguments) -> None:
    arguments.text(
        "--oidc-issuer", metavar="URL", help="also accept tokens of this OpenID Connect issuer"
    )
    arguments.text("--oidc-audience", help="the audience that these tokens must have")
    arguments.text(
        "--oidc-user-claim", default="sub", help="the claim with the user's name (default: sub)"
    )
    arguments.text(
        "--oidc-scope-claim",
        default="scope",
        help="the claim with the permissions, such as scope or groups (default: scope)",
    )
    arguments.text(
        "--oidc-group-claim",
        default="groups",
        help="the claim with the user's groups, to which GRANT can grant (default: groups)",
    )
    arguments.file(
        "--oidc-grants",
        help=(
            "a JSON file that maps each text of that claim to permissions (default: texts such "
            "as paimon-coordinator:write=shop.orders_*)"
        ),
    )
    arguments.file("--oidc-ca", help="a PEM file with the certificates to trust there")


def _add_client_limits(arguments: _Arguments) -> None:
    for option, what, default in (
        ("--client-requests-max", "requests in flight per client", 256),
        ("--client-rate-max", "requests per second and client", 2000),
        ("--client-streams-max", "streams per client", 1024),
    ):
        limit = f"0 means no limit (default: {default}; on the loopback, no limit)"
        arguments.number(option, help=f"{what}; {limit}")


def _add_compaction(arguments: _Arguments) -> None:
    budget = Budget()
    arguments.text(
        "--compact",
        choices=("auto", "off"),
        help=(
            "auto: compact all tables except those with auto_compact=false (default with "
            "--embedded); off: compact only tables with auto_compact=true"
        ),
    )
    arguments.number("--compact-workers", default=budget.workers, help="processes that compact")
    arguments.number(
        "--compact-memory-bytes", default=budget.memory_bytes, help="the memory of each process"
    )
    arguments.number(
        "--compact-bytes-max",
        default=budget.bytes_max,
        help="a bucket with more to read is left to CALL sys.compact",
    )
    arguments.number(
        "--compact-settle-ms",
        default=_COMPACT_SETTLE_MS,
        help="how long after a commit a table is checked",
    )
