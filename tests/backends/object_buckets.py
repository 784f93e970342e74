"""What tests do alike with a bucket of each kind of object store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from paimon_magics.tables.stores.object_store import ObjectStore
from paimon_magics.tables.stores.store import open_store

__all__ = ["ObjectBucket", "left_behind", "opened", "path_in"]


class ObjectBucket(Protocol):
    """A bucket, the options of a catalog in it, and the keys of its objects."""

    @property
    def options(self) -> Mapping[str, str]: ...

    def objects(self) -> list[str]: ...


def opened(bucket: ObjectBucket) -> ObjectStore:
    """The store of a bucket, which has been tried out."""
    store = open_store(bucket.options["warehouse"], bucket.options)
    assert isinstance(store, ObjectStore)
    store.check()
    return store


def path_in(bucket: ObjectBucket, name: str) -> str:
    """The path of a file in a partition whose name has characters that URIs write otherwise."""
    return f"{bucket.options['warehouse']}/default.db/t/dt=a%20b#c?d/{name}"


def left_behind(bucket: ObjectBucket) -> list[str]:
    """The objects that attempts and try-outs should have deleted."""
    return [key for key in bucket.objects() if "/.attempts" in key or "/.paimon-magics-" in key]
