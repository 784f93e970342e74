"""The ladder of imports holds, and importing the package stays cheap."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = os.pathsep.join([str(ROOT), str(ROOT / "widgets")])
HEAVY = ("numpy", "pandas", "polars", "pyarrow", "pypaimon", "pypaimon_rust", "pyspark", "sqlglot")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": SOURCE_ROOTS},
        capture_output=True,
        text=True,
        check=False,
    )


def lint_imports(config: Path = ROOT / "pyproject.toml") -> subprocess.CompletedProcess[str]:
    program = "from importlinter.cli import lint_imports_command as run; run()"
    return run(sys.executable, "-c", program, "--config", str(config), "--no-cache")


def test_the_ladder_of_imports_holds() -> None:
    linted = lint_imports()
    assert linted.returncode == 0, linted.stdout


def test_every_package_stands_on_the_ladder() -> None:
    ladder = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    packages = [p.parent.name for p in (ROOT / "paimon_magics").glob("*/__init__.py")]
    assert packages
    assert [name for name in packages if f"paimon_magics.{name}" not in ladder] == []


def test_importing_the_package_loads_no_heavy_library() -> None:
    done = run(sys.executable, "-c", "import sys, paimon_magics; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "paimon_magics" in loaded
    assert sorted(loaded.intersection(HEAVY)) == []


@pytest.fixture(scope="module")
def empty_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The contracts, over the tree with empty modules; they hold there."""
    tree = tmp_path_factory.mktemp("tree")
    for source, name in ((ROOT, "paimon_magics"), (ROOT / "widgets", "paimon_widgets")):
        for module in (source / name).rglob("*.py"):
            empty = tree / module.relative_to(source)
            empty.parent.mkdir(parents=True, exist_ok=True)
            empty.touch()
    config = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (tree / "pyproject.toml").write_text(config, encoding="utf-8")
    assert linted(tree) == 0
    return tree


def linted(tree: Path) -> int:
    """The exit code of the linter in a folder."""
    program = "from importlinter.cli import lint_imports_command as run; run()"
    return subprocess.run(
        [sys.executable, "-c", program, "--no-cache"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        check=False,
    ).returncode


@pytest.mark.parametrize(
    ("lower", "text"),
    [
        ("statements", "import paimon_magics.planning"),
        ("planning", "import time"),
        ("coordinator/core", "import uuid"),
        ("coordinator/inserts/queue/step.py", "import time"),
        ("planning", "def f() -> None:\n    import pyarrow"),
        ("session", "import pyspark"),
        ("spark", "import pypaimon"),
        ("columnar", "import paimon_magics.tables"),
        ("magics", "import sqlglot"),
        ("tables", "from IPython import display"),
        ("tables/stores", "import paimon_magics.tables.catalog.catalog"),
        ("tables/reading", "import paimon_magics.tables.writing.attempts"),
        ("coordinator/service", "import paimon_magics.coordinator.http.answers"),
        ("coordinator/client", "import starlette"),
        ("session", "import paimon_magics.coordinator.core"),
        (
            "session/queries",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
            "    import paimon_magics.session.writes.insert",
        ),
    ],
)
def test_an_import_against_the_ladder_is_found(empty_tree: Path, lower: str, text: str) -> None:
    wrong = empty_tree / "paimon_magics" / lower
    wrong = wrong / "wrong.py" if wrong.is_dir() else wrong.with_suffix(".py")
    existed = wrong.exists()
    wrong.write_text(text + "\n")
    try:
        assert linted(empty_tree) == 1
    finally:
        if existed:
            wrong.write_text("")
        else:
            wrong.unlink()
