"""Bare participles and `one` are no names: a name says what a value is."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from tests.repository.test_sizes import ROOT, modules

RETIRED = {"asked", "found", "given", "held", "kept", "made", "one", "said", "told"}
MODULES_MAX = 654  # a statement or store adds some; a fold of small modules lowers it
MAKEFILE_LINES_MAX = 120
MAP_WORDS_MAX = 2_500


def names(text: str) -> Iterator[str]:
    """What a module gives names to: variables, parameters, functions and classes."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def test_no_name_is_a_bare_participle() -> None:
    assert list(names("def told(one): found: int = one")) == ["told", "one", "found"]
    retired = {
        f"{path}: {name}"
        for path, text in modules().items()
        for name in names(text)
        if name.strip("_").lower() in RETIRED
    }
    assert retired == set()


def test_modules_only_become_fewer() -> None:
    assert len(modules()) <= MODULES_MAX


def test_at_most_two_packages_share_a_module_name() -> None:
    counts = Counter(("/".join(path.split("/")[:2]), path.rpartition("/")[2]) for path in modules())
    many = {name for name, count in counts.items() if count > 2 and name[1] != "__init__.py"}
    assert many == set()


def test_architecture_page_stays_short() -> None:
    words = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split()
    assert len(words) <= MAP_WORDS_MAX


def test_makefile_stays_short() -> None:
    assert len((ROOT / "Makefile").read_text(encoding="utf-8").splitlines()) <= MAKEFILE_LINES_MAX
