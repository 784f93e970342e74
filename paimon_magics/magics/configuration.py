"""The configuration of a notebook (`c.PaimonMagics.…`), and the magics that IPython registers.

Values come from IPython's configuration files, then `%config PaimonMagics.…` or `%paimon config`.
The fields of `Settings` have the same names here; they are read when a connection is made.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand
from traitlets import Bool, Dict, Enum, Int, Unicode, observe

from paimon_magics.boundary import show_as, show_full_tracebacks
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.magics.cell import run_cell
from paimon_magics.magics.completion import Completer
from paimon_magics.magics.connecting import print_place
from paimon_magics.magics.line import run_line
from paimon_magics.magics.options import RESULT_TYPES
from paimon_magics.magics.views import ProgressOfCells, load_views_aside
from paimon_magics.redaction import scrub
from paimon_magics.settings import (
    DEFAULT_WAREHOUSE,
    STATEMENT_HISTORIES,
    STORE_ASSIGNMENTS,
    Settings,
)

if TYPE_CHECKING:
    from paimon_magics.session.session import Session

_DEFAULTS = Settings()
_INTERRUPTED = (
    "KeyboardInterrupt: the cell was stopped, and its Spark jobs with it.\n"
    "The statement that ran left nothing behind unless it was committed already; "
    "%paimon history TABLE shows the commits."
)


def _whole_number(name: str, *, least: int, help: str) -> Int[int, int]:
    """Return a configuration field for the whole-number setting of that name."""
    return Int(getattr(_DEFAULTS, name), min=least, help=help).tag(config=True)


@magics_class
class PaimonMagics(Magics):
    """`%paimon` verbs and the `%%paimon` cell. `%paimon help` lists their options."""

    warehouse = Unicode(
        "",
        help="Warehouse of a connection without a named place: a folder or URI. Empty: the "
        "warehouse of the coordinator in PAIMON_COORDINATOR, else PAIMON_WAREHOUSE, else the "
        f"folder `{DEFAULT_WAREHOUSE}`.",
    ).tag(config=True)
    catalog = Dict(
        key_trait=Unicode(),
        value_trait=Unicode(),
        help="Paimon's catalog options for such a connection: metastore, uri, warehouse, …",
    ).tag(config=True)
    limit = Int(
        None,
        min=0,
        allow_none=True,
        help="Upper bound on a query's rows, if its cell has no --limit. None: all of them.",
    ).tag(config=True)
    result_type = Enum(
        RESULT_TYPES,
        default_value="outcome",
        help="Type of a cell's rows, if the cell has no --type: " + ", ".join(RESULT_TYPES),
    ).tag(config=True)
    full_tracebacks = Bool(
        _DEFAULTS.full_tracebacks,
        help="Show the whole trace of an error of ours and its causes, not only its message.",
    ).tag(config=True)
    progress = Bool(
        True, help="Show the progress of Spark jobs while a cell runs, if a person can see it."
    ).tag(config=True)
    confirm = Bool(
        True,
        help="Ask for --yes before a cell deletes much (INSERT OVERWRITE without PARTITION, "
        "TRUNCATE, DROP), if a person runs it.",
    ).tag(config=True)
    display_rows = _whole_number(
        "display_rows",
        least=0,
        help="Rows that a displayed query shows.",
    )
    catalog_name = Unicode(
        _DEFAULTS.catalog_name, help="The first part of a table's name of three parts."
    ).tag(config=True)
    database = Unicode(
        _DEFAULTS.database, help="The database of unqualified names, until a USE statement."
    ).tag(config=True)
    master = Unicode(
        _DEFAULTS.master,
        help="The Spark master of a session that is started here, or sc://HOST:PORT of a Spark "
        "Connect server; with the default, SPARK_REMOTE may name a server.",
    ).tag(config=True)
    driver_memory = Unicode(
        _DEFAULTS.driver_memory, help="The heap of that session's JVM, in Spark's notation."
    ).tag(config=True)
    batch_rows = _whole_number(
        "batch_rows",
        least=1,
        help="Rows of an Arrow batch between the JVM and Python.",
    )
    overwrite_swallows_newer = Bool(
        False,
        help="Whether an overwrite replaces rows that others committed after it was planned; "
        "otherwise it fails and names their snapshot.",
    ).tag(config=True)
    store_assignment = Enum(
        STORE_ASSIGNMENTS,
        default_value="exact-values",
        help="`exact-values` refuses given values that a column would round or cut, `exact` also "
        "those of queries, `ansi` casts both as Spark does.",
    ).tag(config=True)
    statement_history = Enum(
        STATEMENT_HISTORIES,
        default_value="text",
        help="What a snapshot keeps of the statement that made it: its `text`, the text "
        "`redacted`, with `?` for each value, or `none`.",
    ).tag(config=True)
    snapshot_time_retained = Unicode(
        "",
        help="How long snapshots of new tables are kept, such as `7 d`, unless CREATE TABLE sets "
        "it. Empty: Paimon's default, an hour.",
    ).tag(config=True)
    alter_check_rows_max = _whole_number(
        "alter_check_rows_max",
        least=0,
        help="Upper bound on the rows that are checked before a column's type is changed.",
    )
    kept_views_max = _whole_number(
        "kept_views_max",
        least=0,
        help="Upper bound on the tables whose frame is kept for the next query on a snapshot.",
    )
    attempt_wait_ms_max = _whole_number(
        "attempt_wait_ms_max",
        least=0,
        help="How long, in ms, the end of a failed statement waits for its tasks to stop writing.",
    )
    cross_partition_rows_max = _whole_number(
        "cross_partition_rows_max",
        least=1,
        help="Upper bound on the rows of a table whose keys can move between partitions.",
    )
    coordinator = Unicode(
        "",
        help="Where commits are made: `embedded`, a process that a user's notebooks share; "
        "`in-process`; or the address of a coordinator, or several, separated by commas. Empty: "
        "PAIMON_COORDINATOR, else `embedded`.",
    ).tag(config=True)
    coordinator_ca = Unicode(
        "",
        help="A PEM file with the certificates to trust for a coordinator's https address. Empty: "
        "PAIMON_COORDINATOR_CA, else the system's certificates.",
    ).tag(config=True)
    coordinator_idle_ms = _whole_number(
        "coordinator_idle_ms",
        least=0,
        help="How long, in ms, an idle coordinator that was started here keeps running.",
    )
    coordinator_wait_ms = _whole_number(
        "coordinator_wait_ms",
        least=0,
        help="How long, in ms, a statement retries a coordinator that does not answer.",
    )
    exclusive_wait_ms = _whole_number(
        "exclusive_wait_ms",
        least=0,
        help="How long, in ms, a statement waits for others that write its table with "
        "dynamic buckets.",
    )
    conflict_reruns_max = _whole_number(
        "conflict_reruns_max",
        least=0,
        help="Upper bound on reruns of a statement that adds rows, after conflicting writes.",
    )
    row_level_retries = _whole_number(
        "row_level_retries",
        least=0,
        help="Upper bound on reruns of a statement that changes rows, after others changed them.",
    )
    source_range_from_bytes = _whole_number(
        "source_range_from_bytes",
        least=0,
        help="Bytes of the target from which a MERGE first finds the range of its source's keys.",
    )
    local_rows_max = _whole_number(
        "local_rows_max",
        least=0,
        help="Upper bound on the rows that this process reads itself for a query. 0: never.",
    )
    local_bytes_max = _whole_number(
        "local_bytes_max",
        least=0,
        help="Upper bound on the bytes of these rows' files, and of the rows in memory.",
    )
    inline_compaction = Bool(
        _DEFAULTS.inline_compaction,
        help="Whether an INSERT compacts the buckets that it has written.",
    ).tag(config=True)
    read_lease_ms_max = _whole_number(
        "read_lease_ms_max",
        least=0,
        help="Upper bound, in ms, on how long a query's snapshot is kept from expiring.",
    )

    def __init__(self, shell: Any = None, **options: Any) -> None:
        super().__init__(shell, **options)
        self.progress_of_cells = ProgressOfCells(self)
        self.completer = Completer(self)
        self.configured_when_connected: tuple[str, dict[str, str]] | None = None
        self.matcher = self.completer.matcher()

    @observe("full_tracebacks")
    def _show_full_tracebacks(self, change: Any) -> None:
        show_full_tracebacks(change["new"])

    @property
    def namespace_shell(self) -> Any:
        """The shell whose namespace has the user's variables."""
        assert self.shell is not None
        return self.shell

    def settings(self) -> dict[str, Any]:
        """The configured fields of `Settings`."""
        return {field.name: getattr(self, field.name) for field in fields(Settings)}

    def shown_rows(self, session: Session) -> int:
        """The number of rows that a cell shows: the notebook's setting, else the connection's."""
        if self.display_rows == _DEFAULTS.display_rows:
            return session.settings.display_rows
        return int(self.display_rows)

    def session(self) -> Session:
        """The process's open session, else a new one as configured; a new one prints its place.

        Raises SetupError after a failed connect, see `session.opening.check_usable`.
        """
        from paimon_magics.session.opening import active_session, session_of_cells

        catalog = dict(self.catalog)
        if catalog and self.warehouse:
            catalog.setdefault("warehouse", self.warehouse)
        if active_session() is None:
            load_views_aside()
        session, is_new = session_of_cells(
            None if catalog else self.warehouse or None,
            catalog or None,
            self.coordinator or None,
            self.settings(),
        )
        if is_new:
            self.configured_when_connected = self.warehouse, dict(self.catalog)
            print(f"Connected to {session.warehouse}.")
            print_place(session)
        return session

    @no_var_expand
    @line_cell_magic
    def paimon(self, line: str, cell: str | None = None) -> object:
        """Run SQL on Paimon tables, or one of the verbs.

        A cell that begins with `%%paimon [options]` runs the statements on its other lines;
        `%paimon VERB …` runs a verb. `%paimon help` lists options, verbs and statements.
        """
        try:
            return run_line(self, line) if cell is None else run_cell(self, line, cell)
        except PaimonMagicsError as error:
            scrub(error)
            show_as(error, error.text().splitlines)
            raise
        except KeyboardInterrupt as stop:
            show_as(stop, _INTERRUPTED.splitlines)
            raise
        except BaseException as error:
            scrub(error)
            raise
