"""Read sets as values, and as documents of the protocol."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_magics.coordinator.protocol.documents import request_document, request_of
from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.commits.read_sets import (
    FILES_MAX,
    ReadSet,
    RowSearch,
    read_files,
    read_keys,
)
from paimon_magics.planning.commits.requests import Append, CommitRequest, Transaction
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.statements.statement import TableName

_OPENED = Transaction(TableName("t", database="d"), "user", "pm-", 3)

_values = st.one_of(
    st.integers(),
    st.booleans(),
    st.text(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.dates(),
)
_conditions = st.one_of(
    st.builds(ColumnPredicate, st.text(), st.sampled_from(["is null", "is not null"])),
    st.builds(
        ColumnPredicate,
        st.text(),
        st.sampled_from(["=", "<", "<=", ">", ">=", "in"]),
        st.lists(_values, min_size=1, max_size=3).map(tuple),
    ),
)
_read_sets = st.builds(
    ReadSet,
    st.integers(0, 2**62),
    st.none() | st.lists(st.text(), max_size=3).map(tuple),
    st.booleans(),
    st.none() | st.builds(RowSearch, st.lists(_conditions, max_size=3).map(tuple), st.booleans()),
    st.text(),
)


@given(_read_sets.filter(lambda read: read.files is not None or read.search is not None))
def test_read_set_round_trips_through_the_protocol(read: ReadSet) -> None:
    asked = CommitRequest(_OPENED, Append(), (), (), read)
    sent = json.loads(json.dumps(request_document(asked)))
    received = request_of(_OPENED, sent)
    assert received == asked
    assert received.read_set is not None
    kinds = [type(value) for value in _all_values(received.read_set)]
    assert kinds == [type(value) for value in _all_values(read)]


def _all_values(read: ReadSet) -> list[Any]:
    return [value for each in (read.search or RowSearch()).conditions for value in each.values]


def test_request_without_a_read_set_has_no_such_member() -> None:
    assert set(request_document(CommitRequest(_OPENED, Append()))) == {
        "change",
        "messages",
        "properties",
    }


def _found(operator: str, values: list[Any]) -> dict[str, Any]:
    condition = {"column": "k", "operator": operator, "values": values}
    return {"adds_missing": True, "conditions": [condition]}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"files": "abc"}, "`files` must be a list"),
        ({"files": None, "found": None}, "`found` is required"),
        ({"files": [1]}, "`files` must be a list of texts"),
        ({"snapshot_id": "1"}, "`snapshot_id` must be a whole number"),
        ({"found": {"adds_missing": True}}, "`conditions` is missing"),
        ({"found": _found("~", [{"value": 1}])}, "not an operator"),
        ({"found": _found("=", [])}, "can't have 0 values"),
        ({"found": _found("is null", [{"value": 1}])}, "can't have 1 values"),
        ({"found": _found("=", [{"decimal": "x"}])}, "is not a valid decimal"),
        ({"found": _found("=", [{"date": "2026-13-01"}])}, "is not a valid date"),
        ({"found": _found("=", [{"value": [1]}])}, "A value can't be"),
        ({"found": _found("=", [1])}, "must be an object with one member"),
    ],
)
def test_a_malformed_read_set_is_refused_by_its_member(change: dict[str, Any], told: str) -> None:
    document = request_document(CommitRequest(_OPENED, Append(), (), (), read_keys(1)))
    document["read_set"].update(change)
    with pytest.raises(InvalidValueError, match=told):
        request_of(_OPENED, document)


def test_oversized_read_set_becomes_stricter() -> None:
    small = (
        ColumnPredicate("k", "=", (Decimal(1),)),
        ColumnPredicate("d", "=", (datetime.date(2026, 1, 1),)),
    )
    large = (
        ColumnPredicate("k", "in", tuple(range(1_001))),
        ColumnPredicate("v", "=", ("x" * 1_001,)),
    )
    names = [f"data-{number}.parquet" for number in range(FILES_MAX)]
    assert read_files(1, names, RowSearch((*small, *large))) == ReadSet(
        1, tuple(sorted(names)), search=RowSearch(small)
    )
    assert read_files(1, [*names, "one-more"], RowSearch(large)).files is None
