"""Tokens of an OpenID Connect issuer: JWTs, checked with the keys that it publishes.

The issuer's discovery document names its keys (JWKS). They are fetched again after ten minutes. A
token that names an unknown key also triggers a fetch, so that a rotation is noticed; at most twice
a minute, so that forged key ids don't load the issuer. Tokens with a known key never wait for that.
While the issuer does not answer, the last keys are used for a day.

Only asymmetric signatures are accepted. A token must have issuer, audience and expiry; a clock may
be a minute off.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.routing import Route

from paimon_magics.coordinator.http.authorisation import (
    Authoriser,
    bearer_token,
    is_name,
    unauthorised,
)
from paimon_magics.coordinator.protocol.principals import Grant, Principal, grants_of
from paimon_magics.coordinator.service.health import Fact
from paimon_magics.errors import PaimonMagicsError, SetupError

if TYPE_CHECKING:
    from jwt import PyJWK

_ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
_LEEWAY_SECONDS = 60
_FRESH_SECONDS = 600.0
_USED_SECONDS_MAX = 86_400.0
_PAUSE_SECONDS = 30.0
_ANSWER_SECONDS = 5.0
_BYTES_MAX = 1_048_576
_TOKEN_CHARACTERS_MAX = 16_384
_REMEMBERED_MAX = 10_000
_REMEMBERED_SECONDS = 60.0
_DISCOVERY = "/.well-known/openid-configuration"
_PREFIX = "paimon-coordinator:"
_FILE_SECONDS = 0.5
_GROUPS_MAX = 200

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Issuer:
    """An issuer, as its tokens name it, and which of their claims count.

    `user_claim` has the user's name, `group_claim` their groups, `scope_claim` texts (a list, or
    one with spaces between) that `file` leads to grants. Where that is None, the texts say them
    after a prefix: `paimon-coordinator:write=shop.orders_*`.
    """

    url: str
    audience: str
    user_claim: str = "sub"
    scope_claim: str = "scope"
    group_claim: str = "groups"
    file: GrantsFile | None = None

    def grants(self, claims: Mapping[str, Any]) -> tuple[Grant, ...]:
        """What a token's claims allow; texts that are about something else allow nothing."""
        grants: list[Grant] = []
        for text in _texts(claims.get(self.scope_claim)):
            if self.file is not None:
                grants += self.file.by_text.get(text, ())
            elif text.startswith(_PREFIX):
                with contextlib.suppress(PaimonMagicsError):
                    grants.append(Grant.of(text.removeprefix(_PREFIX)))
        return tuple(dict.fromkeys(grants))

    def groups(self, claims: Mapping[str, Any]) -> tuple[str, ...]:
        """The groups that a token's claims name."""
        return tuple(_texts(claims.get(self.group_claim)))[:_GROUPS_MAX]


def _texts(claim: object) -> list[str]:
    """The texts of a claim: a list, or one text with spaces between."""
    texts = claim.split() if isinstance(claim, str) else claim
    if not isinstance(texts, list | tuple):
        return []
    return [text for text in texts if isinstance(text, str)]


class GrantsFile:
    """A JSON file `{text: [grant, …]}` of what the texts of a claim allow. It is read again when it
    changes. A file that can't be read then leaves the last permissions in force.

    Raises SetupError where it can't be read at first.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._state = self._looked()
        self._looked_at = time.monotonic()
        self._trouble = ""
        self.version = 0
        """How often it was read again."""
        self.by_text = granting(file)
        """The grants of each text."""

    def look(self) -> bool:
        """Read the file again if it has changed; return whether new permissions are in force."""
        self._looked_at = time.monotonic()
        state = self._looked()
        if state == self._state:
            return False
        self._state = state
        try:
            by_text = granting(self._file)
        except SetupError as error:
            self._trouble = error.message
            _log.error("%s The last ones stay in force.", error.message)
            return False
        self._trouble = ""
        self.version += 1
        self.by_text = by_text
        _log.warning("The permissions in %s were read again.", self._file)
        return True

    def look_if_due(self) -> None:
        """Look, unless somebody has looked just now."""
        if time.monotonic() - self._looked_at > _FILE_SECONDS:
            self.look()

    def facts(self) -> Iterator[Fact]:
        """The fact for the coordinator's health."""
        self.look_if_due()
        yield Fact("permissions", self.version, self._trouble)

    def _looked(self) -> tuple[int, int, int] | None:
        try:
            stat = Path(self._file).stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino


def granting(file: str) -> dict[str, tuple[Grant, ...]]:
    """Read a JSON file `{text: [grant, …]}` of what the texts of a claim allow. Raises
    SetupError."""
    try:
        document = json.loads(Path(file).read_text())
        is_object = isinstance(document, dict)
        if not is_object or not all(isinstance(allows, list) for allows in document.values()):
            raise ValueError("it must be an object whose members are lists")
        return {text: grants_of(map(str, allows)) for text, allows in document.items()}
    except (OSError, ValueError, TypeError, AttributeError, PaimonMagicsError) as error:
        raise SetupError(
            f"The permissions in {file} can't be read: {error}",
            hint='Write a JSON object such as {"data-engineers": ["write=shop", "read"]}.',
        ) from error


class IssuerKeys:
    """The keys of an issuer. For one event loop. `clock` is in seconds."""

    def __init__(
        self, url: str, tls: ssl.SSLContext, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._url = url.rstrip("/")
        self._tls = tls
        self._clock = clock
        self._keys: dict[str, PyJWK] = {}
        self._read_at = float("-inf")
        self._requested_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._problem = ""

    async def key(self, id: str) -> PyJWK | None:
        """The key with an id; None if the issuer has no such key. Waits for the issuer only if the
        key is unknown. Raises SetupError while there are no keys because the issuer does not
        answer.
        """
        is_due = self._age > _FRESH_SECONDS or id not in self._keys
        may_ask = self._reading is None and self._clock() - self._requested_at > _PAUSE_SECONDS
        if is_due and may_ask:
            self._requested_at = self._clock()
            self._reading = asyncio.ensure_future(self._read())
        is_usable = id in self._keys and self._age <= _USED_SECONDS_MAX
        if not is_usable and self._reading is not None:
            await asyncio.shield(self._reading)
        if self._age > _USED_SECONDS_MAX:
            raise SetupError(
                f"The keys of the issuer {self._url} can't be fetched: {self._problem}.",
                hint="Try again. If the error persists, check the issuer.",
            )
        return self._keys.get(id)

    @property
    def _age(self) -> float:
        return self._clock() - self._read_at

    async def _read(self) -> None:
        from jwt import PyJWKSet

        try:
            client = httpx.AsyncClient(verify=self._tls, trust_env=False, timeout=_ANSWER_SECONDS)
            async with asyncio.timeout(_ANSWER_SECONDS), client:
                document = await self._document(client, self._url + _DISCOVERY)
                if str(document.get("issuer", "")).rstrip("/") != self._url:
                    raise ValueError(f"its document names the issuer {document.get('issuer')}")
                keys = PyJWKSet.from_dict(await self._document(client, str(document["jwks_uri"])))
        except Exception as error:  # regardless of its answer, the last keys are used
            self._problem = str(error).rstrip(".") or type(error).__name__
            _log.error("The keys of the issuer %s can't be fetched: %s", self._url, self._problem)
        else:
            self._keys = {key.key_id or "": key for key in keys.keys}
            self._read_at = self._requested_at
        self._reading = None

    async def _document(self, client: httpx.AsyncClient, url: str) -> dict[str, Any]:
        if not url.startswith("https://") and self._url.startswith("https://"):
            raise ValueError(f"it names {url}, which is not encrypted")
        async with client.stream("GET", url) as answer:
            answer.raise_for_status()
            content = b""
            async for part in answer.aiter_bytes():
                content += part
                if len(content) > _BYTES_MAX:
                    raise ValueError(f"{url} returns more than {_BYTES_MAX:,} bytes")
        document = json.loads(content)
        if not isinstance(document, dict):
            raise ValueError(f"{url} does not return a JSON object")
        return document


class IssuedTokens:
    """An authoriser that also knows the tokens of an issuer. All other tokens are for `others`.

    Raises SetupError without the package that checks signatures.
    """

    def __init__(self, issuer: Issuer, keys: IssuerKeys, others: Authoriser) -> None:
        try:
            import jwt  # noqa: F401
        except ImportError as error:
            raise SetupError(
                f"Tokens of an issuer need the pyjwt package: {error}.",
                hint="Install it with: pip install 'paimon-magics[oidc]'",
            ) from error
        self._issuer = issuer
        self._keys = keys
        self._others = others
        # Principals by the digests of tokens, with the end of the token and the end of caching by
        # the monotonic clock.
        self._remembered: OrderedDict[bytes, tuple[Principal, float, float]] = OrderedDict()
        self._version = 0

    async def principal(self, connection: HTTPConnection) -> Principal | None:
        """See `Authoriser.principal`."""
        token = bearer_token(connection)
        if not _is_jwt(token):
            return await self._others.principal(connection)
        assert token is not None
        file = self._issuer.file
        if file is not None:
            file.look_if_due()
            if file.version != self._version:
                self._version = file.version
                self._remembered.clear()
        digest = hashlib.sha256(token.encode()).digest()
        remembered = self._remembered.get(digest)
        if remembered is not None:
            principal, ends_at, until = remembered
            if time.time() < ends_at and time.monotonic() < until:
                return principal
        return await self._checked(token, digest)

    def challenge(self, connection: HTTPConnection) -> Response:
        """See `Authoriser.challenge`."""
        if _is_jwt(bearer_token(connection)):
            return unauthorised(
                "The issuer did not issue this token for this coordinator, or the token has "
                "expired.",
                f"Get a new token from {self._issuer.url} for the audience "
                f"{self._issuer.audience}.",
            )
        return self._others.challenge(connection)

    def routes(self) -> list[Route]:
        """See `Authoriser.routes`."""
        return self._others.routes()

    async def _checked(self, token: str, digest: bytes) -> Principal | None:
        import jwt
        from jwt.exceptions import PyJWTError

        issuer = self._issuer
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in _ALGORITHMS:
                return None
            key = await self._keys.key(str(header.get("kid", "")))
            if key is None:
                return None
            claims = jwt.decode(
                token,
                key.key,
                algorithms=list(_ALGORITHMS),
                audience=issuer.audience,
                issuer=issuer.url,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (PyJWTError, ValueError, TypeError):
            return None
        name = claims.get(issuer.user_claim)
        if not isinstance(name, str) or not is_name(name):
            return None
        principal = Principal.granted(name, issuer.grants(claims), "issuer", issuer.groups(claims))
        until = time.monotonic() + _REMEMBERED_SECONDS
        self._remembered[digest] = principal, float(claims["exp"]) + _LEEWAY_SECONDS, until
        while len(self._remembered) > _REMEMBERED_MAX:
            self._remembered.popitem(last=False)
        return principal


def _is_jwt(token: str | None) -> bool:
    return (
        token is not None
        and len(token) <= _TOKEN_CHARACTERS_MAX
        and token.startswith("eyJ")
        and token.count(".") == 2
    )
