"""Rights from the command line: `paimon-coordinator token add|list|allow|renew|revoke`, and
`grant`, `revoke` and `grants`.

A running coordinator gets the request, with the token in its state folder or in
PAIMON_COORDINATOR_TOKEN. If no coordinator runs, the command opens and changes its store itself.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from paimon_magics.coordinator.client.addresses import Addresses, ca_of, tls_context, token_of_user
from paimon_magics.coordinator.client.administration import GrantAdministration, GrantRow
from paimon_magics.coordinator.client.owner_requests import Requests
from paimon_magics.coordinator.client.starting import At
from paimon_magics.coordinator.http.authorisation import Tokens
from paimon_magics.coordinator.http.stored_grants import StoredGrants
from paimon_magics.coordinator.ownership.catalog_options import catalog_options
from paimon_magics.coordinator.ownership.pairing import Pairing
from paimon_magics.coordinator.process.offline import (
    CommandParser,
    add_place,
    asking,
    existing_folder,
)
from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.protocol.principals import Grantee
from paimon_magics.coordinator.routes.administration import token_document
from paimon_magics.coordinator.store.state_store import open_store, store_address
from paimon_magics.coordinator.store.tables import PairTable, StoredGrant
from paimon_magics.errors import InvalidValueError, PaimonMagicsError, SetupError
from paimon_magics.origin import user_name
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.stores.allowed_paths import PathRules

_TOKEN_EXAMPLE = """example:
  paimon-coordinator token add etl --allow write=shop.orders_* --expires 90d --state …
  paimon-coordinator token revoke etl --state /var/lib/paimon-coordinator"""
_GRANT_EXAMPLE = """example:
  paimon-coordinator grant insert=shop.orders_* --to alice --to role:analysts --state …
  paimon-coordinator revoke insert=shop.orders_* --from alice --state …"""
_UNITS_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TIME = re.compile(r"([1-9][0-9]{0,5})([mhd])")


def token_command(arguments: Sequence[str]) -> list[str]:
    """Carry out the command and return the lines to show. Raises errors of ours."""
    options = _parser().parse_args(arguments)
    with ExitStack() as ending:
        run = _commands(options, ending)
        expires = getattr(options, "expires", "never")
        expires_in_ms = None if expires == "never" else duration_ms(expires)
        match options.word:
            case "add":
                return [run.add(options.name, options.allow or ["read"], expires_in_ms)]
            case "allow":
                allowed = run.allow(options.name, options.allow)
                return _table(_some(allowed, options.name))
            case "renew":
                renewed = run.renew(options.name, expires_in_ms)
                return _table(_some(renewed, options.name))
            case "revoke":
                revoked = run.revoke(options.name)
                lines = [f"{token['id']} of {token['name']} is revoked." for token in revoked]
                if lines and isinstance(run, _Stored) and not run.tell_warehouse():
                    lines.append(
                        "The warehouse could not be told: until the coordinator starts, a dump "
                        "of before that is put back is not noticed."
                    )
                return lines or ["The token had ended before."]
            case _:
                return _table(run.all())


_Documents = Sequence[Mapping[str, Any]]


def rotate_token_of(options: argparse.Namespace, overlap_ms: int) -> list[str]:
    """Make another token of the name, with the same rights and the same end as the one that ends
    last; the others end after the overlap. Return the lines to show. Raises errors of ours.

    If the process dies after it has made the token, nobody has that: the next try ends it, too.
    """
    with ExitStack() as ending:
        run = _commands(options, ending)
        now = now_ms()
        good = [
            token
            for token in run.all()
            if options.name in (token["name"], token["id"])
            and not token["revoked_at_ms"]
            and (token["expires_at_ms"] or now + 1) > now
        ]
        name = _some(good, options.name)[0]["name"]
        if len({tuple(sorted(token["allow"])) for token in good}) > 1:
            raise InvalidValueError(
                f"The tokens of `{name}` allow different things.",
                hint="Name one of them by its id: `paimon-coordinator token list` shows ids.",
            )
        ends = [token["expires_at_ms"] for token in good]
        left = None if None in ends else max(ends) - now
        text = run.add(str(name), list(good[0]["allow"]), left)
        for token in good:
            if not overlap_ms:
                run.revoke(str(token["id"]))
            elif token["expires_at_ms"] is None or token["expires_at_ms"] > now + overlap_ms:
                run.renew(str(token["id"]), overlap_ms)
        return [text]


def grant_command(arguments: Sequence[str]) -> list[str]:
    """Carry out `grant`, `revoke` or `grants`, and return the lines to show. Raises errors of
    ours."""
    options = _grant_parser().parse_args(arguments)
    with ExitStack() as ending:
        run = _commands(options, ending)
        if options.word == "grants":
            rows = [(row.to, row.allow, row.by, _day(row.at_ms)) for row in run.grants()]
            return _columns([("to", "allows", "by", "at"), *rows])
        allow = [*options.allow, *(f"role:{role}" for role in options.role or ())]
        if options.word == "grant":
            granted = run.grant(options.to, allow)
            lines = [f"{row.to} may {row.allow}." for row in granted]
            return lines or ["They had it before."]
        lines = [f"{row.to} may {row.allow} no more." for row in run.take_back(options.to, allow)]
        if isinstance(run, _Stored):
            run.tell_warehouse()
        return lines


def _some(tokens: _Documents, name: str) -> _Documents:
    """The tokens. Raises InvalidValueError where all of a name have ended."""
    if not tokens:
        raise InvalidValueError(
            f"The token `{name}` was revoked, or it has ended.",
            hint="Make a new one: paimon-coordinator token add NAME.",
        )
    return tokens


@dataclass(frozen=True)
class _Running:
    """The tokens of a coordinator that runs."""

    requests: Requests

    def add(self, name: str, allow: Sequence[str], expires_in_ms: int | None) -> str:
        body = {"name": name, "allow": list(allow), "expires_in_ms": expires_in_ms}
        return str(self._once("POST", "", body)["token"])

    def all(self) -> _Documents:
        return list(self._once("GET", "")["tokens"])

    def revoke(self, name: str) -> _Documents:
        return list(self._once("DELETE", f"/{quote(name, safe='')}")["revoked"])

    def renew(self, name: str, expires_in_ms: int | None) -> _Documents:
        body = {"expires_in_ms": expires_in_ms}
        return list(self._once("POST", f"/{quote(name, safe='')}/renew", body)["renewed"])

    def allow(self, name: str, allow: Sequence[str]) -> _Documents:
        body = {"allow": list(allow)}
        return list(self._once("POST", f"/{quote(name, safe='')}/allow", body)["allowed"])

    def grants(self) -> list[GrantRow]:
        return self._grants.all()

    def grant(self, to: Sequence[str], allow: Sequence[str]) -> list[GrantRow]:
        return self._grants.grant(to, allow)

    def take_back(self, to: Sequence[str], allow: Sequence[str]) -> list[GrantRow]:
        return self._grants.revoke(to, allow)

    @property
    def _grants(self) -> GrantAdministration:
        return GrantAdministration(self.requests.once)

    def _once(self, method: str, path: str, body: Any = None) -> Any:
        return self.requests.once(method, f"/v1/tokens{path}", body)[1]


@dataclass(frozen=True)
class _Stored:
    """The tokens and grants in a store that no coordinator uses now."""

    tokens: Tokens
    stored: StoredGrants
    pair: PairTable
    warehouse: str | None

    def tell_warehouse(self) -> bool:
        """Note in the warehouse how often rights were taken away. Return whether it is noted; else
        the next start does it."""
        if self.warehouse is None:
            return False
        try:
            options = catalog_options(
                warehouse=self.warehouse, file=None, environment=os.environ, assignments=()
            )
            files = Catalog.open(options, PathRules((), ())).stores.of(self.warehouse)
            Pairing(files, self.warehouse, self.pair, name="", who=user_name()).note_rights()
        except (PaimonMagicsError, OSError):
            return False
        return True

    def add(self, name: str, allow: Sequence[str], expires_in_ms: int | None) -> str:
        return self.tokens.add(name, allow, expires_in_ms)[0]

    def all(self) -> _Documents:
        return list(map(token_document, self.tokens.all()))

    def revoke(self, name: str) -> _Documents:
        return list(map(token_document, self.tokens.revoke(name)))

    def renew(self, name: str, expires_in_ms: int | None) -> _Documents:
        return list(map(token_document, self.tokens.renew(name, expires_in_ms)))

    def allow(self, name: str, allow: Sequence[str]) -> _Documents:
        return list(map(token_document, self.tokens.allow(name, allow)))

    def grants(self) -> list[GrantRow]:
        return list(map(_row, self.stored.all()))

    def grant(self, to: Sequence[str], allow: Sequence[str]) -> list[GrantRow]:
        granted = self.stored.grant(list(map(Grantee.of, to)), allow, user_name())
        return list(map(_row, granted))

    def take_back(self, to: Sequence[str], allow: Sequence[str]) -> list[GrantRow]:
        return list(map(_row, self.stored.revoke(list(map(Grantee.of, to)), allow)))


def _row(grant: StoredGrant) -> GrantRow:
    return GrantRow(grant.grantee, grant.text, grant.granted_by, grant.granted_at_ms)


def _commands(options: argparse.Namespace, ending: ExitStack) -> _Running | _Stored:
    if options.address is not None:
        addresses = Addresses.of(options.address)
        token = token_of_user(None, os.environ, options.address)
        tls = tls_context(addresses, ca_of("", os.environ))
        requests = Requests(At(addresses, token, tls=tls), tls=tls)
        ending.callback(requests.close)
        return _Running(requests)
    if options.state is None:
        raise SetupError(
            "The command does not specify a coordinator.",
            hint="Give --state with its state folder, or --address with its address and its token "
            "in PAIMON_COORDINATOR_TOKEN.",
        )
    folder = existing_folder(options.state)
    running = folder.running() if folder.is_held() else None
    if running is not None:
        return _Running(asking(folder, running, ending))
    folder.hold()
    ending.callback(folder.let_go)
    store = open_store(folder.path, store_address(options.store))
    ending.callback(store.close)
    bound = folder.binding()
    warehouse = None if bound is None else bound.location
    return _Stored(Tokens(store.tokens), StoredGrants(store.grants), store.pair, warehouse)


def _table(tokens: _Documents) -> list[str]:
    rows = [("id", "name", "allows", "made", "state")]
    for token in tokens:
        state = "good"
        if token["revoked_at_ms"]:
            state = f"revoked {_day(token['revoked_at_ms'])}"
        elif token["expires_at_ms"]:
            word = "ended" if token["expires_at_ms"] <= now_ms() else "until"
            state = f"{word} {_day(token['expires_at_ms'])}"
        allows = " ".join(token["allow"])
        rows.append((token["id"], token["name"], allows, _day(token["created_at_ms"]), state))
    return _columns(rows)


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _day(at_ms: int) -> str:
    return f"{datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC):%Y-%m-%d %H:%M} UTC"


def duration_ms(text: str) -> int:
    """The milliseconds of a text such as 90d, 12h or 30m. Raises InvalidValueError."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise InvalidValueError(
            f"`{text}` is not a duration.",
            hint="Write a duration such as 90d, 12h or 30m, or never.",
        )
    return int(match[1]) * _UNITS_MS[match[2]]


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="paimon-coordinator token",
        description="Makes, lists and revokes tokens.",
        epilog=_TOKEN_EXAMPLE,
    )
    words = parser.add_subparsers(dest="word", required=True)
    add = words.add_parser("add", help="make a token, and print it once")
    add.add_argument("name", help="the token's user, whom commits name")
    add.add_argument(
        "--allow",
        action="append",
        metavar="SCOPE[=DATABASE[.TABLE]]",
        help="read, insert, change, alter, maintain, write (all of these) or admin, on everything "
        "or on tables by pattern: write=shop.orders_*; may be given many times (default: read)",
    )
    change = words.add_parser("allow", help="replace what a token allows; its secret stays")
    change.add_argument("name", help="its id, or a name for all that have it")
    change.add_argument(
        "allow", nargs="+", metavar="SCOPE[=DATABASE[.TABLE]]", help="as --allow of `add`"
    )
    show = words.add_parser("list", help="list tokens, without their secrets")
    revoke = words.add_parser("revoke", help="revoke a token at once")
    revoke.add_argument("name", help="its id, or a name for all that have it")
    renew = words.add_parser(
        "renew", help="change when a token expires, even if it has expired already"
    )
    renew.add_argument("name", help="its id, or a name for all that have it")
    for command in (add, renew):
        command.add_argument(
            "--expires", default="90d", metavar="TIME", help="90d, 12h, 30m or never (default: 90d)"
        )
    for command in (add, change, show, renew, revoke):
        add_place(command)
    return parser


def _grant_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="paimon-coordinator",
        description="Grants scopes on tables, and roles, to users, groups and roles.",
        epilog=_GRANT_EXAMPLE,
    )
    words = parser.add_subparsers(dest="word", required=True)
    for word, help in (("grant", "grant something"), ("revoke", "take a grant back")):
        command = words.add_parser(word, help=help)
        command.add_argument(
            "allow", nargs="*", metavar="SCOPE[=DATABASE[.TABLE]]", help="as of a token"
        )
        command.add_argument("--role", action="append", help="a role; may be given many times")
        command.add_argument(
            "--to" if word == "grant" else "--from",
            dest="to",
            action="append",
            required=True,
            metavar="NAME",
            help="a user; role:NAME is a role, group:NAME a group of a hub or an issuer; may be "
            "given many times",
        )
        add_place(command)
    add_place(words.add_parser("grants", help="list all grants"))
    return parser
