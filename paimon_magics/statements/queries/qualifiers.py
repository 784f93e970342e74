"""Columns that are qualified with their table and its database: `shop.orders.id`.

When a view with another name replaces the table, such a qualifier must become the relation's
alias. Spark resolves `shop.orders.id` as database, table, column before it tries a struct's fields.
Nevertheless, a user's own alias `shop` is left alone, because only Spark knows its columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paimon_magics.statements.clauses.names import try_table_name
from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, Token
from paimon_magics.statements.queries.references import Relation
from paimon_magics.statements.queries.tree import TreeRelation
from paimon_magics.statements.statement import TableReference, TextRange

_CATALOG = "paimon"


def references_of(
    relations: Sequence[Relation], cursor: Cursor, other_names: frozenset[str]
) -> tuple[TableReference, ...]:
    """Return the relations as references, each with the qualifiers that mean it.

    `other_names` are the lower-case names of the query's relations that are not tables (CTEs and
    aliased subqueries). A qualifier that means two relations of the same name is given to the
    first: both get the same alias.
    """
    names = [_written(r) for r in relations]
    aliases = {r.alias.lower() for r in relations if r.alias is not None} | other_names
    single = {n[0] for n, r in zip(names, relations, strict=True) if len(n) == 1 and not r.alias}
    qualifiers: list[list[TextRange]] = [[] for _ in relations]
    for chain in _chains(cursor, [r.range for r in relations]):
        parts = [t.name.lower() if t.kind in IDENTIFIER_KINDS else t.text for t in chain]
        for index, (name, relation) in enumerate(zip(names, relations, strict=True)):
            if relation.alias is not None:
                continue
            length = _explained(parts, name, chain)
            if length and (length == 1 or parts[0] not in aliases | single):
                qualifiers[index].append(TextRange(chain[0].start, chain[length - 1].end))
                break
    taken = {t.name.lower() for t in cursor.tokens if t.kind in IDENTIFIER_KINDS}
    return tuple(
        reference
        for index, relation in enumerate(relations)
        if (reference := _reference(index, relations, names, qualifiers, aliases, taken, cursor))
    )


def _reference(
    index: int,
    relations: Sequence[Relation],
    names: Sequence[tuple[str, ...]],
    qualifiers: Sequence[Sequence[TextRange]],
    aliases: set[str],
    taken: set[str],
    cursor: Cursor,
) -> TableReference | None:
    relation = relations[index]
    name = try_table_name(relation.parts)
    if name is None:
        return None
    alias = relation.alias
    if alias is None:
        alias = relation.parts[-1].name
        if _is_shared(index, relations, names, aliases) and any(
            q for q, n in zip(qualifiers, names, strict=True) if _same(n, names[index])
        ):
            alias = "_".join(p.name for p in relation.parts)
            while alias.lower() in taken:
                alias += "_"
    use = relation.use or TreeRelation(relation.range.start)
    return TableReference(
        name,
        relation.range,
        relation.alias is not None,
        relation.time_travel,
        tuple(qualifiers[index]),
        alias,
        -1 if _stands_behind_table(relation, cursor) else relation.alias_position,
        relation.options,
        filters=use.filters,
        unordered=use.unordered,
        other_conditions=use.other_conditions,
        only_filters=use.only_filters,
        rows_wanted=use.rows_wanted,
        changes=relation.changes,
    )


def _stands_behind_table(relation: Relation, cursor: Cursor) -> bool:
    """Whether this is `TABLE t` or `TABLE (t)`, which can't have an alias."""
    index = cursor.tokens.index(relation.parts[0])
    before = [t.upper for t in cursor.tokens[max(index - 2, 0) : index]]
    return before[-1:] == ["TABLE"] or before == ["TABLE", "("]


def _is_shared(
    index: int,
    relations: Sequence[Relation],
    names: Sequence[tuple[str, ...]],
    aliases: set[str],
) -> bool:
    """Whether another relation that is not the same table has the name of this one's last part."""
    own = names[index]
    return own[-1] in aliases or any(
        r.alias is None and n[-1] == own[-1] and not _same(n, own)
        for n, r in zip(names, relations, strict=True)
    )


def _same(left: tuple[str, ...], right: tuple[str, ...]) -> bool:
    """Whether two written names are equal, but for a catalog or database that one leaves out."""
    length = min(len(left), len(right))
    return (left[-length:] == right[-length:] and length > 1) or left == right


def _written(relation: Relation) -> tuple[str, ...]:
    return tuple(p.name.lower() for p in relation.parts)


def _explained(parts: Sequence[str], name: tuple[str, ...], chain: Sequence[Token]) -> int:
    """The number of leading parts of a chain that are the table's name; 0 if they are not."""
    for length in range(min(len(parts) - 1, 3), 1, -1):
        lead = tuple(parts[:length])
        if lead == name[-length:]:
            return length
        if length == 3 and lead == (_CATALOG, *name):
            return length
    if parts[0] == name[-1] and "$" in chain[0].text and chain[0].kind == "word":
        return 1  # Spark reads no `$` outside back-quotes
    return 0


def _chains(cursor: Cursor, relations: Sequence[TextRange]) -> Iterator[list[Token]]:
    """The dotted names outside relations: two or more parts, of which the last may be `*`."""
    starts = {r.start for r in relations}
    tokens = cursor.tokens
    index = cursor.index
    while index < cursor.stop:
        token = tokens[index]
        if token.kind not in IDENTIFIER_KINDS:
            index += 1
            continue
        chain = [token]
        index += 1
        while index + 1 < cursor.stop and tokens[index].text == ".":
            following = tokens[index + 1]
            if following.kind in IDENTIFIER_KINDS or following.kind == "number":
                chain.append(following)
                index += 2
                continue
            if following.text == "*":
                chain.append(following)
                index += 2
            break
        if len(chain) > 1 and token.start not in starts:
            yield chain
