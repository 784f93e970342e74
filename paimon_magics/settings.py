"""The settings of a Session: defaults with their units and the reasons for their values.

A `Settings` value never changes; `with_changes` makes another and names what it does not know.
Options of a table keep Paimon's names and live in the table; these are ours alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal, get_args

from paimon_magics.boundary import shows_full_tracebacks
from paimon_magics.errors import SetupError, nearest

__all__ = [
    "DEFAULT_WAREHOUSE",
    "STORE_ASSIGNMENTS",
    "WAITS",
    "Settings",
    "StoreAssignment",
    "Wait",
]

# Like Spark's own `spark-warehouse`: a folder where the notebook runs.
DEFAULT_WAREHOUSE = "paimon-warehouse"

Wait = Literal["durable", "visible"]
"""When a small insert is answered, where a statement says it."""

WAITS: tuple[Wait, ...] = get_args(Wait)


StoreAssignment = Literal["exact", "ansi"]
"""What becomes of a given value of which a column's type would cut something off."""

STORE_ASSIGNMENTS: tuple[StoreAssignment, ...] = get_args(StoreAssignment)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one Session.

    - `catalog_name`: the first part of a three-part table name.
    - `database`: the database of unqualified names until a USE statement changes it.
    - `master`: the Spark master of a session that we start ourselves.
    - `driver_memory`: heap of that session's JVM, in Spark's notation.
    - `batch_rows`: rows of an Arrow batch between the JVM and Python. A Python task's fixed costs
      are per batch too; 65,536 rows amortise them and keep a batch of wide rows in megabytes.
    - `display_rows`: rows that a displayed query shows.
    - `overwrite_swallows_newer`: whether an overwrite replaces rows that others committed after it
      was planned, as Paimon does by default; otherwise it fails and names their snapshot.
    - `store_assignment`: `exact` refuses rows of VALUES and of a program's frames of which a column
      would cut off or round away something, `ansi` casts them as Spark does. What a query gives is
      cast as Spark does in both.
    - `alter_check_rows_max`: rows that are looked at before a column's type is changed, for values
      that could not be read as the new one; 0 for the files' statistics alone.
    - `kept_views_max`: tables whose frame is kept for the next query on the same snapshot; a frame
      holds the paths of its files on the driver.
    - `attempt_wait_ms_max`: how long the end of a failed statement waits for its tasks to stop
      writing, before their files are removed. Spark gives a cancelled Python task about 4 s.
    - `cross_partition_rows_max`: rows of a table whose keys can move between partitions, stored or
      in one statement, up to which it is written: one task has to know where each key lives, at
      about 200 bytes a key.
    - `coordinator_idle_ms`: how long a coordinator that this session starts lives with nothing to
      do. Long enough for somebody who thinks between two statements; a new start costs 2 s.
    - `exclusive_wait_ms`: how long a statement waits for others of the same coordinator, or of
      the same process, that write its table with dynamic buckets: they take turns. Some
      leases, after which a transaction ends whose owner died, and some statements long.
    - `conflict_reruns_max`: how often a statement that adds rows is planned and run again because
      others, who took no turns, have written what it was planned on.
    - `read_lease_ms_max`: how long, through a coordinator, a snapshot that a query reads is kept
      from expiring at most, where its outcome is not released before. Notebooks keep outcomes.
    - `full_tracebacks`: whether errors show the whole trace and their causes, instead of what they
      say. It holds for the process, at once; PAIMON_FULL_TRACEBACKS says the default.
    """

    catalog_name: str = "paimon"
    database: str = "default"
    master: str = "local[*]"
    driver_memory: str = "2g"
    batch_rows: int = 65_536
    display_rows: int = 20
    overwrite_swallows_newer: bool = False
    store_assignment: str = "exact"
    alter_check_rows_max: int = 100_000
    kept_views_max: int = 64
    attempt_wait_ms_max: int = 10_000
    cross_partition_rows_max: int = 5_000_000
    coordinator_idle_ms: int = 600_000
    exclusive_wait_ms: int = 600_000
    conflict_reruns_max: int = 20
    read_lease_ms_max: int = 86_400_000
    full_tracebacks: bool = field(default_factory=shows_full_tracebacks)

    def with_changes(self, changes: Mapping[str, object]) -> Settings:
        """These settings with `changes`; raises SetupError for an unknown name or a wrong type."""
        known = {field.name: field for field in fields(self)}
        for name, value in changes.items():
            if name not in known:
                raise SetupError(
                    f"There is no setting `{name}`.", hint=nearest(name, known, what="settings")
                )
            expected = type(getattr(self, name))
            if type(value) is not expected:
                raise SetupError(
                    f"Setting `{name}` is {value!r}, but it must be {_article(expected)}.",
                    hint=f"Its default is {getattr(Settings(), name)!r}.",
                )
            if name == "store_assignment" and value not in STORE_ASSIGNMENTS:
                raise SetupError(
                    f"Setting `{name}` can't be {value!r}.",
                    hint=nearest(str(value), STORE_ASSIGNMENTS, what="values"),
                )
            if isinstance(value, int) and value < 0:
                raise SetupError(
                    f"Setting `{name}` is {value}, but it can't be negative.",
                    hint=f"Its default is {getattr(Settings(), name)!r}.",
                )
        return replace(self, **changes)  # type: ignore[arg-type]


def _article(expected: type) -> str:
    names = {"int": "a whole number", "str": "a text", "bool": "true or false"}
    return names.get(expected.__name__, expected.__name__)
