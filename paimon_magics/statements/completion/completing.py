"""What may follow at a place in an unfinished cell: keywords, and kinds of names.

`expected_at` reads the text before the cursor, and the text after it for a FROM clause that is
there already. It never raises: where it can't understand the text, it expects nothing. Its caller,
which has a catalog, looks up the names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from paimon_magics.statements.clauses.names import table_name_of
from paimon_magics.statements.completion import words as words
from paimon_magics.statements.completion.scopes import (
    Seen,
    common_tables,
    grouped,
    relations_of,
    segment_at,
)
from paimon_magics.statements.completion.tokens_around import (
    CURSOR,
    clause_of,
    defined_columns,
    ends_operand,
    kind_of,
    of_statement,
    path_to_cursor,
    tokens_after,
    tokens_before,
    unquoted,
    word_of,
    words_of,
)
from paimon_magics.statements.completion.wants import (
    BindNames,
    Columns,
    Databases,
    Expected,
    Fields,
    Functions,
    Keywords,
    Options,
    OptionValues,
    PartitionColumns,
    PartitionValues,
    ProcedureParameters,
    Procedures,
    SystemTables,
    Tables,
    Times,
    Versions,
    Want,
    in_quotes,
)
from paimon_magics.statements.completion.words import BEFORE_OPERANDS, OPERATORS
from paimon_magics.statements.lexing.tokens import (
    IDENTIFIER_KINDS,
    QUERY_WORDS,
    Token,
    tokenize,
    word_set,
)
from paimon_magics.statements.statement import TableName

_WORD_AT_END = re.compile(r"[\w$]*\Z")
_QUALIFIERS_AT_END = re.compile(r"(?:(?:`(?:[^`]|``)*`|[\w$]+)\.)*\Z")
_PART = re.compile(r"`(?:[^`]|``)*`|[\w$]+")
_COMPARED = word_set("= == <> != < <= > >= <=>")


_CLAUSES = {"DELETE": ("WHERE",), "UPDATE": ("SET", "WHERE"), "MERGE": ("USING", "ON", "WHEN")}
_OPERANDS = ("NOT", "CASE WHEN", "EXISTS")
_WHENS = ("WHEN MATCHED", "WHEN NOT MATCHED", "WHEN NOT MATCHED BY SOURCE")


def expected_at(text: str, cursor: int) -> Expected:
    """Return what may follow at the offset `cursor` of a cell's text."""
    before, tokens, quote = tokens_before(text[:cursor])
    if tokens is None or (not quote and text[:cursor].endswith("`")):
        return Expected(cursor, "")
    qualifiers: tuple[str, ...] = ()
    start = len(before) + 1 if quote else cursor - len(_WORD_AT_END.findall(text[:cursor])[0])
    typed = text[start:cursor]
    if quote not in ("'", '"'):
        written = text[: start - len(quote)]
        qualified = _QUALIFIERS_AT_END.search(written)
        assert qualified is not None
        qualifiers = tuple(map(unquoted, _PART.findall(qualified[0])))
        before = written[: qualified.start()]
        tokens = tokenize(before)
        if "$" in typed:
            typed = typed.rpartition("$")[2]
            return Expected(cursor - len(typed), typed, (SystemTables(),))
        if not quote and before.endswith(":") and not before.endswith("::"):
            return Expected(start, typed, (BindNames(),))
    tokens = of_statement(tokens)
    marker = Token(CURSOR, "", cursor, cursor, "")
    place = _Place((*tokens, marker, *tokens_after(text[cursor:], quote)), qualifiers, bool(quote))
    wants = place.wants()
    if quote:
        wants = in_quotes(wants, quote)
    return Expected(start, typed, wants, quote)


class _Place:
    """The statement around the cursor as a tree of brackets, and the cursor's place in it."""

    def __init__(
        self, tokens: tuple[Token, ...], qualifiers: tuple[str, ...], in_string: bool
    ) -> None:
        if tokens[0].upper == "EXPLAIN":
            skipped = {"EXPLAIN", "EXTENDED", "FORMATTED", "COST", "CODEGEN"}
            while tokens[0].upper in skipped:
                tokens = tokens[1:]
        self.qualifiers = qualifiers
        self.in_string = in_string
        self.levels = path_to_cursor(grouped(tokens))
        top, index = self.levels[0]
        self.head = words_of(top[:index])
        self.first = self.head[0] if self.head else ""
        items, at = self.levels[-1]
        self.before = items[:at]
        self.said = words_of(self.before)
        self.last = self.said[-1] if self.said else ""

    def wants(self) -> tuple[Want, ...]:
        if not self.first:
            return (Keywords(words.STATEMENTS),) if not self.qualifiers else ()
        if len(self.levels) > 1:
            inside = self._in_brackets()
            if inside is not None:
                return inside
        elif self.first not in QUERY_WORDS:
            found = self._in_statement()
            if found is not None:
                return found
        return self._in_query()

    # ---- brackets whose meaning depends on the words before them ----

    def _in_brackets(self) -> tuple[Want, ...] | None:
        items, index = self.levels[-2]
        said = words_of(items[:index])
        last = said[-1] if said else ""
        target = self._target()
        if last in ("TBLPROPERTIES", "DBPROPERTIES", "OPTIONS") or (
            last == "WITH" and len(said) > 1 and self.last not in QUERY_WORDS and self.in_string
        ):
            return self._in_properties(of_reads=last in ("WITH", "OPTIONS"))
        if last == "PARTITION" and target is not None:
            if self._compared() is not None:
                return (PartitionValues((Seen("", target),), self._compared() or ""),)
            if self.last in ("", ","):
                return (PartitionColumns(target),)
            return ()
        if self.first == "CALL":
            return self._in_call()
        if last in words.TABLE_FUNCTIONS:
            return self._in_table_function()
        if last == "USING" and not self.qualifiers:
            return (Columns(self._scope()),)
        if said[-2:] == ["PARTITIONED", "BY"] and self.first == "CREATE":
            return (Columns((Seen("", None, defined_columns(items[:index])),)),)
        is_top = len(self.levels) == 2
        if is_top and self.first == "INSERT" and not set(said) & {"SELECT", "VALUES", "FROM"}:
            return (Columns((Seen("", target),)),) if target is not None else ()
        if is_top and self.first == "MERGE" and last == "INSERT":
            return (Columns(self._scope()[:1]),)
        if is_top and self.first == "INSERT" and "VALUES" in said and "SELECT" not in said:
            return ()
        if is_top and self.first in ("CREATE", "ALTER") and not set(said) & {"AS", "SELECT"}:
            return (Keywords(words.TYPES),) if self.last not in ("", ",") else ()
        if last == "IN" and self.last in ("", ",") and len(items[:index]) > 1:
            column = items[index - 2]
            if said[-2:-1] == ["NOT"] and index > 2:
                column = items[index - 3]
            if isinstance(column, Token) and column.kind in IDENTIFIER_KINDS:
                scope = self._scope()
                return (PartitionValues(scope, column.name), *self._columns(scope))
        return None

    def _in_properties(self, *, of_reads: bool) -> tuple[Want, ...]:
        if self.last == "=" or (self.before and self.last != "," and self.in_string):
            key = next((t for t in reversed(self.before) if kind_of(t) == "string"), None)
            return (OptionValues(key.value),) if isinstance(key, Token) else ()
        return (Options(of_reads),) if self.last in ("", ",", "(") else ()

    def _in_call(self) -> tuple[Want, ...]:
        items, index = self.levels[-2]
        name = items[index - 1]
        procedure = name.name if isinstance(name, Token) else ""
        named = [t for t in self.before if isinstance(t, Token)]
        key = named[-2].name if self.last == "=>" and len(named) > 1 else ""
        if key == "table" or (self.in_string and not self.before):
            return (Tables(None), Databases())
        table = self._called_table()
        if key in ("tag", "tag_name", "version", "branch") and table is not None:
            return (Versions(table, snapshots=key == "version"),)
        if self.in_string:
            return (Versions(table),) if table is not None and self.last == "," else ()
        return (ProcedureParameters(procedure),) if self.last in ("", ",") else ()

    def _in_table_function(self) -> tuple[Want, ...]:
        if not self.before:
            return (Tables(None), Databases()) if self.in_string else ()
        table = self._called_table()
        return (Versions(table),) if table is not None and self.last == "," else ()

    def _called_table(self) -> TableName | None:
        """The table of a CALL or a table function: its first string."""
        first = next((t for t in self.before if kind_of(t) == "string"), None)
        return table_name_of(first.value.split(".")) if isinstance(first, Token) else None

    # ---- statements other than queries ----

    def _in_statement(self) -> tuple[Want, ...] | None:
        said = self.said
        if self.qualifiers and said[-1:] != ["CALL"] and self._wants_table():
            return self._tables()
        match said:
            case (
                (["USE"] | ["USE", "DATABASE"] | [("DROP" | "DESCRIBE" | "DESC"), "DATABASE"])
                | ["DROP", "DATABASE", "IF", "EXISTS"]
                | ["SHOW", "TABLES", "IN" | "FROM"]
            ):
                return (Databases(),)
            case ["CALL"]:
                return (Procedures(bool(self.qualifiers)),)
            case ["INSERT", _, *rest] if set(rest) & {"SELECT", "FROM", "WITH"}:
                return None
            case ["CREATE", *rest] if "AS" in rest:
                return None
        if self._wants_table():
            return self._tables()
        target = self._target()
        following = words.AFTER_TABLE.get(self.first)
        if target is not None and self.first == "ALTER":
            return self._altering(target)
        if target is not None and self.first in ("DESCRIBE", "DESC"):
            return (Columns((Seen("", target),)),)
        if target is not None and following is not None:
            return () if self.qualifiers else (Keywords(following),)
        if len(said) > 1 and self.first in ("DELETE", "UPDATE", "MERGE"):
            return self._changing()
        return (Keywords(words.following(said)),)

    def _changing(self) -> tuple[Want, ...]:
        place, scope = place_in_change(self.said), self._scope()
        if place.names is Names.TARGET:
            return (self._qualified(scope) if self.qualifiers else Columns(scope[:1]),)
        columns = self._columns(scope) if place.names is Names.ALL else []
        if self.qualifiers:
            return tuple(columns)
        if columns and (column := self._compared()) is not None:
            columns.insert(0, PartitionValues(scope, column))
        return (*columns, Keywords(place.keywords))

    def _altering(self, target: TableName) -> tuple[Want, ...]:
        columns = Columns((Seen("", target),))
        tags = Versions(target, snapshots=False)
        match self.said[-2:]:
            case [("DROP" | "RENAME" | "ALTER"), "COLUMN"] | ["ALTER", "CHANGE"]:
                return (columns,)
            case [_, "AFTER"]:
                return (columns,)
            case [("REPLACE" | "DELETE" | "RENAME"), "TAG"]:
                return (tags,)
            case ["OF", "VERSION"]:
                return (Versions(target),)
        return (Keywords(words.following(["ALTER", "TABLE", *self._behind_name()])),)

    def _behind_name(self) -> list[str]:
        """The words of ALTER TABLE after the table's name."""
        said = self.said[2:]
        while len(said) > 1 and said[1] == ".":
            said = said[2:]
        return said[1:]

    def _wants_table(self) -> bool:
        if self.last == "TABLE" or [self.first, self.last] == ["MERGE", "USING"]:
            return self.first != "CREATE"
        if self.said[-2:] == ["IF", "EXISTS"]:
            return "TABLE" in self.said
        if self.last in ("INTO", "OVERWRITE", "PARTITIONS", "TBLPROPERTIES", "TAGS", "BRANCHES"):
            return len(self.said) < 4
        whole = (["DESCRIBE"], ["DESC"], ["UPDATE"], ["DELETE", "FROM"])
        if self.said in whole or self.last == "EXTENDED":
            return True
        return self.said[:2] == ["SHOW", "COLUMNS"] and self.last in ("IN", "FROM")

    def _target(self) -> TableName | None:
        """The statement's table, if its name is written already."""
        top, index = self.levels[0]
        items = list(top[:index])
        start = 0
        for position, item in enumerate(items):
            if word_of(item) in ("TABLE", "INTO", "OVERWRITE", "DESCRIBE", "DESC", "EXISTS"):
                start = position + 1
            if word_of(item) in ("EXTENDED", "PARTITIONS", "TBLPROPERTIES") and not start:
                start = position + 1
            if word_of(item) in ("SELECT", "VALUES", "PARTITION"):
                break
        if not start or start >= len(items) or word_of(items[start]) in ("IF", "TABLE"):
            return None
        parts: list[str] = []
        for item in items[start:]:
            if not isinstance(item, Token) or item.kind not in IDENTIFIER_KINDS:
                if word_of(item) == ".":
                    continue
                break
            if parts and word_of(items[items.index(item) - 1]) != ".":
                break
            parts.append(item.name)
        return table_name_of(parts)

    # ---- queries ----

    def _in_query(self) -> tuple[Want, ...]:
        items, index = self.levels[-1]
        clause = clause_of(words_of(items[:index]))
        if self.said[-2:] == ["AS", "OF"]:
            table = self._travelled()
            if "VERSION" in self.said[-4:]:
                return (Versions(table),) if table is not None else ()
            return (Times(table),)
        if self._wants_relation(clause):
            return (*self._tables(), *(() if self.qualifiers else (Keywords(("LATERAL",)),)))
        if not self.before and len(self.levels) > 1 and not self.qualifiers:
            return (Keywords(("SELECT", "WITH", "VALUES")), *self._columns(self._scope()))
        if not self.said and not self.qualifiers:
            return (Keywords(words.STATEMENTS),)
        scope = self._scope()
        column = self._compared() if not self.qualifiers else None
        wants: list[Want] = []
        if column is not None:
            wants.append(PartitionValues(scope, column))
        wants += self._columns(scope, clause)
        if not self.qualifiers and self.last not in _COMPARED:
            wants.append(Keywords(words.in_clause(clause, self.last)))
        return tuple(wants)

    def _wants_relation(self, clause: str) -> bool:
        return self.last in ("FROM", "JOIN", "LATERAL") or (clause == "FROM" and self.last == ",")

    def _columns(self, scope: Sequence[Seen], clause: str = "") -> list[Want]:
        if self.qualifiers:
            return [self._qualified(scope)]
        if clause in ("FROM", "LIMIT") or ends_operand(self.before):
            return []
        return [Columns(tuple(scope), with_aliases=True), Functions()]

    def _qualified(self, scope: Sequence[Seen]) -> Want:
        """What may follow the dots: columns of a relation, or fields of a struct."""
        for place in reversed(range(len(self.qualifiers))):
            wanted = self.qualifiers[place].lower()
            named = tuple(seen for seen in scope if seen.alias.lower() == wanted)
            if named:
                path = self.qualifiers[place + 1 :]
                return Fields(named, path) if path else Columns(named)
        return Fields(tuple(scope), self.qualifiers)

    def _scope(self) -> tuple[Seen, ...]:
        """The relations of the cursor's level, then those of the levels around it."""
        common: list[Seen] = []
        found: list[Seen] = []
        for depth, (items, index) in enumerate(self.levels):
            common += common_tables(items)
            segment = segment_at(items, index)
            if depth == 0 and self.first == "INSERT":
                start = next((i for i, one in enumerate(segment) if word_of(one) in QUERY_WORDS), 0)
                segment = segment[start:]
            found = [*relations_of(segment, common), *found]
        return tuple(dict.fromkeys(found))

    def _compared(self) -> str | None:
        """The column that the value at the cursor is compared with."""
        items = list(self.before)
        if items and word_of(items[-1]) in ("BETWEEN", "LIKE"):
            items[-1:] = [Token("symbol", "=", 0, 0, "=")]
        if len(items) < 2 or word_of(items[-1]) not in _COMPARED:
            return None
        column = items[-2]
        is_name = isinstance(column, Token) and column.kind in IDENTIFIER_KINDS
        return column.name if isinstance(column, Token) and is_name else None

    def _travelled(self) -> TableName | None:
        """The table before VERSION AS OF or TIMESTAMP AS OF."""
        scope = self._scope()
        names = [seen.name for seen in scope if seen.name is not None]
        written: list[str] = []
        for item in self.before:
            if word_of(item) in ("VERSION", "TIMESTAMP", "FOR") and written:
                break
            if isinstance(item, Token) and (item.kind in IDENTIFIER_KINDS or item.text == "."):
                clear = item.upper in ("FROM", "JOIN")
                written = [] if clear else [*written, item.name]
            else:
                written = []
        name = table_name_of([part for part in written if part != "."]) if written else None
        return name if name in names else (names[-1] if names else name)

    def _tables(self) -> tuple[Want, ...]:
        if self.qualifiers:
            return (Tables(self.qualifiers[-1]),)
        common = [seen.alias for items, _ in self.levels for seen in common_tables(items)]
        return (Tables(None, tuple(common)), Databases())


# What may follow in a DELETE, UPDATE or MERGE INTO, behind the name of its table.


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
