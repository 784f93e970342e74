"""The ladder of imports holds, and importing the package stays cheap."""

from __future__ import annotations

import ast
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


def bound_names(path: Path) -> set[str]:
    """What a module binds at its top, in blocks as well."""
    names: set[str] = set()
    nodes = list(ast.parse(path.read_text(encoding="utf-8")).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        nodes += ast.iter_child_nodes(node)  # type: ignore[arg-type]
    return names


def test_tests_and_benchmarks_import_existing_names() -> None:
    """In functions as well: a run has a lot of the tests only, and would not meet each."""
    missing = []
    known: dict[str, set[str]] = {}
    for folder in ("tests", "benchmarks"):  # mypy looks at the others
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.ImportFrom) or node.level or node.module is None:
                    continue
                if node.module.partition(".")[0] not in ("paimon_magics", "tests"):
                    continue
                package = ROOT.joinpath(*node.module.split("."))
                module = package / "__init__.py" if package.is_dir() else package.with_suffix(".py")
                if node.module not in known:
                    known[node.module] = bound_names(module) if module.is_file() else set()
                missing += [
                    f"{path.relative_to(ROOT)}:{node.lineno} {node.module}.{alias.name}"
                    for alias in node.names
                    if alias.name not in known[node.module]
                    and not (package / f"{alias.name}.py").is_file()
                    and not (package / alias.name).is_dir()
                ]
    assert missing == []


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
            "    import paimon_magics.session.inserts.insert",
        ),
    ],
)
def test_import_against_the_ladder_is_detected(empty_tree: Path, lower: str, text: str) -> None:
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
