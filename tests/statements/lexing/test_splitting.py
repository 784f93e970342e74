"""Cells are split at semicolons, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_magics.errors import StatementSyntaxError
from paimon_magics.statements.lexing.tokens import split_cell


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("", []),
        (" \n\t ", []),
        (";;; ;", []),
        ("SELECT 1", [("SELECT 1", 0)]),
        ("  SELECT 1 ;\n SELECT 2;", [("SELECT 1", 2), ("SELECT 2", 14)]),
        ("SELECT ';' ; SELECT \";\"", [("SELECT ';'", 0), ('SELECT ";"', 13)]),
        ("SELECT `a;b`; x", [("SELECT `a;b`", 0), ("x", 14)]),
        ("SELECT 'it''s; so'", [("SELECT 'it''s; so'", 0)]),
        (r"SELECT 'it\'s; so'", [(r"SELECT 'it\'s; so'", 0)]),
        (r"SELECT r'\'; SELECT 2", [(r"SELECT r'\'", 0), ("SELECT 2", 13)]),
        ("SELECT `a``;b`", [("SELECT `a``;b`", 0)]),
        ("SELECT $$;'$$; x", [("SELECT $$;'$$", 0), ("x", 15)]),
        ("-- only; a comment\n", []),
        ("/* ; */ ; /* a /* ; */ ; */", []),
        ("SELECT 1 -- a; b\n + 1; x", [("SELECT 1 -- a; b\n + 1", 0), ("x", 23)]),
        ("SELECT 1 /* ; /* ; */ ; */ + 1", [("SELECT 1 /* ; /* ; */ ; */ + 1", 0)]),
        ("-- why\nSELECT 1", [("-- why\nSELECT 1", 0)]),
        ("SELECT '😀;'; SELECT '😀'", [("SELECT '😀;'", 0), ("SELECT '😀'", 13)]),
        ("SELECT 1;\r\nSELECT 2", [("SELECT 1", 0), ("SELECT 2", 11)]),
        ("SELECT a$b; c", [("SELECT a$b", 0), ("c", 12)]),
    ],
)
def test_a_cell_is_split_at_semicolons_outside_quotes_and_comments(cell, expected):
    assert list(split_cell(cell)) == expected


@pytest.mark.parametrize(
    ("cell", "position", "hint"),
    [
        ("SELECT 'abc", 7, "`'`"),
        ('SELECT 1;\nSELECT "abc', 17, '`"`'),
        ("SELECT `abc", 7, "back-quote"),
        ("SELECT 'it''s", 7, "`'`"),
        (r"SELECT 'it\'", 7, "`'`"),
        ("SELECT 1 /* a /* b */", 9, "`*/`"),
        ("SELECT $$abc", 7, "tag"),
    ],
)
def test_unclosed_quote_or_comment_is_an_error_at_its_opening(cell, position, hint):
    with pytest.raises(StatementSyntaxError) as caught:
        split_cell(cell)
    assert caught.value.position == position
    assert hint in caught.value.hint
    line, caret = caught.value.text().splitlines()[1:3]
    assert line[caret.index("^")] == cell[position]


_PIECES = st.lists(
    st.sampled_from(
        [
            "SELECT 1",
            "'a;b'",
            '"x"',
            "`;`",
            ";",
            " ",
            "\n",
            "-- c;\n",
            "/* ; */",
            "/* /* */ */",
            "😀",
            "\t",
            "\r\n",
            "r'\\'",
            "orders$files",
            "(",
            ":x",
        ]
    ),
    max_size=25,
)


@given(_PIECES)
def test_splitting_drops_only_blanks_and_comments(pieces):
    cell = "".join(pieces)
    try:
        statements = split_cell(cell)
    except StatementSyntaxError:
        return
    rest = cell
    for text, offset in reversed(statements):
        assert cell[offset : offset + len(text)] == text
        assert text == text.strip() != ""
        rest = rest[:offset] + rest[offset + len(text) :]
    assert split_cell(rest.replace(";", " ")) == ()
