"""Stores that speak S3. The condition of a conditional PUT is `If-None-Match: *`.

A versioned bucket is as good as another: a PUT with the condition is refused while the newest
version is an object, and reads see the newest version.

A directory bucket of S3 Express is refused for writing: it lists names in no order, while
`ObjectStore.names` ends a listing early by their order, and no server to test against has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.tables.stores.object_client import ObjectClient, ObstoreClient
from paimon_magics.tables.stores.object_store import ObjectStore
from paimon_magics.tables.stores.s3_access import S3Access, s3_access

__all__ = ["S3Store"]

_OF_EXPRESS = "--x-s3"


class S3Store(ObjectStore):
    """A bucket of a store that speaks S3. See `ObjectStore`."""

    condition = "If-None-Match"

    def check(self) -> None:
        """See `ObjectStore.check`; refuses the directory buckets of S3 Express by their names."""
        if urlsplit(self._location).netloc.endswith(_OF_EXPRESS):
            raise UnsupportedStatementError(
                f"Tables in {self._location} can't be changed: this is a directory bucket of S3 "
                "Express, which lists names in no order, and on which this version was not tried.",
                hint="Use a general purpose bucket.",
            )
        super().check()

    @staticmethod
    def access_of(location: str, options: Mapping[str, str]) -> S3Access:
        """See `ObjectStore.access_of`."""
        return s3_access(options)

    def new_client(self, access: S3Access, **settings: Any) -> ObjectClient:
        """See `ObjectStore.new_client`."""
        from obstore.store import S3Store as Client

        endpoint, bucket = access.endpoint, urlsplit(self._location).netloc
        if endpoint is not None and not access.path_style:
            scheme, _, host = endpoint.partition("://")
            endpoint = f"{scheme}://{bucket}.{host}"
        config = {
            "endpoint": endpoint,
            "region": access.region,
            "access_key_id": access.access_key,
            "secret_access_key": access.secret_key,
            "session_token": access.session_token,
        }
        settings["client_options"]["allow_http"] = (endpoint or "").startswith("http://")
        client = Client(
            bucket,
            config={key: value for key, value in config.items() if value is not None},  # type: ignore[arg-type]
            virtual_hosted_style_request=not access.path_style,
            **settings,
        )
        return ObstoreClient(client)
