"""What is particular in pypaimon is known by one module each."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "paimon_magics" / "tables"
INTERNALS = TABLES / "pypaimon_internals.py"
LATEST = TABLES / "snapshots" / "latest.py"

# Methods of pypaimon's SnapshotManager that read snapshots, without an error for damaged ones.
SNAPSHOT_READS = {
    "earlier_or_equal_time_mills",
    "find_next_scannable",
    "get_latest_snapshot",
    "get_snapshot_by_id",
    "get_snapshots_batch",
    "later_or_equal_watermark",
    "read_latest_file",
    "try_get_earliest_snapshot",
}


def snapshot_reads(text: str) -> list[str]:
    """The methods in SNAPSHOT_READS that a module calls."""
    nodes = ast.walk(ast.parse(text))
    return [n.attr for n in nodes if isinstance(n, ast.Attribute) and n.attr in SNAPSHOT_READS]


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _own(tree: ast.Module) -> Iterator[str]:
    """The private names that a module's own classes define."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def private_uses(text: str) -> list[str]:
    """The private parts of others that a module uses. A class may use what it inherits."""
    tree = ast.parse(text)
    own = set(_own(tree))
    uses = []
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("pypaimon"):
                private = [part for part in module.split(".") if _is_private(part)]
                uses += private + [alias.name for alias in names if _is_private(alias.name)]
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
                pass
            case ast.Attribute(attr=name) if _is_private(name) and name not in own:
                uses.append(ast.unparse(node))
    return uses


def modules() -> list[Path]:
    return sorted((ROOT / "paimon_magics").rglob("*.py"))


def test_only_latest_module_reads_snapshots_by_pypaimon() -> None:
    assert snapshot_reads(LATEST.read_text())
    actual = {str(path): snapshot_reads(path.read_text()) for path in modules() if path != LATEST}
    assert {path: reads for path, reads in actual.items() if reads} == {}


def test_only_internals_module_uses_private_parts_of_pypaimon() -> None:
    assert private_uses(INTERNALS.read_text())
    paths = [path for path in sorted(TABLES.rglob("*.py")) if path != INTERNALS]
    actual = {str(path): private_uses(path.read_text()) for path in paths}
    assert {path: uses for path, uses in actual.items() if uses} == {}


@pytest.mark.parametrize(
    "text",
    [
        "from pypaimon.read.native_plan import _options",
        "from pypaimon.read._native import plan",
        "manager._to_schema_path(0)",
        "table.paimon.schema_manager._schemas",
        "def f(catalog):\n    catalog._inner = 1",
    ],
)
def test_private_use_is_detected(text: str) -> None:
    assert private_uses(text)


def test_own_private_parts_are_allowed() -> None:
    assert not private_uses("class A:\n    def _b(self): ...\n    def c(self, a): return a._b()")
    assert not private_uses("class A(B):\n    def c(self): return self._d, super()._e()")
