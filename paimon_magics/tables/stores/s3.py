"""Stores that speak S3. The condition of a conditional PUT is `If-None-Match: *`.

A versioned bucket is as good as another: a PUT with the condition is refused while the newest
version is an object, and reads see the newest version.

A directory bucket of S3 Express lists names in no order, from their first on, and takes no request
that carries an MD5 sum, as those to delete many objects at once do. Its requests are signed by a
session that the client asks for (Amazon S3, "Differences for directory buckets"). With an endpoint
among the options they are signed as ever: no other server has such sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from paimon_magics.tables.stores.object_client import ObjectClient, ObstoreClient
from paimon_magics.tables.stores.object_store import ObjectStore
from paimon_magics.tables.stores.s3_access import S3Access, s3_access
from paimon_magics.tables.stores.store import is_directory_bucket

__all__ = ["S3Store"]


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

        endpoint, bucket = access.endpoint, urlsplit(self._location).netloc
        of_express = is_directory_bucket(self._location)
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
        if of_express:
            config |= {
                "s3_express": str(endpoint is None).lower(),
                "disable_bulk_delete": "true",
            }
        client = Client(
            bucket,
            config={key: value for key, value in config.items() if value is not None},  # type: ignore[arg-type]
            virtual_hosted_style_request=not access.path_style,
            **settings,
        )
        return ObstoreClient(client, lists_in_order=not of_express)
