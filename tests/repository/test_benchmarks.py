"""Benchmarks are not run with the tests; what they take of the project is there all the same."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.py")), ids=lambda file: file.stem)
def test_benchmark_imports_existing_names(file: Path) -> None:
    missing = [
        f"{node.module}.{name.name}"
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("paimon_")
        for name in node.names
        if not hasattr(importlib.import_module(node.module or ""), name.name)
    ]
    assert missing == []
