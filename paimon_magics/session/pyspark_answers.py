"""Answers to PySpark's own calls: on tables by name, and in the format `paimon`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from paimon_magics.boundary import short_errors
from paimon_magics.errors import InvalidValueError, StatementError, UnsupportedStatementError
from paimon_magics.session.connection import Connection
from paimon_magics.session.inserts.insert import write_frame_to
from paimon_magics.session.inserts.new_tables import WantedTable, write_to_new
from paimon_magics.session.queries.spark_calls import SparkCalls
from paimon_magics.session.queries.table_frames import frame_of_table
from paimon_magics.session.scope import statement_scope
from paimon_magics.session.streaming import checked_sink, place_of, refuse_options, stream_options
from paimon_magics.session.writes.merged_schemas import MERGE_SCHEMA
from paimon_magics.spark.data_source import TABLE_KEYS, asked_table
from paimon_magics.statements.clauses.names import named
from paimon_magics.statements.statement import TableName

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame, SparkSession

_DYNAMIC = "partitionOverwriteMode"
_CHECKPOINT = "checkpointLocation"


@short_errors
class FormatAnswers:
    """Answers to calls in the format `paimon`, on one connection; names of tables are Spark's."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def spark(self) -> SparkSession:
        """The Spark session that the tables are read on."""
        return self._connection.spark

    def table(self, name: str, options: Mapping[str, str]) -> DataFrame | None:
        """None: names are Spark's."""
        return None

    def changes(self, name: str, options: Mapping[str, str]) -> DataFrame | None:
        """None: names are Spark's."""
        return None

    def query(self, text: str, args: object, formatted: bool) -> DataFrame | None:
        """None: statements are Spark's."""
        return None

    def exists(self, name: str) -> bool | None:
        """None: names are Spark's."""
        return None

    def refuse(self, call: str, name: str) -> None:
        """Refuses nothing."""

    def load(self, options: Mapping[str, str]) -> DataFrame:
        """Return the rows of a table with Paimon's read options, as `Session.table` does."""
        name, more = self._table_of(options)
        with statement_scope(self._connection) as scope:
            return frame_of_table(scope, name, more)

    def save(
        self,
        frame: DataFrame,
        options: Mapping[str, str],
        mode: str,
        parts: Sequence[str],
        name: str | None,
    ) -> None:
        """Write a frame as `Session.write` does. A missing table is created, with Paimon's options
        and `parts`; in the modes `error` (the default) and `ignore` only then.

        Raises StatementError for a table that exists in mode `error`, InvalidValueError for another
        mode, UnsupportedStatementError for options beside a table that exists. Which partitions an
        overwrite replaces, the option `partitionOverwriteMode` says, else Spark's setting.
        """
        table, more = self._table_of(options, name)
        dynamic = self._overwrites_dynamically(more)
        merging = {key: more.pop(key) for key in list(more) if key.startswith(MERGE_SCHEMA)}
        kind = (mode or "error").lower()
        if kind not in ("append", "overwrite", "error", "errorifexists", "default", "ignore"):
            raise InvalidValueError(
                f"There is no mode '{mode}'.", hint="Use append, overwrite, error or ignore."
            )
        with statement_scope(self._connection) as scope:
            exists = scope.catalog.table_exists(table)
            if exists and kind == "ignore":
                return
            if exists and kind not in ("append", "overwrite"):
                raise StatementError(
                    f"The table `{table}` exists.",
                    hint="Write with .mode('append') or .mode('overwrite').",
                )
            wanted = "dynamic" if dynamic and kind == "overwrite" else kind
            if exists:
                _refuse_table_options(table, more, parts)
                write_frame_to(scope, frame, table, wanted, merging)
                return
            key = more.pop("primary-key", None)
            keys = None if key is None else [part.strip() for part in key.split(",")]
            new = WantedTable.of(keys, list(parts) or None, more, create=True)
            assert new is not None
            write_to_new(scope, frame, table, None, new)

    def stream_options(self, options: Mapping[str, str], name: str | None) -> dict[str, str] | None:
        """Check the options of a stream and return them as the data source takes them."""
        with statement_scope(self._connection) as scope:
            table, more = self._table_of(options, name)
            return stream_options(scope, table, more)

    def stream_sink(
        self, frame: DataFrame | None, options: Mapping[str, str], mode: str, name: str | None
    ) -> Callable[[DataFrame, int], None] | None:
        """Return the function that writes micro-batches, as `Session.write_stream` does."""
        table, more = self._table_of(options, name)
        refuse_options(more, (_CHECKPOINT,))
        by_case = {key.lower(): value for key, value in more.items()}
        checkpoint = by_case.get(_CHECKPOINT.lower())
        with statement_scope(self._connection) as scope:
            return checked_sink(scope, frame, table, mode, checkpoint)

    def _overwrites_dynamically(self, more: dict[str, str]) -> bool:
        """Whether an overwrite replaces only partitions that get rows: by an option, which is taken
        out, else by Spark's setting."""
        mode = self.spark.conf.get(f"spark.sql.sources.{_DYNAMIC}", None)
        for key in [key for key in more if key.lower() == _DYNAMIC.lower()]:
            mode = more.pop(key)
        return (mode or "").lower() == "dynamic"

    def _table_of(
        self, options: Mapping[str, str], name: str | None = None
    ) -> tuple[TableName, dict[str, str]]:
        """The table that a call names, and its other options."""
        more = {key: value for key, value in options.items() if key.lower() not in TABLE_KEYS}
        if name is not None:
            return self._connection.full_name(named(name)), more
        words = {key.lower(): value for key, value in options.items()}
        return asked_table(words, place_of(self._connection)), more


@short_errors
class PysparkAnswers(SparkCalls, FormatAnswers):
    """Answers for one session, also to calls that name its tables."""

    def stream_options(self, options: Mapping[str, str], name: str | None) -> dict[str, str] | None:
        """As in the format; None for a name that is Spark's."""
        if name is not None and not self.is_paimons(name):
            return None
        return super().stream_options(options, name)

    def stream_sink(
        self, frame: DataFrame | None, options: Mapping[str, str], mode: str, name: str | None
    ) -> Callable[[DataFrame, int], None] | None:
        """As in the format; None for a name that is Spark's."""
        if name is not None and not self.is_paimons(name):
            return None
        return super().stream_sink(frame, options, mode, name)


def _refuse_table_options(name: TableName, more: Mapping[str, str], parts: Sequence[str]) -> None:
    """Raise UnsupportedStatementError for options that only a new table can get."""
    if more:
        raise UnsupportedStatementError(
            f"`{name}` exists: the option '{next(iter(more))}' is only for a new table.",
            hint="To change options of a table, use ALTER TABLE … SET TBLPROPERTIES.",
        )
    del parts  # Spark's writers repeat them with each append
