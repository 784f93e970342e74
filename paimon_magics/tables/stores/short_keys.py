"""Keys of a store that a coordinator hands out for minutes, in any process that reads or writes.

A session's catalog options then hold no key, but where keys come from: the coordinator's addresses
and the user's token. Each process (the driver, each Python process of Spark) asks for a key when
it first needs one, and for the next one in time, also in the middle of a long task. Names of
databases and tables come from the coordinator, too, since such a key lists no other table.
"""

from __future__ import annotations

import functools
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlsplit

from paimon_magics.errors import SetupError
from paimon_magics.forks import renew_after_fork
from paimon_magics.redaction import conceal, conceal_options

FROM = "paimon-magics.keys.from"
TOKEN = "paimon-magics.keys.token"
CA = "paimon-magics.keys.ca-file"

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 30.0
_PAUSE_SECONDS = 0.5
_LATER = (429, 502, 503, 504)
_PATIENCE_SECONDS = 20.0  # while an owner is replaced by another one
# The client of the store asks again five minutes before the end that it is told.
_CLIENTS_SAFETY = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class KeySource:
    """A coordinator that hands out keys: its addresses separated by commas, the user's token, and
    the file of certificates that are trusted, "" for the system's."""

    addresses: str
    token: str = field(repr=False)
    ca: str = ""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> KeySource | None:
        """The source that catalog options name; None if they name none. The bucket of their
        warehouse is then known to `has_short_keys`."""
        addresses = options.get(FROM)
        if not addresses:
            return None
        _buckets.add(urlsplit(options.get("warehouse", "")).netloc)
        conceal(options.get(TOKEN))
        return cls(addresses, options.get(TOKEN, ""), options.get(CA, ""))

    def options(self) -> dict[str, str]:
        """The source as catalog options."""
        return {FROM: self.addresses, TOKEN: self.token, **({CA: self.ca} if self.ca else {})}

    def key(self) -> Mapping[str, str]:
        """A key that is valid now, as catalog options. Raises SetupError."""
        return _keys_of(self).current()[0]

    def credentials(self) -> dict[str, Any]:
        """A key for obstore, with the moment at which it asks for the next one. Raises
        SetupError."""
        options, renew_at = _keys_of(self).current()
        left = timedelta(seconds=max(renew_at - time.monotonic(), 0))
        return {
            "access_key_id": options["s3.access-key"],
            "secret_access_key": options["s3.secret-key"],
            "token": options["s3.session-token"],
            "expires_at": datetime.now(UTC) + left + _CLIENTS_SAFETY,
        }

    def databases(self) -> list[str]:
        """The databases that the user may see. Raises SetupError."""
        return list(self.get("/v1/paimon/databases")["databases"])

    def tables(self, database: str) -> list[str]:
        """The tables of a database that the user may see. Raises SetupError."""
        answer = self.get(f"/v1/paimon/databases/{quote(database, safe='')}/tables")
        return list(answer.get("tables") or ())

    def get(self, path: str) -> dict[str, Any]:
        """The JSON document at a path of the coordinator, {} if there is none. Asks again while no
        coordinator answers. Raises SetupError."""
        import httpx

        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            problem = "no answer"
            for address in self.addresses.split(","):
                try:
                    answer = self._answer(address.strip().rstrip("/") + path)
                except httpx.HTTPError as error:
                    problem = str(error) or type(error).__name__
                    continue
                if answer.is_success:
                    return dict(answer.json())
                if answer.status_code == 404:
                    return {}
                problem = _message(answer)
                if answer.status_code not in _LATER:
                    raise _failure(self.addresses, problem)
            if time.monotonic() > deadline:
                raise _failure(self.addresses, problem)
            time.sleep(_PAUSE_SECONDS)

    def _answer(self, url: str) -> Any:
        import httpx

        renewed = _tokens.get(self.addresses)
        token = self.token if renewed is None else renewed()
        with httpx.Client(
            timeout=httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
            trust_env=False,
            verify=_trusting(self.ca) if url.startswith("https:") else False,
        ) as http:
            return http.get(url, headers={"Authorization": f"Bearer {token}"})


@functools.cache
def _trusting(ca: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca or None)


def renew_tokens(addresses: str, token: Callable[[], str]) -> None:
    """Let this process ask the coordinator at these addresses with the token that `token` returns
    then, in place of the one among the options."""
    _tokens[addresses] = token


def has_short_keys(location: str) -> bool:
    """Whether this process has keys that end for the bucket of a location in S3."""
    return urlsplit(location).netloc in _buckets


class _Keys:
    """The keys from one source, in this process. For any thread."""

    def __init__(self, source: KeySource) -> None:
        self._source = source
        self._turn = threading.Lock()
        self._known: tuple[Mapping[str, str], float, float] | None = None
        renew_after_fork(self)

    def after_fork(self) -> None:
        """See `Renewed`."""
        self._turn = threading.Lock()

    def current(self) -> tuple[Mapping[str, str], float]:
        """The key, and the monotonic second at which to ask for the next one."""
        with self._turn:
            now = time.monotonic()
            if self._known is not None and now < self._known[1]:
                return self._known[:2]
            try:
                answer = self._source.get("/v1/data-token")
                options = {str(key): str(value) for key, value in answer["options"].items()}
            except (SetupError, KeyError):
                # A key that has not ended is better than none.
                if self._known is not None and time.monotonic() < self._known[2]:
                    return self._known[0], time.monotonic() + _PAUSE_SECONDS
                raise
            conceal_options(options)
            renew_at = now + float(answer["renew_in_ms"]) / 1000
            self._known = options, renew_at, now + float(answer["lease_ms"]) / 1000
            return self._known[:2]


_buckets: set[str] = set()
_tokens: dict[str, Callable[[], str]] = {}
_sources: dict[KeySource, _Keys] = {}
_guard = threading.Lock()


def _keys_of(source: KeySource) -> _Keys:
    with _guard:
        return _sources.setdefault(source, _Keys(source))


def _message(answer: Any) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP status {answer.status_code}"


def _failure(addresses: str, problem: str) -> SetupError:
    return SetupError(
        f"The coordinator at {addresses} gave no key of the store: {problem}",
        hint="Check that it runs, and that your token is valid; then connect again.",
    )
