"""Authorisation by JupyterHub: tokens of its users, their servers and services, and a login.

A request carries a token of the hub in its header. The hub returns the token's user and scopes, and
this answer is cached for a short time. A revoked or expired token is refused after that.

A browser that asks for the status page without a token is sent to log in at the hub (OAuth). It
comes back with a cookie, signed here, that holds a token of the hub for this service. The cookie
only allows reading that page, so that no other site can use it to change anything. A second signed
cookie proves that the login was begun here.

While the hub can't be asked, tokens that are not cached get the answer 503. If this process dies,
browsers go through the login again, which people don't notice while the hub knows them.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from paimon_magics.coordinator.http.answers import error_answer
from paimon_magics.coordinator.http.authorisation import bearer_token, unauthorised
from paimon_magics.coordinator.protocol.principals import Principal, Scope
from paimon_magics.errors import SetupError

if TYPE_CHECKING:
    from jupyterhub.services.auth import HubOAuth

HUB_CACHE_MS = 10_000

_SCOPE = "custom:paimon-coordinator:{}"
_NEEDED = (
    "JUPYTERHUB_API_TOKEN",
    "JUPYTERHUB_API_URL",
    "JUPYTERHUB_CLIENT_ID",
    "JUPYTERHUB_SERVICE_PREFIX",
)
_URL = "JUPYTERHUB_SERVICE_URL"
_LOOPBACK = ("127.0.0.1", "localhost")
_CALLBACK = "/oauth_callback"
_PAGE = "/"
_SESSION = "jupyterhub-session-id"  # the hub's own cookie; a new session is looked up again
_LOGIN_SECONDS_MAX = 600
_SERVICE = "service:"


@dataclass(frozen=True, slots=True)
class HubService:
    """The settings of a service of the hub: its port and path, and how to authorise.

    `port` is 0 for any. `root` is the path prefix by which the hub's proxy and all clients reach
    it, without a slash at its end.
    """

    port: int
    root: str
    authoriser: _HubAuthoriser


def hub_service(cache_ms: int, port: int = 0, *, is_local: bool = True) -> HubService:
    """Return the hub service that the environment of this process describes. `port` is the one of
    the command line, 0 for the hub's; `is_local` says that it listens on the loopback only.

    Raises SetupError when the environment is not that of a hub's service, when hub and command line
    name different places, or without the jupyterhub package.
    """
    needed = _NEEDED if port else (*_NEEDED, _URL)
    missing = [name for name in needed if not os.environ.get(name)]
    if missing:
        raise SetupError(
            f"This process does not have the environment of a hub's service: {', '.join(missing)} "
            "is not set.",
            hint="Declare the coordinator as a service with a `command` and a `url` in "
            "jupyterhub_config.py. A coordinator that the hub does not start needs these variables "
            "and --port from who starts it.",
        )
    if os.environ.get(_URL):
        port = _hub_port(os.environ[_URL], port, is_local=is_local)
    try:
        from jupyterhub.services.auth import HubOAuth
    except ImportError as error:
        raise SetupError(
            f"A service of JupyterHub needs the jupyterhub package: {error}.",
            hint="Install it with: pip install 'paimon-magics[hub]'",
        ) from error
    # It takes whole seconds, and 0 would mean forever.
    hub = HubOAuth(cache_max_age=max(1, round(cache_ms / 1000)))
    root = os.environ["JUPYTERHUB_SERVICE_PREFIX"].rstrip("/")
    return HubService(port, root, _HubAuthoriser(hub, root))


def _hub_port(text: str, port: int, *, is_local: bool) -> int:
    """The port at which the hub expects the service; else the command line's. Raises SetupError."""
    url = urlsplit(text)
    if is_local and (url.hostname not in _LOOPBACK or url.scheme != "http" or url.port is None):
        raise SetupError(
            f"The hub expects the coordinator at {text}, but it listens on 127.0.0.1 only.",
            hint="Give the service a `url` such as http://127.0.0.1:8124 in jupyterhub_config.py, "
            "or let the coordinator listen there with --host.",
        )
    if port and url.port and port != url.port:
        raise SetupError(
            f"The hub expects the coordinator at {text}, but --port is {port}.",
            hint="Leave out --port, or give the service's `url` in jupyterhub_config.py that port.",
        )
    return url.port or port


class _HubAuthoriser:
    """An `Authoriser` that asks the hub. `root` is the path of the service."""

    def __init__(self, hub: HubOAuth, root: str) -> None:
        self._hub = hub
        self._page = root + _PAGE
        self._secret = secrets.token_bytes(32)

    async def principal(self, connection: HTTPConnection) -> Principal | None:
        session = ""
        token = bearer_token(connection)
        if token is None and self._is_page(connection):
            token = self._opened(connection, self._hub.cookie_name)
            session = connection.cookies.get(_SESSION, "")
        if token is None:
            return None
        model = await self._model(token, session)
        if model is None:
            return None
        groups = tuple(str(group) for group in model.get("groups") or ())
        return Principal(_name(model), self._scope(model), credential="hub", groups=groups)

    def challenge(self, connection: HTTPConnection) -> Response:
        if self._is_page(connection) and bearer_token(connection) is None:
            return self._login(connection)
        return unauthorised(
            "The hub does not know the token, or it has expired.",
            "A running server of the hub has a token in PAIMON_COORDINATOR_TOKEN. The hub's page "
            "Token makes a new token.",
        )

    def routes(self) -> list[Route]:
        return [Route(_CALLBACK, self._called_back)]

    def _is_page(self, connection: HTTPConnection) -> bool:
        method = connection.scope.get("method")
        return connection.scope["path"] == self._page and method in ("GET", "HEAD")

    async def _model(self, token: str, session: str) -> dict[str, Any] | None:
        from tornado.web import HTTPError

        try:
            model: dict[str, Any] | None = await self._hub.user_for_token(
                token, session_id=session, sync=False
            )
        except HTTPError as error:
            raise SetupError(
                f"The hub can't check the token: {error.log_message}",
                hint="Try again. If the error persists, look at the hub's log.",
            ) from error
        return model

    def _scope(self, model: dict[str, Any]) -> Scope | None:
        scopes = [s for s in Scope if self._hub.check_scopes({_SCOPE.format(s.value)}, model)]
        return scopes[-1] if scopes else None

    # ---- the login of a browser ----

    def _login(self, connection: HTTPConnection) -> Response:
        extra: dict[str, str] = {}
        query: dict[str, str] = {}
        if getattr(self._hub, "pkce_enabled", False):  # since JupyterHub 6
            verifier, challenge, method = self._hub.generate_pkce_code_challenge()
            extra = {"code_verifier": verifier}
            query = {"code_challenge": challenge, "code_challenge_method": method}
        state = self._hub.generate_state(next_url=self._page, **extra)
        answer = RedirectResponse(
            f"{self._hub.login_url}&{urlencode({'state': state, **query})}", status_code=302
        )
        self._keep(connection, answer, self._hub.state_cookie_name, state, _LOGIN_SECONDS_MAX)
        return answer

    async def _called_back(self, request: Request) -> Response:
        from tornado.web import HTTPError

        query = request.query_params
        if "error" in query or "code" not in query:
            why = query.get("error_description") or query.get("error") or "its answer has no code"
            return error_answer(400, "LoginFailed", f"The login at the hub failed: {why}.", "")
        state = self._opened(request, self._hub.state_cookie_name)
        if state is None or not secrets.compare_digest(
            state.encode(), query.get("state", "").encode()
        ):
            return error_answer(
                403,
                "LoginFailed",
                "This login did not begin at this coordinator in this browser.",
                "Open the coordinator's page again.",
            )
        verifier = {}
        if getattr(self._hub, "pkce_enabled", False):
            verifier = {"code_verifier": self._hub.get_code_verifier(state)}
        self._hub.clear_oauth_state(state)
        try:
            token = await self._hub.token_for_code(query["code"], sync=False, **verifier)
        except HTTPError as error:
            return error_answer(
                502, "LoginFailed", f"The hub gave no token: {error.log_message}.", "Try again."
            )
        answer = RedirectResponse(self._page, status_code=302)
        self._keep(request, answer, self._hub.cookie_name, token, None)
        answer.delete_cookie(self._hub.state_cookie_name, path=self._hub.cookie_path)
        return answer

    def _opened(self, connection: HTTPConnection, name: str) -> str | None:
        """Return the value in a cookie that was signed here, None for any other."""
        from tornado.web import decode_signed_value

        value = decode_signed_value(self._secret, name, connection.cookies.get(name, ""))
        return None if value is None else value.decode()

    def _keep(
        self,
        connection: HTTPConnection,
        answer: Response,
        name: str,
        value: str,
        seconds_max: int | None,
    ) -> None:
        """Put a signed value into a cookie for the service's path that no script can read."""
        from tornado.web import create_signed_value

        public = os.environ.get("JUPYTERHUB_PUBLIC_URL", "")
        forwarded = connection.headers.get("x-forwarded-proto", "").split(",")[0].strip()
        options = {"samesite": "lax", **self._hub.cookie_options}
        answer.set_cookie(
            name,
            create_signed_value(self._secret, name, value).decode(),
            max_age=seconds_max,
            path=self._hub.cookie_path,
            httponly=True,
            secure="https" in (urlsplit(public).scheme, forwarded) or name.startswith("__Host-"),
            samesite=options["samesite"].lower(),
        )


def _name(model: dict[str, Any]) -> str:
    """Return a user's name, or `service:NAME`. Raises SetupError for a user with such a name."""
    name = str(model["name"])
    if model.get("kind") == "service":
        return _SERVICE + name
    if name.startswith(_SERVICE):
        raise SetupError(
            f"The user name `{name}` begins with `{_SERVICE}`, which is reserved for services.",
            hint="Ask an administrator of the hub to rename the user.",
        )
    return name
