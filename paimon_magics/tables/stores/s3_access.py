"""The S3 settings among Paimon's catalog options: endpoint, region, keys, in all spellings."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from paimon_magics.errors import SetupError, likely_meant
from paimon_magics.tables.pypaimon_internals import catalog_options, store_options
from paimon_magics.tables.stores.object_client import ObjectClient, named_option, obstore_client
from paimon_magics.tables.stores.object_store import ObjectStore
from paimon_magics.tables.stores.short_keys import KeySource
from paimon_magics.tables.stores.store import S3_SCHEMES, is_directory_bucket

ENVIRONMENT_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""The environment variables that S3 clients take keys from."""


_PREFIXES = ("s3.", "s3a.", "fs.s3.", "fs.s3a.")
_PREFIX = re.compile(r"^(fs\.)?s3a?\.")
_SESSION_TOKENS = ("session-token", "session.token", "security-token", "security.token")
_NAMES = (
    *("endpoint", "region", "path-style-access", "path.style.access"),
    *("access-key", "access.key", "accessKeyId", "secret-key", "secret.key", "accessKeySecret"),
    *(*_SESSION_TOKENS, "securityToken"),
)
_ALIKE = 0.85


@dataclass(frozen=True, slots=True)
class S3Access:
    """How a bucket is reached.

    A value that is None is left to the environment (AWS_ACCESS_KEY_ID, …) or the machine's role.
    With `keys`, keys come from a coordinator.
    """

    endpoint: str | None
    region: str | None
    access_key: str | None
    secret_key: str | None
    session_token: str | None
    path_style: bool
    keys: KeySource | None = None

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


def check_option_names(options: Mapping[str, str]) -> None:
    """Raise SetupError for an S3 option that resembles an option that is read here. Other options
    may be Hadoop's, of which engines support many.

    With a mistyped endpoint, requests signed with the store's keys would go to Amazon.
    """
    for key in options:
        name = _PREFIX.sub("", key)
        if name == key or name in _NAMES:
            continue
        meant = likely_meant(name, _NAMES, alike=_ALIKE)
        if meant:
            prefix = key.removesuffix(name)
            raise SetupError(
                f"There is no option '{key}' of S3.", hint=meant.replace("`", f"`{prefix}", 1)
            )


def s3_access(options: Mapping[str, str]) -> S3Access:
    """Read the S3 settings from catalog options. Of several spellings, the spelling preferred by
    pypaimon's own file IO wins."""
    path_style = _option(options, "path-style-access") or _option(options, "path.style.access")
    endpoint = _option(options, "endpoint", first="fs.s3.endpoint")
    if endpoint and "://" not in endpoint:
        endpoint = f"https://{endpoint}"
    access_key = _option(options, "access-key", "access.key", first="fs.s3.accessKeyId")
    return S3Access(
        endpoint=endpoint,
        region=_option(options, "region", first="fs.s3.region"),
        access_key=access_key,
        secret_key=_option(options, "secret-key", "secret.key", first="fs.s3.accessKeySecret"),
        session_token=_option(options, *_SESSION_TOKENS, first="fs.s3.securityToken"),
        path_style=(path_style or "").strip().lower() == "true",
        keys=None if access_key else KeySource.of(options),
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
    access = s3_access(options)
    if not is_s3 or access.access_key is not None or access.keys is not None:
        return dict(options)
    names = ("s3.access-key", "s3.secret-key", "s3.session-token")
    keys = dict(zip(names, map(os.environ.get, ENVIRONMENT_KEYS), strict=True))
    if not keys["s3.access-key"] or not keys["s3.secret-key"]:
        return dict(options)
    return {**options, **{key: value for key, value in keys.items() if value}}


def for_tasks(options: Mapping[str, str], location: str) -> dict[str, str]:
    """The options with which a task opens the store of `location`: as `with_credentials`, for its
    scheme. Spark's processes have the environment of the moment at which Spark started."""
    keyed = {**with_credentials({**options, "warehouse": location}), **options}
    return keyed if "warehouse" in options else {k: v for k, v in keyed.items() if k != "warehouse"}


def native_options(paimon: Any) -> dict[str, str] | None:
    """The options with which the native library opens a table's files in a task; None for a store
    that it does not know."""
    options = store_options(paimon)
    return None if options is None else for_tasks(options, str(paimon.table_path))


def io_options(paimon: Any) -> tuple[tuple[str, str], ...]:
    """The same, sorted; () for a store that the native library does not know."""
    return tuple(sorted((native_options(paimon) or {}).items()))


def options_of_catalog(paimon: Any) -> tuple[tuple[str, str], ...]:
    """The options of the table's catalog for a task, sorted."""
    options = for_tasks(catalog_options(paimon), str(paimon.table_path))
    return tuple(sorted((str(key), str(value)) for key, value in options.items()))


def _option(options: Mapping[str, str], *names: str, first: str | None = None) -> str | None:
    spelled = [f"{prefix}{name}" for prefix in _PREFIXES for name in names]
    return named_option(options, [""], [first, *spelled] if first is not None else spelled)


# Stores that speak S3. The condition of a conditional PUT is `If-None-Match: *`.
#
# A versioned bucket works like other buckets: a PUT with the condition is refused while the newest
# version is an object, and reads see the newest version.
#
# A directory bucket of S3 Express lists names in no order and only from the start. It refuses
# requests with an MD5 sum, such as requests that delete many objects at once. Its requests are
# signed with a session that the client requests (Amazon S3, "Differences for directory buckets").
# With an endpoint among the options they are signed as usual: no other server has such sessions.


class S3Store(ObjectStore):
    """A bucket of a store that speaks S3. See `ObjectStore`."""

    condition = "If-None-Match"

    @staticmethod
    def access_of(location: str, options: Mapping[str, str]) -> S3Access:
        """See `ObjectStore.access_of`."""
        return s3_access(options)

    def new_client(self, access: S3Access, **settings: Any) -> ObjectClient:
        """See `ObjectStore.new_client`."""
        from obstore.store import S3Store as Client

        endpoint = access.endpoint
        of_express = is_directory_bucket(self._location)
        if endpoint is not None and not access.path_style:
            scheme, _, host = endpoint.partition("://")
            endpoint = f"{scheme}://{self.bucket}.{host}"
        config = {
            "endpoint": endpoint,
            "region": access.region,
            "access_key_id": access.access_key,
            "secret_access_key": access.secret_key,
            "session_token": access.session_token,
        }
        if access.keys is not None:
            settings["credential_provider"] = access.keys.credentials
        if of_express:
            config |= {
                "s3_express": str(endpoint is None).lower(),
                "disable_bulk_delete": "true",
            }
        return obstore_client(
            Client,
            self.bucket,
            config,
            endpoint,
            lists_in_order=not of_express,
            virtual_hosted_style_request=not access.path_style,
            **settings,
        )
