"""Decides which snapshots of a table expire, by Paimon's options and rules (`ExpireSnapshotsImpl`,
`ExpireChangelogImpl`, `CoreOptions.expireConfig`). Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from paimon_magics.errors import InvalidTableError, InvalidValueError
from paimon_magics.planning.formatting import age_text
from paimon_magics.planning.options.values import duration_ms, integer_value
from paimon_magics.planning.schemas.table_schema import TableSchema

TIME_RETAINED = "snapshot.time-retained"
"""The option that says how long a table's snapshots are kept."""

NO_FLOOR = 2**63 - 1
"""A snapshot id above every other: nothing is protected."""

_TimeOf = Callable[[int], int | None]
"""The commit time of a snapshot id, in milliseconds since 1970; None if it does not exist."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How many snapshots (or changelogs) are kept, and for how many milliseconds at least."""

    count_min: int
    count_max: int
    time_ms: float


_PAIMONS = Retention(count_min=10, count_max=2**31 - 1, time_ms=3_600_000)


@dataclass(frozen=True, slots=True)
class ExpiryRules:
    """The expiry rules in a table's options.

    `limit` is the number of snapshots that expire at a time. With `keeps_changelogs` a snapshot's
    changelog outlives it. `consumers_keep_snapshots` is false where consumers read changelogs only.
    """

    snapshots: Retention
    changelogs: Retention
    limit: int
    keeps_changelogs: bool
    has_changelog_files: bool
    consumers_keep_snapshots: bool
    consumer_time_ms: float | None
    removes_empty_folders: bool

    @classmethod
    def of(cls, schema: TableSchema) -> ExpiryRules | None:
        """Return a table's rules, None if writers leave expiry to another job (`write-only`).

        Raises InvalidTableError for options that contradict each other.
        """
        return None if schema.write_only else cls.also_write_only(schema)

    @classmethod
    def also_write_only(cls, schema: TableSchema) -> ExpiryRules:
        """Return a table's rules, also where its writers leave expiry to another job. Raises
        InvalidTableError as `of`."""
        snapshots = _retention(schema, "snapshot", _PAIMONS)
        changelogs = _retention(schema, "changelog", snapshots)
        keeps = (
            changelogs.count_max > snapshots.count_max
            or changelogs.time_ms > snapshots.time_ms
            or changelogs.count_min > snapshots.count_min
        )
        return cls(
            snapshots=snapshots,
            changelogs=changelogs,
            limit=schema.parsed("snapshot.expire.limit", integer_value, 0),
            keeps_changelogs=keeps,
            has_changelog_files=schema.changelog_producer != "none",
            consumers_keep_snapshots=not (schema.flag("consumer.changelog-only") and keeps),
            consumer_time_ms=schema.parsed("consumer.expiration-time", duration_ms, None),
            removes_empty_folders=schema.flag("snapshot.clean-empty-directories"),
        )

    def with_snapshots(
        self,
        *,
        count_max: int | None,
        count_min: int | None,
        time_ms: float | None,
        limit: int | None,
    ) -> ExpiryRules:
        """The same rules with other limits for snapshots; None leaves one as it is. Raises
        InvalidValueError for limits that contradict each other."""
        retention = _limited(self.snapshots, "snapshots", count_max, count_min, time_ms)
        return replace(self, snapshots=retention, limit=_limit(limit, self.limit))

    def with_changelogs(
        self,
        *,
        count_max: int | None,
        count_min: int | None,
        time_ms: float | None,
        limit: int | None,
    ) -> ExpiryRules:
        """The same as `with_snapshots` for the changelogs that outlive snapshots."""
        retention = _limited(self.changelogs, "changelogs", count_max, count_min, time_ms)
        return replace(self, changelogs=retention, limit=_limit(limit, self.limit))


def _limited(
    retention: Retention,
    what: str,
    count_max: int | None,
    count_min: int | None,
    time_ms: float | None,
) -> Retention:
    highest = retention.count_max if count_max is None else count_max
    least = retention.count_min if count_min is None else count_min
    if least < 1 or highest < least:
        raise InvalidValueError(
            f"`retain_max` is {highest:,} and `retain_min` is {least:,}: nothing expires by that."
            if least >= 1
            else f"`retain_min` is {least:,}, but the last of the {what} always stays.",
            hint=f"`retain_min` must be at least 1 and at most `retain_max`, for example "
            f"retain_max => {max(highest, 1)}, retain_min => {min(max(least, 1), max(highest, 1))}."
            + (
                f" Without it, `retain_min` is the table's own, {retention.count_min}."
                if count_min is None
                else ""
            ),
        )
    return Retention(least, highest, retention.time_ms if time_ms is None else time_ms)


def _limit(called: int | None, own: int) -> int:
    if called is None:
        return own
    if called < 1:
        raise InvalidValueError(
            f"`max_deletes` is {called:,}: that removes nothing.",
            hint="Give the largest number to remove, at least 1.",
        )
    return called


def with_time_retained(schema: TableSchema, time_retained: str) -> TableSchema:
    """The schema of a new table whose snapshots are kept for `time_retained`, such as "7 d", unless
    its own options set a time; "" for Paimon's default."""
    if not time_retained or schema.stored_option(TIME_RETAINED) is not None:
        return schema
    return replace(schema, options=(*schema.options, (TIME_RETAINED, time_retained)))


def retention_note(schema: TableSchema) -> str:
    """A sentence on how far back a table can be read; "" if its writers expire no snapshots."""
    rules = ExpiryRules.of(schema)
    if rules is None:
        return ""
    age = age_text(int(rules.snapshots.time_ms / 1000))
    return (
        f"Time travel reaches snapshots of the last {age}, and always the last "
        f"{rules.snapshots.count_min:,}. '{TIME_RETAINED}' keeps snapshots longer; a tag keeps a "
        "snapshot permanently."
    )


def snapshots_end(
    rules: ExpiryRules, earliest: int, latest: int, floor: int, time_of: _TimeOf, now_ms: int
) -> int:
    """Return the first snapshot that stays: those before it expire. `floor` and later must stay."""
    first = max(latest - rules.snapshots.count_max + 1, earliest)
    end = min(latest - rules.snapshots.count_min + 1, floor, earliest + rules.limit)
    for snapshot_id in range(first, end):
        # A snapshot expires when the next one is old enough: until then it may be read.
        next_ms = time_of(snapshot_id + 1)
        if next_ms is not None and now_ms - rules.snapshots.time_ms <= next_ms:
            return snapshot_id
    return max(end, earliest)


def changelogs_end(
    rules: ExpiryRules,
    earliest: int,
    latest: int,
    latest_snapshot: int,
    floor: int,
    time_of: _TimeOf,
    now_ms: int,
) -> int:
    """Return the first changelog that stays, by the same rules.

    `latest` is the last changelog that outlived its snapshot.
    """
    first = max(latest_snapshot - rules.changelogs.count_max + 1, earliest)
    end = min(
        latest_snapshot - rules.changelogs.count_min + 1, floor, earliest + rules.limit, latest
    )
    if end <= earliest:
        return earliest
    for changelog_id in range(first, end + 1):
        own_ms = time_of(changelog_id)
        if own_ms is not None and now_ms - rules.changelogs.time_ms <= own_ms:
            return changelog_id
    return end


def _retention(schema: TableSchema, what: str, default: Retention) -> Retention:
    low, high = f"{what}.num-retained.min", f"{what}.num-retained.max"
    retention = Retention(
        count_min=schema.parsed(low, integer_value, default.count_min),
        count_max=schema.parsed(high, integer_value, default.count_max),
        time_ms=schema.parsed(f"{what}.time-retained", duration_ms, default.time_ms),
    )
    if retention.count_min < 1 or retention.count_max < retention.count_min:
        raise InvalidTableError(
            f"'{low}' = '{retention.count_min}' and '{high}' = '{retention.count_max}' contradict "
            "each other: nothing expires.",
            hint=f"'{low}' must be at least 1, and '{high}' at least '{low}'.",
        )
    return retention
