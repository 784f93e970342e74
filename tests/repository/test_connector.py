"""The page and the README say of Paimon's connector what `tests/connector/documented.toml` says."""

from __future__ import annotations

from tests.connector.documented import PAGE, counts_text, page_text, pages, summaries
from tests.repository.test_documentation import README

WORDS_MAX = 12


def test_the_page_is_made_from_the_list() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_text(), "run python -m tests.connector"


def test_features_are_named_once_and_in_few_words() -> None:
    for page in pages():
        names = [(feature.section, feature.what) for feature in page.features]
        assert sorted(names) == sorted(set(names))
        assert [what for _, what in names if len(what.split()) > WORDS_MAX] == []


def test_every_feature_has_an_example_and_every_refusal_what_does_the_job() -> None:
    for page in pages():
        for feature in page.features:
            assert bool(feature.sql) != bool(feature.python), feature.what
            assert not feature.refused or feature.use, feature.what
            assert bool(feature.same) + bool(feature.differs) + bool(feature.refused) <= 1


def test_differences_are_said_in_two_sentences() -> None:
    for page in pages():
        for feature in page.features:
            text = feature.differs or feature.refused
            assert text.count(". ") <= 1 and (not text or text.endswith(".")), text


def test_the_readme_compares_as_the_list_does() -> None:
    readme = README.read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in readme.splitlines() if line.startswith("| ")]
    answers = {f.what: f.answer for page in pages() for f in page.features}
    for summary in summaries():
        assert [summary.what, summary.here, summary.connector] in [row[:3] for row in rows]
        assert not summary.here.startswith("yes") or "refused" not in [
            answers[what] for what in summary.features
        ]
    assert counts_text() in " ".join(readme.split())
