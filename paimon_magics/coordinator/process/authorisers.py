"""Who says whose a token is, as the command line wants it."""

from __future__ import annotations

import argparse
from urllib.parse import urlsplit

from paimon_magics.coordinator.client.addresses import Addresses, tls_context
from paimon_magics.coordinator.http.authorisation import (
    Authoriser,
    NamedTokens,
    OwnProcesses,
    TokenFile,
)
from paimon_magics.coordinator.http.hub import HubService
from paimon_magics.coordinator.http.oidc import IssuedTokens, Issuer, IssuerKeys, granting
from paimon_magics.coordinator.http.tokens import Tokens
from paimon_magics.coordinator.process.network import is_loopback_host
from paimon_magics.errors import SetupError

__all__ = ["authoriser_of"]


def authoriser_of(
    options: argparse.Namespace, secret: str, token: str, tokens: Tokens, hub: HubService | None
) -> Authoriser:
    """The authoriser. `secret` is the token of the coordinator's own processes, `token` that of the
    state folder, which counts without a hub. Raises SetupError for words that contradict each
    other."""
    users: Authoriser = TokenFile(token) if hub is None else hub.authoriser
    issuer = _issuer(options)
    if issuer is not None:
        tls = tls_context(Addresses.of(issuer.url), options.oidc_ca or "")
        users = IssuedTokens(issuer, IssuerKeys(issuer.url, tls), users)
    return OwnProcesses(secret, NamedTokens(tokens, users))


def _issuer(options: argparse.Namespace) -> Issuer | None:
    url: str | None = options.oidc_issuer
    if url is None:
        if options.oidc_audience is not None or options.oidc_grants is not None:
            raise SetupError(
                "--oidc-audience and --oidc-grants are about an issuer, and none is named.",
                hint="Name it with --oidc-issuer.",
            )
        return None
    if not options.oidc_audience:
        raise SetupError(
            "Which of the issuer's tokens are for this coordinator is not said.",
            hint="Give --oidc-audience: else a token for any other service would be taken here.",
        )
    if options.hub or options.embedded:
        word = "--hub" if options.hub else "--embedded"
        raise SetupError(
            f"A coordinator with {word} takes no tokens of another issuer.",
            hint=f"Leave out {word} or --oidc-issuer.",
        )
    Addresses.of(url)  # raises
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback_host(parts.hostname or ""):
        raise SetupError(
            f"The keys of {url} would come in the clear, where others can put in their own.",
            hint="Name the issuer by its https:// address.",
        )
    grants = None if options.oidc_grants is None else granting(options.oidc_grants)
    return Issuer(
        url, options.oidc_audience, options.oidc_user_claim, options.oidc_scope_claim, grants
    )
