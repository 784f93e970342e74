"""Stores of other clouds than S3's: Aliyun OSS, Google Cloud Storage, Azure.

Each has its access, from the catalog's options by Paimon's names, and its store, whose conditional
PUT is the one that this cloud has.

OSS: the condition is `x-oss-forbid-overwrite: true`. A versioned bucket ignores it: the test
refuses such a bucket for writing. Versioning must not be enabled later, while sessions write. The
S3-compatible interface has no such condition, so OpenDAL uses OSS's own interface. Without keys
among the options the client takes those of the environment (ALIBABA_CLOUD_ACCESS_KEY_ID and
ALIBABA_CLOUD_ACCESS_KEY_SECRET), or of a role that these name.

Google: the condition is `x-goog-if-generation-match: 0`. Without credentials among the options the
client takes, in this order: GOOGLE_SERVICE_ACCOUNT, GOOGLE_SERVICE_ACCOUNT_KEY,
GOOGLE_APPLICATION_CREDENTIALS (also those of a workload identity federation), gcloud's own, and the
machine's or pod's service account.

Azure: a conditional PUT has the header `If-None-Match: *`. A location is
`abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER`, as Hadoop and Paimon's Java library write
it. Files are reached by the Blob interface, which accounts with and without a hierarchical
namespace have. Without credentials among the options the client takes those of the environment
(AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, AZURE_CLIENT_ID with AZURE_CLIENT_SECRET and
AZURE_TENANT_ID), a workload identity (AZURE_FEDERATED_TOKEN_FILE), or the machine's managed
identity.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import os
import re
import shutil
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from paimon_magics.errors import SetupError
from paimon_magics.tables.stores.object_client import (
    PART_BYTES,
    PARTS_AT_ONCE,
    NeverSentError,
    ObjectClient,
    ObjectExistsError,
    named_option,
    obstore_client,
)
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


_GCS_PREFIXES = ("gcs.", "gs.", "fs.gs.", "fs.gcs.")


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
        return named_option(options, _GCS_PREFIXES, names)

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


_AZURE_PREFIXES = ("azure.", "fs.azure.", "abfs.", "fs.abfs.")


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
        return named_option(options, _AZURE_PREFIXES, [*of_account, *names])

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


_ROWS_OF_A_PAGE = 1000
_ANSWER = re.compile(r"status: (\d+)")
_REASON = re.compile(r'code: "(\w*)", message: "(.*?)", request_id')
_T = TypeVar("_T")


class OpendalClient:
    """A client of the library OpenDAL, for stores that obstore does not know: see `ObjectClient`.

    `service` and `config` are those of an operator; `timeout` is for one request, and failed ones
    are repeated `max_retries` times. Listings of the library's blocking calls hold the
    interpreter's lock while they wait for an answer. They are made by its other calls, on an event
    loop in a thread of their own.
    """

    lists_in_order = True

    def __init__(
        self,
        service: str,
        config: dict[str, str],
        *,
        timeout: timedelta,
        max_retries: int,
        retry_timeout: timedelta,
    ) -> None:
        from opendal import Operator
        from opendal.layers import RetryLayer, TimeoutLayer

        seconds = timeout.total_seconds()
        timeouts = TimeoutLayer(timeout=seconds, io_timeout=seconds)
        self._operator = Operator(service, **config).layer(timeouts)
        if max_retries:
            longest = retry_timeout.total_seconds() / (max_retries + 1)
            self._operator = self._operator.layer(
                RetryLayer(max_times=max_retries, jitter=True, min_delay=0.05, max_delay=longest)
            )

    def put(self, key: str, content: bytes) -> None:
        """See `ObjectClient.put`."""
        with _failures():
            self._operator.write(key, content)

    def put_new(self, key: str, content: bytes, mark: tuple[str, str]) -> None:
        """See `ObjectClient.put_new`."""
        with _failures():
            self._operator.write(key, content, if_not_exists=True, user_metadata=dict([mark]))

    def put_file(self, key: str, file: Path) -> None:
        """See `ObjectClient.put_file`."""
        with _failures(), file.open("rb") as source:
            target = self._operator.open(key, "wb", chunk=PART_BYTES, concurrent=PARTS_AT_ONCE)
            shutil.copyfileobj(source, target, PART_BYTES)
            target.close()  # not after a failure: closing creates the object

    def get(self, key: str) -> bytes:
        """See `ObjectClient.get`."""
        with _failures():
            return bytes(self._operator.read(key))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """See `ObjectClient.get_range`."""
        with _failures():
            return bytes(self._operator.read(key, offset=start, size=end - start))

    def mark(self, key: str, name: str) -> str:
        """See `ObjectClient.mark`."""
        with _failures():
            return str((self._operator.stat(key).user_metadata or {}).get(name, ""))

    def head(self, key: str) -> tuple[int, int]:
        """See `ObjectClient.head`."""
        with _failures():
            status = self._operator.stat(key)
        assert status.last_modified is not None, key
        return status.content_length, int(status.last_modified.timestamp() * 1000)

    def pages(
        self, folder: str, *, after: str | None = None, rows: int | None = None
    ) -> Iterator[list[str]]:
        """See `ObjectClient.pages`."""
        options: dict[str, Any] = {"recursive": True, "limit": rows or _ROWS_OF_A_PAGE}
        if after is not None:
            options["start_after"] = after
        with _failures():
            entries = _waited(self._lister(folder, options))
        while True:
            with _failures():
                page = _waited(_next(entries, options["limit"]))
            if not page:
                return
            yield [entry.path for entry in page]

    def statuses(self, folder: str) -> Iterator[list[tuple[str, int, int]]]:
        """See `ObjectClient.statuses`. A listing may not say when an object was written; then it is
        asked for."""
        for page in self.pages(folder):
            yield [(key, *self.head(key)) for key in page if not key.endswith("/")]

    def level(self, folder: str) -> tuple[list[str], list[tuple[str, int]]]:
        """See `ObjectClient.level`."""

        async def listed() -> list[Any]:
            return [entry async for entry in await self._lister(folder, {})]

        with _failures():
            entries = _waited(listed())
        below = [entry for entry in entries if entry.path != _prefix(folder)]
        return (
            [entry.path.rstrip("/") for entry in below if entry.metadata.is_dir],
            [(file.path, file.metadata.content_length) for file in below if file.metadata.is_file],
        )

    async def _lister(self, folder: str, options: dict[str, Any]) -> Any:
        return await self._operator.to_async_operator().list(_prefix(folder), **options)

    def delete(self, keys: Sequence[str]) -> None:
        """See `ObjectClient.delete`; a missing object is none to delete."""
        with _failures():
            for key in keys:
                self._operator.delete(key)

    def copy(self, source: str, target: str) -> None:
        """See `ObjectClient.copy`."""
        with _failures():
            self._operator.copy(source, target)


def _prefix(folder: str) -> str:
    return f"{folder.strip('/')}/".lstrip("/")


async def _next(entries: Any, count: int) -> list[Any]:
    """So many entries more; fewer at the end."""
    page: list[Any] = []
    async for entry in entries:
        page.append(entry)
        if len(page) == count:
            break
    return page


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="paimon-magics-listings", daemon=True).start()
    return loop


if hasattr(os, "register_at_fork"):  # a child of this process has none of its threads
    os.register_at_fork(after_in_child=_loop.cache_clear)


def _waited(work: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run_coroutine_threadsafe(work, _loop()).result()


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """Raise the library's exceptions of the body as those of `ObjectClient`."""
    from opendal import exceptions

    try:
        yield
    except (exceptions.ConditionNotMatch, exceptions.AlreadyExists) as error:
        raise ObjectExistsError(_failure_text(error)) from error
    except exceptions.NotFound as error:
        raise FileNotFoundError(_failure_text(error)) from error
    except (exceptions.PermissionDenied, exceptions.ConfigInvalid) as error:
        raise PermissionError(_failure_text(error)) from error
    except Exception as error:
        if type(error).__module__ != exceptions.__name__:  # its classes have no common base
            raise
        text = str(error)
        if "signing credential" in text:
            raise PermissionError("no credentials were found") from error
        if "client error (Connect)" in text:
            raise NeverSentError("it can't be reached") from error
        raise OSError(_failure_text(error)) from error


def _failure_text(error: Exception) -> str:
    """The store's answer, or the first line of the library's message."""
    text = str(error)
    status, reason = _ANSWER.search(text), _REASON.search(text)
    if reason is not None and reason[1]:
        return f"{status[1] if status else ''} ({reason[1]}: {reason[2]})".strip()
    return f"status {status[1]}" if status is not None else text.splitlines()[0]
