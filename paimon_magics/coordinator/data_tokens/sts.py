"""Keys of S3 by AssumeRole of the Security Token Service: of AWS, MinIO and others that speak it.

The coordinator asks with its own keys: those among its catalog options, else those that botocore
finds (environment, web identity, the machine's role). A key may do what both the role and the
policy allow; MinIO takes the policies of the user who asks for the role's.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from paimon_magics.coordinator.data_tokens.issuing import StoreKey
from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.errors import SetupError
from paimon_magics.tables.stores.s3_access import S3Access, s3_access
from paimon_magics.tables.stores.store import (
    S3_SCHEMES,
    StoreRefusedError,
    UnreachableError,
    is_directory_bucket,
)

_CONNECT_SECONDS = 5
_ANSWER_SECONDS = 10
# What botocore raises for XML of another form.
_PARSING = (LookupError, TypeError, AttributeError, ValueError)
_NO_ROLE = "arn:minio:iam:::role/paimon-magics"  # a server without roles wants an ARN anyhow
_ROLE = re.compile(r"arn:[\w-]+:iam:.*:role/.+")
_AWS = re.compile(r"(^|\.)amazonaws\.com(\.cn)?$")
_NAME = re.compile(r"[^\w+=,.@-]")
_NAME_CHARACTERS_MAX = 64
_SERVER_ERROR = 500
_LATER = (
    "Throttling",
    "ThrottlingException",
    "RequestLimitExceeded",
    "SlowDown",
    "TooManyRequests",
)


@dataclass(frozen=True, slots=True)
class StsSettings:
    """How STS is asked. Without an `endpoint` that of the store, or AWS's; the `role` is an ARN."""

    role: str | None = None
    endpoint: str | None = None


class StsIssuer:
    """A `KeyIssuer` for a warehouse in S3. It asks with the keys that the catalog's `options` have
    at the time. Raises SetupError for settings with which no request can succeed; sends none."""

    def __init__(
        self, warehouse: str, options: Callable[[], Mapping[str, str]], settings: StsSettings
    ) -> None:
        self._options = options
        access = s3_access(options())
        self._endpoint = settings.endpoint or access.endpoint
        _check(warehouse, access, settings, self._endpoint)
        self._role = settings.role or _NO_ROLE
        self._client_of = access, _client(access, self._endpoint)
        self._ahead_ms = 0

    @property
    def shown(self) -> str:
        """See `KeyIssuer`."""
        return f"STS at {self._endpoint or 'AWS'}"

    @property
    def ahead_ms(self) -> int:
        """See `KeyIssuer`."""
        return self._ahead_ms

    def issue(self, policy: str, who: str, seconds: int) -> StoreKey:
        """See `KeyIssuer.issue`."""
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        name = _NAME.sub("-", f"paimon-{who}")[:_NAME_CHARACTERS_MAX]
        try:
            answer = self._sts().assume_role(
                RoleArn=self._role, RoleSessionName=name, Policy=policy, DurationSeconds=seconds
            )
        except ClientError as error:
            self._note_time(error.response)
            if _is_for_now(error.response):
                raise self._no_answer(error) from error
            raise StoreRefusedError(
                f"{self.shown} issued no key: {error}",
                hint="Check that the coordinator's own keys may assume the role of --sts-role, "
                "and that the role allows keys of --data-token-seconds.",
            ) from error
        except (BotoCoreError, ResponseParserError, *_PARSING) as error:
            raise self._no_answer(error) from error
        self._note_time(answer)
        try:
            key: dict[str, Any] = answer["Credentials"]
            return StoreKey(
                key["AccessKeyId"],
                key["SecretAccessKey"],
                key["SessionToken"],
                int(key["Expiration"].timestamp() * 1000),
            )
        except _PARSING as error:
            raise self._no_answer(f"it has no key: {error!r}") from error

    def _no_answer(self, why: object) -> UnreachableError:
        return UnreachableError(
            f"{self.shown} gave no answer: {why}",
            hint="Check --sts-endpoint, the network and the coordinator's own keys.",
        )

    def _note_time(self, answer: Mapping[str, Any]) -> None:
        """Note the store's clock, which an answer tells. HTTP has it in GMT."""
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
        with contextlib.suppress(ValueError, TypeError):
            moment = parsedate_to_datetime(date)
            if moment.tzinfo is not None:
                self._ahead_ms = int(moment.timestamp() * 1000) - now_ms()

    def _sts(self) -> Any:
        """The client for the keys of now: an administrator may have exchanged them."""
        access = s3_access(self._options())
        if access != self._client_of[0]:
            self._client_of = access, _client(access, self._endpoint)
        return self._client_of[1]


def _is_for_now(answer: Mapping[str, Any]) -> bool:
    """Whether an answer means that a later request may succeed."""
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status >= _SERVER_ERROR or answer.get("Error", {}).get("Code") in _LATER


def _check(warehouse: str, access: S3Access, settings: StsSettings, endpoint: str | None) -> None:
    if urlsplit(warehouse).scheme not in S3_SCHEMES:
        raise SetupError(
            f"--data-tokens sts issues keys of S3, and the warehouse is {warehouse}.",
            hint="Leave out --data-tokens: docs/stores.md says what binds clients of other stores.",
        )
    if is_directory_bucket(warehouse):
        raise SetupError(
            f"--data-tokens can't limit keys to tables in the directory bucket of {warehouse}.",
            hint="Leave out --data-tokens, or move the warehouse to a general purpose bucket.",
        )
    is_aws = endpoint is None or _AWS.search(urlsplit(endpoint).hostname or "")
    if settings.role is None and is_aws:
        raise SetupError(
            "--data-tokens sts needs a role at AWS.",
            hint="Name it with --sts-role arn:aws:iam::ACCOUNT:role/NAME.",
        )
    if settings.role is not None and not _ROLE.fullmatch(settings.role):
        raise SetupError(
            f"--sts-role {settings.role} is not the ARN of a role.",
            hint="Write it as arn:aws:iam::ACCOUNT:role/NAME.",
        )
    parts = urlsplit(endpoint or "https://sts")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SetupError(
            f"--sts-endpoint {endpoint} is not an address.",
            hint="Write it as https://HOST:PORT.",
        )
    if find_spec("botocore") is None:
        raise SetupError(
            "--data-tokens sts needs the library botocore.",
            hint="pip install 'paimon-magics[sts]'",
        )


def _client(access: S3Access, endpoint: str | None) -> Any:
    import botocore.session
    from botocore.config import Config

    trusted = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE")
    return botocore.session.Session().create_client(
        "sts",
        region_name=access.region,
        endpoint_url=endpoint,
        aws_access_key_id=access.access_key,
        aws_secret_access_key=access.secret_key,
        aws_session_token=access.session_token,
        verify=trusted or True,
        config=Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_ANSWER_SECONDS,
            retries={"total_max_attempts": 2},
        ),
    )
