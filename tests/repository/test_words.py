"""Words that docs/glossary.md retires stand in no source, page or notebook.

The glossary's last table is the list. A name (with a capital letter or an underscore in its first
word) is looked for among the names of Python code and in back-quotes; a file (`x.py`) among paths
and imports; anything else in all text, also over the ends of lines. Pages of what was (the
changelog) may use them.
"""

from __future__ import annotations

import io
import json
import re
import tokenize
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.repository.test_tracked_files import tracked_texts

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = "docs/glossary.md"
MAY_SAY_THEM = (GLOSSARY, "CHANGELOG.md", "tests/repository/test_words.py")

_HEADING = "\n## Retired words\n"
_QUOTED = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Retired:
    """A word that is not used any more, and what to say instead."""

    word: str
    instead: str

    @property
    def is_file(self) -> bool:
        return self.word.endswith(".py")

    @property
    def is_name(self) -> bool:
        """Whether it is a name of code's: `Held`, `lone_files`, and not "Spark's own scan"."""
        return not self.is_file and re.fullmatch(r"\w*[A-Z_]\w*", self.word) is not None


def glossary() -> str:
    return (ROOT / GLOSSARY).read_text(encoding="utf-8")


def retired_in(page: str) -> list[Retired]:
    _, heading, table = page.partition(_HEADING)
    assert heading
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| `")]
    return [
        Retired(word, instead.strip()) for words, instead in rows for word in _QUOTED.findall(words)
    ]


RETIRED = retired_in(glossary())


@cache
def prose_of(name: str, text: str) -> str:
    """The text of a file; of a notebook what its cells and their outputs say."""
    if not name.endswith(".ipynb"):
        return text
    texts: list[str] = []

    def collect(value: object) -> None:
        match value:
            case str():
                texts.append(value)
            case list() if all(isinstance(part, str) for part in value):
                texts.append("".join(value))
            case list():
                for part in value:
                    collect(part)
            case dict():
                for part in value.values():
                    collect(part)

    collect(json.loads(text)["cells"])
    return "\n".join(texts)


@cache
def names_in(text: str) -> set[str]:
    """The names of Python code: tokens, of which strings and comments are none."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.string for token in tokens if token.type == tokenize.NAME}


def pattern_of(retired: Retired) -> re.Pattern[str]:
    """What finds the word in text, between its bounds."""
    if retired.is_name:
        return re.compile(rf"`_?{retired.word}\b[^`]*`")
    if retired.is_file:
        stem = re.escape(retired.word.removesuffix(".py"))
        return re.compile(rf"(?<![\w])(?:test_)?{stem}\.py\b|\.{stem} import\b")
    words = r"(?:\s|#)+".join(map(re.escape, retired.word.split()))
    return re.compile(rf"(?<!\w){words}(?!\w)", re.IGNORECASE)


def uses(retired: Retired, name: str, text: str) -> bool:
    """Whether the file says the word."""
    if retired.is_file and re.search(rf"(?:^|/)(?:test_)?{re.escape(retired.word)}$", name):
        return True
    if (
        retired.is_name
        and name.endswith(".py")
        and any(
            re.search(rf"(?<![A-Za-z0-9]){retired.word}(?![A-Za-z0-9])", each)
            for each in names_in(text)
        )
    ):
        return True
    return pattern_of(retired).search(prose_of(name, text)) is not None


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, str]]:
    return [
        (name, text)
        for name, text in tracked_texts()
        if name.endswith((".py", ".md", ".ipynb", ".toml")) and name not in MAY_SAY_THEM
    ]


@pytest.mark.parametrize("retired", RETIRED, ids=lambda retired: retired.word)
def test_retired_word_is_used_nowhere(retired: Retired, texts: list[tuple[str, str]]) -> None:
    assert len(texts) > 500
    actual = [name for name, text in texts if uses(retired, name, text)]
    assert actual == [], f"say {retired.instead}"


@pytest.mark.parametrize(
    ("word", "name", "text"),
    [
        ("road", "a.md", "it takes the other\nRoad."),
        ("native reader", "a.py", "# by the native\n    # reader\n"),
        ("native reader", "a.ipynb", '{"cells": [{"source": ["the native\\n", "reader"]}]}'),
        ("Held", "a.py", "x: list[Held] = []"),
        ("Held", "a.md", "a `Held(…)` of the core"),
        ("lone_files", "a.py", "def without_lone_files(): ..."),
        ("looks.py", "a.py", "from paimon_magics.planning.looks import by"),
        ("looks.py", "planning/looks.py", ""),
    ],
)
def test_use_of_a_retired_word_is_detected(word: str, name: str, text: str) -> None:
    assert uses(Retired(word, ""), name, text)


@pytest.mark.parametrize(
    ("word", "name", "text"),
    [
        ("road", "a.md", "broad roadmaps"),
        ("Held", "a.py", "# Held until it ends.\nUpheld = held = 1"),
        ("Held", "a.md", "Held by nobody."),
        ("looks.py", "a.md", "It looks at outlooks.py."),
        ("looks.py", "planning/outlooks.py", ""),
    ],
)
def test_other_words_are_left_alone(word: str, name: str, text: str) -> None:
    assert not uses(Retired(word, ""), name, text)


def test_glossary_names_existing_paths() -> None:
    terms, _, _ = glossary().partition(_HEADING)
    rows = [line.strip("|").split("|") for line in terms.splitlines() if line.startswith("| ")]
    here = {path for row in rows for path in _QUOTED.findall(row[-1]) if "/" in path}
    assert len(here) > 20
    assert [path for path in sorted(here) if not (ROOT / "paimon_magics" / path).exists()] == []


def test_every_term_stands_once() -> None:
    terms, _, _ = glossary().partition(_HEADING)
    rows = [line.split(" | ")[0].strip("| ") for line in terms.splitlines() if "| " in line]
    words = [row for row in rows if row not in ("word", "---")]
    assert len(words) > 40
    assert sorted(words) == sorted(set(words))
