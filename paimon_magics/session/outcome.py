"""The outcome of one statement: rows, a commit, or a change of definitions.

An Outcome's text is deterministic: it has no times or file names, nothing that differs between runs
on equal data.
"""

from __future__ import annotations

import html
import string
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.boundary import knows_other_words, short_errors
from paimon_magics.columnar.python_values import python_values
from paimon_magics.columnar.time_zones import SECOND_OF_UNIT, UTC, common_from_s, in_zone, rules_of
from paimon_magics.errors import InvalidValueError, StatementError, nearest
from paimon_magics.session.planned_work import note_reads, reads_of, work_of
from paimon_magics.session.rendering import render_html, render_text
from paimon_magics.session.scope import StatementScope, errors_translated
from paimon_magics.session.times import told_in_zone
from paimon_magics.spark.arrow_streams import arrow_stream
from paimon_magics.spark.decimal_columns import with_json_texts, with_nullable_fields
from paimon_magics.spark.fetching import few_fetched
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.rows import frame_of_rows
from paimon_magics.spark.session_settings import session_zone

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    import pyarrow

    from paimon_magics.spark.handles import DataFrame, SparkSession


_FEW_ROWS = 1000
"""Rows up to which Python's values take less time than a Spark job that makes Arrow of them."""

# Method names of other libraries, with ours.
_OTHER_WORDS = {
    **dict.fromkeys(("toPandas", "to_df", "df", "pandas", "fetch_df", "fetchdf"), "to_pandas()"),
    **dict.fromkeys(("toArrow", "arrow", "fetch_arrow_table"), "to_arrow()"),
    **dict.fromkeys(("pl", "polars"), "to_polars()"),
    **dict.fromkeys(("duckdb", "relation", "to_relation"), "to_duckdb()"),
    **dict.fromkeys(
        ("to_batches", "to_reader", "to_arrow_reader", "fetch_record_batch", "record_batch"),
        "to_arrow_batches()",
    ),
    **dict.fromkeys(("collect", "fetchall", "fetch_all", "rows"), "to_arrow().to_pylist()"),
    **dict.fromkeys(
        ("show", "display", "head", "filter", "select", "columns", "write", "schema", "count"),
        "dataframe, a frame of Spark's",
    ),
}


# 0001-01-03 and 9999-12-29. Nearer to the ends of Python's calendar a clock may not be in it.
_FIRST_DAY_S, _LAST_DAY_S = -719_160 * 86_400, 2_932_894 * 86_400
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""Days since 1970 that Python's `date` reaches."""

_WORDS = {"decimals": ("exact", "float"), "dates": ("exact", "datetime64")}


_BATCH_WORDS = {
    **dict.fromkeys(("to_arrow", "to_table", "fetch_arrow_table"), "read_all()"),
    **dict.fromkeys(("to_pandas", "read_pandas", "df"), "read_all().to_pandas()"),
}


@short_errors
@knows_other_words(_OTHER_WORDS)
@dataclass
class Outcome:
    """The outcome of a statement.

    - `statement`: the user's text; `kind`: its kind ("SELECT", "INSERT", "CREATE TABLE", …).
    - `dataframe`: the lazy Spark DataFrame of a statement that returns rows, else None.
    - `table`: the table that was written or changed, as `database.name`.
    - `snapshot_id`, `commit_kind`: those of the commit; None if the statement committed nothing.
    - `rows_written`, `files_written`, `bytes_written`: what a write put into files.
    - `rows_updated`, `rows_deleted`, `rows_inserted`: what DELETE, UPDATE and MERGE INTO changed;
      None if unknown. `rows_unchanged`: rows that an UPDATE selected, but whose new values the
      table's merge engine would ignore; `notes` give the reason. `files_rewritten`,
      `vectors_written`: files that were rewritten for these changes, and files that got a deletion
      vector.
    - `values_changed`: by column, the number of values that a write rounded or cut to fit the
      column's type; `notes` give an example of each.
    - `seconds`: how long the statement took; for rows, until they could be fetched.
    - `query`: the SQL that returns the rows, if it is not the statement; "" if there is none.
    - `in_query`: the columns that `sql` returns, if it does not return all that are shown.
    - `zone`: the session's time zone when the statement ran; instants are shown in it.
    - `message`: the text shown in place of rows; `notes`: further remarks, shown below.
    """

    statement: str
    kind: str
    dataframe: DataFrame | None = None
    table: str | None = None
    snapshot_id: int | None = None
    commit_kind: str | None = None
    rows_written: int | None = None
    files_written: int | None = None
    bytes_written: int | None = None
    rows_updated: int | None = None
    rows_deleted: int | None = None
    rows_inserted: int | None = None
    rows_unchanged: int | None = None
    files_rewritten: int | None = None
    vectors_written: int | None = None
    values_changed: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    message: str = ""
    notes: tuple[str, ...] = ()
    display_rows: int = 20
    query: str | None = None
    in_query: tuple[str, ...] | None = None
    zone: str = ""
    _page: Any = field(default=None, repr=False, compare=False)
    _schema: Any = field(default=None, init=False, repr=False, compare=False)
    _is_released: bool = field(default=False, repr=False, compare=False)
    _has_failed: bool = field(default=False, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.dataframe is not None and not self.zone:
            self.zone = session_zone(self.dataframe.sparkSession)

    @classmethod
    def of_rows(
        cls,
        spark: SparkSession,
        statement: str,
        kind: str,
        rows: pyarrow.Table,
        query: str | None = None,
        in_query: tuple[str, ...] | None = None,
    ) -> Outcome:
        """Return an outcome of rows that are in memory already; showing them runs no job."""
        frame = frame_of_rows(spark, rows)
        outcome = cls(statement, kind, dataframe=frame, query=query, in_query=in_query)
        outcome.display_rows, outcome._page = max(rows.num_rows, 1), in_zone(rows, outcome.zone)
        return outcome

    def release(self) -> None:
        """Release the rows that have not been fetched, so that their snapshots may expire. Rows
        that were displayed can be displayed again."""
        self._is_released = self.dataframe is not None
        self.dataframe = None

    @property
    def data(self) -> pyarrow.Table:
        """All rows, the same as `to_arrow`; reports have this property too."""
        return self.to_arrow()

    @property
    def sql(self) -> str:
        """The SQL that returns these rows again; "" if there is none."""
        text = self.statement if self.query is None else self.query
        return text.strip().rstrip(";")

    def to_arrow(self) -> pyarrow.Table:
        """All rows as an Arrow table in this process's memory; instants have the session's zone.
        Raises JobError and other errors of ours."""
        return self.fetched(self._fetch(self._rows()))

    def to_arrow_batches(self) -> ArrowBatches:
        """All rows as an iterator over Arrow batches, in their order and with the types of
        `to_arrow`, without all of them in memory: Spark computes one partition after the other, and
        keeps two. For a result that fits into memory `to_arrow` is faster, as all tasks run at
        once. A Spark job begins with the first batch that is asked for. Closing the iterator
        cancels it."""
        return ArrowBatches(self._rows(), self._arrow_schema(), self.statement)

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> Any:
        """A DuckDB relation of all rows, on DuckDB's default connection or the given one.

        The rows are streamed from Spark as DuckDB asks for them. Each query of the relation
        runs the Spark query again, on the same snapshots. So the relation can be queried as often
        as wanted, and takes no memory; `relation.create("t")` keeps the rows in DuckDB. Raises
        InvalidValueError if the package `duckdb` is missing.
        """
        self._rows()
        try:
            import duckdb
        except ImportError as error:
            raise InvalidValueError(
                "The package `duckdb` is not installed.", hint="Install it with: pip install duckdb"
            ) from error
        return (connection or duckdb).from_arrow(self)

    def to_pandas(self, *, decimals: str = "exact", dates: str = "exact") -> pandas.DataFrame:
        """All rows as a pandas DataFrame in this process's memory, with the nullable dtypes of
        `pandas_frames`, which change no value. Charts need numbers: with `decimals="float"` a
        DECIMAL becomes the nearest Float64, with `dates="datetime64"` a DATE its midnight. Raises
        InvalidValueError for other values."""
        return pandas_frame(self.to_arrow(), decimals=decimals, dates=dates)

    def to_polars(self) -> polars.DataFrame:
        """All rows as a polars DataFrame in this process's memory. Polars knows named zones and
        offsets of whole hours; instants of a zone such as `+05:30` are in UTC.

        Raises InvalidValueError for two columns of one name, which polars does not support."""
        import polars

        rows = self._with_own_names(self.to_arrow())
        if not self.zone.endswith((":00", *string.ascii_letters)):
            rows = in_zone(rows, UTC)
        frame = polars.from_arrow(rows)
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_pylist(self) -> list[dict[str, Any]]:
        """All rows as dictionaries of Python values; instants are in the session's zone.

        Raises InvalidValueError for two columns of one name: a dictionary can hold only one."""
        rows = self._with_own_names(self.to_arrow())
        columns = [python_values(column) for column in rows.columns]
        return [
            dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True)
        ]

    def page(self) -> pyarrow.Table:
        """The first `display_rows` rows and one more, fetched once by one Spark job."""
        if self._page is None:
            rows = self.display_rows + 1
            fetch = self._fetch(self._rows())
            self._page = self.fetched(lambda frame: fetch(frame.limit(rows)))
        return self._page

    def show_at_most(self, rows: int) -> None:
        """Show at most this many rows of a query; rows that are in memory are all shown."""
        if self._page is None:
            self.display_rows = rows

    @property
    def shows_rows(self) -> bool:
        """Whether it shows rows, not a message."""
        return not self.message and (self.dataframe is not None or self._page is not None)

    def __str__(self) -> str:
        if not self.shows_rows:
            return "\n".join((self.message, *self.notes))
        return "\n".join((render_text(self.page(), self.display_rows), *self.notes))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        if not self.shows_rows:
            wrapped = "white-space:pre-wrap;word-break:normal;margin:0;font-size:inherit"
            return f'<pre style="{wrapped}">{html.escape(str(self))}</pre>'
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return render_html(self.page(), self.display_rows) + notes

    def __arrow_c_schema__(self) -> object:
        return self._arrow_schema().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """All rows as a stream of `to_arrow_batches`, a new one at each call: Arrow's PyCapsule
        interface, through which other libraries read an Outcome directly."""
        return self.to_arrow_batches().__arrow_c_stream__(requested_schema)

    def fetched(self, fetch: Callable[[DataFrame], Any]) -> Any:
        """Return what `fetch` makes of the frame; an interrupt cancels its jobs. A VARIANT becomes
        JSON text, and instants of an Arrow table get the session's zone. Raises errors of ours."""
        import pyarrow as pa

        with errors_translated(self.statement):
            frame = self._frame_to_run()
            with cancellable(frame.sparkSession, work_of(frame)):
                result = fetch(with_nullable_fields(with_json_texts(frame)))
        self._has_failed = False
        return in_zone(result, self.zone) if isinstance(result, pa.Table) else result

    def _fetch(self, frame: DataFrame) -> Callable[[DataFrame], pyarrow.Table]:
        """How the rows of a frame, or of one made of it, come into this process."""
        rows = reads_of(frame).rows_at_most
        if rows is not None and rows <= _FEW_ROWS:
            return few_fetched
        return lambda part: part.toArrow()

    def _frame_to_run(self) -> DataFrame:
        """The frame, planned anew after a run that failed or was interrupted: Spark keeps the
        stages and broadcasts of a frame that it has begun to run, cancelled ones too, and another
        run of the same plan ends with their error."""
        frame = self._rows()
        if self._has_failed:
            frame = self.dataframe = note_reads(frame.select("*"), reads_of(frame))
        self._has_failed = True
        return frame

    def _arrow_schema(self) -> pyarrow.Schema:
        """The schema of `to_arrow`."""
        if self._schema is None:
            self._schema = self.fetched(lambda frame: frame.limit(0).toArrow()).schema
        return self._schema

    def _with_own_names(self, rows: pyarrow.Table) -> pyarrow.Table:
        names = rows.column_names
        twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
        if twice is not None:
            raise InvalidValueError(
                f"The result has several columns named `{twice}`.",
                hint="Give them different names in the statement, such as a.id AS a_id. "
                "to_arrow() and to_pandas() accept equal names.",
            )
        return rows

    def _rows(self) -> DataFrame:
        if self._is_released:
            raise StatementError(
                f"The rows of this {self.kind} were released.", hint="Run it again to get rows."
            )
        if self.dataframe is None:
            raise StatementError(f"This {self.kind} has no rows.", hint="Run a SELECT to get rows.")
        return self.dataframe


def noted(outcome: Outcome, scope: StatementScope) -> Outcome:
    """The outcome, with the notes of its statement; the moments in its texts are in the session's
    zone."""
    texts = (outcome.message, *outcome.notes, *scope.notes)
    outcome.message, *notes = told_in_zone(texts, lambda: scope.zone)
    outcome.notes = tuple(dict.fromkeys(notes))
    return outcome


# Rows as a pandas DataFrame: the dtype follows from a column's type, never from its values.
#
# | SQL | pandas |
# | --- | --- |
# | TINYINT, SMALLINT, INT, BIGINT | `Int8`, `Int16`, `Int32`, `Int64` |
# | BOOLEAN | `boolean` |
# | FLOAT, DOUBLE | `Float32`, `Float64`: NaN is a number there, and NULL is `<NA>` |
# | STRING | `string` |
# | TIMESTAMP | `datetime64[us, ZONE]` in the session's zone |
# | TIMESTAMP_NTZ | `datetime64[us]` |
# | DATE, DECIMAL, BINARY | `object`: `datetime.date`, `decimal.Decimal`, `bytes` |
# | ARRAY, MAP, STRUCT | `object`: list, dict, dict |


def pandas_frame(
    rows: pa.Table, *, decimals: str = "exact", dates: str = "exact"
) -> pandas.DataFrame:
    """Return the rows; a column has the same dtype with and without NULLs.

    No value changes, except for what charts and numpy need: with `decimals="float"` a DECIMAL
    becomes the nearest `Float64`, with `dates="datetime64"` a DATE its midnight as
    `datetime64[us]`. Raises InvalidValueError for other values.
    """
    import pandas as pd

    for name, word in (("decimals", decimals), ("dates", dates)):
        if word not in _WORDS[name]:
            raise InvalidValueError(
                f"`{name}` can't be {word!r}.", hint=nearest(str(word), _WORDS[name], what="values")
            )

    def charted(column: pa.ChunkedArray) -> pa.ChunkedArray:
        if decimals == "float" and pa.types.is_decimal(column.type):
            return column.cast(pa.float64())
        if dates == "datetime64" and pa.types.is_date(column.type):
            return column.cast(pa.timestamp("us"))
        return column

    strings = pd.StringDtype("pyarrow")
    dtypes = {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
        pa.float32(): pd.Float32Dtype(),
        pa.float64(): pd.Float64Dtype(),
        pa.string(): strings,
        pa.large_string(): strings,
    }
    columns = {
        place: pd.Series(python_values(column), dtype=object)
        if pa.types.is_nested(column.type) or _has_far_days(column)
        else _exact_clocks(column, column.to_pandas(types_mapper=dtypes.get))
        for place, column in enumerate(map(charted, rows.columns))
    }
    # By position: the column names of a query need not be unique.
    frame = pd.DataFrame(columns, index=pd.RangeIndex(rows.num_rows))
    frame.columns = pd.Index(rows.column_names, dtype=object)
    return frame


def _has_far_days(column: pa.ChunkedArray) -> bool:
    """Whether a column of dates has some that Python's `date` does not reach: it becomes texts, as
    in `to_pylist`."""
    if not pa.types.is_date(column.type):
        return False
    first, last = pc.min_max(column.cast(pa.int32())).as_py().values()
    return first is not None and not _FIRST_DAY <= first <= last <= _LAST_DAY


def _exact_clocks(column: pa.ChunkedArray, series: pandas.Series) -> pandas.Series:
    """The series of an Arrow column, with the clocks of its zone. The rules that pandas takes by a
    zone's name begin in 1901 and have whole minutes; before there was standard time, clocks were
    ahead of UTC by seconds too. `rules_of` has them, and Java's rules, but takes ten times as
    long."""
    if not pa.types.is_timestamp(column.type) or not column.type.tz:
        return series
    second = SECOND_OF_UNIT[column.type.unit]
    moments = column.cast(pa.int64())
    first, last = pc.min_max(moments).as_py().values()
    common = common_from_s(column.type.tz) * second
    if first is None or first >= common:
        return series
    if first < _FIRST_DAY_S * second or last > _LAST_DAY_S * second:
        return series
    exact: pandas.Series = series.dt.tz_convert("UTC").dt.tz_convert(rules_of(column.type.tz))
    old = pc.less(moments, common).fill_null(False).to_numpy()
    same = (exact[old].dt.tz_localize(None) == series[old].dt.tz_localize(None)).all()
    return series if same else exact


# The rows of an Outcome as a stream of Arrow batches, without all of them in memory.


@short_errors
@knows_other_words(_BATCH_WORDS)
class ArrowBatches:
    """An iterator over Arrow batches, which can be read once, from its first row to its last.

    `schema` is that of all batches. `close()`, or the end of a `with` block, cancels the Spark jobs
    of a stream that is not read to its end. So does an interrupt. It has Arrow's PyCapsule
    interface, by which it is given to other libraries, and becomes a reader of pyarrow:
    `pyarrow.RecordBatchReader.from_stream(batches)`.
    """

    def __init__(self, frame: DataFrame, schema: pyarrow.Schema, statement: str) -> None:
        self.schema = schema
        self._batches = _batches(frame, schema, statement)

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        return self

    def __next__(self) -> pyarrow.RecordBatch:
        return next(self._batches)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what Spark still does for the stream; there are no more batches."""
        self._batches.close()

    def read_next_batch(self) -> pyarrow.RecordBatch:
        """The next batch; raises StopIteration behind the last one."""
        return next(self._batches)

    def read_all(self) -> pyarrow.Table:
        """The rows that have not been read yet, as a table in this process's memory."""
        import pyarrow as pa

        return pa.Table.from_batches(self._batches, self.schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_batches(self.schema, self)
        return reader.__arrow_c_stream__(requested_schema)


def _batches(
    frame: DataFrame, schema: pyarrow.Schema, statement: str
) -> Generator[pyarrow.RecordBatch]:
    """Yield the rows of the frame in the types of `schema`; raises errors of ours. The frame keeps
    the snapshots that are read for as long as this generator exists."""
    with errors_translated(statement):
        for batch in arrow_stream(with_nullable_fields(with_json_texts(frame)), work_of(frame)):
            yield batch if batch.schema == schema else batch.cast(schema)
