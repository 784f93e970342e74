"""Azure Blob Storage and Data Lake Storage. A conditional PUT has the header `If-None-Match: *`.

A location is `abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER`, as Hadoop and Paimon's Java
library write it. Files are reached by the Blob interface, which accounts with and without a
hierarchical namespace have.

Without credentials among the options the client takes those of the environment
(AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, AZURE_CLIENT_ID with AZURE_CLIENT_SECRET and
AZURE_TENANT_ID), a workload identity (AZURE_FEDERATED_TOKEN_FILE), or the machine's managed
identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from paimon_magics.errors import SetupError
from paimon_magics.tables.stores.object_client import ObjectClient, named_option, obstore_client
from paimon_magics.tables.stores.object_store import ObjectStore

_PREFIXES = ("azure.", "fs.azure.", "abfs.", "fs.abfs.")


@dataclass(frozen=True, slots=True)
class AzureAccess:
    """How a container is reached. A value that is None is left to the environment or the
    machine."""

    container: str
    account: str
    endpoint: str
    account_key: str | None
    sas_token: str | None
    client_id: str | None
    client_secret: str | None
    tenant_id: str | None
    authority_host: str | None

    def __repr__(self) -> str:
        return f"AzureAccess({self.endpoint}, {self.container})"

    def facts(self) -> tuple[tuple[str, str], ...]:
        """The access for a person, without secrets: names and values."""
        if self.account_key:
            credentials = "account key"
        elif self.sas_token:
            credentials = "shared access signature"
        elif self.client_secret:
            credentials = f"client secret of {self.client_id}"
        else:
            credentials = "of the environment or machine"
        return (
            ("endpoint", self.endpoint),
            ("account", self.account),
            ("credentials", credentials),
        )


def azure_access(location: str, options: Mapping[str, str]) -> AzureAccess:
    """Read the settings from catalog options. Raises SetupError if the location names no container
    or no account."""
    container, _, host = urlsplit(location).netloc.rpartition("@")
    if not container or not host.partition(".")[0]:
        raise SetupError(
            f"The warehouse {location} names no container and account of Azure.",
            hint="Write abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER.",
        )
    account = host.partition(".")[0]

    def named(*names: str) -> str | None:
        of_account = [f"{name}.{place}" for name in names for place in (host, account)]
        return named_option(options, _PREFIXES, [*of_account, *names])

    blob_host = (
        host.replace(".dfs.", ".blob.", 1) if "." in host else f"{host}.blob.core.windows.net"
    )
    return AzureAccess(
        container=container,
        account=account,
        endpoint=(named("endpoint") or f"https://{blob_host}").rstrip("/"),
        account_key=named("account-key", "account.key"),
        sas_token=named("sas-token", "sas.token", "sas.fixed.token"),
        client_id=named("client-id", "account.oauth2.client.id"),
        client_secret=named("client-secret", "account.oauth2.client.secret"),
        tenant_id=named("tenant-id"),
        authority_host=named("authority-host"),
    )


class AzureStore(ObjectStore):
    """A container of Azure. See `ObjectStore`."""

    condition = "If-None-Match"
    mark = "paimon_magics_mark"  # names of metadata are identifiers there

    access_of = staticmethod(azure_access)

    def new_client(self, access: AzureAccess, **settings: Any) -> ObjectClient:
        """See `ObjectStore.new_client`."""
        from obstore.store import AzureStore as Client

        config = {
            "account_name": access.account,
            "endpoint": access.endpoint,
            "account_key": access.account_key,
            "sas_key": access.sas_token,
            "client_id": access.client_id,
            "client_secret": access.client_secret,
            "tenant_id": access.tenant_id,
            "authority_host": access.authority_host,
        }
        return obstore_client(Client, access.container, config, access.endpoint, **settings)
