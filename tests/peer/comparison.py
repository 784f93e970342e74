"""Compares the outcomes of two sides, step by step."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Difference", "differences"]

# What tells of files, times and numbers of a table's metadata: the two sides write other ones.
_METADATA = re.compile(
    r"\$(files|snapshots|manifests|schemas|partitions|buckets|tags|branches|consumers|statistics"
    r"|file_key_ranges|table_indexes|options)\b|^\s*(EXPLAIN|DESC(RIBE)?\s.*\b(EXTENDED|FORMATTED))\b"
    r"|^\s*SHOW\s+CREATE\s+TABLE",
    re.IGNORECASE | re.DOTALL,
)
_CHANGED = re.compile(
    r"^\s*(?:CREATE\s+(?:OR\s+REPLACE\s+)?TABLE(?:\s+IF\s+NOT\s+EXISTS)?|REPLACE\s+TABLE"
    r"|INSERT\s+(?:INTO|OVERWRITE)(?:\s+TABLE)?|MERGE\s+(?:WITH\s+SCHEMA\s+EVOLUTION\s+)?INTO|UPDATE"
    r"|DELETE\s+FROM|TRUNCATE\s+TABLE|ALTER\s+TABLE|COPY\s+INTO|ANALYZE\s+TABLE|CALL\b.*?'"
    r"|CREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMPORARY\s+)?(?:VIEW|FUNCTION))\s*([\w.`$]+)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Difference:
    """A step that the two sides do not agree on. `follows`: a step before it, with the same table,
    was refused by one side only."""

    test: str
    number: int
    statement: str
    how: str
    project: str
    connector: str
    follows: bool


def differences(
    scenario: Mapping[str, Any],
    project: Sequence[Mapping[str, Any]],
    connector: Sequence[Mapping[str, Any]],
) -> Iterator[Difference]:
    """The steps of a scenario that differ. Two refusals agree, whatever their words."""
    apart: set[str] = set()
    for number, step in enumerate(scenario["steps"]):
        statement = step.get("sql", "")
        ours, theirs = project[number], connector[number]
        how = _how(statement, ours, theirs)
        if not how:
            continue
        words = set(re.findall(r"\w+", statement.lower()))
        yield Difference(
            scenario["name"],
            number,
            statement,
            how,
            _shown(ours),
            _shown(theirs),
            bool(apart & words),
        )
        if changed := _CHANGED.match(statement):
            name = changed[1].replace("`", "").split("$")[0]
            apart.add(name.rpartition(".")[2].lower())


def _how(statement: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """In which way the outcomes differ; empty where they agree."""
    if ("error" in ours) != ("error" in theirs):
        return "the project refuses" if "error" in ours else "the connector refuses"
    if "error" in ours:
        return ""
    if ("rows" in ours) != ("rows" in theirs):
        return "only one has rows"
    if "rows" not in ours:
        return ""
    if _METADATA.search(statement):
        return "the number of rows differs" if ours["count"] != theirs["count"] else ""
    if ours["count"] != theirs["count"] or _bag(ours["rows"]) != _bag(theirs["rows"]):
        return "rows differ"
    types, names = ([each[1] for each in side["columns"]] for side in (ours, theirs)), []
    names = [[each[0].lower() for each in side["columns"]] for side in (ours, theirs)]
    mine, others = types
    if mine != others:
        return "types differ"
    return "" if names[0] == names[1] else "names differ"


def _bag(rows: Sequence[Any]) -> list[str]:
    return sorted(json.dumps(row) for row in rows)


def _shown(outcome: Mapping[str, Any]) -> str:
    text = outcome["error"] if "error" in outcome else json.dumps(outcome.get("rows", "done"))
    return " ".join(str(text).split())[:300]
