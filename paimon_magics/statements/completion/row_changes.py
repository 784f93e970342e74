"""What may follow in a DELETE, UPDATE or MERGE INTO, behind the name of its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from paimon_magics.statements.completion.words import BEFORE_OPERANDS, OPERATORS

__all__ = ["ChangePlace", "Names", "place_in_change"]

_CLAUSES = {"DELETE": ("WHERE",), "UPDATE": ("SET", "WHERE"), "MERGE": ("USING", "ON", "WHEN")}
_OPERANDS = ("NOT", "CASE WHEN", "EXISTS")
_WHENS = ("WHEN MATCHED", "WHEN NOT MATCHED", "WHEN NOT MATCHED BY SOURCE")


class Names(Enum):
    """Whose columns may follow: none, those of the table that is changed, those of all tables."""

    NONE = auto()
    TARGET = auto()
    ALL = auto()


@dataclass(frozen=True, slots=True)
class ChangePlace:
    """The columns and the words that may follow."""

    names: Names
    keywords: tuple[str, ...] = ()


def place_in_change(said: Sequence[str]) -> ChangePlace:
    """What may follow the words of the statement, of which the first is DELETE, UPDATE or MERGE."""
    first, last = said[0], said[-1]
    start = _last_clause(said)
    if start is None:
        named = len(said) > (1 if first == "UPDATE" else 2)
        return ChangePlace(Names.NONE, ("AS", _CLAUSES[first][0]) if named else ())
    clause, rest = said[start], said[start + 1 :]
    if clause == "USING":
        return ChangePlace(Names.NONE, ("AS", "ON"))
    if clause == "SET":
        return _in_assignments(rest, ("WHERE",))
    if clause == "WHEN":
        return _in_when(rest)
    ends = _WHENS if first == "MERGE" else ()
    return _in_expression(last, ends)


def _last_clause(said: Sequence[str]) -> int | None:
    """Where the last clause begins. WHEN is one where no CASE is open."""
    wanted = _CLAUSES[said[0]]
    found, cases = None, 0
    for index, word in enumerate(said):
        cases += (word == "CASE") - (word == "END" and cases > 0)
        if word in wanted and not cases:
            found = index
    return found


def _in_when(rest: Sequence[str]) -> ChangePlace:
    """Behind WHEN of a MERGE."""
    if not rest:
        return ChangePlace(Names.NONE, tuple(one.removeprefix("WHEN ") for one in _WHENS))
    action = _after_then(rest)
    if action is None:
        if "AND" in rest:
            return _in_expression(rest[-1], ("THEN",))
        follows = {"NOT": ("MATCHED",), "BY": ("SOURCE", "TARGET")}.get(rest[-1], ("AND", "THEN"))
        more = ("BY SOURCE",) if list(rest) == ["NOT", "MATCHED"] else ()
        return ChangePlace(Names.NONE, (*follows, *more))
    inserts = rest[0] == "NOT" and rest[2:4] != ["BY", "SOURCE"]
    if not action:
        changes = ("UPDATE SET", "UPDATE SET *", "DELETE")
        return ChangePlace(Names.NONE, ("INSERT *", "INSERT (") if inserts else changes)
    if action[0] == "UPDATE":
        if len(action) == 1:
            return ChangePlace(Names.NONE, ("SET", "SET *"))
        return _in_assignments(action[2:], _WHENS)
    if action[0] == "INSERT" and action[-1] == "()" and "VALUES" not in action:
        return ChangePlace(Names.NONE, ("VALUES (",))
    return ChangePlace(Names.NONE, ("*",) if list(action) == ["INSERT"] else _WHENS)


def _after_then(rest: Sequence[str]) -> Sequence[str] | None:
    """The words of the action, None where THEN is not written yet."""
    cases = 0
    for index, word in enumerate(rest):
        cases += (word == "CASE") - (word == "END" and cases > 0)
        if word == "THEN" and not cases:
            return rest[index + 1 :]
    return None


def _in_assignments(rest: Sequence[str], ends: tuple[str, ...]) -> ChangePlace:
    if not rest or rest[-1] == ",":
        return ChangePlace(Names.TARGET)
    if list(rest) == ["*"]:
        return ChangePlace(Names.NONE, ends)
    if rest[-1] in ("=", "=="):
        return ChangePlace(Names.ALL, ("DEFAULT", *_OPERANDS))
    if _is_assigned(rest):
        return _in_expression(rest[-1], ends)
    return ChangePlace(Names.NONE)


def _is_assigned(rest: Sequence[str]) -> bool:
    """Whether the last assignment has its `=`."""
    starts = [index + 1 for index, word in enumerate(rest) if word == ","]
    return bool({"=", "=="} & set(rest[max(starts, default=0) :]))


def _in_expression(last: str, ends: tuple[str, ...]) -> ChangePlace:
    if last == "IS":
        return ChangePlace(Names.NONE, ("NULL", "NOT NULL"))
    if last in BEFORE_OPERANDS:
        return ChangePlace(Names.ALL, _OPERANDS)
    return ChangePlace(Names.ALL, (*OPERATORS, *ends))
