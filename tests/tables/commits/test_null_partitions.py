"""Partitions that are NULL in a column for which Java keeps room in their serialised form."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pypaimon.schema.data_types import AtomicType, DataField
from pypaimon.table.row.generic_row import GenericRow, GenericRowDeserializer, GenericRowSerializer

import paimon_magics.tables.table  # noqa: F401  # it lets pypaimon write as Java does
from paimon_magics.columnar.binary_rows import decode_rows

if TYPE_CHECKING:
    from paimon_magics import Session

KINDS = ("DATE", "BOOLEAN", "BIGINT", "TIMESTAMP(6)", "DECIMAL(8, 2)", "STRING")
# Room of eight bytes at 0x38, named by the slot of the fourth field.
FROM_JAVA = bytes.fromhex(f"00000006 003f{'00' * 34} 38000000 {'00' * 24}")


def row(kinds: tuple[str, ...], values: list[object]) -> GenericRow:
    return GenericRow(values, [DataField(i, f"f{i}", AtomicType(k)) for i, k in enumerate(kinds)])


def test_null_partition_has_the_bytes_of_java() -> None:
    assert GenericRowSerializer.to_bytes(row(KINDS, [None] * 6)) == FROM_JAVA


def test_null_decimals_and_zoned_times_reserve_space() -> None:
    kinds = ("DECIMAL(30, 2)", "TIMESTAMP(6) WITH LOCAL TIME ZONE", "STRING", "TIMESTAMP(3)")
    stored = GenericRowSerializer.to_bytes(row(kinds, [None, None, "a long text", None]))
    places = [int.from_bytes(stored[12 + 8 * i : 20 + 8 * i], "little") for i in range(3)]
    assert [place >> 32 for place in places] == [40, 56, 64]
    assert [place & 0xFFFFFFFF for place in places] == [0, 0, 11]
    assert len(stored) == 4 + 40 + 16 + 8 + 16
    fields = row(kinds, [None] * 4).fields
    assert GenericRowDeserializer.from_bytes(stored, fields).values == [
        None,
        None,
        "a long text",
        None,
    ]
    types = [pa.decimal128(30, 2), pa.timestamp("us", "UTC"), pa.string(), pa.timestamp("ms")]
    [*nulls, text, last] = decode_rows(pa.array([stored], pa.large_binary()), types)
    assert [each.to_pylist() for each in (*nulls, last)] == [[None]] * 3
    assert text.to_pylist() == ["a long text"]


def test_rows_with_other_nulls_are_serialised_as_by_pypaimon() -> None:
    values = [datetime.date(2024, 1, 1), None, 5, datetime.datetime(2024, 1, 1), Decimal(1), "x"]
    plain = GenericRowSerializer.to_bytes.__func__.__wrapped__
    one = row(KINDS, values)
    assert GenericRowSerializer.to_bytes(one) == plain(GenericRowSerializer, one)


@pytest.mark.spark
@pytest.mark.parametrize("form", ["ours", "pypaimon"])
def test_statements_replace_files_of_null_partitions(
    module_session: Session, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = module_session
    name = f"parted_{form}"
    session.run(f"CREATE TABLE {name} (a INT, t TIMESTAMP, s STRING) PARTITIONED BY (t, s)")
    with monkeypatch.context() as patch:
        if form == "pypaimon":
            plain = GenericRowSerializer.to_bytes.__func__.__wrapped__
            patch.setattr(GenericRowSerializer, "to_bytes", classmethod(plain))
        session.run(f"INSERT INTO {name} VALUES (1, NULL, NULL)")
        session.run(f"INSERT INTO {name} VALUES (2, NULL, NULL)")

    def values() -> list[int]:
        actual = session.run(f"SELECT a FROM {name} ORDER BY a").to_arrow()
        return actual.column("a").to_pylist()

    session.run(f"DELETE FROM {name} WHERE a = 1")
    assert values() == [2]
    session.run(f"INSERT OVERWRITE {name} SELECT * FROM {name}")
    assert values() == [2]
    session.run(f"INSERT INTO {name} VALUES (3, NULL, NULL)")
    session.run(f"CALL sys.compact(table => '{name}', options => 'compaction.min.file-num=2')")
    assert values() == [2, 3]
    session.run(f"ALTER TABLE {name} DROP PARTITION (t = NULL, s = NULL)")
    assert values() == []
