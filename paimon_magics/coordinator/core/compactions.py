"""Which transaction compacts which buckets, so that no two compact one at a time.

It is advice: two that compact one bucket after all do no harm, since the commit of the later one is
refused. So nothing of it is stored, and it is lost when the coordinator restarts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["CompactedBucket", "claimed", "still_claimed"]


@dataclass(frozen=True, slots=True)
class CompactedBucket:
    """A bucket of a table at a location, or of its `branch`. `partition` is the serialised row of
    the partition's values, as in manifests."""

    location: str
    branch: str | None
    partition: bytes
    bucket: int


Claims = Mapping[CompactedBucket, str]
"""The id of the transaction that compacts each bucket."""


def still_claimed(claims: Claims, open_ids: Collection[str]) -> dict[CompactedBucket, str]:
    """The claims of transactions that are still open: those of others ended with them."""
    return {bucket: id for bucket, id in claims.items() if id in open_ids}


def claimed(
    claims: Claims, wanted: Sequence[CompactedBucket], id: str
) -> tuple[dict[CompactedBucket, str], tuple[int, ...]]:
    """Give a transaction the buckets among `wanted` that no other one has. Return the new claims,
    and the positions of the buckets that it may compact."""
    free = tuple(at for at, bucket in enumerate(wanted) if claims.get(bucket, id) == id)
    return {**claims, **{wanted[at]: id for at in free}}, free
