"""Versions, times and bounds of changes are constants, which may be expressions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import InvalidValueError
from tests.session.rows import rows

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAIMON_COORDINATOR", "in-process")
        with paimon_magics.connect(tmp_path_factory.mktemp("bounds"), spark=spark) as session:
            session.run("CREATE TABLE t (id INT)")
            for id in (1, 2, 3):
                session.run(f"INSERT INTO t VALUES ({id})")
            yield session


@pytest.mark.parametrize(
    ("relation", "ids"),
    [
        ("t VERSION AS OF (1 + 1)", [1, 2]),
        ("t VERSION AS OF CAST(:one AS INT)", [1]),
        ("t TIMESTAMP AS OF current_timestamp() - INTERVAL 0 SECOND", [1, 2, 3]),
        ("t TIMESTAMP AS OF date_trunc('YEAR', current_timestamp()) + INTERVAL 1 YEAR", [1, 2, 3]),
        ("paimon_incremental_query('t', 1 + 0, length('abc'))", [2, 3]),
        ("paimon_incremental_query('t', :one, '3') AS c", [2, 3]),
        ("paimon_incremental_query('t', concat('1', ',', '2'))", [2]),
        ("paimon_incremental_query('t', 0, -1 + 2)", [1]),
        (
            "paimon_incremental_between_timestamp('t', current_timestamp() - INTERVAL 1 HOUR, "
            "current_timestamp() + INTERVAL 1 HOUR)",
            [1, 2, 3],
        ),
        (
            "paimon_incremental_between_timestamp('t', 0 + 0, "
            "unix_millis(current_timestamp()) + 1000)",
            [1, 2, 3],
        ),
    ],
)
def test_constant_expressions_select_past_states_and_changes(
    lake: Session, relation: str, ids: list[int]
) -> None:
    given = {"one": 1} if ":one" in relation else None
    assert [each for (each,) in rows(lake, f"SELECT id FROM {relation} ORDER BY id", given)] == ids


@pytest.mark.parametrize(
    ("relation", "said"),
    [
        ("t VERSION AS OF (id)", "VERSION AS OF must be a constant, but `(id)` is not: it names"),
        ("t VERSION AS OF (SELECT max(id) FROM t)", "is not: it has a query on a table"),
        ("t TIMESTAMP AS OF rand() * 5", "must be a constant, but `rand() * 5` gives another"),
        ("t TIMESTAMP AS OF now() - id", "must be a constant, but `now() - id` is not"),
        (
            "t TIMESTAMP AS OF 'gestern'",
            "can't be read: The value 'gestern' can't be cast to TIMES",
        ),
        ("paimon_incremental_query('t', id, 3)", "a bound of the changes must be a constant, but"),
        ("paimon_incremental_query('t', 1, NULL)", "a bound of the changes is NULL: NULL"),
        ("paimon_incremental_query('t', 1, floor(rand()))", "gives another one each time"),
    ],
)
def test_non_constant_bound_is_refused_by_name(lake: Session, relation: str, said: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        lake.run(f"SELECT * FROM {relation}")
    assert said in str(caught.value)
