"""Table statistics that were kept here: Java reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paimon_magics import Session
from tests.oracle.java_reader import JavaPaimon
from tests.session.rows import rows

pytestmark = [pytest.mark.spark, pytest.mark.java]


def test_java_shows_the_same_statistics(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    session.run(
        "CREATE TABLE t (id INT, d DOUBLE, c DECIMAL(10, 3), day DATE, at TIMESTAMP_NTZ, s STRING);"
        "INSERT INTO t VALUES (1, 1e10D, 1.5, DATE'2020-01-01', "
        "TIMESTAMP_NTZ'2020-01-01 10:00:01.25', 'abc')"
    )
    session.run("ANALYZE TABLE t COMPUTE STATISTICS FOR ALL COLUMNS")
    ((*counts, text),) = rows(session, "SELECT * FROM `t$statistics`")
    ((*in_java, text_in_java),) = java_paimon.rows(warehouse, "default.t$statistics")
    assert in_java == counts
    assert json.loads(text_in_java) == json.loads(text)
    assert java_paimon.rows(warehouse, "default.t")[0][0] == 1
