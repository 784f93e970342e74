"""What may follow at a place in an unfinished cell: keywords, and kinds of names.

`expected_at` reads the text before the cursor, and the text after it for a FROM clause that is
there already. It never raises: where it can't understand the text, it expects nothing. Its caller,
which has a catalog, looks up the names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from paimon_magics.statements.clauses.names import table_name_of
from paimon_magics.statements.completion import words as words
from paimon_magics.statements.completion.lines import (
    CURSOR,
    NAME,
    WORD,
    Group,
    Line,
    levels_at_cursor,
    tokens_after,
    tokens_before,
    word_pattern,
)
from paimon_magics.statements.completion.scopes import (
    Seen,
    common_tables,
    listed_names,
    relations_of,
    segment_at,
)
from paimon_magics.statements.completion.wants import (
    ArgumentValues,
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
from paimon_magics.statements.completion.words import Names
from paimon_magics.statements.lexing.tokens import (
    QUERY_WORDS,
    Token,
    tokenize,
    word_set,
)
from paimon_magics.statements.statement import TableName

_WORD_AT_END = re.compile(r"[\w$]*\Z")
_QUALIFIERS_AT_END = re.compile(r"(?:(?:`(?:[^`]|``)*`|[\w$]+)\.)*\Z")
_PART = re.compile(r"`((?:[^`]|``)*)`|([\w$]+)")

_COMPARISONS = word_set("= == <> != < <= > >= <=>")
# Patterns of the text before the cursor, or before the brackets that it is in.
_COMPARED = re.compile(
    rf"(?P<column>{WORD})(?: (?:==?|<>|!=|<=>|[<>]=?|BETWEEN|LIKE)|(?: NOT)? IN)\Z"
)
_EXPLAIN = re.compile(r" EXPLAIN(?: (?:EXTENDED|FORMATTED|COST|CODEGEN))*(?= |\Z)")
_CLAUSE = re.compile(rf".* ({word_pattern(words.CLAUSES)})")
_TRAVELLED = re.compile(rf"(?:.*?(?P<table>{NAME})|.*)(?: FOR)? (?P<kind>VERSION|\S+) AS OF")
_BETWEEN_TIMES = "paimon_incremental_between_timestamp"
_ARGUMENT = re.compile(r".* (?P<key>\S+) =>")
_CASE = re.compile(r" CASE(?: (?!(?:CASE|END)(?: |\Z))\S+)*(?: END(?= |\Z)|\Z)")
_CHANGE_CLAUSE = re.compile(r".* ((?:SET|WHERE|USING|ON|WHEN)(?= |\Z).*)")


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
        qualifiers = tuple(
            part.replace("``", "`") or word for part, word in _PART.findall(qualified[0])
        )
        before = written[: qualified.start()]
        tokens = tokenize(before)
        if "$" in typed:
            typed = typed.rpartition("$")[2]
            return Expected(cursor - len(typed), typed, (SystemTables(),))
        if not quote and before.endswith(":") and not before.endswith("::"):
            return Expected(start, typed, (BindNames(),))
    start_of_statement = max((i + 1 for i, t in enumerate(tokens) if t.text == ";"), default=0)
    tokens = tokens[start_of_statement:]
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
        explain = _EXPLAIN.match(Line(tokens).text)
        self.levels = levels_at_cursor(tokens[explain[0].count(" ") if explain else 0 :])
        self.qualifiers = qualifiers
        self.in_string = in_string
        self.lines = [Line(items[:index]) for items, index in self.levels]
        self.top, self.line = self.lines[0].text, self.lines[-1]
        self.first = self.top.partition(" ")[2].partition(" ")[0]
        self.last = self.line.last

    def wants(self) -> tuple[Want, ...]:
        if not self.first:
            return (Keywords(words.STATEMENTS),) if not self.qualifiers else ()
        inside = None
        if len(self.lines) > 1:
            inside = self._in_brackets(self.lines[-2])
        elif self.first not in QUERY_WORDS:
            inside = self._in_statement()
        return self._in_query() if inside is None else inside

    # ---- brackets whose meaning depends on the words before them ----

    def _in_brackets(self, outer: Line) -> tuple[Want, ...] | None:
        last, target = outer.last, self._target()
        of_reads = last == "WITH" and outer.text != " WITH"
        if last in ("TBLPROPERTIES", "DBPROPERTIES", "OPTIONS") or (
            of_reads and self.in_string and self.last not in QUERY_WORDS
        ):
            return self._in_properties(of_reads=last in ("WITH", "OPTIONS"))
        if last == "PARTITION" and target is not None:
            columns = self._compared()
            if columns:
                return (PartitionValues((Seen("", target),), columns),)
            return (PartitionColumns(target),) if self.last in ("", ",") else ()
        if self.first == "COPY" and outer.text.endswith(" FILE_FORMAT ="):
            return (Keywords(words.FILE_OPTIONS),) if self.last in ("", ",") else ()
        if self.first == "COPY" and target is not None and " FROM" not in outer.text:
            return (Columns((Seen("", target),)),)
        if self.first == "CALL" or last in words.TABLE_FUNCTIONS:
            return self._in_call(outer)
        if last == "USING" and not self.qualifiers:
            return (Columns(self._scope()),)
        if self.first == "CREATE" and outer.text.endswith(" PARTITIONED BY"):
            definition = next((i for i in outer.items if isinstance(i, Group)), Group(()))
            return (Columns((Seen("", None, listed_names(definition)),)),)
        if len(self.lines) == 2:
            written = set(outer.text.split())
            if self.first == "INSERT" and "SELECT" not in written:
                if not written & {"VALUES", "FROM"}:
                    return (Columns((Seen("", target),)),) if target is not None else ()
                if "VALUES" in written:
                    return ()
            if self.first == "MERGE" and last == "INSERT":
                return (Columns(self._scope()[:1]),)
            if self.first in ("CREATE", "ALTER") and not written & {"AS", "SELECT"}:
                return (Keywords(words.TYPES),) if self.last not in ("", ",") else ()
        column = _compared_in(outer) if last == "IN" and self.last in ("", ",") else ""
        if column:
            scope = self._scope()
            return (PartitionValues(scope, column), *self._columns(scope))
        return None

    def _in_properties(self, *, of_reads: bool) -> tuple[Want, ...]:
        if self.last == "=" or (self.last not in ("", ",") and self.in_string):
            key = next((t for t in reversed(_strings(self.line))), "")
            return (OptionValues(key),) if key else ()
        return (Options(of_reads),) if self.last in ("", ",") else ()

    def _in_call(self, outer: Line) -> tuple[Want, ...]:
        """The arguments of CALL, or of a table function. The first string names the table."""
        if self.first == "CALL":
            return self._in_procedure(outer)
        argument = _ARGUMENT.fullmatch(self.line.text)
        key = argument["key"].lower() if argument else ""
        if key == "table" or (self.in_string and not self.last):
            return (Tables(None), Databases())
        named = _strings(self.line)
        table = table_name_of(named[0].split(".")) if named else None
        if key in ("tag", "tag_name", "version", "branch") and table is not None:
            return (Versions(table, snapshots=key == "version"),)
        name = outer.items[-1] if outer.items else None
        if table is None or self.last != ",":
            return ()
        of_times = isinstance(name, Token) and name.name.lower() == _BETWEEN_TIMES
        return (Times(table),) if of_times else (Versions(table),)

    def _in_procedure(self, outer: Line) -> tuple[Want, ...]:
        """The arguments of CALL, by name or by position."""
        name = outer.items[-1] if outer.items else None
        procedure = name.name if isinstance(name, Token) else ""
        argument = _ARGUMENT.fullmatch(self.line.text)
        table = _argument_table(self.line)
        if argument is not None and self.last == "=>":
            return (ArgumentValues(procedure, argument["key"].lower(), table),)
        if self.last not in ("", ","):
            return ()
        if any(isinstance(item, Token) and item.text == "=>" for item in self.line.items):
            return (ProcedureParameters(procedure),)
        place = sum(isinstance(item, Token) and item.text == "," for item in self.line.items)
        values = ArgumentValues(procedure, place, table)
        if self.in_string:
            return (values,)
        return (values,) if place else (ProcedureParameters(procedure),)

    # ---- statements other than queries ----

    def _in_statement(self) -> tuple[Want, ...] | None:
        if self._follows(words.DATABASE_EXPECTED):
            return (Databases(),)
        if self.top == " CALL":
            return (Procedures(bool(self.qualifiers)),)
        if self._follows("INSERT .* (?:SELECT|FROM|WITH)(?: .*)?|CREATE .*AS(?: .*)?"):
            return None
        if self._follows(words.TABLE_EXPECTED):
            return self._tables()
        target = self._target()
        if target is not None and self._follows(words.COLUMN_EXPECTED):
            return (Columns((Seen("", target),)),)
        if target is not None and self._follows(f"{words.TAG_EXPECTED}|{words.VERSION_EXPECTED}"):
            return (Versions(target, snapshots=self.last == "VERSION"),)
        keywords = next((after for p, after in words.FOLLOWING.items() if self._follows(p)), None)
        if keywords is not None:
            return () if self.qualifiers else (Keywords(keywords),)
        return self._in_change() if self.first in ("DELETE", "UPDATE", "MERGE") else ()

    def _follows(self, pattern: str) -> re.Match[str] | None:
        """The match of a pattern of `words` with the statement up to the cursor."""
        return _pattern(pattern).fullmatch(self.top)

    def _in_change(self) -> tuple[Want, ...]:
        names, keywords = _after_change(self.top, self.first)
        scope = self._scope()
        if names is Names.TARGET:
            return (self._qualified(scope) if self.qualifiers else Columns(scope[:1]),)
        columns = self._columns(scope) if names is Names.ALL else []
        if self.qualifiers:
            return tuple(columns)
        if columns and (column := self._compared()):
            columns.insert(0, PartitionValues(scope, column))
        return (*columns, Keywords(keywords))

    def _target(self) -> TableName | None:
        """The statement's table, if its name is written already."""
        match = self._follows(words.TARGET)
        return table_name_of(self.lines[0].names(match, "table")) if match else None

    # ---- queries ----

    def _in_query(self) -> tuple[Want, ...]:
        clause_match = _CLAUSE.match(self.line.text)
        clause = clause_match[1] if clause_match else ""
        travel = _TRAVELLED.fullmatch(self.line.text)
        if travel:
            table = self._travelled(travel)
            if travel["kind"] != "VERSION":
                return (Times(table),)
            return (Versions(table),) if table is not None else ()
        if self.last in ("FROM", "JOIN", "LATERAL") or (clause == "FROM" and self.last == ","):
            return (*self._tables(), *(() if self.qualifiers else (Keywords(("LATERAL",)),)))
        scope = self._scope()
        if not self.last and not self.qualifiers:
            # The statement's first word is written, so that the cursor is in brackets.
            return (Keywords(("SELECT", "WITH", "VALUES")), *self._columns(scope))
        wants = self._columns(scope, clause)
        if self.qualifiers:
            return tuple(wants)
        column = self._compared()
        if column:
            wants.insert(0, PartitionValues(scope, column))
        if self.last not in _COMPARISONS:
            wants.append(Keywords(words.in_clause(clause, self.last)))
        return tuple(wants)

    def _columns(self, scope: Sequence[Seen], clause: str = "") -> list[Want]:
        if self.qualifiers:
            return [self._qualified(scope)]
        if clause in ("FROM", "LIMIT") or _ends_operand(self.line):
            return []
        return [Columns(tuple(scope), with_aliases=True), Functions()]

    def _qualified(self, scope: Sequence[Seen]) -> Want:
        """What may follow the dots: columns of a relation, or fields of a struct."""
        for place in reversed(range(len(self.qualifiers))):
            alias = self.qualifiers[place].lower()
            relations = tuple(seen for seen in scope if seen.alias.lower() == alias)
            if relations:
                path = self.qualifiers[place + 1 :]
                return Fields(relations, path) if path else Columns(relations)
        return Fields(tuple(scope), self.qualifiers)

    def _scope(self) -> tuple[Seen, ...]:
        """The relations of the cursor's level, then those of the levels around it."""
        common: list[Seen] = []
        relations: list[Seen] = []
        for depth, (items, index) in enumerate(self.levels):
            common += common_tables(Line(items))
            segment = segment_at(items, index)
            if depth == 0 and self.first == "INSERT":
                queries = (
                    i for i, t in enumerate(segment)
                    if isinstance(t, Token) and t.upper in QUERY_WORDS
                )  # fmt: skip
                segment = segment[next(queries, 0) :]
            relations = [*relations_of(Line(segment), common), *relations]
        return tuple(dict.fromkeys(relations))

    def _compared(self) -> str:
        """The column that the value at the cursor is compared with, "" without one."""
        return "" if self.last == "IN" else _compared_in(self.line)

    def _travelled(self, match: re.Match[str]) -> TableName | None:
        """The table before VERSION AS OF or TIMESTAMP AS OF."""
        names = [seen.name for seen in self._scope() if seen.name is not None]
        name = table_name_of(self.line.names(match, "table"))
        return name if name in names or not names else names[-1]

    def _tables(self) -> tuple[Want, ...]:
        if self.qualifiers:
            return (Tables(self.qualifiers[-1]),)
        common = [seen.alias for items, _ in self.levels for seen in common_tables(Line(items))]
        return (Tables(None, tuple(common)), Databases())


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    name = rf"(?! (?:IF|INTO|TABLE|EXTENDED)(?: |\Z)){NAME}"
    return re.compile(f" (?:{pattern})".replace(" @", name).replace("@", name))


def _after_change(text: str, first: str) -> tuple[Names, tuple[str, ...]]:
    """Whose columns, and which keywords, may follow a DELETE, UPDATE or MERGE."""
    last = text.rpartition(" ")[2]
    while _CASE.search(text):
        text = _CASE.sub(" `", text)  # an operand, even if it is open: its words begin no clause
    clause = _CHANGE_CLAUSE.fullmatch(text)
    text = f" {first} {clause[1]}" if clause else text
    rules = (rule for pattern, rule in words.CHANGES.items() if _pattern(pattern).fullmatch(text))
    names, keywords = next(rules, (Names.NONE, ()))
    if names is Names.ALL and last == "IS":
        return Names.NONE, ("NULL", "NOT NULL")
    needs_operand = last in words.BEFORE_OPERANDS or last in ("=", "==")
    return (names, words.OPERANDS if names is Names.ALL and needs_operand else keywords)


def _compared_in(line: Line) -> str:
    """The column before the comparison that a line ends with, "" without one."""
    match = _COMPARED.search(line.text)
    return line.names(match, "column")[0] if match else ""


def _argument_table(line: Line) -> TableName | None:
    """The table that the arguments of a CALL name: by `table` or `source_table`, else the first."""
    items = line.items
    named = [
        third.value
        for first, second, third in zip(items, items[1:], items[2:], strict=False)
        if isinstance(first, Token)
        and first.name.lower() in ("table", "source_table")
        and isinstance(second, Token)
        and second.text == "=>"
        and isinstance(third, Token)
        and third.kind == "string"
    ]
    texts = named or _strings(line)
    return table_name_of(texts[0].split(".")) if texts else None


def _strings(line: Line) -> list[str]:
    return [t.value for t in line.items if isinstance(t, Token) and t.kind == "string"]


def _ends_operand(line: Line) -> bool:
    """Whether a line ends with a complete operand, so that no other operand can follow."""
    last = line.items[-1] if line.items else None
    if isinstance(last, Group):
        return True
    if last is None or last.kind == "symbol":
        return False
    return last.kind != "word" or last.upper not in words.BEFORE_OPERANDS
