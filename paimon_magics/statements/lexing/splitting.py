"""A cell → the texts of its statements, and where each begins.

A statement ends at a semicolon outside quotes and comments (the lexer of `tokens` decides what
those are). Empty and comment-only pieces are dropped; comments inside or next to a statement stay
in its text, only surrounding whitespace is trimmed.
"""

from __future__ import annotations

from paimon_magics.statements.lexing.tokens import Token, tokenize

__all__ = ["split_cell", "split_tokens"]


def split_cell(text: str) -> tuple[tuple[str, int], ...]:
    """(statement text, offset of its first character in the cell) in the order written.

    Raises StatementSyntaxError, placed at the opening character, for a quote or comment that is
    never closed.
    """
    return tuple((piece, offset) for piece, offset, _ in split_tokens(text))


def split_tokens(text: str) -> tuple[tuple[str, int, tuple[Token, ...]], ...]:
    """As `split_cell`, with each statement's tokens, whose places are in the cell."""
    tokens = tokenize(text)
    pieces: list[tuple[str, int, tuple[Token, ...]]] = []
    start = first = 0
    ends = [i for i, t in enumerate(tokens) if t.text == ";"]
    for index in (*ends, len(tokens)):
        end = tokens[index].start if index < len(tokens) else len(text)
        if index > first:
            piece = text[start:end]
            offset = start + len(piece) - len(piece.lstrip())
            pieces.append((piece.strip(), offset, tokens[first:index]))
        start, first = end + 1, index + 1
    return tuple(pieces)
