"""Makes the checkpoint of a query ready before Spark opens it (`tables.stores.checkpoints`)."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from urllib.parse import urlsplit

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.session.connection import Connection
from paimon_magics.spark.progress import is_connect
from paimon_magics.spark.server_tasks import run_on_server
from paimon_magics.tables.stores.checkpoints import clear_unbegun
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.stores.store import S3_SCHEMES, LocalStore

__all__ = ["clear_half_begun"]


def clear_half_begun(connection: Connection, checkpoint: str) -> None:
    """Delete what a kill in the first moment of a query left in its checkpoint, since Spark would
    refuse it. A batch that has begun is never touched.

    The checkpoint is looked at where Spark writes it: a local folder of a Spark Connect server by a
    task there, others from here. One in a store that the warehouse's options do not open is left
    to Spark.
    """
    with suppress(OSError, PaimonMagicsError):  # Spark says itself what is wrong with a checkpoint
        if local_path(checkpoint) is None:
            if _kind(checkpoint) == _kind(connection.catalog.warehouse):
                clear_unbegun(connection.catalog.stores.of(checkpoint), checkpoint)
        elif is_connect(connection.spark):
            run_on_server(connection.spark, partial(clear_unbegun, LocalStore(), checkpoint))
        else:
            clear_unbegun(LocalStore(), checkpoint)


def _kind(location: str) -> str:
    scheme = urlsplit(location).scheme
    return "s3" if scheme in S3_SCHEMES else scheme
