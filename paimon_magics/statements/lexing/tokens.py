"""The lexer of Spark SQL, which splits text into tokens with their positions.

It is table-driven and follows Spark's `SqlBaseLexer.g4`: strings in single or double quotes with
backslash or doubled-quote escapes, raw strings (`r'…'`), dollar-quoted strings, back-quoted names,
`--` comments and nested `/* */` comments. One addition is for Paimon: a `$` inside a word belongs
to the word, so that `orders$audit_log` is one name without back-quotes.

Whitespace and comments are not tokens; every other character of the text is in exactly one token.
Positions count characters (code points) of the text. The lexer does not judge syntax.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from paimon_magics.errors import StatementSyntaxError

IDENTIFIER_KINDS = frozenset({"word", "quoted"})
OPENING = {"(": ")", "[": "]"}
CLOSING = {")": "(", "]": "["}

_UNTERMINATED = {
    "'": ("string", "Close the string with `'`."),
    '"': ("string", 'Close the string with `"`.'),
    "`": ("quoted name", "Close the name with a back-quote."),
    "/*": ("comment", "Close the comment with `*/`."),
    "$": ("dollar-quoted string", "Close the string with the tag that opened it."),
}

_QUOTE_INSIDE = re.compile(r"'[^'\n]*'\w+[^'\n]*$")
_LEXER = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<comment>--(?:\\\n|[^\r\n])*)
    | (?P<block>/\*)
    | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
    | (?P<string>(?:[xX](?=['"]))?(?:'(?:[^'\\]++|\\.|'')*+'|"(?:[^"\\]++|\\.|"")*+"))
    | (?P<quoted>`(?:[^`]++|``)*+`)
    | (?P<dollar>\$(?P<tag>[A-Za-z]*)\$.*?\$(?P=tag)\$)
    | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:BD|[LSFDlsfd]|bd)?(?!\w))
    | (?P<word>\w+(?:\$\w+)*)
    | (?P<symbol>::|<=>|<>|<=|>=|!=|==|->|=>|\|\||\|>|<<|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_KINDS = {
    "string": "string",
    "raw": "string",
    "dollar": "string",
    "tag": "string",
    "quoted": "quoted",
    "number": "number",
}
_SURROGATE = re.compile("[\ud800-\udfff]")
_DOLLAR_TAG = re.compile(r"\$[A-Za-z]*\$")
_BLOCK_EDGE = re.compile(r"/\*|\*/")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "Z": "\x1a"}
_ESCAPE = re.compile(r"\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})|\\([0-3][0-7]{2})|\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Token:
    """One token. `kind` is word, quoted, string, number or symbol; `text` is as written.

    `upper` is a word in upper case, or a symbol itself. It is "" for quoted names, strings and
    numbers, so that a quoted name never equals a keyword.
    """

    kind: str
    text: str
    start: int
    end: int
    upper: str

    @property
    def name(self) -> str:
        """The identifier of a word or quoted name, without quotes."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`")
        return self.text

    @property
    def value(self) -> str:
        """The value of a string, unescaped as by Spark's `unescapeSQLString`."""
        text = self.text
        if text[0] == "$":
            tag = text.index("$", 1) + 1
            return text[tag:-tag]
        if text[0] in "rR":
            return text[2:-1]
        if text[0] in "xX":
            text = text[1:]
        quote = text[0]
        return _ESCAPE.sub(_unescaped, text[1:-1].replace(quote * 2, quote))


def half_character(text: str) -> str:
    """The first lone surrogate of a text, as `U+D800`; "" if it has none. It is half of a
    character: neither UTF-8 nor Spark can hold it."""
    if text.isascii():
        return ""
    half = _SURROGATE.search(text)
    return "" if half is None else f"U+{ord(half[0]):04X}"


def tokenize(text: str) -> tuple[Token, ...]:
    """Return the tokens of `text`.

    Raises StatementSyntaxError at a quote or comment that is never closed.
    """
    tokens: list[Token] = []
    position = 0
    length = len(text)
    match_at = _LEXER.match
    while position < length:
        match = match_at(text, position)
        assert match is not None  # the last alternative matches any character
        kind = match.lastgroup
        end = match.end()
        if kind == "word":
            word = text[position:end]
            tokens.append(Token("word", word, position, end, word.upper()))
        elif kind == "block":
            end = _end_of_block(text, position)
        elif kind == "symbol" or (
            kind == "number" and text[position] == "." and _continues_name(tokens, position)
        ):
            if kind == "number":
                end = position + 1
            symbol = text[position:end]
            if symbol in _UNTERMINATED and (symbol != "$" or _DOLLAR_TAG.match(text, position)):
                raise _unterminated(text, position)
            tokens.append(Token("symbol", symbol, position, end, symbol))
        elif kind != "space" and kind != "comment":
            tokens.append(Token(_KINDS[kind or ""], text[position:end], position, end, ""))
        position = end
    return tuple(tokens)


def matching_brackets(text: str, tokens: tuple[Token, ...]) -> dict[int, int]:
    """Map the index of each opening `(` or `[` token to the index of its closing token.

    Raises StatementSyntaxError at a bracket that has no counterpart.
    """
    pairs: dict[int, int] = {}
    open_indexes: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind != "symbol":
            continue
        if token.text in OPENING:
            open_indexes.append(index)
        elif token.text in CLOSING:
            if not open_indexes or tokens[open_indexes[-1]].text != CLOSING[token.text]:
                raise StatementSyntaxError(
                    f"`{token.text}` has no opening bracket.",
                    hint=f"Remove it, or add `{CLOSING[token.text]}` before it.",
                    statement=text,
                    position=token.start,
                )
            pairs[open_indexes.pop()] = index
    if open_indexes:
        token = tokens[open_indexes[-1]]
        raise StatementSyntaxError(
            f"`{token.text}` is never closed.",
            hint=f"Close it with `{OPENING[token.text]}`.",
            statement=text,
            position=token.start,
        )
    return pairs


def _continues_name(tokens: list[Token], position: int) -> bool:
    """Whether a `.` at `position` continues a name (`t.1`) rather than beginning a number."""
    if not tokens or tokens[-1].end != position:
        return False
    return tokens[-1].kind in IDENTIFIER_KINDS or tokens[-1].text in CLOSING


def _end_of_block(text: str, start: int) -> int:
    depth = 1
    position = start + 2
    while depth:
        match = _BLOCK_EDGE.search(text, position)
        if match is None:
            raise _unterminated(text, start)
        depth += 1 if match.group() == "/*" else -1
        position = match.end()
    return position


def _unterminated(text: str, position: int) -> StatementSyntaxError:
    what, hint = _UNTERMINATED["/*" if text[position] == "/" else text[position]]
    if _QUOTE_INSIDE.search(text, 0, position):
        hint += " A quote inside a text is written twice: 'it''s'."
    return StatementSyntaxError(
        f"This {what} is never closed.", hint=hint, statement=text, position=position
    )


def _unescaped(match: re.Match[str]) -> str:
    code = match.group(1) or match.group(2)
    if code:
        return chr(int(code, 16))
    if match.group(3):
        return chr(int(match.group(3), 8))
    character = match.group(4)
    if character in "%_":  # kept for LIKE patterns
        return "\\" + character
    return _ESCAPES.get(character, character)


def without_values(text: str) -> str:
    """The statement with `?` in place of each literal, and without comments; "" for a text that
    can't be read."""
    try:
        tokens = tokenize(text)
    except StatementSyntaxError:
        return ""
    pieces, end = [], 0
    for token in tokens:
        between = text[end : token.start]
        pieces.append(between if not between.strip() else " ")
        pieces.append("?" if token.kind in ("string", "number") else token.text)
        end = token.end
    return "".join(pieces)


# Splits a cell into its statements.
#
# A statement ends at a semicolon outside quotes and comments (as the lexer in `tokens` reads them).
# Empty and comment-only pieces are dropped. Comments inside or next to a statement stay in its
# text; only whitespace around it is trimmed.


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


# The words of Spark SQL that the parsers use.
#
# Spark reserves hardly any word. These sets say which words end something (a relation, a list of
# changes) or begin a statement. Source: `SqlBaseParser.g4`.


def word_set(text: str) -> frozenset[str]:
    """The set of the words in `text`, separated by blanks."""
    return frozenset(text.split())


QUERY_WORDS = word_set("SELECT WITH VALUES TABLE FROM MAP REDUCE")
"""Words that begin a query."""

STATEMENT_WORDS = QUERY_WORDS | word_set(
    "INSERT CREATE DROP ALTER SHOW DESCRIBE DESC USE EXPLAIN TRUNCATE REPLACE DELETE "
    "UPDATE MERGE CALL COPY ANALYZE MSCK REPAIR OPTIMIZE CACHE UNCACHE CLEAR SET RESET "
    "REFRESH ADD LIST DECLARE EXECUTE BEGIN COMMENT LOAD EXPORT IMPORT GRANT REVOKE LOCK "
    "UNLOCK START COMMIT ROLLBACK DFS VACUUM RESTORE UNDROP OPEN FETCH CLOSE PREPARE"
)
"""Words that begin a statement that is parsed here or that Spark may know."""

CLAUSE_WORDS = word_set(
    "ON USING WHERE GROUP HAVING ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET WINDOW "
    "QUALIFY UNION EXCEPT INTERSECT MINUS SETMINUS JOIN INNER LEFT RIGHT FULL CROSS "
    "NATURAL SEMI ANTI LATERAL PIVOT UNPIVOT TABLESAMPLE SELECT INSERT WITH WHEN SET "
    "VALUES FROM AS AND OR NOT WATERMARK MATCH_RECOGNIZE ASOF"
)
"""Words that can't be a table's name or alias: they continue the query."""

NOT_A_PATH = CLAUSE_WORDS | word_set(
    "BY BETWEEN IN IS LIKE ILIKE RLIKE REGEXP CASE THEN ELSE END DISTINCT ALL ANY SOME "
    "EXISTS INTERVAL DATE TIMESTAMP OF PERCENT DIV ESCAPE FILTER OVER TO INTO"
)
"""Words after which `:name` is a bind parameter even without a blank between them."""

NAME_BEFORE = word_set("FROM JOIN INTO TABLE VIEW")
"""Words that are followed by a table's name."""
