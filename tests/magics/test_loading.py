from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import paimon_magics

# What comes with the extension: its speed is measured in benchmarks/.
LOADED = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
before = set(sys.modules)
import paimon_magics
shell.run_cell("%load_ext paimon_magics").raise_error()
print(json.dumps(sorted(set(sys.modules) - before)))
"""
HEAVY = {"IPython", "ipywidgets", "numpy", "pandas", "polars", "pyarrow", "pypaimon", "pyspark"}
HEAVY |= {"pypaimon_rust", "sqlglot"}


def test_loading_imports_no_heavy_package() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert "paimon_magics" in loaded
    assert loaded & (HEAVY - {"IPython"}) == set()


def test_importing_connect_loads_pyspark_but_no_other_heavy_package() -> None:
    """A JVM takes seconds to start: what else a session needs is loaded meanwhile."""
    script = (
        "import json, sys\nfrom paimon_magics import connect\nprint(json.dumps([*sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert "pyspark" in loaded
    assert loaded & {"pypaimon", "pypaimon_rust", "sqlglot", "ipywidgets"} == set()


def registered(shell: InteractiveShell) -> list[object]:
    """Everything of the extension's that the shell knows."""
    manager = shell.magics_manager
    magics = [m for kind in manager.magics.values() for name, m in kind.items() if "paimon" in name]
    ours = [c for c in shell.configurables if type(c).__name__ == "PaimonMagics"]
    return [*magics, *ours, *(name for name in manager.registry if "Paimon" in name)]


def test_loading_registers_line_and_cell_magics(shell: InteractiveShell) -> None:
    assert len(registered(shell)) == 4


def test_loading_twice_registers_once(shell: InteractiveShell) -> None:
    paimon_magics.load_ipython_extension(shell)
    assert len(registered(shell)) == 4


def test_unloading_leaves_nothing_behind(
    make_shell: Callable[[Config], InteractiveShell],
) -> None:
    shell = make_shell(Config())
    # The first time, IPython registers magics of its own on the way.
    shell.run_cell("%load_ext paimon_magics\n%unload_ext paimon_magics").raise_error()
    names, configurables = set(shell.user_ns), list(shell.configurables)
    transformers = list(shell.input_transformers_cleanup)
    shell.run_cell("%load_ext paimon_magics").raise_error()
    assert registered(shell)
    shell.run_cell("%unload_ext paimon_magics").raise_error()
    assert registered(shell) == []
    assert shell.configurables == configurables
    assert shell.input_transformers_cleanup == transformers
    assert set(shell.user_ns) == names


def test_the_extension_can_be_reloaded(shell: InteractiveShell) -> None:
    shell.run_cell("%reload_ext paimon_magics").raise_error()
    assert len(registered(shell)) == 4
    assert shell.run_cell("%paimon help").success


@pytest.mark.parametrize("line", ["%%paimon", "%%paimon --limit 5", "%%paimon rows <<"])
def test_a_terminal_waits_for_the_statement(shell: InteractiveShell, line: str) -> None:
    assert shell.check_complete(line)[0] == "incomplete"
    assert shell.check_complete(f"{line}\nSELECT 1")[0] == "incomplete"
    assert shell.check_complete(f"{line}\nSELECT 1\n\n")[0] == "complete", "after a blank line"
