"""Compares a result with the recorded one, as far as the recording says anything.

- Rows are multisets, except that a -U row that was directly followed by its +U row still is.
- Numbers that depend on how many tasks wrote are left out: files of append tables, index files of
  deletion vectors.
- Where the result depended on sizes of files, only the rows of the table itself have to agree.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.recorded.scenarios import Step
from tests.recorded_reads import multiset

__all__ = ["Found", "difference", "is_free"]

_SHOWN_MAX = 300


@dataclass(frozen=True, slots=True)
class Found:
    """What a step came to here: rows (None where the statement has none), or why it failed.
    `is_crash`: it failed with something else than an error of ours."""

    rows: Sequence[Sequence[Any]] | None = None
    columns: Sequence[str] | None = None
    error: str | None = None
    is_crash: bool = False


def is_free(step: Step) -> bool:
    """Whether the step may come to anything: what was recorded is a defect, or is about files whose
    sizes decided."""
    if step.is_defect:
        return True
    return step.depends_on_sizes and ("$" in step.text or "paimon_incremental" in step.text)


def difference(step: Step, found: Found, append_tables: frozenset[str] = frozenset()) -> str | None:
    """How `found` differs from what was recorded, in words; None where it does not.

    `append_tables` are the tables without a primary key, by their names as statements write them.
    """
    if found.is_crash:
        return f"crashed: {found.error}"
    if step.error is not None:
        return None if found.error is not None else f"did not fail; recorded: {step.error}"
    if found.error is not None:
        return f"failed: {found.error}"
    if step.rows is None:
        return None
    if found.rows is None:
        return f"no rows; recorded: {_shown(step.rows)}"
    expected = step.read.columns if step.read is not None else None
    if expected is not None and list(found.columns or ()) != list(expected):
        return f"columns {found.columns}; recorded: {expected}"
    ours, theirs = (_comparable(step.text, rows, append_tables) for rows in (found.rows, step.rows))
    if ours != theirs:
        return (
            f"only here {_shown([*(ours - theirs).elements()])}, "
            f"only recorded {_shown([*(theirs - ours).elements()])}"
        )
    missing = _updates(step.rows) - _updates(found.rows)
    return f"-U and +U apart: {_shown([*missing])}" if missing else None


def _comparable(
    text: str, rows: Sequence[Sequence[Any]], append_tables: frozenset[str]
) -> Counter[str]:
    table = re.search(r"`?(\w+)\$(\w+)`?", text)
    if table is not None and table[2] == "table_indexes":
        return _index_rows(text, rows)
    if table is not None and table[2] == "files" and table[1] in append_tables:
        rows = [row[:-1] for row in rows] if "count(*)" in text else rows
    return multiset(rows)


def _index_rows(text: str, rows: Sequence[Sequence[Any]]) -> Counter[str]:
    """Rows that index files have by their type: the last column, summed. A count of files is only
    zero or not."""
    if "count(*)" in text:
        return multiset([value > 0 for value in row] for row in rows)
    sums: dict[str, int] = {}
    for row in rows:
        key = json.dumps(row[:-1])
        sums[key] = sums.get(key, 0) + (row[-1] or 0)
    return multiset(sums.items())


def _updates(rows: Sequence[Sequence[Any]]) -> Counter[str]:
    """The pairs of a -U row and the +U row that comes next."""
    return multiset(
        [before, after]
        for before, after in pairwise(rows)
        if before[:1] == ["-U"] and after[:1] == ["+U"]
    )


def _shown(rows: Sequence[Any]) -> str:
    text = str(list(rows))
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}… ({len(rows)} rows)"
