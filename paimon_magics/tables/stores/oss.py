"""Aliyun OSS. The condition of a conditional PUT is `x-oss-forbid-overwrite: true`.

OSS ignores the condition in a versioned bucket: the test refuses such a bucket for writing.
Versioning must not be enabled later, while sessions write. The S3-compatible interface has no such
condition, so OpenDAL uses OSS's own interface.

Without keys among the options the client takes those of the environment
(ALIBABA_CLOUD_ACCESS_KEY_ID and ALIBABA_CLOUD_ACCESS_KEY_SECRET), or of a role that these name.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from paimon_magics.errors import SetupError
from paimon_magics.tables.stores.object_client import ObjectClient, named_option
from paimon_magics.tables.stores.object_store import ObjectStore

_PREFIXES = ("fs.oss.", "oss.")


@dataclass(frozen=True, slots=True)
class OssAccess:
    """How a bucket is reached. A value that is None is left to the environment or the machine."""

    endpoint: str | None
    access_key: str | None
    secret_key: str | None
    security_token: str | None

    def __repr__(self) -> str:
        return f"OssAccess({self.endpoint})"

    def facts(self) -> tuple[tuple[str, str], ...]:
        """The access for a person, without secrets: names and values."""
        known = "keys of the options" if self.access_key else "of the environment or machine"
        return (("endpoint", self.endpoint or "?"), ("credentials", known))


def oss_access(location: str, options: Mapping[str, str]) -> OssAccess:
    """Read the settings from catalog options, by Paimon's names. Raises SetupError if the location
    has no bucket."""
    if not urlsplit(location).netloc:
        raise SetupError(
            f"The warehouse {location} names no bucket.", hint="Write oss://BUCKET/FOLDER."
        )

    def named(*names: str) -> str | None:
        return named_option(options, _PREFIXES, names)

    endpoint = named("endpoint")
    if endpoint is not None:
        endpoint = endpoint.rstrip("/")
        endpoint = endpoint if "://" in endpoint else f"https://{endpoint}"
    return OssAccess(
        endpoint=endpoint,
        access_key=named("accessKeyId", "access-key-id"),
        secret_key=named("accessKeySecret", "access-key-secret"),
        security_token=named("securityToken", "security-token"),
    )


class OssStore(ObjectStore):
    """A bucket of OSS. See `ObjectStore`."""

    condition = "x-oss-forbid-overwrite"

    access_of = staticmethod(oss_access)

    def new_client(self, access: OssAccess, **settings: Any) -> ObjectClient:
        """See `ObjectStore.new_client`. Raises SetupError without an endpoint or the library."""
        if access.endpoint is None:
            raise SetupError(
                f"The address of OSS for {self._location} is missing.",
                hint="Add the option 'fs.oss.endpoint', such as oss-cn-hangzhou.aliyuncs.com.",
            )
        try:
            from paimon_magics.tables.stores.opendal_client import OpendalClient

            config = {
                "bucket": self.bucket,
                "endpoint": access.endpoint,
                "addressing_style": "path" if _is_address(access.endpoint) else "virtual",
                "access_key_id": access.access_key,
                "access_key_secret": access.secret_key,
                "security_token": access.security_token,
            }
            return OpendalClient(
                "oss",
                {key: value for key, value in config.items() if value is not None},
                timeout=settings["client_options"]["timeout"],
                **settings["retry_config"],
            )
        except ImportError as error:
            raise SetupError(
                f"Tables in {self._location} need the client OpenDAL, which can't be imported: "
                f"{error}",
                hint="Install it with: pip install 'paimon-magics[oss]'",
            ) from error


def _is_address(endpoint: str) -> bool:
    """Whether an endpoint is an address or this machine, before whose name no bucket's can be
    written."""
    host = urlsplit(endpoint).hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True
