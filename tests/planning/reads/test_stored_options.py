"""Every option of Paimon's means something for a read: honored, refused, or without influence."""

from __future__ import annotations

import pytest

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.options.table_options import CORE_OPTIONS, HONOURED, IDLE
from paimon_magics.planning.reads.read_points import (
    AtSnapshot,
    AtTag,
    Latest,
    check_readable,
    point_of_read,
)
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.statement import TableName

REFUSED = [key for key, option in CORE_OPTIONS.items() if option.in_reads not in (HONOURED, IDLE)]
NAME = TableName("t", database="shop")


def schema(**options: str) -> TableSchema:
    return TableSchema(columns=(), options=tuple(options.items()))


def test_every_option_is_classified_for_reads() -> None:
    assert all(option.in_reads for option in CORE_OPTIONS.values())
    assert "branch" in REFUSED
    assert len(REFUSED) == 10


@pytest.mark.parametrize("key", REFUSED)
def test_a_table_with_a_refused_option_is_not_read(key: str) -> None:
    value = "true" if CORE_OPTIONS[key].type == "boolean" else "other"
    with pytest.raises(UnsupportedStatementError) as caught:
        check_readable(NAME, schema(**{key: value}))
    assert "shop.t" in caught.value.message
    assert f"'{key}' = '{value}'" in caught.value.message
    assert f"UNSET TBLPROPERTIES ('{key}')" in caught.value.hint


@pytest.mark.parametrize("key", REFUSED)
def test_refused_option_is_accepted_when_off(key: str) -> None:
    for value in {"", "main", "false"}:
        check_readable(NAME, schema(**{key: value}))


def test_query_overrides_the_stored_read_point() -> None:
    pinned = schema(**{"scan.snapshot-id": "3", "scan.mode": "from-snapshot"})
    assert point_of_read(pinned, {}) == AtSnapshot(3)
    assert point_of_read(pinned, {"scan.tag-name": "v1"}) == AtTag("v1")
    assert point_of_read(pinned, {"scan.mode": "latest-full"}) == Latest()
    assert point_of_read(schema(), {}) == Latest()
