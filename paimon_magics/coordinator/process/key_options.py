"""The options of a coordinator that hands out keys of its store."""

from __future__ import annotations

import argparse
import logging

from paimon_magics.coordinator.data_tokens.issuing import DataTokens
from paimon_magics.coordinator.data_tokens.sts import StsIssuer, StsSettings
from paimon_magics.errors import SetupError
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.stores.store import UnreachableError

_SECONDS = 900
_SECONDS_MIN = 10
_SECONDS_MAX = 43_200  # the longest that AWS makes

_log = logging.getLogger(__name__)


def data_tokens_of(options: argparse.Namespace, catalog: Catalog) -> DataTokens | None:
    """What issues the keys; None where they are not asked for. Raises SetupError for settings that
    are half or contradict each other, and if a trial is refused. Without an answer a warning is
    logged: commits don't need STS."""
    if options.data_tokens is None:
        for option in ("sts_role", "sts_endpoint", "data_token_seconds"):
            if getattr(options, option) is not None:
                raise SetupError(
                    f"--{option.replace('_', '-')} is for a coordinator that hands out keys.",
                    hint="Give --data-tokens sts, too.",
                )
        return None
    if options.embedded:
        raise SetupError(
            "A coordinator with --embedded hands out no keys: its user has those that it has.",
            hint="Leave out --data-tokens or --embedded.",
        )
    if catalog.metastore == "rest":
        raise SetupError(
            "--data-tokens is for a warehouse that the coordinator owns, not for a REST catalog.",
            hint="Leave it out: the catalog's own server hands out keys.",
        )
    seconds = _SECONDS if options.data_token_seconds is None else options.data_token_seconds
    if not _SECONDS_MIN <= seconds <= _SECONDS_MAX:
        raise SetupError(
            f"--data-token-seconds {seconds} is not between {_SECONDS_MIN} and {_SECONDS_MAX}.",
            hint=f"Leave it out for {_SECONDS}.",
        )
    issuer = StsIssuer(
        catalog.warehouse,
        lambda: catalog.options,
        StsSettings(options.sts_role, options.sts_endpoint),
    )
    closed: list[tuple[str, str]] = []
    if options.audit_table is not None:
        database, _, table = options.audit_table.partition(".")
        closed.append((database, table))
    tokens = DataTokens(catalog, issuer, seconds, closed)
    try:
        tokens.check()
    except UnreachableError as error:
        _log.warning("No keys of the store can be issued now: %s", error)
    return tokens
