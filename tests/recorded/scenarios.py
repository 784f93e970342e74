"""Statements that were recorded with Apache Paimon 2.0.0's connector on Spark 4.1.

`tests/data/scenarios-2.0.0` holds it. `statements.json.gz`: 98 scenarios of steps, which begin with
a CREATE TABLE in database `d` of an empty warehouse. `compactions.json.gz`: tables that
`warehouse.tar.gz` has in an intermediate state, one statement on each, and reads before and after
it. The session's time zone was UTC, `spark.sql.shuffle.partitions` 2.
"""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "Read", "Scenario", "Step", "recorded_scenarios", "unpack_tables"]

FOLDER = Path(__file__).parents[1] / "data" / "scenarios-2.0.0"


@dataclass(frozen=True, slots=True)
class Read:
    """A read of `table` (`database.table[$system_table]`) with Paimon's read `options`. `columns`
    are the names that it gives; `select` is what was projected, None for everything."""

    table: str
    options: Mapping[str, str]
    select: Sequence[str] | None
    columns: Sequence[str] | None


@dataclass(frozen=True, slots=True)
class Step:
    """One step: a statement, a query that changes nothing (`is_check`), or a read.

    Of `rows` and `error` the recorded result has one; neither for a statement without rows that
    are worth comparing. `depends_on_sizes`: the connector's result differed with files of another
    size. `is_defect`: the connector's error looks like a defect of it.
    """

    text: str
    rows: Sequence[Sequence[Any]] | None = None
    error: str | None = None
    is_check: bool = False
    depends_on_sizes: bool = False
    is_defect: bool = False
    read: Read | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """Steps in order. `name` is short (`a01`), `title` says what it is about, `needs` are the
    features that it uses."""

    name: str
    title: str
    needs: Sequence[str]
    steps: Sequence[Step]

    @property
    def is_on_recorded_tables(self) -> bool:
        """Whether it begins with a table of `warehouse.tar.gz`, not with CREATE TABLE."""
        return self.steps[0].read is not None


@cache
def recorded_scenarios() -> Mapping[str, Scenario]:
    """All scenarios by name; those on recorded tables have the name of their table."""
    scenarios = [_scenario(each) for each in _document("statements.json.gz")]
    scenarios += [_of_table(each) for each in _document("compactions.json.gz")]
    return {scenario.name: scenario for scenario in scenarios}


def unpack_tables(folder: Path) -> Path:
    """Unpack the recorded tables below `folder`, and return their warehouse."""
    with tarfile.open(FOLDER / "warehouse.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "warehouse"


def _document(name: str) -> list[dict[str, Any]]:
    with gzip.open(FOLDER / name) as file:
        result: list[dict[str, Any]] = json.load(file)
    return result


def _scenario(document: Mapping[str, Any]) -> Scenario:
    name, _, title = document["scenario"].partition(": ")
    steps = [_step(each) for each in document["steps"]]
    return Scenario(name, title, document["needs"], steps)


def _step(document: Mapping[str, Any]) -> Step:
    result = document.get("result")
    return Step(
        document["check"] if "check" in document else document["sql"],
        rows=None if isinstance(result, dict) else result,
        error=result["error"] if isinstance(result, dict) else None,
        is_check="check" in document,
        depends_on_sizes=document.get("file_sizes", False),
        is_defect=document.get("connector_bug", False),
    )


def _of_table(document: Mapping[str, Any]) -> Scenario:
    statement = Step(document["statement"], rows=document.get("result"))
    before, after = ([_read(read) for read in document[key]] for key in ("before", "after"))
    name = document["table"].partition(".")[2]
    return Scenario(
        name, document["statement"], _needs(statement.text), [*before, statement, *after]
    )


def _needs(statement: str) -> Sequence[str]:
    return ["compaction"] if statement.startswith("CALL") else ["dml"]


def _read(document: Mapping[str, Any]) -> Step:
    columns = document.get("columns")
    names = None if columns is None else [column.split(" ")[0] for column in columns]
    read = Read(document["table"], document["options"], document.get("select"), names)
    options = ", ".join(f"{key}={value}" for key, value in read.options.items())
    return Step(
        f"{read.table} {options}".strip(),
        rows=document.get("rows"),
        error=document.get("error"),
        is_check=True,
        read=read,
    )
