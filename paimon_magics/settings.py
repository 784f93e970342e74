"""The settings of a Session: defaults with their units and the reasons for their values.

A `Settings` value never changes; `with_changes` returns another. Settings are this project's own;
options belong to a table and have Paimon's names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal, get_args

from paimon_magics.boundary import shows_full_tracebacks
from paimon_magics.errors import SetupError, nearest

# Like Spark's own `spark-warehouse`: a folder in the notebook's working directory.
DEFAULT_WAREHOUSE = "paimon-warehouse"

Wait = Literal["durable", "visible"]
"""When a small insert is acknowledged, if a statement specifies it."""

WAITS: tuple[Wait, ...] = get_args(Wait)


StoreAssignment = Literal["exact-values", "exact", "ansi"]
"""The treatment of a value that its column's type would truncate or round."""

STORE_ASSIGNMENTS: tuple[StoreAssignment, ...] = get_args(StoreAssignment)


StatementHistory = Literal["text", "redacted", "none"]
"""What a snapshot keeps of the statement that made it."""

STATEMENT_HISTORIES: tuple[StatementHistory, ...] = get_args(StatementHistory)

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "store_assignment": STORE_ASSIGNMENTS,
    "statement_history": STATEMENT_HISTORIES,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one Session.

    - `catalog_name`: the first part of a three-part table name.
    - `database`: the database of unqualified names until a USE statement changes it.
    - `master`: the Spark master of a Spark session that this project starts, or the address of a
      Spark Connect server (`sc://HOST:PORT`). With the default, SPARK_REMOTE may name a server.
    - `driver_memory`: heap of that Spark session's JVM, in Spark's notation.
    - `batch_rows`: rows of an Arrow batch between the JVM and Python. A Python task has fixed costs
      for each batch: 65,536 rows amortize them, and a batch of wide rows has only megabytes.
    - `display_rows`: rows that a displayed query shows.
    - `overwrite_swallows_newer`: whether an overwrite replaces rows that others committed after it
      was planned, as Paimon does by default; otherwise it fails and names their snapshot.
    - `store_assignment`: treatment of values that a column would truncate or round. `exact-values`
      refuses them in rows of VALUES and of a program's frames, and casts the rows of a query like
      Spark. `exact` refuses both; `ansi` casts both. The outcome's notes count the values that a
      cast changes.
    - `statement_history`: what a snapshot keeps of the statement that made it: its `text`, the text
      `redacted`, with `?` for each value, or `none`. Every reader of the table may see it.
    - `snapshot_time_retained`: how long the snapshots of tables that this session creates are kept,
      such as `7 d`, unless the definition sets 'snapshot.time-retained'. Empty: Paimon's default,
      an hour. Longer time travel costs the files that it needs.
    - `alter_check_rows_max`: upper bound on the rows that are checked before a column's type is
      changed, for values that can't be read as the new type; with 0 only the files' statistics are
      checked.
    - `kept_views_max`: upper bound on the tables whose frame is kept for the next query on the same
      snapshot; a frame holds the paths of its files on the driver.
    - `attempt_wait_ms_max`: how long a failed statement waits for its tasks to stop writing, before
      it removes their files. Spark gives a cancelled Python task about 4 s.
    - `cross_partition_rows_max`: upper bound on rows, stored or in one statement, for writes to a
      table whose keys can move between partitions: one task must know the partition of each key, at
      about 200 bytes a key.
    - `coordinator_ca`: a PEM file with the certificates to trust for a coordinator's https address;
      by default PAIMON_COORDINATOR_CA, else the system's certificates.
    - `coordinator_idle_ms`: how long a coordinator that this session starts stays alive with
      nothing to do. A user may think between two statements; a new start costs 2 s.
    - `coordinator_wait_ms`: how long a statement retries a coordinator that does not answer, for
      example during a restart. A supervisor starts a service within seconds, a standby takes over
      within a minute.
    - `exclusive_wait_ms`: how long a statement that writes a table with dynamic buckets waits for
      its turn: such statements of one coordinator, or of one process, run one after the other. The
      default covers several statements, and several leases; a dead client's transaction ends when
      its lease expires.
    - `conflict_reruns_max`: upper bound on reruns of a statement that adds rows. A rerun follows a
      commit that took no turn and made the statement's plan outdated.
    - `row_level_retries`: upper bound on reruns of a statement that changes rows. A rerun follows a
      commit that changed the rows that the statement read. Each run reads and writes again, so
      after some tries it is better to report the conflict. 0: never.
    - `source_range_from_bytes`: size of the target's files from which a MERGE first runs a job that
      finds the range of its source's ON values. It then reads only files that can match.
      Below that size the job costs more than it saves.
    - `local_rows_max`: upper bound on the rows of a query whose files this process reads itself. It
      passes them to Spark as local rows, instead of starting tasks. From some tens of thousands of
      rows on, tasks are faster. 0: never.
    - `local_bytes_max`: upper bound on the bytes of these files, and of their rows in memory. Spark
      keeps the rows for the next query on the snapshot, for up to `kept_views_max` tables.
    - `inline_compaction`: whether an INSERT compacts the buckets that it has written. If another
      engine's streaming job compacts the table, leave that to the job: of two compactions of one
      bucket, one fails.
    - `read_lease_ms_max`: upper bound on how long a coordinator keeps the snapshot that a query
      reads from expiring; releasing the query's outcome ends that earlier. Notebooks keep outcomes.
    - `full_tracebacks`: whether errors show the whole trace and their causes, instead of only their
      message. It applies to the whole process at once; the default is PAIMON_FULL_TRACEBACKS.
    """

    catalog_name: str = "paimon"
    database: str = "default"
    master: str = "local[*]"
    driver_memory: str = "2g"
    batch_rows: int = 65_536
    display_rows: int = 20
    overwrite_swallows_newer: bool = False
    store_assignment: str = "exact-values"
    statement_history: str = "text"
    snapshot_time_retained: str = ""
    alter_check_rows_max: int = 100_000
    kept_views_max: int = 64
    attempt_wait_ms_max: int = 10_000
    cross_partition_rows_max: int = 5_000_000
    coordinator_ca: str = ""
    coordinator_idle_ms: int = 600_000
    coordinator_wait_ms: int = 60_000
    exclusive_wait_ms: int = 600_000
    conflict_reruns_max: int = 20
    row_level_retries: int = 5
    source_range_from_bytes: int = 268_435_456
    local_rows_max: int = 10_000
    local_bytes_max: int = 4_194_304
    inline_compaction: bool = True
    read_lease_ms_max: int = 86_400_000
    full_tracebacks: bool = field(default_factory=shows_full_tracebacks)

    def with_changes(self, changes: Mapping[str, object]) -> Settings:
        """These settings with `changes`. Raises SetupError for an unknown name or a value that the
        setting can't have."""
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
            if name in _CHOICES and value not in _CHOICES[name]:
                raise SetupError(
                    f"Setting `{name}` can't be {value!r}.",
                    hint=nearest(str(value), _CHOICES[name], what="values"),
                )
            if isinstance(value, int) and value < 0:
                raise SetupError(
                    f"Setting `{name}` is {value}, but it can't be negative.",
                    hint=f"Its default is {getattr(Settings(), name)!r}.",
                )
        return replace(self, **changes)  # type: ignore[arg-type]


def _article(expected: type) -> str:
    names = {"int": "a whole number", "str": "a string", "bool": "true or false"}
    return names.get(expected.__name__, expected.__name__)
