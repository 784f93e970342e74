"""What is done with a bucket's files is what Paimon's own compaction does with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paimon_magics.planning.compaction.keyed_tables import (
    BucketFile,
    Moment,
    PickOptions,
    pick,
    pick_all,
    sorted_runs,
)
from paimon_magics.planning.compaction.steps import RewriteRules, Upgrade, drops_deletes, steps_of

pytestmark = [pytest.mark.spark, pytest.mark.java]

AT = Moment(now_ms=0, hour=0)
SIZES = st.one_of(st.integers(1, 60), st.sampled_from([100, 101, 1000, 5000]))


@st.composite
def buckets(draw: st.DrawFn) -> list[BucketFile]:
    """Files of any level, those above level 0 without overlap."""
    files = [
        BucketFile(
            f"l0-{number}", 0, draw(SIZES), least, least + draw(st.integers(0, 40)),
            max_sequence_number=number,
            deleted_rows=draw(st.sampled_from([None, 0, 0, 3])),
        )
        for number, least in enumerate(draw(st.lists(st.integers(0, 100), max_size=9)))
    ]  # fmt: skip
    for level in draw(st.sets(st.integers(1, 6))):
        bounds = sorted(draw(st.sets(st.integers(0, 140), min_size=2, max_size=8)))
        files += [
            BucketFile(
                f"l{level}-{number}", level, draw(SIZES), bounds[number], bounds[number + 1],
                max_sequence_number=-level,
                deleted_rows=draw(st.sampled_from([None, 0, 0, 3])),
            )
            for number in range(0, len(bounds) - 1, 2)
        ]  # fmt: skip
    return files


OPTIONS = st.builds(
    PickOptions,
    compaction_trigger=st.integers(1, 6),
    level_count=st.integers(2, 7),
    max_size_amplification_percent=st.sampled_from([0, 50, 200, 100_000]),
    size_ratio=st.sampled_from([0, 1, 50]),
    total_size_threshold_bytes=st.sampled_from([None, None, None, 50]),
    incremental_size_threshold_bytes=st.sampled_from([None, None, None, 300]),
    forces_level_0_up=st.booleans(),
    rewrites_all_files=st.sampled_from([False, False, False, True]),
)


@pytest.fixture(scope="module")
def java(spark: Any) -> Any:
    thread = spark._jvm.java.lang.Thread.currentThread()
    compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    compiler.setParentClassLoader(thread.getContextClassLoader())
    compiler.cook(Path(__file__).with_name("Compactions.java").read_text())
    return (
        compiler.getClassLoader()
        .loadClass("Compactions")
        .getConstructors()[0]
        .newInstance(spark.sparkContext._gateway.new_array(spark._jvm.java.lang.Object, 0))
    )


def told(
    files: Sequence[BucketFile], options: PickOptions, *, full: bool, min_size_bytes: int
) -> list[str]:
    """Our steps, as `Compactions.java` tells Java's."""
    runs = sorted_runs(files)
    found = pick_all(runs, options) if full else pick(runs, options, AT)
    if found is None:
        return []
    drop = drops_deletes(found, runs, has_deletion_vectors=False, is_chain_table=False)
    rules = RewriteRules(options.max_level(runs), min_size_bytes, options.rewrites_all_files)
    lines = []
    for step in steps_of(found, rules):
        if isinstance(step, Upgrade):
            lines.append(f"upgrade {found.output_level} {step.file.name}")
            continue
        sections = (
            "|".join(sorted("+".join(file.name for file in run) for run in section))
            for section in step.sections
        )
        lines.append(f"rewrite {found.output_level} {str(drop).lower()} {' '.join(sections)}")
    return lines


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    files=buckets(),
    options=OPTIONS,
    full=st.sampled_from([False, False, True]),
    min_size_bytes=st.sampled_from([0, 40, 120]),
)
def test_same_files_are_rewritten_and_upgraded_as_in_java(
    java: Any, files: list[BucketFile], options: PickOptions, full: bool, min_size_bytes: int
) -> None:
    values = [
        [
            file.name, file.level, file.size_bytes, file.least_key, file.greatest_key,
            file.max_sequence_number, -1 if file.deleted_rows is None else file.deleted_rows,
        ]
        for file in files
    ]  # fmt: skip
    thresholds = (options.total_size_threshold_bytes, options.incremental_size_threshold_bytes)
    numbers = [
        options.compaction_trigger, options.level_count,
        options.max_size_amplification_percent, options.size_ratio,
        *(-1 if each is None else each for each in thresholds),
    ]  # fmt: skip
    javas = java.steps(
        values, numbers, full, options.forces_level_0_up, options.rewrites_all_files, min_size_bytes
    )
    assert told(files, options, full=full, min_size_bytes=min_size_bytes) == list(javas)
