"""Runs recorded scenarios by a session, and tells which of their steps differ."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import PaimonMagicsError
from tests.recorded.comparison import Found, difference, is_free
from tests.recorded.scenarios import Scenario, Step, unpack_tables
from tests.recorded_reads import recorded_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Difference", "Replay", "replayed", "replaying"]

_SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
_SET = re.compile(r"SET\s+`?([\w.]+)`?\s*=", re.IGNORECASE)
_CREATE = re.compile(r"CREATE (?:OR REPLACE )?TABLE (?:IF NOT EXISTS )?`?([\w.]+)`?", re.IGNORECASE)

_VIEW = re.compile(r"CREATE (?:OR REPLACE )?(?:TEMPORARY |TEMP )?VIEW `?(\w+)`?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Difference:
    """A step that came to something else: its number, from 0, and how it differs."""

    number: int
    step: Step
    how: str


@dataclass
class Replay:
    """A scenario that was run: the steps that differ, and those that differ but may."""

    scenario: Scenario
    differing: list[Difference] = field(default_factory=list)
    free: list[Difference] = field(default_factory=list)

    @property
    def numbers(self) -> list[int]:
        """The numbers of the steps that differ."""
        return [each.number for each in self.differing]


@contextmanager
def replaying(spark: SparkSession, folder: Path) -> Iterator[Session]:
    """A session for scenarios of statements: on an empty warehouse with the database `d`, in which
    given values are cast as the connector casts them."""
    before = {key: spark.conf.get(key) or "" for key in _SETTINGS}
    for key, value in _SETTINGS.items():
        spark.conf.set(key, value)
    try:
        with paimon_magics.connect(
            folder, spark=spark, store_assignment="ansi", coordinator="in-process"
        ) as session:
            session.run("CREATE DATABASE IF NOT EXISTS d; USE d")
            yield session
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


def replayed(spark: SparkSession, scenario: Scenario, folder: Path) -> Replay:
    """Run a scenario in a warehouse of its own below `folder`, and compare each step."""
    given = scenario.is_on_recorded_tables
    warehouse = unpack_tables(folder) if given else folder / "warehouse"
    set_before = {key: spark.conf.get(key, None) for key in _settings(scenario)}
    try:
        with replaying(spark, warehouse) as session:
            return _run(session, scenario)
    finally:
        for key, value in set_before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)
        for view in _views(scenario):
            spark.catalog.dropTempView(view)


def _settings(scenario: Scenario) -> set[str]:
    """What its statements set in Spark."""
    matched = (_SET.match(step.text) for step in scenario.steps)
    return {match[1] for match in matched if match is not None}


def _views(scenario: Scenario) -> set[str]:
    """The temporary views that its statements make."""
    matched = (_VIEW.match(step.text) for step in scenario.steps)
    return {match[1] for match in matched if match is not None}


def _run(session: Session, scenario: Scenario) -> Replay:
    replay = Replay(scenario)
    append_tables: frozenset[str] = frozenset()
    for number, step in enumerate(scenario.steps):
        created = _CREATE.match(step.text)
        if created is not None and "primary" not in step.text.lower():
            append_tables |= {created[1]}
        # What follows such a statement assumes that it changed nothing.
        if step.is_defect and not step.is_check:
            continue
        how = difference(step, _found(session, step), append_tables)
        if how is not None:
            to = replay.free if is_free(step) else replay.differing
            to.append(Difference(number, step, how))
    return replay


def _found(session: Session, step: Step) -> Found:
    try:
        rows = _rows(session, step)
    except PaimonMagicsError as error:
        return Found(error=f"{type(error).__name__}: {error.message}")
    except Exception as error:
        return Found(error=f"{type(error).__name__}: {error}", is_crash=True)
    if rows is None:
        return Found()
    columns = [column.to_pylist() for column in rows.columns]
    return Found(
        [
            [recorded_value(v, t) for v, t in zip(row, rows.schema.types, strict=True)]
            for row in zip(*columns, strict=True)
        ],
        rows.column_names,
    )


def _rows(session: Session, step: Step) -> pa.Table | None:
    if step.read is None:
        outcome = session.run(step.text)
        return None if outcome.dataframe is None else outcome.to_arrow()
    options: dict[str, Any] = dict(step.read.options)
    frame = session.table(step.read.table, **options)
    if step.read.select is not None:
        frame = frame.select(*step.read.select)
    return frame.toArrow()
