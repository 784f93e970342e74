"""Splits a cell into its statements.

A statement ends at a semicolon outside quotes and comments (as the lexer in `tokens` reads them).
Empty and comment-only pieces are dropped. Comments inside or next to a statement stay in its text;
only whitespace around it is trimmed.
"""

from __future__ import annotations

from paimon_magics.statements.lexing.tokens import Token, tokenize

__all__ = ["split_cell", "split_tokens"]


def split_cell(text: str) -> tuple[tuple[str, int], ...]:
    """Return (statement text, offset of its first character in the cell), in the order written.

    Raises StatementSyntaxError for a quote or comment that is never closed, with the position of
    its first character.
    """
    return tuple((piece, offset) for piece, offset, _ in split_tokens(text))


def split_tokens(text: str) -> tuple[tuple[str, int, tuple[Token, ...]], ...]:
    """Split as `split_cell` does, and add each statement's tokens, with positions in the cell."""
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
