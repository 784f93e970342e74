"""Tables that older releases wrote are changed, compacted and expired."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from paimon_magics.statements.statement import TableName
from tests.older_releases import older_tables, unpack_older_releases
from tests.sampling import sampled
from tests.session.rows import rows
from tests.tables.expiry.test_expire_snapshots import expire
from tests.tables.reachability import missing, unreachable

if TYPE_CHECKING:
    from paimon_magics import Session
    from paimon_magics.tables.table import Table

pytestmark = pytest.mark.spark

NEW = 100
REFUSES_UPDATES = ("keyed_first_row", "keyed_aggregation", "keyed_partial_update", "keyed_partial")
# Of the later releases, the tables that are stored otherwise than those of 0.9.
LATER = (
    "r1_2_0.append_vectors64",
    "r1_2_0.append_index_embedded",
    "r1_2_0.keyed_thin",
    "r1_2_0.keyed_thin_parts",
    "r1_2_0.keyed_file_mix",
    "r1_2_0.parts_odd",
)
# They have moments before 1970 with a fraction of a second, which other engines can't read from
# ORC files, and arrays, which are not offered in Avro files.
KEPT_AS_THEY_ARE = ("append_orc", "append_avro", "append_default")
CHANGED = [
    name
    for name in older_tables()
    if name.startswith(("r0_", "p1_3_2."))
    or name in LATER
    or (name.startswith("j0_") and name.partition(".")[2] not in KEPT_AS_THEY_ARE)
]


@pytest.fixture(scope="module")
def module_warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_older_releases(tmp_path_factory.mktemp("older"))


def as_texts(found: Sequence[tuple[Any, ...]]) -> list[str]:
    return sorted(map(repr, found))


@pytest.mark.parametrize("name", sampled(CHANGED, one_in=5))
def test_tables_of_older_releases_are_changed_compacted_and_expired(
    module_session: Session, name: str
) -> None:
    session = module_session
    columns = session.table(name).columns
    key, text = (
        columns[0],
        next((each for each in columns if each in ("s", "v", "w", "text", "s0", "t")), columns[-1]),
    )
    place = columns.index(text)

    def check(expected: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        assert as_texts(rows(session, f"SELECT * FROM {name}")) == as_texts(expected)
        return expected

    known = unreachable(loaded(session, name))
    stored = rows(session, f"SELECT * FROM {name}")
    least = min(row[0] for row in stored)
    rest = ", ".join(f"`{each}`" for each in columns[1:])
    session.run(f"INSERT INTO {name} SELECT {NEW}, {rest} FROM {name} WHERE `{key}` = {least}")
    [copied] = [row for row in stored if row[0] == least]
    stored = check([*stored, (NEW, *copied[1:])])

    if name.partition(".")[2] not in REFUSES_UPDATES:
        value = copied[place] if place == 0 or not isinstance(copied[place], str) else "changed"
        literal = f"'{value}'" if isinstance(value, str) else "NULL"
        value = value if isinstance(value, str) else None
        changed = (*copied[:place], value, *copied[place + 1 :])
        if text != key:
            session.run(f"UPDATE {name} SET `{text}` = {literal} WHERE `{key}` = {NEW}")
            stored = check([*stored[:-1], (NEW, *changed[1:])])
        session.run(f"DELETE FROM {name} WHERE `{key}` = {least}")
        stored = check([row for row in stored if row[0] != least])
        session.run(
            f"MERGE INTO {name} t USING (SELECT {NEW} AS id) s ON t.`{key}` = s.id "
            "WHEN MATCHED THEN DELETE"
            if "cross_partition" not in name  # a MERGE can't delete there
            else f"DELETE FROM {name} WHERE `{key}` = {NEW}"
        )
        stored = check([row for row in stored if row[0] != NEW])

    session.run(f"CALL sys.compact(table => '{name}', options => 'compaction.min.file-num=2')")
    check(stored)
    session.run(f"CALL sys.compact_manifest(table => '{name}')")
    check(stored)
    table = loaded(session, name)
    assert expire(table) > 0
    assert not missing(table)
    assert unreachable(table) <= known
    check(stored)
    session.run(f"INSERT OVERWRITE {name} SELECT * FROM {name}")
    check(stored)
    assert not missing(loaded(session, name))


def loaded(session: Session, name: str) -> Table:
    database, _, table = name.partition(".")
    return session.catalog.load(TableName(table, database))
