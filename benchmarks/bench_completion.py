"""The time of a Tab in a notebook on a catalog of 10,000 tables.

IPython's completer is timed for a cell as it is typed, letter by letter, with names that are cached
already, and while none are, which must not take longer. Spark is started for the session only and
does nothing.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path

from measure import report

TABLES = 10_000
CELLS = (
    "SELECT c01, o.c02, count(*) FROM warehouse.table_04242 o JOIN table_00017 ON o.c01 = c05 ",
    "INSERT OVERWRITE table_04242 PARTITION (day = 'd1') SELECT * FROM table_00017 WHERE c01 > 1",
    "WITH a AS (SELECT c01 AS n, day FROM table_04242) SELECT n, day FROM a WHERE day = 'd1' ",
    "ALTER TABLE table_04242 SET TBLPROPERTIES ('snapshot.num-retained.min' = '3')",
    "SELECT * FROM table_04242$audit_log WHERE rowkind = '+I' AND day IN ('d1', 'd2') ORDER BY c01",
)


def make_tables(folder: Path) -> None:
    """Create one real table, and copy its folder under the other names."""
    import paimon_magics

    columns = ", ".join(f"c{number:02} INT" for number in range(30))
    with paimon_magics.connect(folder, master="local[1]", coordinator="in-process") as session:
        session.run("CREATE DATABASE warehouse")
        for database in ("default", "warehouse"):
            session.run(
                f"CREATE TABLE {database}.table_00000 ({columns}, day STRING) PARTITIONED BY (day);"
                f"INSERT INTO {database}.table_00000 (c01, day) VALUES (1, 'd1'), (2, 'd2')"
            )
            first = folder / f"{database}.db" / "table_00000"
            for number in range(1, TABLES if database == "default" else 10):
                shutil.copytree(first, first.with_name(f"table_{number:05}"))


def main() -> None:
    from IPython.core.completer import provisionalcompleter
    from IPython.core.interactiveshell import InteractiveShell

    import paimon_magics

    folder = Path(tempfile.mkdtemp(prefix="bench-completion-"))
    try:
        make_tables(folder)
        shell = InteractiveShell.instance()
        shell.run_cell("%load_ext paimon_magics").raise_error()

        def press(cell: str) -> float:
            started = time.perf_counter()
            with provisionalcompleter():
                list(shell.Completer.completions(cell, len(cell)))
            return (time.perf_counter() - started) * 1000

        with paimon_magics.connect(folder, coordinator="in-process") as session:
            cells = [f"%%paimon\n{cell[:end]}" for cell in CELLS for end in range(1, len(cell) + 1)]
            unknown = [press(cell) for cell in cells]
            report("a Tab while names are read, p95", statistics.quantiles(unknown, n=20)[-1])
            report("a Tab while names are read, longest", max(unknown))
            started = time.perf_counter()
            session.known_names.wait(120)
            report("names of all tables in the background", (time.perf_counter() - started) * 1000)
            for cell in cells:
                press(cell)
            session.known_names.wait(120)
            known = [press(cell) for cell in cells]
            report("a Tab, median", statistics.median(known))
            report("a Tab, p95", statistics.quantiles(known, n=20)[-1])
            report("a Tab, longest", max(known))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
