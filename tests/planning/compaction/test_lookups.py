"""What upgrades are in tables whose compactions look up, or tell changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_magics.planning.compaction.keyed_tables import BucketFile
from paimon_magics.planning.compaction.steps import LookupRules, Rewrite, Upgrade, with_lookups
from paimon_magics.planning.options.changelog_producers import CHANGELOG_PRODUCERS
from paimon_magics.planning.schemas.table_schema import TableSchema, plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable

FILE = BucketFile("a", 0, 100, 0, 9)
PLAIN = LookupRules(
    looks_up=True,
    producer=CHANGELOG_PRODUCERS["none"],
    has_deletion_vectors=False,
    sees_all=True,
    formats=("parquet",) * 6,
    max_level=5,
)
CHANGES = replace(PLAIN, producer=CHANGELOG_PRODUCERS["lookup"])
VECTORS = replace(PLAIN, has_deletion_vectors=True)
FULL = replace(PLAIN, looks_up=False, producer=CHANGELOG_PRODUCERS["full-compaction"])
AS_IT_IS, READ, REWRITTEN, REWRITTEN_WITHOUT_DELETES = range(4)


@pytest.mark.parametrize(
    ("rules", "file", "level", "expected"),
    [
        (PLAIN, FILE, 3, AS_IT_IS),
        (CHANGES, FILE, 3, READ),
        (CHANGES, FILE, 5, READ),
        (CHANGES, replace(FILE, level=1), 5, AS_IT_IS),
        (replace(CHANGES, sees_all=False), FILE, 3, REWRITTEN),
        (replace(CHANGES, sees_all=False), FILE, 5, READ),
        (replace(PLAIN, sees_all=False), FILE, 5, AS_IT_IS),
        (replace(PLAIN, formats=("avro", *PLAIN.formats[1:])), FILE, 3, REWRITTEN),
        (VECTORS, FILE, 3, READ),
        (VECTORS, FILE, 5, AS_IT_IS),
        (VECTORS, replace(FILE, deleted_rows=1), 3, REWRITTEN_WITHOUT_DELETES),
        (VECTORS, replace(FILE, deleted_rows=None), 3, REWRITTEN_WITHOUT_DELETES),
        (CHANGES, replace(FILE, deleted_rows=1), 3, READ),
        (FULL, FILE, 3, AS_IT_IS),
        (FULL, FILE, 5, READ),
        (FULL, replace(FILE, level=3), 5, READ),
    ],
)
def test_upgraded_file_is_rewritten_or_read_as_rules_require(
    rules: LookupRules, file: BucketFile, level: int, expected: int
) -> None:
    rewritten = Rewrite((((file,),),), drops_deletes=expected == REWRITTEN_WITHOUT_DELETES)
    wanted = rewritten if expected >= REWRITTEN else Upgrade(file, is_read=expected == READ)
    assert with_lookups([Upgrade(file)], level, rules) == [wanted]


def test_rewrite_is_left_unchanged() -> None:
    rewrite = Rewrite((((FILE,),),))
    assert with_lookups([rewrite], 5, CHANGES) == [rewrite]


def test_rules_decide_which_rows_are_looked_up_and_logged() -> None:
    assert CHANGES.looks_up_in([FILE], 3) and CHANGES.tells_changes_of([FILE], 3)
    assert not CHANGES.looks_up_in([replace(FILE, level=1)], 3)
    assert not CHANGES.looks_up_in([FILE], 0)
    assert VECTORS.looks_up_in([FILE], 3) and not VECTORS.tells_changes_of([FILE], 3)
    assert FULL.tells_changes_of([replace(FILE, level=1)], 5)
    assert not FULL.tells_changes_of([FILE], 3) and not FULL.looks_up_in([FILE], 5)


def schema_with(options: str) -> TableSchema:
    statement = parse_statement(
        "CREATE TABLE t (k INT, s INT, PRIMARY KEY (k) NOT ENFORCED) "
        f"TBLPROPERTIES ('bucket' = '1', {options})"
    )
    assert isinstance(statement, CreateTable)
    return plan_create_table(statement)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("'changelog-producer' = 'lookup'", CHANGES),
        ("'changelog-producer' = 'lookup', 'sequence.field' = 's'", None),
        ("'deletion-vectors.enabled' = 'true'", VECTORS),
        ("'changelog-producer' = 'full-compaction', 'force-lookup' = 'true'", FULL),
        ("'merge-engine' = 'first-row'", replace(PLAIN, sees_all=False)),
    ],
)
def test_lookup_rules_follow_the_table_options(options: str, expected: LookupRules | None) -> None:
    wanted = replace(CHANGES, sees_all=False) if expected is None else expected
    assert LookupRules.of(schema_with(options), ["parquet"] * 6, 5) == wanted
