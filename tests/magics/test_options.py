from __future__ import annotations

import pytest

from paimon_magics.errors import (
    InvalidValueError,
    StatementError,
    StatementSyntaxError,
    UnknownNameError,
)
from paimon_magics.magics.options import CELL_OPTIONS, CellOptions, read_cell, split_words


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", CellOptions()),
        ("-o rows", CellOptions(out="rows")),
        ("--out rows", CellOptions(out="rows")),
        ("--out=rows", CellOptions(out="rows")),
        ("-t pandas", CellOptions(type="pandas")),
        ("--type outcome", CellOptions(type="outcome")),
        ("--limit 5", CellOptions(limit=5)),
        ("--limit=0", CellOptions(limit=0)),
        ("--wait visible", CellOptions(wait="visible")),
        ("--explain", CellOptions(explain=True)),
        ("--dry-run", CellOptions(dry_run=True)),
        ("-h", CellOptions(help=True)),
        ("-t arrow  -o  größe --limit 5", CellOptions(out="größe", type="arrow", limit=5)),
        ("rows <<", CellOptions(assigned="rows")),
        ("rows<<", CellOptions(assigned="rows")),
        ("-t polars rows <<  ", CellOptions(assigned="rows", type="polars")),
    ],
)
def test_first_line_is_parsed_into_options(line: str, expected: CellOptions) -> None:
    assert read_cell(line, "SELECT 1") == (expected, "SELECT 1")


@pytest.mark.parametrize(
    ("body", "name", "rest"),
    [
        ("rows << SELECT 1", "rows", "        SELECT 1"),
        ("\n  rows <<\nSELECT 1", "rows", "\n         \nSELECT 1"),
        ("SELECT 1 << 2", None, "SELECT 1 << 2"),
        ("SELECT '\nrows << '", None, "SELECT '\nrows << '"),
    ],
)
def test_assignment_in_body_is_removed_without_moving_positions(
    body: str, name: str | None, rest: str
) -> None:
    assert read_cell("", body) == (CellOptions(assigned=name), rest)


@pytest.mark.parametrize(
    ("line", "error", "said"),
    [
        ("--lmit 5", UnknownNameError, "Did you mean `--limit`?"),
        ("--dryrun", UnknownNameError, "Did you mean `--dry-run`?"),
        ("-x", UnknownNameError, "no option `-x`"),
        ("SELECT 1", StatementSyntaxError, "the statement begins on the next line"),
        ("-o", InvalidValueError, "Write `-o NAME`"),
        ("-o --limit 5", InvalidValueError, "`-o` needs a value"),
        ("-o 2nd", InvalidValueError, "`2nd` (-o) can't be a variable's name"),
        ("-o class", InvalidValueError, "`class`"),
        ("a.b <<", InvalidValueError, "`a.b` (NAME <<)"),
        ("-t panda", InvalidValueError, "Did you mean `pandas`?"),
        ("--wait soon", InvalidValueError, "`durable`, `visible`"),
        ("--limit many", InvalidValueError, "`--limit many` is not a number of rows"),
        ("--limit -1", InvalidValueError, "`--limit -1`"),
        ("--limit ²", InvalidValueError, "`--limit ²`"),
        ("--explain=yes", InvalidValueError, "takes no value"),
        ("-o a --out b", StatementSyntaxError, "`--out` is given twice"),
        ("-o a b <<", StatementSyntaxError, "named twice"),
        ("--explain --dry-run", StatementSyntaxError, "given together"),
        ("--preview --explain", StatementSyntaxError, "given together"),
        ("-o 'a", StatementSyntaxError, "A quote is not closed: -o 'a"),
    ],
)
def test_wrong_option_error_names_option_and_next_step(
    line: str, error: type[StatementError], said: str
) -> None:
    with pytest.raises(error) as raised:
        read_cell(line, "SELECT 1")
    assert said in str(raised.value)
    assert raised.value.hint


def test_two_assignments_are_refused() -> None:
    with pytest.raises(StatementSyntaxError, match="two `NAME <<`"):
        read_cell("a <<", "b << SELECT 1")


def test_every_option_has_a_field_and_a_purpose() -> None:
    for option in CELL_OPTIONS:
        assert hasattr(CellOptions(), option.flags[-1].strip("-").replace("-", "_"))
        assert option.purpose


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a=1  b", ["a=1", "b"]),
        ("warehouse='my lake' x", ["warehouse=my lake", "x"]),
        (r"warehouse=C:\lake", [r"warehouse=C:\lake"]),
        ("key=a#b", ["key=a#b"]),
        ("`my lake`.`it's` `b` x", ["`my lake`.`it's`", "`b`", "x"]),
        ("", []),
    ],
)
def test_words_are_split_at_blanks_outside_quotes(line: str, words: list[str]) -> None:
    assert split_words(line) == words
