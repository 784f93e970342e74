"""What ALTER TABLE makes of a definition; compared with what Paimon 2.0.0's catalog does."""

from __future__ import annotations

import pytest

from paimon_magics.errors import InvalidTableError, UnknownNameError
from paimon_magics.planning.schemas.alterations import Alteration, plan_alteration
from paimon_magics.planning.schemas.table_schema import TableSchema, plan_create_table
from paimon_magics.planning.schemas.type_changes import can_retype
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable
from paimon_magics.statements.table_changes import AlterTable
from paimon_magics.statements.types.type_text import from_sql

BASE = (
    "CREATE TABLE t (k INT, v STRING COMMENT 'c', n BIGINT DEFAULT 7, "
    "s STRUCT<a: INT, b: ARRAY<STRUCT<x: INT, y: STRING NOT NULL>>>, m MAP<STRING, INT>, dt DATE) "
    "PARTITIONED BY (dt) TBLPROPERTIES ('primary-key' = 'k,dt', 'bucket' = '2', "
    "'sequence.field' = 'n', 'merge-engine' = 'aggregation', "
    "'fields.v.aggregate-function' = 'max')"
)


def base() -> TableSchema:
    statement = parse_statement(BASE)
    assert isinstance(statement, CreateTable)
    return plan_create_table(statement)


def altered(change: str, *, has_snapshots: bool = True) -> Alteration:
    statement = parse_statement(f"ALTER TABLE t {change}")
    assert isinstance(statement, AlterTable)
    return plan_alteration(base(), statement.changes, has_snapshots=has_snapshots)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ("ADD COLUMN w INT", ("k", "v", "n", "s", "m", "dt", "w")),
        ("ADD COLUMN w INT FIRST", ("w", "k", "v", "n", "s", "m", "dt")),
        ("ADD COLUMN w INT AFTER V", ("k", "v", "w", "n", "s", "m", "dt")),
        ("DROP COLUMN m", ("k", "v", "n", "s", "dt")),
        ("DROP COLUMN IF EXISTS zz", ("k", "v", "n", "s", "m", "dt")),
        ("RENAME COLUMN m TO map", ("k", "v", "n", "s", "map", "dt")),
        ("ALTER COLUMN m FIRST", ("m", "k", "v", "n", "s", "dt")),
        ("ALTER COLUMN k AFTER s", ("v", "n", "s", "k", "m", "dt")),
    ],
)
def test_columns_are_added_dropped_renamed_and_moved(change: str, names: tuple[str, ...]) -> None:
    assert altered(change).schema.column_names == names


@pytest.mark.parametrize(
    ("change", "default"),
    [
        ("TYPE INT", "7"),
        ("TYPE STRING", "'7'"),
        ("TYPE VARCHAR(1)", "'7'"),
        ("TYPE DOUBLE", "7"),
    ],
)
def test_retyped_column_keeps_its_default(change: str, default: str) -> None:
    assert altered(f"ALTER COLUMN n {change}").schema.column("n").default == default


@pytest.mark.parametrize(
    ("change", "column", "data_type"),
    [
        ("ALTER COLUMN n TYPE DOUBLE", "n", "DOUBLE"),
        ("ALTER COLUMN m.value TYPE BIGINT", "m", "MAP<STRING, BIGINT>"),
        (
            "ALTER COLUMN s.b.element.x TYPE BIGINT",
            "s",
            "STRUCT<a: INT, b: ARRAY<STRUCT<x: BIGINT, y: STRING NOT NULL>>>",
        ),
        (
            "ALTER COLUMN s.b.element.y DROP NOT NULL",
            "s",
            "STRUCT<a: INT, b: ARRAY<STRUCT<x: INT, y: STRING>>>",
        ),
        (
            "ADD COLUMN s.b.element.z DATE FIRST",
            "s",
            "STRUCT<a: INT, b: ARRAY<STRUCT<z: DATE, x: INT, y: STRING NOT NULL>>>",
        ),
        ("DROP COLUMN s.b", "s", "STRUCT<a: INT>"),
        (
            "RENAME COLUMN s.a TO aa",
            "s",
            "STRUCT<aa: INT, b: ARRAY<STRUCT<x: INT, y: STRING NOT NULL>>>",
        ),
    ],
)
def test_nested_types_can_be_changed(change: str, column: str, data_type: str) -> None:
    assert altered(change).schema.column(column).type == from_sql(data_type)


def test_a_renamed_column_is_renamed_in_keys_and_options() -> None:
    schema = altered("RENAME COLUMN k TO id").schema
    assert schema.primary_keys == ("id", "dt")
    options = dict(altered("RENAME COLUMN n TO seq").schema.options)
    assert options["sequence.field"] == "seq"
    options = dict(altered("RENAME COLUMN v TO value").schema.options)
    assert "fields.value.aggregate-function" in options
    assert "fields.v.aggregate-function" not in options


def test_a_change_without_effect_plans_nothing() -> None:
    for change in (
        "DROP COLUMN IF EXISTS zz",
        "ALTER COLUMN n TYPE BIGINT",
        "ALTER COLUMN k SET NOT NULL",
        "ALTER COLUMN k FIRST",
        "SET TBLPROPERTIES ('bucket' = '2', 'primary-key' = 'k, dt', 'type' = 'TABLE')",
        "UNSET TBLPROPERTIES IF EXISTS ('owner')",
    ):
        alteration = altered(change)
        assert alteration.changes == ()
        assert alteration.schema == base()


def test_alteration_increments_the_schema_id_once() -> None:
    assert altered("SET TBLPROPERTIES ('owner' = 'me', 'comment' = 'c')").schema.schema_id == 1
    assert altered("SET TBLPROPERTIES ('comment' = 'c')").schema.comment == "c"


@pytest.mark.parametrize(
    ("change", "error", "part"),
    [
        ("DROP COLUMN zz", UnknownNameError, "no column `zz`"),
        ("DROP COLUMN s.zz", UnknownNameError, "`s.zz`"),
        ("DROP COLUMN s.b.x", UnknownNameError, "`s.b.element`"),
        ("RENAME COLUMN m.key TO kk", UnknownNameError, "keys of a map"),
        ("DROP COLUMN k", InvalidTableError, "primary key"),
        ("DROP COLUMN dt", InvalidTableError, "partition key"),
        ("DROP COLUMN n", InvalidTableError, "'sequence.field'"),
        ("DROP COLUMN v", InvalidTableError, "'fields.v.aggregate-function'"),
        ("RENAME COLUMN dt TO dd", InvalidTableError, "partition key"),
        ("RENAME COLUMN v TO n", InvalidTableError, "column `n` already"),
        ("ADD COLUMN V INT", InvalidTableError, "in case only"),
        ("ADD COLUMN w INT NOT NULL", InvalidTableError, "can't be NOT NULL"),
        ("ADD COLUMN w INT DEFAULT 3", InvalidTableError, "can't have a DEFAULT"),
        ("ADD COLUMN rowkind STRING", InvalidTableError, "can't be named"),
        ("ADD COLUMN w INT AFTER zz", UnknownNameError, "`zz`"),
        ("ALTER COLUMN k TYPE BIGINT", InvalidTableError, "primary key"),
        ("ALTER COLUMN dt TYPE STRING", InvalidTableError, "partition key"),
        ("ALTER COLUMN n TYPE BINARY", InvalidTableError, "from BIGINT to BYTES"),
        ("ALTER COLUMN n TYPE BOOLEAN", InvalidTableError, "default 7"),
        ("ALTER COLUMN s TYPE STRUCT<a: INT>", InvalidTableError, "as a whole"),
        ("ALTER COLUMN k DROP NOT NULL", InvalidTableError, "can't hold NULL"),
        ("ALTER COLUMN v SET NOT NULL", InvalidTableError, "alter-column-null-to-not-null"),
        ("ALTER COLUMN n SET DEFAULT 'abc'", InvalidTableError, "can't have the default"),
        ("ALTER COLUMN v AFTER v", InvalidTableError, "after itself"),
        ("SET TBLPROPERTIES ('buckt' = '3')", UnknownNameError, "`bucket`"),
        ("SET TBLPROPERTIES ('bucket' = '-1')", InvalidTableError, "from 2 to -1"),
        ("SET TBLPROPERTIES ('bucket' = 'x')", InvalidTableError, "'x'"),
        ("SET TBLPROPERTIES ('merge-engine' = 'first-row')", InvalidTableError, "can't change"),
        ("SET TBLPROPERTIES ('primary-key' = 'v')", InvalidTableError, "can't change"),
        ("SET TBLPROPERTIES ('deletion-vectors.enabled' = 'true')", InvalidTableError, "twice"),
        ("SET TBLPROPERTIES ('snapshot.num-retained.min' = '0')", InvalidTableError, "below 1"),
        ("UNSET TBLPROPERTIES ('bucket')", InvalidTableError, "can't be unset"),
        ("UNSET TBLPROPERTIES ('merge-engine')", InvalidTableError, "can't change"),
        ("UNSET TBLPROPERTIES ('sequence.fild')", UnknownNameError, "`sequence.field`"),
    ],
)
def test_changes_refused_by_paimon_are_refused(
    change: str, error: type[Exception], part: str
) -> None:
    with pytest.raises(error) as refusal:
        altered(change)
    assert part in str(refusal.value)


def test_fixed_options_may_change_while_the_table_is_empty() -> None:
    change = "SET TBLPROPERTIES ('bucket' = '-1', 'merge-engine' = 'deduplicate')"
    assert altered(change, has_snapshots=False).schema.bucket == -1


@pytest.mark.parametrize(
    ("source", "target", "without_loss", "explicit"),
    [
        ("INT", "BIGINT", True, True),
        ("BIGINT", "INT", False, True),
        ("DECIMAL(10, 2)", "DECIMAL(5, 1)", True, True),
        ("INT", "STRING", False, True),
        ("DATE", "STRING", False, True),
        ("DATE", "VARCHAR(10)", False, False),
        ("STRING", "DATE", False, True),
        ("TIMESTAMP", "DATE", False, True),
        ("TIMESTAMP_NTZ", "DATE", True, True),
        ("DATE", "INT", False, False),
        ("BOOLEAN", "DATE", False, False),
        ("ARRAY<INT>", "STRING", False, True),
        ("BINARY", "INT", False, False),
    ],
)
def test_allowed_casts_match_paimon(
    source: str, target: str, without_loss: bool, explicit: bool
) -> None:
    types = from_sql(source), from_sql(target)
    assert can_retype(*types, allow_explicit=False) is without_loss
    assert can_retype(*types, allow_explicit=True) is explicit
