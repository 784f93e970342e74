"""How much memory a writer of primary-key rows may take for its buffer."""

from __future__ import annotations

import pytest

from paimon_magics.planning.schemas.table_schema import plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable
from paimon_magics.tables.writing.native_writer import buffer_options

MIB = 2**20


@pytest.mark.parametrize(
    ("options", "slots", "expected_bytes"),
    [
        ("'bucket' = '1'", 2, 128 * MIB),
        ("'bucket' = '8'", 2, 32 * MIB),
        ("'bucket' = '1000'", 2, 8 * MIB),
        ("'bucket' = '8', 'write-buffer-size' = '300 mb'", 2, 300 * MIB),
    ],
)
def test_buffer_size_comes_from_the_table_or_our_share(
    options: str, slots: int, expected_bytes: int
) -> None:
    statement = parse_statement(
        f"CREATE TABLE t (k INT NOT NULL) TBLPROPERTIES ('primary-key' = 'k', {options})"
    )
    assert isinstance(statement, CreateTable)
    actual = buffer_options(plan_create_table(statement), slots)
    assert actual == {"write.parquet-buffer-size": f"{expected_bytes} b"}
