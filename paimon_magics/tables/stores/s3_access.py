"""The S3 settings among Paimon's catalog options: endpoint, region, keys, in all spellings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from paimon_magics.tables.stores.store import S3_SCHEMES

__all__ = ["ENVIRONMENT_KEYS", "S3Access", "s3_access", "with_credentials", "with_region"]

ENVIRONMENT_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""The environment variables that S3 clients take keys from."""


@dataclass(frozen=True, slots=True)
class S3Access:
    """How a bucket is reached.

    A value that is None is left to the environment (AWS_ACCESS_KEY_ID, …) or the machine's role.
    """

    endpoint: str | None
    region: str | None
    access_key: str | None
    secret_key: str | None
    session_token: str | None
    path_style: bool

    def __repr__(self) -> str:
        return f"S3Access({self.endpoint}, {self.region})"

    def native_options(self) -> dict[str, str]:
        """These settings as options in the spelling of pypaimon-rust."""
        named = {
            "s3.endpoint": self.endpoint,
            "s3.region": self.region,
            "s3.access-key": self.access_key,
            "s3.secret-key": self.secret_key,
            "s3.session.token": self.session_token,
            "s3.path-style-access": "true" if self.path_style else None,
        }
        return {key: value for key, value in named.items() if value is not None}


def s3_access(options: Mapping[str, str]) -> S3Access:
    """Read the S3 settings from catalog options. Of several spellings the one wins that pypaimon's
    own file IO prefers."""
    path_style = _option(options, "path-style-access") or _option(options, "path.style.access")
    endpoint = _option(options, "endpoint", first="fs.s3.endpoint")
    if endpoint and "://" not in endpoint:
        endpoint = f"https://{endpoint}"
    return S3Access(
        endpoint=endpoint,
        region=_option(options, "region", first="fs.s3.region"),
        access_key=_option(options, "access-key", "access.key", first="fs.s3.accessKeyId"),
        secret_key=_option(options, "secret-key", "secret.key", first="fs.s3.accessKeySecret"),
        session_token=_option(
            options,
            "session-token",
            "session.token",
            "security-token",
            "security.token",
            first="fs.s3.securityToken",
        ),
        path_style=(path_style or "").strip().lower() == "true",
    )


def with_region(options: Mapping[str, str]) -> dict[str, str]:
    """The options, with the region from the environment if they name none. S3 clients differ in
    where they look for the region."""
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    is_s3 = urlsplit(options.get("warehouse", "")).scheme in S3_SCHEMES
    if not is_s3 or not region or s3_access(options).region is not None:
        return dict(options)
    return {**options, "s3.region": region}


def with_credentials(options: Mapping[str, str]) -> dict[str, str]:
    """The options, with the keys from this process's environment if they have none. For options
    that go to another process, whose environment may be older."""
    is_s3 = urlsplit(options.get("warehouse", "")).scheme in S3_SCHEMES
    if not is_s3 or s3_access(options).access_key is not None:
        return dict(options)
    names = ("s3.access-key", "s3.secret-key", "s3.session-token")
    found = dict(zip(names, map(os.environ.get, ENVIRONMENT_KEYS), strict=True))
    if not found["s3.access-key"] or not found["s3.secret-key"]:
        return dict(options)
    return {**options, **{key: value for key, value in found.items() if value}}


def _option(options: Mapping[str, str], *names: str, first: str | None = None) -> str | None:
    spelled = [f"{prefix}{name}" for prefix in ("s3.", "s3a.", "fs.s3.", "fs.s3a.")
               for name in names]  # fmt: skip
    for key in ([first] if first is not None else []) + spelled:
        if options.get(key):
            return str(options[key])
    return None
