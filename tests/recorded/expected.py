"""Which steps of the recorded scenarios are expected to differ, and what they wait for.

`tests/data/scenarios-2.0.0/expected.toml` lists them: a table for each scenario, with the numbers
of its steps under what they wait for. Its table `waiting` says in words what each of these is, and
`decided` has steps that wait for nothing, since they are meant to differ, each with the reason.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.recorded.runner import Replay
from tests.recorded.scenarios import FOLDER, recorded_scenarios

__all__ = [
    "FILE",
    "Unexpected",
    "as_numbers",
    "as_ranges",
    "expected_numbers",
    "expected_text",
    "unexpected",
]

FILE = FOLDER / "expected.toml"

_STATEMENTS = (
    (r"(WITH c AS .*)?(DELETE|UPDATE|MERGE)\b", "dml"),
    (r"INSERT INTO \w+ REPLACE WHERE", "overwrite"),
    (r"INSERT INTO \w+ BY NAME", "schema-evolution"),
    (r"CALL (paimon\.)?sys\.(compact|rescale)", "compaction"),
    (r"CALL|ALTER TABLE .* (TAG|BRANCH)", "procedures"),
    (r"ANALYZE", "analyze"),
    (r"(SHOW|DESC|USE)", "show"),
    (r"(CREATE|REPLACE|ALTER|DROP|COMMENT|REFRESH)\b", "ddl"),
)
# What other steps wait for where no statement failed before: the first that the scenario needs.
_KINDS = ("row-tracking", "first-row", "dv", "lookup", "full-compaction", "compaction")


@dataclass(frozen=True, slots=True)
class Unexpected:
    """A step that did not do what is listed, by its number, and in words."""

    number: int
    text: str


def expected_numbers(scenario: str) -> set[int]:
    """The numbers of the steps of a scenario that are listed."""
    document = _document()
    listed = document.get(scenario, {}).values()
    numbers = {number for text in listed for number in as_numbers(text)}
    return numbers | _decided(document, scenario)


def unexpected(replay: Replay) -> Iterator[Unexpected]:
    """Each step that differs and is not listed, or is listed and does not differ."""
    known = expected_numbers(replay.scenario.name)
    for each in replay.differing:
        if each.number not in known:
            yield Unexpected(each.number, f"DIFFERS {each.number} {each.step.text}: {each.how}")
    for number in sorted(known - set(replay.numbers)):
        text = replay.scenario.steps[number].text
        yield Unexpected(number, f"AGREES {number} {text}: take it out of {FILE.name}")


def expected_text(replays: Iterable[Replay]) -> str:
    """`expected.toml` anew: of the scenarios that were run, the steps that wait are those that
    differ. Decisions stay: one about a step that agrees has to be taken out by hand."""
    head, waiting, decided, *_ = FILE.read_text(encoding="utf-8").split("\n\n")
    parts = [head, waiting, decided]
    document = _document()
    ran = {replay.scenario.name: replay for replay in replays}
    for name in recorded_scenarios():
        listed: Mapping[str, str] = document.get(name, {})
        if name in ran:
            groups = _groups(ran[name], _decided(document, name))
            listed = {need: as_ranges(numbers) for need, numbers in sorted(groups.items())}
        if listed:
            lines = [f'{need} = "{text}"' for need, text in listed.items()]
            parts.append("\n".join([f"[{name}]", *lines]))
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _document() -> dict[str, dict[str, str]]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def _decided(document: Mapping[str, Mapping[str, str]], scenario: str) -> set[int]:
    """The numbers of its steps that are meant to differ: the keys are as `c30: 6, 10`."""
    keys = (key.partition(":") for key in document["decided"])
    return {number for name, _, text in keys if name == scenario for number in as_numbers(text)}


def _groups(replay: Replay, decided: set[int]) -> Mapping[str, Sequence[int]]:
    """The numbers of differing steps, by what they wait for: a check after a statement that failed
    waits for what that statement needs."""
    groups: dict[str, list[int]] = {}
    kinds = (kind for kind in _KINDS if kind in replay.scenario.needs)
    lost = next(kinds, "other")
    for each in replay.differing:
        if each.number in decided:
            continue
        need = None if each.step.is_check else _need(each.step.text)
        if need not in (None, "show"):
            lost = need
        groups.setdefault(need or lost, []).append(each.number)
    return groups


def _need(statement: str) -> str | None:
    """What a statement waits for; None for an INSERT, which waits for a feature of its table."""
    match = (need for pattern, need in _STATEMENTS if re.match(pattern, statement, re.I | re.S))
    return next(match, None)


def as_numbers(text: str) -> list[int]:
    """The numbers of `3, 5-8`."""
    numbers: list[int] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def as_ranges(numbers: Sequence[int]) -> str:
    """Numbers in order as `3, 5-8`."""
    ends = [last for last, following in pairwise([*numbers, -1]) if following != last + 1]
    starts = [first for before, first in pairwise([-2, *numbers]) if first != before + 1]
    return ", ".join(
        str(first) if first == last else f"{first}-{last}"
        for first, last in zip(starts, ends, strict=True)
    )
