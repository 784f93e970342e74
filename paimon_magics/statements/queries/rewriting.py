"""Replaces ranges of the user's text, and maps positions back to it.

SQL is never generated from a tree: Spark runs the user's own text, in which a view's name replaces
a table's, and the relation's alias replaces qualifiers of columns that name the database.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.statement import QueryText, TableReference, TextRange

__all__ = [
    "Replacement",
    "RewrittenText",
    "cuts_of",
    "joined_text",
    "replacements_by",
    "replacements_for",
    "rewrite",
]

Replacement = tuple[TextRange, str]


@dataclass(frozen=True, slots=True)
class RewrittenText:
    """A text that consists of pieces of the user's text and of replacements.

    `_pieces` are (start in this text, start in the user's text, is a replacement), in order.
    """

    text: str
    _pieces: tuple[tuple[int, int, bool], ...]

    def original_position(self, position: int) -> int:
        """Return the position in the user's text for a position in the rewritten text.

        A position inside a replacement gives the beginning of the replaced range.
        """
        index = bisect_right(self._pieces, position, key=lambda piece: piece[0]) - 1
        start, original, is_replacement = self._pieces[max(index, 0)]
        return original if is_replacement else original + max(position - start, 0)


def rewrite(text: str, range: TextRange, replacements: Sequence[Replacement]) -> RewrittenText:
    """Return the text in `range` with the replacements applied.

    Replacements may come in any order; they must lie in `range` and not overlap. An empty range
    inserts; insertions at one place keep their order. Raises ValueError otherwise, which is an
    error of the caller, never of the user.
    """
    result: list[str] = []
    pieces: list[tuple[int, int, bool]] = []
    length = 0
    place = range.start

    def add(piece: str, original: int, is_replacement: bool) -> None:
        nonlocal length
        if piece:
            pieces.append((length, original, is_replacement))
            result.append(piece)
            length += len(piece)

    for target, new in sorted(replacements, key=lambda r: (r[0].start, r[0].end)):
        if not place <= target.start <= target.end <= range.end:
            raise ValueError(f"{target} overlaps another replacement or lies outside {range}")
        add(text[place : target.start], place, False)
        add(new, target.start, True)
        place = target.end
    add(text[place : range.end], place, False)
    pieces.append((length, range.end, True))
    return RewrittenText("".join(result), tuple(pieces))


def joined_text(parts: Sequence[str | RewrittenText]) -> RewrittenText:
    """Return one text of the parts. A position in a part that is a plain text, which the user did
    not write, gives the beginning of the user's text after it, or the end of the last one."""
    result: list[str] = []
    pieces: list[tuple[int, int, bool]] = []
    length = waiting = 0
    for part in parts:
        if isinstance(part, str):
            pieces.append((length, -1, True))
            waiting += 1
        else:
            first = part._pieces[0][1]
            for index in range(len(pieces) - waiting, len(pieces)):
                pieces[index] = (pieces[index][0], first, True)
            waiting = 0
            pieces += [(length + start, at, is_new) for start, at, is_new in part._pieces[:-1]]
        text = part if isinstance(part, str) else part.text
        result.append(text)
        length += len(text)
    last = next((p._pieces[-1][1] for p in reversed(parts) if isinstance(p, RewrittenText)), 0)
    for index in range(len(pieces) - waiting, len(pieces)):
        pieces[index] = (pieces[index][0], last, True)
    pieces.append((length, last, True))
    return RewrittenText("".join(result), tuple(pieces))


def replacements_for(reference: TableReference, view_name: str) -> tuple[Replacement, ...]:
    """Return the replacements by which a query reads the view (named without quotes) instead."""
    return replacements_by(reference, quoted(view_name))


def replacements_by(reference: TableReference, view: str) -> tuple[Replacement, ...]:
    """Return the replacements by which a query reads a relation, given as SQL, instead."""
    alias = quoted(reference.alias)
    replacements: list[Replacement] = []
    if reference.has_alias or reference.alias_position < 0:
        replacements.append((reference.range, view))
    elif reference.alias_position == reference.range.end:
        replacements.append((reference.range, f"{view} AS {alias}"))
    else:
        place = TextRange(reference.alias_position, reference.alias_position)
        replacements += [(reference.range, view), (place, f" AS {alias}")]
    replacements += [(q, alias) for q in reference.qualifiers]
    return tuple(replacements)


def cuts_of(query: QueryText) -> tuple[Replacement, ...]:
    """Return the replacements that make a query's text a query of its own.

    Ranges that do not belong to it are removed. DEFAULT, which Spark only reads in an INSERT,
    becomes NULL, which Paimon replaces by the column's default.
    """
    return (*((cut, "") for cut in query.cuts), *((word, "NULL") for word in query.defaults))
