"""What can be configured (`c.PaimonMagics.…`), and the magics that IPython registers.

Values come from IPython's configuration files, then `%config PaimonMagics.…` or `%paimon config`.
The fields of `Settings` are here under their own names, and are read when a connection is made.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand
from traitlets import Bool, Dict, Enum, Int, Unicode, observe

from paimon_magics.boundary import show_full_tracebacks, shows_full_tracebacks
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.magics.cell import run_cell
from paimon_magics.magics.completion import Completer
from paimon_magics.magics.connecting import print_place
from paimon_magics.magics.line import run_line
from paimon_magics.magics.options import RESULT_TYPES
from paimon_magics.magics.progress import ProgressOfCells
from paimon_magics.magics.views import load_views_aside
from paimon_magics.redaction import scrub
from paimon_magics.settings import DEFAULT_WAREHOUSE, STORE_ASSIGNMENTS, Settings

if TYPE_CHECKING:
    from paimon_magics.session.session import Session

__all__ = ["PaimonMagics"]

_DEFAULTS = Settings()
# What IPython asks an exception for instead of drawing its traceback.
_RENDERER = "_render_traceback_"
_INTERRUPTED = (
    "KeyboardInterrupt: the cell was stopped, and its Spark jobs with it.\n"
    "The statement that ran left nothing behind unless it was committed already; "
    "%paimon history TABLE shows what was."
)


@magics_class
class PaimonMagics(Magics):
    """`%paimon` verbs and the `%%paimon` cell. `%paimon help` lists what they take."""

    warehouse = Unicode(
        "",
        help="The warehouse of a connection that is told nothing else: a folder or URI. Empty: "
        "that of the coordinator at PAIMON_COORDINATOR, else what PAIMON_WAREHOUSE names, else the "
        f"folder `{DEFAULT_WAREHOUSE}`.",
    ).tag(config=True)
    catalog = Dict(
        key_trait=Unicode(),
        value_trait=Unicode(),
        help="Paimon's catalog options of such a connection: metastore, uri, warehouse, …",
    ).tag(config=True)
    limit = Int(
        None,
        min=0,
        allow_none=True,
        help="Rows that a query returns at most, where its cell has no --limit. None: all of them.",
    ).tag(config=True)
    result_type = Enum(
        RESULT_TYPES,
        default_value="outcome",
        help="What a cell with rows gives, where it has no --type: " + ", ".join(RESULT_TYPES),
    ).tag(config=True)
    full_tracebacks = Bool(
        _DEFAULTS.full_tracebacks,
        help="Show the whole trace of an error of ours and its causes, not only what it says.",
    ).tag(config=True)
    progress = Bool(
        True, help="Show how far Spark jobs are while a cell runs, where somebody looks at it."
    ).tag(config=True)
    confirm = Bool(
        True,
        help="Ask for --yes before a cell takes much away (INSERT OVERWRITE without PARTITION, "
        "TRUNCATE, DROP), where somebody runs it.",
    ).tag(config=True)
    display_rows = Int(
        _DEFAULTS.display_rows, min=0, help="Rows that a displayed query shows."
    ).tag(config=True)
    catalog_name = Unicode(
        _DEFAULTS.catalog_name, help="The first part of a table's name of three parts."
    ).tag(config=True)
    database = Unicode(
        _DEFAULTS.database, help="The database of unqualified names, until a USE statement."
    ).tag(config=True)
    master = Unicode(
        _DEFAULTS.master, help="The Spark master of a session that is started here."
    ).tag(config=True)
    driver_memory = Unicode(
        _DEFAULTS.driver_memory, help="The heap of that session's JVM, in Spark's notation."
    ).tag(config=True)
    batch_rows = Int(
        _DEFAULTS.batch_rows, min=1, help="Rows of an Arrow batch between the JVM and Python."
    ).tag(config=True)
    overwrite_swallows_newer = Bool(
        False,
        help="Whether an overwrite replaces rows that others committed after it was planned; "
        "otherwise it fails and names their snapshot.",
    ).tag(config=True)
    store_assignment = Enum(
        STORE_ASSIGNMENTS,
        default_value="exact",
        help="`exact` refuses given values of which a column would cut something off, `ansi` casts "
        "them as Spark does.",
    ).tag(config=True)
    alter_check_rows_max = Int(
        _DEFAULTS.alter_check_rows_max,
        min=0,
        help="Rows that are looked at before a column's type is changed.",
    ).tag(config=True)
    kept_views_max = Int(
        _DEFAULTS.kept_views_max,
        min=0,
        help="Tables whose frame is kept for the next query on the same snapshot.",
    ).tag(config=True)
    attempt_wait_ms_max = Int(
        _DEFAULTS.attempt_wait_ms_max,
        min=0,
        help="How long, in ms, the end of a failed statement waits for its tasks to stop writing.",
    ).tag(config=True)
    cross_partition_rows_max = Int(
        _DEFAULTS.cross_partition_rows_max,
        min=1,
        help="Rows up to which a table is written whose keys can move between partitions.",
    ).tag(config=True)
    coordinator = Unicode(
        "",
        help="What commits: `embedded`, a process that a user's notebooks share; `in-process`; or "
        "the address of a coordinator. Empty: what PAIMON_COORDINATOR says, else `embedded`.",
    ).tag(config=True)
    coordinator_idle_ms = Int(
        _DEFAULTS.coordinator_idle_ms,
        min=0,
        help="How long, in ms, a coordinator that is started here lives with nothing to do.",
    ).tag(config=True)
    exclusive_wait_ms = Int(
        _DEFAULTS.exclusive_wait_ms,
        min=0,
        help="How long, in ms, a statement waits for others that write its table with "
        "dynamic buckets.",
    ).tag(config=True)
    conflict_reruns_max = Int(
        _DEFAULTS.conflict_reruns_max,
        min=0,
        help="How often a statement that adds rows is run again because of others that wrote.",
    ).tag(config=True)
    read_lease_ms_max = Int(
        _DEFAULTS.read_lease_ms_max,
        min=0,
        help="How long, in ms, a snapshot that a query reads is kept from expiring at most.",
    ).tag(config=True)

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
        """Rows that a cell shows: what the notebook says, else what the connection was told."""
        if self.display_rows == _DEFAULTS.display_rows:
            return session.settings.display_rows
        return int(self.display_rows)

    def session(self) -> Session:
        """The process's open session, else a new one as configured, which a printed line tells.

        Raises SetupError after a connect that failed, see `session.opening.check_usable`.
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
            if not shows_full_tracebacks():
                text = error.text()
                setattr(error, _RENDERER, text.splitlines)
            raise
        except KeyboardInterrupt as stop:
            if not shows_full_tracebacks():
                setattr(stop, _RENDERER, _INTERRUPTED.splitlines)
            raise
        except BaseException as error:
            scrub(error)
            raise
