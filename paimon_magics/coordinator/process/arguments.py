"""The command line of a coordinator."""

from __future__ import annotations

import argparse

from paimon_magics.coordinator.core.values import Limits
from paimon_magics.coordinator.http.hub import HUB_CACHE_MS
from paimon_magics.coordinator.http.limits import REQUEST_BYTES_MAX
from paimon_magics.coordinator.inserts.queue.values import Thresholds
from paimon_magics.coordinator.process.network import LOOPBACK
from paimon_magics.coordinator.service.compaction_scheduler import Budget

# Long enough to survive a store that does not answer for a while, short enough to wait for.
_OWNERSHIP_LEASE_MS = 30_000
_IDLE_MS = 600_000
_LABEL_RETENTION_MS = 3 * 86_400_000  # as long as Doris keeps labels
_COMPACT_SETTLE_MS = 10_000
_AUDIT_EVERY_MS = 60_000
_LOG_RESERVE_BYTES = 256 * 1024 * 1024


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, with the defaults."""
    defaults = Limits()
    arguments = argparse.ArgumentParser(
        prog="paimon-coordinator", description="Owns the commits of one Paimon warehouse."
    )
    _add_place(arguments)
    arguments.add_argument(
        "--store", help="postgresql://… to keep its database there (default: in the state folder)"
    )
    arguments.add_argument(
        "--log",
        choices=("store", "warehouse"),
        default="store",
        help="where small inserts are kept until they are loaded: beside the database (default), "
        "or in the warehouse's own store",
    )
    _add_network(arguments)
    _add_client_limits(arguments)
    arguments.add_argument("--lease-ms", type=int, default=defaults.lease_ms)
    arguments.add_argument("--cleanup-grace-ms", type=int, default=defaults.cleanup_grace_ms)
    arguments.add_argument(
        "--receipt-retention-ms", type=int, default=defaults.receipt_retention_ms
    )
    arguments.add_argument("--watch-every-ms", type=int, default=defaults.watch_every_ms)
    arguments.add_argument("--expire-every-ms", type=int, default=defaults.expire_every_ms)
    _add_compaction(arguments)
    arguments.add_argument("--hub", action="store_true", help="run as a service of a JupyterHub")
    arguments.add_argument("--hub-cache-ms", type=int, default=HUB_CACHE_MS)
    _add_issuer(arguments)
    _add_audit(arguments)
    arguments.add_argument("--ownership-lease-ms", type=int, default=_OWNERSHIP_LEASE_MS)
    _add_standby(arguments)
    arguments.add_argument(
        "--embedded", action="store_true", help="own the warehouse when needed, end when idle"
    )
    arguments.add_argument("--idle-ms", type=int, default=_IDLE_MS)
    arguments.add_argument("--request-bytes-max", type=int, default=REQUEST_BYTES_MAX)
    arguments.add_argument("--label-retention-ms", type=int, default=_LABEL_RETENTION_MS)
    arguments.add_argument("--log-bytes-max", type=int, default=Thresholds().hard_bytes)
    arguments.add_argument("--log-reserve-bytes", type=int, default=_LOG_RESERVE_BYTES)
    return arguments


def _add_place(arguments: argparse.ArgumentParser) -> None:
    arguments.add_argument("--warehouse", help="the warehouse's folder or URI")
    arguments.add_argument(
        "--catalog",
        help="a JSON file of catalog options, for keys that no command line should show",
    )
    arguments.add_argument(
        "--catalog-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one of Paimon's catalog options, as s3.endpoint; may be given many times",
    )
    arguments.add_argument(
        "--external-root",
        action="append",
        default=[],
        metavar="URI",
        help="a folder outside the warehouse in which tables may have files; whoever may write a "
        "table can have files there deleted; may be given many times (default: none; with "
        "--embedded those that tables' options name)",
    )
    arguments.add_argument(
        "--state", required=True, help="a folder on a local disk for its database and token"
    )


def _add_network(arguments: argparse.ArgumentParser) -> None:
    arguments.add_argument(
        "--host",
        default=LOOPBACK,
        help="the address to listen at; 0.0.0.0 is all of this machine's (default: 127.0.0.1)",
    )
    arguments.add_argument("--port", type=int, default=0, help="the port there (default: any)")
    arguments.add_argument(
        "--tls-cert",
        metavar="FILE",
        help="the certificate with its chain, in PEM; read again when it changes",
    )
    arguments.add_argument("--tls-key", metavar="FILE", help="its key, in PEM")
    arguments.add_argument(
        "--behind-proxy",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="a proxy that ends TLS: its X-Forwarded headers are believed, and nobody else may ask "
        "in the clear; an address or network, may be given many times",
    )
    arguments.add_argument(
        "--insecure-http",
        action="store_true",
        help="take tokens in the clear, where the network is trusted",
    )
    arguments.add_argument(
        "--root-path", default="", help="the path below which everything is, as /lake"
    )
    arguments.add_argument(
        "--advertise", default="", metavar="URL", help="the address by which others reach it"
    )
    arguments.add_argument(
        "--drain-ms",
        type=int,
        default=0,
        help="how long after SIGTERM it still answers, not ready, while clients go elsewhere",
    )


def _add_standby(arguments: argparse.ArgumentParser) -> None:
    arguments.add_argument(
        "--standby",
        action="store_true",
        help="stand by while another coordinator owns the warehouse, and take over after it",
    )
    arguments.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="URL",
        help="the address of another coordinator, to which tokens may be passed on while that one "
        "owns the warehouse; may have `*` for a part of its host's name, and be given many times "
        "(default: those of this machine's loopback)",
    )
    arguments.add_argument(
        "--peer-ca",
        metavar="FILE",
        help="a PEM file with the certificates to trust at the other coordinators",
    )


def _add_issuer(arguments: argparse.ArgumentParser) -> None:
    arguments.add_argument(
        "--oidc-issuer", metavar="URL", help="take the tokens of this OpenID Connect issuer, too"
    )
    arguments.add_argument("--oidc-audience", help="the audience that they must be for")
    arguments.add_argument(
        "--oidc-user-claim", default="sub", help="the claim with the user's name (default: sub)"
    )
    arguments.add_argument(
        "--oidc-scope-claim",
        default="scope",
        help="the claim that says what is allowed, as scope or groups (default: scope)",
    )
    arguments.add_argument(
        "--oidc-grants",
        metavar="FILE",
        help="a JSON file of what each text of that claim allows (default: texts as "
        "paimon-coordinator:write=shop.orders_*)",
    )
    arguments.add_argument(
        "--oidc-ca", metavar="FILE", help="a PEM file with the certificates to trust there"
    )


def _add_audit(arguments: argparse.ArgumentParser) -> None:
    arguments.add_argument(
        "--audit-table",
        metavar="DATABASE.TABLE",
        help="keep who did what in this table of the warehouse, as ops.audit (default: nowhere)",
    )
    arguments.add_argument(
        "--audit-every-ms",
        type=int,
        default=_AUDIT_EVERY_MS,
        help="how often its entries are written there",
    )


def _add_client_limits(arguments: argparse.ArgumentParser) -> None:
    arguments.add_argument(
        "--client-requests-max",
        type=int,
        help="requests of one client in flight; 0 is no limit (default: 256, on the loopback none)",
    )
    arguments.add_argument(
        "--client-rate-max",
        type=int,
        help="requests of one client in a second; 0 is no limit (default: 2000, on the loopback "
        "none)",
    )
    arguments.add_argument(
        "--client-streams-max",
        type=int,
        help="streams of one client; 0 is no limit (default: 1024, on the loopback none)",
    )


def _add_compaction(arguments: argparse.ArgumentParser) -> None:
    budget = Budget()
    arguments.add_argument(
        "--compact",
        choices=("auto", "off"),
        help="auto: compact tables by itself, but for those with auto_compact=false (default with "
        "--embedded); off: only tables with auto_compact=true",
    )
    arguments.add_argument(
        "--compact-workers", type=int, default=budget.workers, help="processes that compact"
    )
    arguments.add_argument(
        "--compact-memory-bytes",
        type=int,
        default=budget.memory_bytes,
        help="the memory of each of them",
    )
    arguments.add_argument(
        "--compact-bytes-max",
        type=int,
        default=budget.bytes_max,
        help="a bucket with more to read is left to CALL sys.compact",
    )
    arguments.add_argument(
        "--compact-settle-ms",
        type=int,
        default=_COMPACT_SETTLE_MS,
        help="how long after a commit a table is looked at",
    )
