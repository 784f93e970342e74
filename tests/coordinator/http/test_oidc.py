"""Tokens of an OpenID Connect issuer: a real one, over HTTP, made of Authlib's server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import json
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.jose import JsonWebKey, jwt
from authlib.oauth2.rfc6749 import ClientMixin, grants
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator
from flask import Flask, jsonify
from werkzeug.serving import make_server

from paimon_magics.coordinator.client.addresses import Addresses, Token, tls_context
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.coordinator.http.oidc import GrantsFile, Issuer, IssuerKeys, granting
from paimon_magics.coordinator.protocol.principals import grants_of
from paimon_magics.errors import SetupError
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.tables.system_tables.registry import table_view
from paimon_magics.tables.system_tables.versions import history
from tests.coordinator.process import TABLE, Process, create_table, write

AUDIENCE = "paimon-coordinator"


class Client(ClientMixin):  # type: ignore[misc]
    """A client of the issuer; its id is its name, its secret the same."""

    def __init__(self, name: str) -> None:
        self.client_id = self.user_id = name

    def get_client_id(self) -> str:
        return self.client_id

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_client_secret(self, secret: str) -> bool:
        return secret == self.client_id

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return True

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "client_credentials"


class IssuerServer:
    """The issuer: discovery, keys, and a token endpoint for client credentials."""

    def __init__(self) -> None:
        self.seconds = 3_600
        self.audience = AUDIENCE
        self.asked = 0
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.app = Flask(__name__)
        self.http = make_server("127.0.0.1", 0, self.app, threaded=True)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.rotate("first")
        issuer = self

        class Generator(JWTBearerTokenGenerator):  # type: ignore[misc]
            def get_jwks(self) -> Any:
                return {"keys": [issuer.key.as_dict(is_private=True)]}

            def get_audiences(self, *_: Any) -> str:
                return issuer.audience

            def get_extra_claims(self, client: Client, *_: Any) -> dict[str, Any]:
                return {"groups": [f"{client.client_id}s"], "preferred_username": client.client_id}

            def _get_expires_in(self, *_: Any) -> int:
                return issuer.seconds

        server = AuthorizationServer(self.app, Client, lambda *_: None)
        server.register_grant(grants.ClientCredentialsGrant)
        server.register_token_generator("default", Generator(self.url, alg="RS256"))

        @self.app.get("/.well-known/openid-configuration")
        def discovery() -> Any:
            self.asked += 1
            self.goes_on.wait()
            return jsonify(issuer=self.url, jwks_uri=f"{self.url}/jwks")

        @self.app.get("/jwks")
        def jwks() -> Any:
            return jsonify(keys=[self.key.as_dict()])

        @self.app.post("/token")
        def token() -> Any:
            return server.create_token_response()

        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def rotate(self, kid: str) -> None:
        self.key = JsonWebKey.generate_key("RSA", 2048, {"kid": kid, "use": "sig"}, is_private=True)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Answer nothing meanwhile."""
        self.goes_on.clear()
        try:
            yield
        finally:
            self.goes_on.set()

    def token(self, name: str, scope: str = "") -> str:
        answer = httpx.post(
            f"{self.url}/token",
            data={"grant_type": "client_credentials", "scope": scope},
            auth=(name, name),
            trust_env=False,
        )
        return str(answer.json()["access_token"])

    def signed(self, claims: Mapping[str, Any], **header: str) -> str:
        head = {"alg": "RS256", "kid": self.key.kid, **header}
        return jwt.encode(head, dict(claims), self.key).decode()  # type: ignore[no-any-return]


@pytest.fixture
def issuer(monkeypatch: pytest.MonkeyPatch) -> Iterator[IssuerServer]:
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
    made = IssuerServer()
    yield made
    made.http.shutdown()
    made.http.server_close()


@pytest.fixture
def process(issuer: IssuerServer, tmp_path: Path) -> Iterator[Process]:
    create_table(tmp_path / "warehouse", "CREATE TABLE t (k INT)")
    made = Process(
        tmp_path / "warehouse",
        tmp_path / "state",
        f"--oidc-issuer={issuer.url}",
        f"--oidc-audience={AUDIENCE}",
        "--oidc-user-claim=preferred_username",
    )
    made.start()
    yield made
    made.close()


def status(process: Process, token: str, path: str = "/v1/coordinator") -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(process.address + path, headers=headers, trust_env=False).status_code


def test_issuer_token_authenticates_its_user_until_its_key_is_gone(
    issuer: IssuerServer, process: Process, tmp_path: Path
) -> None:
    issued: list[str] = []

    def fresh() -> str:
        issued.append(issuer.token("ada", "openid paimon-coordinator:write=default.t"))
        return issued[-1]

    client = RemoteCoordinator(At(Addresses.of(process.address), Token(read=fresh)))
    catalog = create_table(tmp_path / "warehouse", "CREATE TABLE t (k INT)")
    try:
        transaction = client.begin(TABLE)
        messages = write(catalog, transaction, [{"k": 1}])
        # The issuer's keys are rotated, and a restart of the coordinator forgets the old ones: the
        # token that the client has is good no more, and it asks for another.
        issuer.rotate("second")
        process.kill()
        process.start()
        client.commit(CommitRequest(transaction, Append(), messages))
        assert len(issued) == 2 and status(process, issued[0]) == 401
        assert history(table_view(catalog, TABLE))["user"].to_pylist() == ["ada"]
        assert status(process, issued[1], "/metrics") == 403
        assert status(process, process.token(), "/metrics") == 200
        assert status(process, issuer.token("eve", "openid")) == 403
    finally:
        client.close()


def test_token_with_wrong_claims_or_signature_is_refused(
    issuer: IssuerServer, process: Process
) -> None:
    now = int(time.time())
    good = {
        "iss": issuer.url,
        "aud": AUDIENCE,
        "exp": now + 600,
        "iat": now,
        "preferred_username": "ada",
        "scope": "paimon-coordinator:read",
    }
    assert status(process, issuer.signed(good)) == 200
    assert status(process, issuer.signed({**good, "aud": ["other", AUDIENCE]})) == 200
    assert status(process, issuer.signed({**good, "exp": now - 30})) == 200  # clocks differ
    for wrong in (
        {"aud": "other"},
        {"iss": "https://elsewhere.example.org"},
        {"exp": now - 120},
        {"nbf": now + 600},
        {"preferred_username": None},
        {"preferred_username": "service:x"},
        {"preferred_username": "a\nb"},
    ):
        assert status(process, issuer.signed({**good, **wrong})) == 401, wrong
    for missing in ("aud", "iss", "exp"):
        claims = {key: value for key, value in good.items() if key != missing}
        assert status(process, issuer.signed(claims)) == 401, missing
    # No signature, one by the public key as a secret, and one of another key under this name.
    head, body, _ = issuer.signed(good).split(".")
    none = f"{encoded({'alg': 'none'})}.{body}."
    public = issuer.key.as_pem()
    unsigned = f"{encoded({'alg': 'HS256', 'kid': issuer.key.kid})}.{body}"
    forged = f"{unsigned}.{encoded(hmac.digest(public, unsigned.encode(), 'sha256'))}"
    for token in (none, forged, f"{head}.{body}.", f"{head}.{body}.AAAA"):
        assert status(process, token) == 401
    stranger = JsonWebKey.generate_key("RSA", 2048, is_private=True)
    impostor = jwt.encode({"alg": "RS256", "kid": issuer.key.kid}, good, stranger).decode()
    assert status(process, impostor) == 401


def encoded(part: Mapping[str, str] | bytes) -> str:
    content = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def test_issuer_keys_are_cached_and_kept_while_the_issuer_is_down(issuer: IssuerServer) -> None:
    now = 0.0
    keys = IssuerKeys(issuer.url, tls_context(None), clock=lambda: now)

    async def ask() -> None:
        nonlocal now
        assert await keys.key("first") is not None
        made_up = [keys.key(f"made up {guess}") for guess in range(10)]
        assert await asyncio.gather(*made_up) == [None] * 10
        assert issuer.asked == 1
        issuer.rotate("second")
        now += 31
        assert await keys.key("second") is not None and await keys.key("first") is None
        assert issuer.asked == 2
        issuer.http.shutdown()
        issuer.http.server_close()
        now += 3_600
        assert await keys.key("second") is not None
        now += 86_400
        with pytest.raises(SetupError, match=r"keys of the issuer .* can't be fetched"):
            await keys.key("second")

    asyncio.run(ask())


def test_frozen_issuer_does_not_delay_tokens_with_known_keys(issuer: IssuerServer) -> None:
    now = 0.0
    keys = IssuerKeys(issuer.url, tls_context(None), clock=lambda: now)

    async def ask() -> None:
        nonlocal now
        issuer.goes_on.set()
        assert await keys.key("first") is not None
        issuer.goes_on.clear()
        now += 31
        waiting = [asyncio.ensure_future(keys.key(f"made up {at}")) for at in range(60)]
        await asyncio.sleep(0.2)
        now += 1_000  # the keys are old, but the issuer is being asked
        began = time.monotonic()
        assert await keys.key("first") is not None
        assert time.monotonic() - began < 0.1
        assert await asyncio.gather(*waiting) == [None] * 60
        assert time.monotonic() - began < 8

    with issuer.frozen():
        asyncio.run(ask())
    assert issuer.asked == 2


def test_grants_come_from_the_claim_or_from_a_file(tmp_path: Path) -> None:
    plain = Issuer("https://i", AUDIENCE)
    write = grants_of(["write=shop"])
    assert plain.grants({"scope": "openid paimon-coordinator:write=shop other:admin"}) == write
    assert plain.grants({"scope": ["paimon-coordinator:nonsense", 7]}) == ()
    assert plain.grants({}) == plain.grants({"scope": {"a": 1}}) == ()
    file = tmp_path / "grants.json"
    file.write_text(json.dumps({"engineers": ["write=shop", "read"]}))
    mapped = Issuer("https://i", AUDIENCE, scope_claim="groups", file=GrantsFile(str(file)))
    actual = mapped.grants({"groups": ["engineers", "paimon-coordinator:admin"]})
    assert actual == grants_of(["write=shop", "read"])
    for text in ("[]", "{", '{"a": ["everything"]}', '{"a": 1}'):
        file.write_text(text)
        with pytest.raises(SetupError, match=r"grants\.json can't be read"):
            granting(str(file))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--oidc-issuer=https://i.example.org"], "--oidc-audience is required"),
        (["--oidc-audience=a"], "need an issuer"),
        (["--oidc-issuer=http://i.example.org", "--oidc-audience=a"], "unencrypted"),
        (["--oidc-issuer=i.example.org", "--oidc-audience=a"], "not a coordinator's address"),
        (["--embedded", "--oidc-issuer=https://i", "--oidc-audience=a"], "with --embedded"),
    ],
)
def test_invalid_issuer_options_are_named(
    given: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from paimon_magics.coordinator.__main__ import main

    assert main([f"--state={tmp_path / 's'}", f"--warehouse={tmp_path / 'w'}", *given]) == 2
    assert message in capsys.readouterr().err
