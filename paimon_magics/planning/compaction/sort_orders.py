"""The columns and the order by which a compaction sorts the rows of a table (`order_strategy`,
`order_by`).

Source: `TableSorter.OrderType`, `CompactProcedure`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from paimon_magics.errors import (
    InvalidTableError,
    InvalidValueError,
    UnknownNameError,
    UnsupportedStatementError,
    nearest,
)
from paimon_magics.planning.compaction.keyed_tables import (
    BucketFile,
    Moment,
    Pick,
    PickOptions,
    SortedRun,
    pick,
    runs_of_levels,
)
from paimon_magics.planning.options.values import duration_ms, integer_value
from paimon_magics.planning.schemas.table_schema import TableSchema, column_list
from paimon_magics.statements.data_types import AtomicType

_STRATEGIES = ("order", "zorder", "hilbert")
_UNORDERED = ("VARIANT", "BLOB")


_HILBERT_COLUMNS_MIN = 5
_IDLE = "clustering.history-partition.idle-to-full-sort"


@dataclass(frozen=True, slots=True)
class SortOrder:
    """The strategy is `order` (column after column), `zorder` or `hilbert`. Texts and binaries
    contribute `var_length_bytes` bytes to a Z curve."""

    strategy: str
    columns: tuple[str, ...]
    var_length_bytes: int = 8


def sort_order(schema: TableSchema, strategy: str | None, order_by: str | None) -> SortOrder | None:
    """The order that a call asks for; None for none.

    Raises InvalidValueError and UnknownNameError for what Paimon refuses,
    UnsupportedStatementError for a table that is not sorted.
    """
    name = (strategy or "none").lower()
    if name == "none":
        # As in Paimon, where only the word that is its default is refused with columns.
        if order_by is not None and (strategy is None or strategy == "NONE"):
            raise InvalidValueError(
                'order_strategy "none" cannot work with order_by columns.',
                hint="Give order_strategy => 'order', 'zorder' or 'hilbert'.",
            )
        return None
    if name not in _STRATEGIES:
        raise InvalidValueError(
            f"There is no order_strategy '{strategy}'.",
            hint=nearest(name, (*_STRATEGIES, "none"), what="strategies"),
        )
    columns = column_list(order_by)
    if not columns:
        raise InvalidValueError(
            f"order_strategy '{name}' needs columns.", hint="Name them: order_by => 'a,b'."
        )
    for column in columns:
        _check_column(schema, column)
    if name == "hilbert" and len(columns) < 2:
        raise InvalidValueError(
            "A Hilbert curve needs two columns or more.",
            hint="Name another column in order_by, or use order_strategy => 'order'.",
        )
    contribution = schema.parsed("zorder.var-length-contribution", integer_value, 8)
    return SortOrder(name, columns, contribution)


def _check_column(schema: TableSchema, name: str) -> None:
    names = [column.name for column in schema.columns]
    if name not in names:
        raise UnknownNameError(
            f"order_by has the column `{name}`, which the table lacks.",
            hint=nearest(name, names, what="columns"),
        )
    if name in schema.partition_keys:
        raise InvalidValueError(
            f"order_by has the partition column `{name}`, which has the same value in all rows of "
            "a partition.",
            hint="Leave it out.",
        )
    kind = schema.column(name).type
    if not isinstance(kind, AtomicType) or kind.name in _UNORDERED:
        raise UnsupportedStatementError(
            f"Rows can't be sorted by `{name}`, which is a {kind}.",
            hint="Name columns of numbers, times or texts.",
        )


# Selects the files of a partition, or of a bucket, that are sorted together if
# `clustering.incremental` is on.
#
# Files of an append table then have levels: 0 for new files, and for sorted files the level that
# their run was written to. Files of a level are one sorted run, regardless of their keys. Sources:
# `IncrementalClusterManager`, `IncrementalClusterStrategy`, `HistoryPartitionCluster`; for buckets
# `BucketedAppendClusterManager`, `BucketedAppendLevels`.


@dataclass(frozen=True, slots=True)
class ClusteringRules:
    """How a table is clustered: by which order, and the options that decide what is picked.

    `has_buckets`: files of a bucket are sorted, not those of a partition. Up to `history_limit`
    partitions without new rows for `history_idle_ms` are fully sorted along with other partitions;
    None for no such partitions.
    """

    order: SortOrder
    picks: PickOptions
    has_buckets: bool = False
    history_idle_ms: float | None = None
    history_limit: int = 5

    @classmethod
    def of(cls, schema: TableSchema) -> ClusteringRules:
        """The options of a table. Raises InvalidTableError for a table without columns to sort by,
        and what `sort_order` raises."""
        columns = column_list(schema.option("clustering.columns"))
        if not columns:
            raise InvalidTableError(
                "'clustering.incremental' needs 'clustering.columns'.",
                hint="Set 'clustering.columns' to the columns to sort by.",
            )
        order = sort_order(schema, _strategy(schema, len(columns)), ",".join(columns))
        if order is None:
            raise InvalidTableError(
                "'clustering.incremental' can't have 'clustering.strategy' = 'none'.",
                hint="Choose auto, order, zorder or hilbert.",
            )
        # Paimon gives its strategy no other options.
        known = PickOptions.of(schema)
        picks = PickOptions(
            compaction_trigger=known.compaction_trigger,
            level_count=known.level_count,
            max_size_amplification_percent=known.max_size_amplification_percent,
            size_ratio=known.size_ratio,
        )
        has_buckets = schema.bucket_mode != "BUCKET_UNAWARE"
        looks_back = schema.is_partitioned and not has_buckets
        return cls(
            order,
            picks,
            has_buckets,
            schema.parsed(_IDLE, duration_ms, None) if looks_back else None,
            schema.parsed("clustering.history-partition.limit", integer_value, 5),
        )

    @property
    def max_level(self) -> int:
        """The level of what is sorted wholly."""
        return self.picks.level_count - 1

    def picked(self, runs: Sequence[SortedRun], *, is_full: bool, is_in_order: bool) -> Pick | None:
        """The runs to sort; None if there is nothing to do. With `is_full` all of them, unless they
        are one run of the greatest level that `is_in_order`: sorted by the columns of today."""
        picks = self.picks
        if self.has_buckets and runs:
            picks = replace(picks, level_count=max(picks.level_count, runs[-1].level + 1))
        if not is_full:
            return pick(runs, picks, Moment(0, 0))
        max_level = picks.level_count - 1
        if not runs or (len(runs) == 1 and runs[0].level == max_level and is_in_order):
            return None
        return Pick(max_level, tuple(runs))


def clustered_runs(files: Iterable[BucketFile]) -> list[SortedRun]:
    """The runs of a partition: each file of level 0 in the order of their sequence numbers, then
    level by level. Source: `IncrementalClusterManager.constructPartitionLevels`."""
    in_sequence = sorted(files, key=lambda file: file.min_sequence_number)
    return runs_of_levels(in_sequence, in_sequence)


def _strategy(schema: TableSchema, columns: int) -> str:
    """`CoreOptions.clusteringStrategy`."""
    strategy = (schema.option("clustering.strategy") or "auto").lower()
    if strategy != "auto":
        return strategy
    if columns == 1:
        return "order"
    return "zorder" if columns < _HILBERT_COLUMNS_MIN else "hilbert"
