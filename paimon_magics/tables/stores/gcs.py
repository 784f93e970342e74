"""Google Cloud Storage. The condition of a conditional PUT is `x-goog-if-generation-match: 0`.

Without credentials among the options the client takes, in this order: GOOGLE_SERVICE_ACCOUNT,
GOOGLE_SERVICE_ACCOUNT_KEY, GOOGLE_APPLICATION_CREDENTIALS (also those of a workload identity
federation), gcloud's own, and the machine's or pod's service account.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from paimon_magics.errors import SetupError
from paimon_magics.tables.stores.object_client import ObjectClient, named_option, obstore_client
from paimon_magics.tables.stores.object_store import ObjectStore

_PREFIXES = ("gcs.", "gs.", "fs.gs.", "fs.gcs.")


@dataclass(frozen=True, slots=True)
class GcsAccess:
    """How a bucket is reached. A value that is None is left to the environment or the machine."""

    endpoint: str | None
    key_file: str | None
    key: str | None
    token: str | None
    anonymous: bool

    def __repr__(self) -> str:
        return f"GcsAccess({self.endpoint})"

    def facts(self) -> tuple[tuple[str, str], ...]:
        """The access for a person, without secrets: names and values."""
        if self.anonymous:
            credentials = "none (anonymous)"
        elif self.token:
            credentials = "an access token"
        elif self.key or self.key_file:
            credentials = f"service account key{f' {self.key_file}' if self.key_file else ''}"
        else:
            credentials = "of the environment or machine"
        return (("endpoint", self.endpoint or "Google"), ("credentials", credentials))


def gcs_access(location: str, options: Mapping[str, str]) -> GcsAccess:
    """Read the settings from catalog options. Raises SetupError if the location has no bucket."""
    if not urlsplit(location).netloc:
        raise SetupError(
            f"The warehouse {location} names no bucket.", hint="Write gs://BUCKET/FOLDER."
        )

    def named(*names: str) -> str | None:
        return named_option(options, _PREFIXES, names)

    anonymous = named("allow-anonymous", "skip-signature") or "false"
    return GcsAccess(
        endpoint=named("endpoint", "storage.root.url"),
        key_file=named("credential-path", "auth.service.account.json.keyfile"),
        key=named("service-account-key"),
        token=named("access-token"),
        anonymous=anonymous.strip().lower() == "true",
    )


class GcsStore(ObjectStore):
    """A bucket of Google Cloud Storage. See `ObjectStore`."""

    condition = "x-goog-if-generation-match"

    access_of = staticmethod(gcs_access)

    def new_client(self, access: GcsAccess, **settings: Any) -> ObjectClient:
        """See `ObjectStore.new_client`."""
        from obstore.store import GCSStore as Client

        endpoint = access.endpoint.rstrip("/") if access.endpoint else None
        config = {
            "base_url": endpoint,
            "service_account": access.key_file,
            "service_account_key": access.key,
            "skip_signature": True if access.anonymous else None,
        }
        token = access.token
        if token is not None:
            settings["credential_provider"] = lambda: {"token": token, "expires_at": None}
        return obstore_client(Client, self.bucket, config, endpoint, **settings)
