"""What the documentation of Paimon's connector for Spark offers, and the answer here.

`documented.toml` lists it; docs/connector.md and the README's counts are made from it.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["PAGE", "Feature", "Page", "Summary", "counts_text", "page_text", "pages", "summaries"]

_FILE = Path(__file__).with_suffix(".toml")
PAGE = Path(__file__).parents[2] / "docs" / "connector.md"
_ANSWERS = ("same", "differs", "refused")
_HEAD = """# Beside Paimon's connector for Spark

What the documentation of Paimon's connector for Spark describes, page by page, and what the same
does here:
{counts}.
It is about Paimon 2.0; *next* marks what the documentation of the version after it adds. Calls that
Scala and Java alone can make are left out.

Each example runs as a test. In the examples in Python, `session` is an open session, `spark` its
SparkSession, `lake` the folder of its warehouse, `folder` one for checkpoints, `frame`, `more` and
`rows` are frames of an example above, and `url` and `token` belong to a REST catalog.

This page is made from `tests/connector/documented.toml`: change that, then run
`python -m tests.connector`.
"""


@dataclass(frozen=True, slots=True)
class Feature:
    """A statement, clause, option or function of a `section`, in our own words, with an example.

    The head of `documented.toml` says what its fields mean.
    """

    section: str
    what: str
    sql: str = ""
    python: str = ""
    setup: str = ""
    check: str = ""
    rows: tuple[str, ...] | None = None
    same: str = ""
    differs: str = ""
    refused: str = ""
    use: str = ""
    error: str = "UnsupportedStatementError"
    unreleased: bool = False

    @property
    def answer(self) -> str:
        """One of `same`, `differs` and `refused`."""
        return "refused" if self.refused else "differs" if self.differs else "same"


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the connector's, or a `part` of one. The examples of a page that is `alone` open
    sessions of their own."""

    name: str
    features: tuple[Feature, ...]
    part: str = ""
    setup: str = ""
    teardown: str = ""
    alone: bool = False

    @property
    def title(self) -> str:
        """Its heading."""
        return f"{self.name}: {self.part}" if self.part else self.name

    @property
    def database(self) -> str:
        """The database of its examples, which some of them name."""
        return re.sub(r"\W+", "_", self.name.lower())


@dataclass(frozen=True, slots=True)
class Summary:
    """A row of the README's comparison, and the features that it rests on."""

    what: str
    here: str
    connector: str
    features: tuple[str, ...]


def pages() -> tuple[Page, ...]:
    """The connector's pages, in the order of its documentation."""
    return tuple(
        Page(**{**page, "features": tuple(_feature(each) for each in page["features"])})
        for page in _document()["pages"]
    )


def summaries() -> tuple[Summary, ...]:
    """The rows of the README's comparison that follow from the features."""
    return tuple(
        Summary(**{**row, "features": tuple(row["features"])}) for row in _document()["summary"]
    )


def counts_text() -> str:
    """How many features have which answer: "250 features, of which 200 are the same, …"."""
    answers = Counter(feature.answer for page in pages() for feature in page.features)
    same, differs, refused = (answers[answer] for answer in _ANSWERS)
    return (
        f"{answers.total()} statements, clauses and options, of which {same} do the same, "
        f"{differs} differ, and {refused} are refused with a hint at what does the job"
    )


def page_text() -> str:
    """The page docs/connector.md."""
    return _HEAD.format(counts=counts_text()) + "".join(
        f"\n## {page.title}\n\n| section | feature | here | example |\n| --- | --- | --- | --- |\n"
        + "".join(f"{line}\n" for line in _rows(page))
        for page in pages()
    )


def _document() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def _feature(values: dict[str, Any]) -> Feature:
    rows = values.get("rows")
    texts = {
        key: value.strip("\n") if isinstance(value, str) else value for key, value in values.items()
    }
    return Feature(**{**texts, "rows": None if rows is None else tuple(rows)})


def _rows(page: Page) -> Iterator[str]:
    before = ""
    for feature in page.features:
        section = "" if feature.section == before else feature.section
        before = feature.section
        what = f"{feature.what} (*next*)" if feature.unreleased else feature.what
        cells = (section, what, _answer(feature), _code(feature.python or feature.sql))
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _answer(feature: Feature) -> str:
    why = feature.refused or feature.differs or feature.same
    text = f"{feature.answer}: {why}" if why else feature.answer
    return f"{text} Hint: “{feature.use}”" if feature.refused else text


def _code(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return "<br>".join(f"`` {line} ``" if "`" in line else f"`{line}`" for line in lines)
