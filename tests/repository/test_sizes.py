"""Modules and functions stay short enough to be read at once, as CONTRIBUTING.md asks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
PARAMETERS_MAX = 7
# The call that takes what a cell takes, each of its options by a keyword.
AS_A_CELL = "paimon_magics/session/session.py run"


def modules() -> dict[str, str]:
    """The text of each module that is shipped, by its path below the root."""
    return {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for package in ("paimon_magics", "widgets/paimon_widgets")
        for path in sorted((ROOT / package).rglob("*.py"))
    }


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function and method, with where it stands."""
    for name, text in modules().items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{name}:{node.lineno} {node.name}", node


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """The names that a caller gives values to: those of a method without its object."""
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def test_no_module_exceeds_the_line_limit() -> None:
    lines = {name: text.count("\n") for name, text in modules().items()}
    assert len(lines) > 400
    assert {name for name, count in lines.items() if count > MODULE_LINES_MAX} == set()


def test_no_function_exceeds_the_line_limit() -> None:
    lengths = {where: (each.end_lineno or 0) - each.lineno + 1 for where, each in functions()}
    assert len(lengths) > 4_000
    assert {where for where, lines in lengths.items() if lines > FUNCTION_LINES_MAX} == set()


def test_no_function_exceeds_the_parameter_limit() -> None:
    counts = {where: len(parameters(each)) for where, each in functions()}
    many = {where for where, count in counts.items() if count > PARAMETERS_MAX}
    assert {re.sub(r":\d+", "", where) for where in many} == {AS_A_CELL}
