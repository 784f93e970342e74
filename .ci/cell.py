"""Run cells through IPython as a notebook does, with whatever paimon_magics is installed.

The working directory is scratch space: the warehouse is made in it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell

import paimon_magics
import paimon_widgets

CREATE_AND_FILL = """\
CREATE TABLE orders (id BIGINT NOT NULL, item STRING, amount DECIMAL(10, 2), dt STRING)
  PARTITIONED BY (dt)
  TBLPROPERTIES ('primary-key' = 'dt,id', 'bucket' = '2');
INSERT INTO orders VALUES
  (1, 'tea', 9.50, '2026-11-20'), (2, NULL, 12.00, '2026-11-21'), (1, 'cake', 3.25, '2026-11-21');
INSERT INTO orders VALUES (2, 'milk', 1.75, '2026-11-21');
"""
READ = "SELECT id, item, CAST(amount AS STRING) AS amount, dt FROM orders ORDER BY dt, id"
EXPECTED = [
    {"id": 1, "item": "tea", "amount": "9.50", "dt": "2026-11-20"},
    {"id": 1, "item": "cake", "amount": "3.25", "dt": "2026-11-21"},
    {"id": 2, "item": "milk", "amount": "1.75", "dt": "2026-11-21"},
]


def main() -> None:
    for package in (paimon_magics, paimon_widgets):
        place = Path(str(package.__file__))
        if Path(sys.prefix) not in place.parents:
            raise SystemExit(f"{package.__name__} is not the installed one: {place}")
    shell = InteractiveShell.instance()

    def run(cell: str) -> object:
        done = shell.run_cell(cell)
        done.raise_error()
        return done.result

    run("%load_ext paimon_magics")
    run(f"%paimon connect warehouse={Path.cwd() / 'warehouse'}")
    run("%%paimon\n" + CREATE_AND_FILL)
    run("%%paimon -o read\n" + READ)
    rows = shell.user_ns["read"].to_arrow().to_pylist()
    if rows != EXPECTED:
        raise SystemExit(f"expected {EXPECTED}, found {rows}")
    shown = shell.display_formatter.format(run("%paimon layout orders"))[0]
    if "application/vnd.jupyter.widget-view+json" not in shown or "<svg" not in shown["text/html"]:
        raise SystemExit(f"the layout was shown as {list(shown)}")
    print(f"{len(rows)} rows, as expected, from {paimon_magics.__file__}")


main()
