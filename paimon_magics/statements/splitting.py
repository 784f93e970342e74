"""A cell → the texts of its statements, and where each begins.

A statement ends at a semicolon outside quotes and comments (the lexer of `tokens` decides what
those are). Empty and comment-only pieces are dropped; comments inside or next to a statement stay
in its text, only surrounding whitespace is trimmed.
"""

from __future__ import annotations

from paimon_magics.statements.tokens import tokenize

__all__ = ["split_cell"]


def split_cell(text: str) -> tuple[tuple[str, int], ...]:
    """(statement text, offset of its first character in the cell) in the order written.

    Raises StatementSyntaxError, placed at the opening character, for a quote or comment that is
    never closed.
    """
    pieces: list[tuple[str, int]] = []
    start = 0
    has_token = False
    for token in tokenize(text):
        if token.text != ";" or token.kind != "symbol":
            has_token = True
            continue
        if has_token:
            pieces.append(_trimmed(text, start, token.start))
        start, has_token = token.end, False
    if has_token:
        pieces.append(_trimmed(text, start, len(text)))
    return tuple(pieces)


def _trimmed(text: str, start: int, end: int) -> tuple[str, int]:
    piece = text[start:end]
    offset = start + len(piece) - len(piece.lstrip())
    return piece.strip(), offset
