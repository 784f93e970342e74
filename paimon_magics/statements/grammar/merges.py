"""Reads MERGE INTO: its target, source, condition and clauses.

The syntax is Spark's (`mergeIntoTable` in `SqlBaseParser.g4`), with two things more: the kinds of
clauses may come in any order, and a source that is a table may have a time-travel clause.
"""

from __future__ import annotations

from paimon_magics.statements.clauses.names import try_table_name
from paimon_magics.statements.grammar.delete_update import (
    column_path,
    expression_until,
    refuse_inside,
)
from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, Token
from paimon_magics.statements.queries.qualifiers import references_of
from paimon_magics.statements.queries.query_text import at_query, bind_parameters, read_query
from paimon_magics.statements.queries.references import Relation, read_alias, read_relation
from paimon_magics.statements.queries.scanning import scan_relations
from paimon_magics.statements.statement import (
    Assignment,
    DeleteAction,
    InsertAction,
    MatchKind,
    MergeAction,
    MergeClause,
    MergeInto,
    QueryText,
    TableName,
    TextRange,
    UpdateAction,
)

_UNNAMED_SOURCE = "__paimon_source"


def read_merge(cursor: Cursor, with_index: int | None = None) -> MergeInto:
    """Read what follows MERGE. `with_index` is the index of a WITH token before MERGE.

    Raises StatementSyntaxError.
    """
    merge_index = cursor.index - 1
    evolves_schema = cursor.accept("WITH", "SCHEMA", "EVOLUTION")
    cursor.expect("INTO")
    target = _relation(cursor, "the target of MERGE")
    name = _target_name(cursor, target)
    before = cursor.index
    cursor.expect("USING")
    source_index = cursor.index
    source, relation, alias = _source(cursor, (with_index, merge_index, before))
    cursor.expect("ON")
    first = cursor.index
    condition = _condition(cursor, "WHEN")
    clauses = _clauses(cursor)
    _check_clauses(cursor, clauses)
    relations = [target, *([relation] if relation is not None else [])]
    within, qualifiers, aliases = _within(cursor, first, relations, alias)
    target_alias = aliases[target.range.start]
    source_alias = alias or aliases.get(cursor.tokens[source_index].start, _UNNAMED_SOURCE)
    if target_alias.lower() == source_alias.lower():
        cursor.fail_at(
            target.range.start,
            f"Target and source of the MERGE are both named `{target_alias}`.",
            f"Give one of them an alias: USING … AS s ON {target_alias}.id = s.id.",
        )
    text = _only(cursor, source_index, with_index, merge_index, source.range.end)
    return MergeInto(
        cursor.text,
        cursor.offset,
        name,
        target.range.start,
        target_alias,
        source,
        text,
        source_alias,
        condition,
        clauses,
        within,
        qualifiers,
        evolves_schema,
    )


def _relation(cursor: Cursor, what: str) -> Relation:
    if cursor.peek().kind not in IDENTIFIER_KINDS:
        cursor.fail(what)
    relation = read_relation(cursor)
    if cursor.at("(") and relation.alias is not None:
        _refuse_column_aliases(cursor)
    return relation


def _refuse_column_aliases(cursor: Cursor) -> None:
    cursor.fail_at(
        cursor.position,
        "Column aliases are not allowed in MERGE.",
        "Name the columns in the source's query: USING (SELECT 1 AS id, 'a' AS v) AS s.",
    )


def _target_name(cursor: Cursor, target: Relation) -> TableName:
    name = try_table_name(target.parts)
    if target.time_travel or target.changes or target.options or name is None:
        cursor.fail_at(
            target.range.start,
            "The target of a MERGE is a table as it is now.",
            "Write MERGE INTO database.table AS t, without further clauses.",
        )
    return name


def _source(
    cursor: Cursor, places: tuple[int | None, int, int]
) -> tuple[QueryText, Relation | None, str]:
    """Read the source; return its query, the relation if it is a table, and its alias, "" if it has
    none. `places` are the indexes of a WITH before MERGE, of MERGE and of USING."""
    with_index, merge_index, using_index = places
    start = cursor.index
    relation = None
    if cursor.at("("):
        inner = cursor.at_index(start, cursor.closing())
        if not at_query(inner):
            inner.next()
            inner.fail("a query")
        cursor.skip_brackets()
        stop = cursor.index
        alias = read_alias(cursor)
        if cursor.at("(") and alias is not None:
            _refuse_column_aliases(cursor)
    else:
        relation = _relation(cursor, "a table or a query in brackets")
        stop = next(
            index for index in range(start, cursor.index + 1)
            if index == cursor.index or cursor.tokens[index].start >= relation.range.end
        )  # fmt: skip
        alias = relation.alias
    tokens = cursor.tokens[start:stop]
    if relation is not None:
        using = cursor.tokens[using_index]
        tokens = (Token("word", "TABLE", using.start, using.end, "TABLE"), *tokens)
    if with_index is not None:
        tokens = (*cursor.tokens[with_index:merge_index], *tokens)
    text = _only(cursor, start, with_index, merge_index, tokens[-1].end)
    query = read_query(Cursor(text, tokens))
    return query, relation, alias or ""


def _only(cursor: Cursor, start: int, with_index: int | None, merge_index: int, end: int) -> str:
    """The statement's text with blanks for all but the WITH before MERGE and the source."""
    text, tokens = cursor.text, cursor.tokens
    source_start = tokens[start].start
    first = tokens[merge_index].start if with_index is not None else 0
    head = text[:first]
    if cursor.tokens[start].text != "(":
        using = tokens[start - 1]
        gap = _blank(text[first : using.start]) + "TABLE" + _blank(text[using.end : source_start])
    else:
        gap = _blank(text[first:source_start])
    return head + gap + text[source_start:end] + _blank(text[end:])


def _blank(text: str) -> str:
    return "".join("\n" if character == "\n" else " " for character in text)


def _clauses(cursor: Cursor) -> tuple[MergeClause, ...]:
    clauses = []
    while not cursor.at_end:
        position = cursor.position
        cursor.expect("WHEN")
        kind: MatchKind = "MATCHED"
        if cursor.accept("NOT"):
            kind = "NOT MATCHED"
        cursor.expect("MATCHED")
        if kind == "NOT MATCHED" and cursor.accept("BY"):
            word = cursor.accept_any("SOURCE", "TARGET")
            if not word:
                cursor.fail("SOURCE or TARGET")
            if word == "SOURCE":
                kind = "NOT MATCHED BY SOURCE"
        condition = None
        if cursor.accept("AND"):
            condition = _condition(cursor, "THEN")
        cursor.expect("THEN")
        clauses.append(MergeClause(kind, condition, _action(cursor, kind), position))
    return tuple(clauses)


def _condition(cursor: Cursor, end: str) -> TextRange:
    first = cursor.index
    condition = expression_until(cursor, end, what="a condition")
    refuse_inside(cursor, first, subqueries="a condition of MERGE")
    return condition


def _action(cursor: Cursor, kind: MatchKind) -> MergeAction:
    if kind == "NOT MATCHED":
        if not cursor.accept("INSERT"):
            cursor.fail("INSERT", hint="A source row without a target row can only be inserted.")
        return _insert(cursor)
    if cursor.accept("DELETE"):
        return DeleteAction()
    if not cursor.accept("UPDATE"):
        cursor.fail("UPDATE SET or DELETE")
    cursor.expect("SET")
    if cursor.at("*"):
        if kind == "NOT MATCHED BY SOURCE":
            cursor.fail_at(
                cursor.position,
                "UPDATE SET * uses the values of a source row, but this clause has none.",
                "Name the columns: UPDATE SET column = value.",
            )
        cursor.next()
        return UpdateAction(None)

    def assignment() -> Assignment:
        position, path = cursor.position, column_path(cursor)
        cursor.expect("=")
        return Assignment(path, position, _value(cursor, ",", "WHEN"))

    return UpdateAction(cursor.listed(assignment))


def _insert(cursor: Cursor) -> InsertAction:
    if cursor.accept("*"):
        return InsertAction(None)
    opening = cursor.position
    columns = cursor.in_brackets(lambda: (cursor.position, column_path(cursor)))
    cursor.expect("VALUES")
    if not cursor.at("("):
        cursor.fail("`(`")
    closing = cursor.closing()
    inner = cursor.at_index(cursor.index + 1, closing)
    values = inner.listed(lambda: _value(inner, ","))
    cursor.index = closing + 1
    if len(columns) != len(values):
        cursor.fail_at(
            opening,
            f"The lists of INSERT and VALUES differ in length: {len(columns)} and {len(values)}.",
            "Give a value for each column; DEFAULT is one, too.",
        )
    return InsertAction(
        tuple(
            Assignment(path, position, value)
            for (position, path), value in zip(columns, values, strict=True)
        )
    )


def _value(cursor: Cursor, *ends: str) -> TextRange | None:
    """Read a value up to one of these words; None for DEFAULT."""
    after = cursor.peek(1)
    if cursor.at("DEFAULT") and (after.kind == "end" or after.upper in ends):
        cursor.next()
        return None
    first = cursor.index
    value = expression_until(cursor, *ends, what="a value")
    refuse_inside(cursor, first)
    return value


def _check_clauses(cursor: Cursor, clauses: tuple[MergeClause, ...]) -> None:
    """Raise StatementSyntaxError without a clause, and where one can never apply (Spark's
    `NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION` and its like)."""
    if not clauses:
        cursor.fail("WHEN", hint="There must be at least one WHEN clause in a MERGE statement.")
    for index, clause in enumerate(clauses):
        later = {following.kind for following in clauses[index + 1 :]}
        if clause.condition is None and clause.kind in later:
            cursor.fail_at(
                clause.position,
                f"This WHEN {clause.kind} clause has no condition, so the later clauses of its "
                "kind never apply.",
                f"Only the last WHEN {clause.kind} clause may omit the condition.",
            )


def _within(
    cursor: Cursor, first: int, relations: list[Relation], source_alias: str
) -> tuple[QueryText, tuple[tuple[TextRange, str], ...], dict[int, str]]:
    """Return the names between ON and the end. With them the qualifiers that mean target or source,
    with their aliases, and these relations' aliases by the positions of their names."""
    stop = cursor.index
    clauses = cursor.at_index(first, stop)
    parameters = bind_parameters(clauses)
    nested = [read_relation(cursor.at_index(i, stop)) for i in scan_relations(clauses)]
    references = references_of(
        [*relations, *nested],
        cursor.at_index(first, stop),
        frozenset({source_alias.lower()} - {""}),
    )
    starts = {relation.range.start for relation in relations}
    sides = [side for side in references if side.range.start in starts]
    aliases = {side.range.start: side.alias for side in sides}
    qualifiers = tuple((place, side.alias) for side in sides for place in side.qualifiers)
    references = tuple(table for table in references if table.range.start not in starts)
    start, end = cursor.tokens[first].start, cursor.tokens[stop - 1].end
    return QueryText(TextRange(start, end), references, parameters), qualifiers, aliases
