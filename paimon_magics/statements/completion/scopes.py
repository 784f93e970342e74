"""The relations in scope at a place in an unfinished query, and their columns.

Works on tokens alone and never raises: open brackets, half-written clauses and unknown words are
normal in a text that is being written. What it does not understand is left out.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paimon_magics.statements.clauses.names import table_name_of
from paimon_magics.statements.completion.lines import NAME, WORD, Group, Item, Line, word_pattern
from paimon_magics.statements.lexing.tokens import CLAUSE_WORDS, QUERY_WORDS, Token, word_set
from paimon_magics.statements.statement import TableName

_SET_WORDS = word_set("UNION EXCEPT INTERSECT MINUS SETMINUS")
_ENDS_LIST = word_set("FROM WHERE GROUP HAVING ORDER SORT CLUSTER DISTRIBUTE LIMIT WINDOW QUALIFY")
_SOURCE_WORDS = word_set("FROM JOIN INTO UPDATE OVERWRITE TABLE USING ,")
_NO_ALIAS = CLAUSE_WORDS | word_set("VERSION TIMESTAMP SYSTEM_VERSION SYSTEM_TIME FOR PARTITION BY")
_CLAUSE = re.compile(
    rf" ({word_pattern(_SOURCE_WORDS | _ENDS_LIST | word_set('SELECT VALUES SET'))})"
)
_RELATION = re.compile(
    rf"(?: (?:TABLE|LATERAL|INTO)(?= |\Z))*"
    rf"(?:(?P<group> \(\))|(?! {word_pattern(CLAUSE_WORDS)})(?P<name>{NAME}))"
    rf"(?: (?:VERSION|TIMESTAMP|FOR)(?: \S+)*? OF(?: \S+)?)?"
    rf"(?: AS(?= |\Z))?(?P<alias>(?! {word_pattern(_NO_ALIAS)}){WORD})?"
)
_WITH = re.compile(r" WITH(?: RECURSIVE)?(?= |\Z)")
_COMMON_TABLE = re.compile(rf"(?P<name>{WORD})(?P<columns> \(\))?(?: AS)?(?P<query> \(\))(?: ,)?")
_SELECT_LIST = re.compile(
    rf" SELECT(?: DISTINCT| ALL)*(?= |\Z)(?P<list>.*?)(?: {word_pattern(_ENDS_LIST)}|\Z)"
)
_COLUMN = re.compile(rf"(?:(?P<owner>{WORD}) \.)?(?P<star> \*)(?= ,|\Z)|(?P<name>{WORD})(?= ,|\Z)")
_LISTED = re.compile(rf"(?:\A|(?<= ,))(?P<name>{WORD})")
_FROM = Token("word", "FROM", 0, 0, "FROM")


@dataclass(frozen=True, slots=True)
class Seen:
    """A relation in scope. `name` is the table's; it is None for a subquery or common table
    expression, whose columns are `columns` and all columns of the relations in `stars`."""

    alias: str
    name: TableName | None = None
    columns: tuple[str, ...] = ()
    stars: tuple[Seen, ...] = ()


def segment_at(items: Sequence[Item], index: int) -> Sequence[Item]:
    """The operand of a set operation (`… UNION …`) that contains the item at `index`."""
    cuts = [
        place
        for place, item in enumerate(items)
        if isinstance(item, Token) and item.upper in _SET_WORDS
    ]
    ends = [-1, *cuts, len(items)]
    after = bisect_left(ends, index)
    return items[ends[after - 1] + 1 : ends[after]]


def relations_of(line: Line, outer: Sequence[Seen] = ()) -> tuple[Seen, ...]:
    """The relations of FROM, JOIN, INSERT INTO and similar clauses at one level of brackets, in the
    order written. `outer` are common table expressions of the levels around it."""
    common = {seen.alias.lower(): seen for seen in (*outer, *common_tables(line))}
    relations: list[Seen] = []
    in_list = False
    position = 0
    while clause := _CLAUSE.search(line.text, position):
        position = clause.end()
        relation = _RELATION.match(line.text, position)
        word = clause[1]
        if word not in _SOURCE_WORDS:
            in_list = False
        if word not in _SOURCE_WORDS or (word == "," and not in_list):
            continue
        if word == "USING" and relation is not None and _is_column_list(line, relation):
            continue
        in_list = word in ("FROM", ",")
        if relation is not None:
            position = relation.end()
            relations += _relation(line, relation, common)
    return tuple(relations)


def common_tables(line: Line) -> tuple[Seen, ...]:
    """The common table expressions of the first WITH of a line."""
    tables: dict[str, Seen] = {}
    begins = _WITH.search(line.text)
    position = begins.end() if begins else len(line.text)
    while match := _COMMON_TABLE.match(line.text, position):
        (name,) = line.names(match, "name")
        seen = _derived(line.group(match, "query"), name, tables)
        if match["columns"]:
            seen = Seen(name, None, listed_names(line.group(match, "columns")))
        tables[name.lower()] = seen
        position = match.end()
        if not match[0].endswith(","):
            break
    return tuple(tables.values())


def listed_names(group: Group) -> tuple[str, ...]:
    """The names with which the items of a list begin, as of columns in their definitions."""
    line = Line(group.items)
    return tuple(line.names(match, "name")[0] for match in _LISTED.finditer(line.text))


def _is_column_list(line: Line, relation: re.Match[str]) -> bool:
    """Whether JOIN … USING goes on so, and not MERGE INTO … USING."""
    return relation["group"] is not None and not _is_query(line.group(relation, "group"))


def _relation(line: Line, match: re.Match[str], common: dict[str, Seen]) -> Sequence[Seen]:
    alias = "".join(line.names(match, "alias"))
    if match["group"]:
        group = line.group(match, "group")
        if _is_query(group):
            return [_derived(group, alias, common)]
        return relations_of(Line((_FROM, *group.items)), tuple(common.values()))[:1]
    parts = line.names(match, "name")
    if len(parts) == 1 and parts[0].lower() in common:
        seen = common[parts[0].lower()]
        return [replace(seen, alias=alias or seen.alias)]
    name = table_name_of(parts)
    return [Seen(alias or parts[-1], name)] if name is not None else []


def _derived(group: Group, alias: str, common: dict[str, Seen]) -> Seen:
    """A subquery as a relation, with the names of its SELECT list."""
    line = Line(segment_at(group.items, 0))
    relations = relations_of(line, tuple(common.values()))
    columns: list[str] = []
    stars: list[Seen] = []
    select = _SELECT_LIST.search(line.text)
    for column in _COLUMN.finditer(line.text, *select.span("list")) if select else ():
        if column["star"]:
            owner = "".join(line.names(column, "owner")).lower()
            stars += [r for r in relations if not owner or r.alias.lower() == owner]
        elif column["name"] != " END":
            columns += line.names(column, "name")
    return Seen(alias, None, tuple(dict.fromkeys(columns)), tuple(stars))


def _is_query(group: Group) -> bool:
    """Whether brackets begin with a word that begins a query."""
    first = group.items[0] if group.items else None
    return isinstance(first, Token) and first.upper in QUERY_WORDS
