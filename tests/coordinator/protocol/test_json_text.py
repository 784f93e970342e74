"""A member that is given twice is refused wherever it stands, whatever else the text has."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_magics.coordinator.protocol.json_text import exact_json_value, json_value

_SPACES = st.sampled_from(["", "", " ", "\t", "\n", "\r "])
_TEXTS = st.text(st.sampled_from('ab{}[]:" ,\\'), max_size=4)


@st.composite
def documents(draw: st.DrawFn, depth: int = 3) -> str:
    """A JSON text with few names, so that some are given twice."""
    kind = draw(st.sampled_from(["number", "text", "list", "object"] if depth else ["text"]))
    space = draw(_SPACES)
    if kind == "number":
        return draw(st.sampled_from(["1", "-0.5", "null", "12345678901234567890.5"]))
    if kind == "text":
        return json.dumps(draw(_TEXTS))
    inner = documents(depth - 1)
    if kind == "list":
        return "[" + f"{space}, ".join(draw(st.lists(inner, max_size=3))) + "]"
    members = draw(st.lists(st.tuples(_TEXTS, inner), max_size=3))
    return "{" + ",".join(f"{json.dumps(name)}{space}:{text}" for name, text in members) + "}"


def repeats(document: str) -> bool:
    """Whether Python's decoder, asked for all members, meets one twice."""
    seen: list[bool] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen.append(len(dict(pairs)) < len(pairs))
        return dict(pairs)

    json.loads(document, object_pairs_hook=members)
    return any(seen)


@given(documents())
def test_duplicate_member_is_refused(document: str) -> None:
    if repeats(document):
        for read in (json_value, exact_json_value):
            with pytest.raises(ValueError, match="twice"):
                read(document.encode())
    else:
        assert json_value(document.encode()) == json.loads(document)
        assert exact_json_value(document.encode()) == json.loads(document)


@pytest.mark.parametrize(
    "document",
    [
        '{"rows": [[1]], "rows": [[2]]}',
        '{"statements": [{"rows": [[1]]}, {"rows": [[1]], "rows": [[2]]}]}',
        '{"statements": [{"a": 1, "a": 2}, "{:"]}',
        '{"rows": {"x": 1}, "rows": 2}',
        '{"rows": [["12:00"]], "rows" : 2}',
    ],
)
def test_hidden_duplicate_member_is_refused(document: str) -> None:
    with pytest.raises(ValueError, match="twice"):
        json_value(document.encode())
