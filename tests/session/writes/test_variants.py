"""Columns of type VARIANT: what a statement says is what we and Java read. Where the table wants
them shredded Java does it, and we read that, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from paimon_magics import Session
from tests.oracle.java_reader import JavaPaimon

pytestmark = [pytest.mark.spark, pytest.mark.java]

SHREDDING = json.dumps(
    {
        "type": "ROW",
        "fields": [
            {
                "id": 0,
                "name": "v",
                "type": {
                    "type": "ROW",
                    "fields": [
                        {"id": 1, "name": "age", "type": "INT"},
                        {"id": 2, "name": "tags", "type": {"type": "ARRAY", "element": "STRING"}},
                    ],
                },
            }
        ],
    }
)
COLUMNS = "k INT NOT NULL, v VARIANT, list ARRAY<VARIANT>, row STRUCT<a: INT, b: VARIANT>"
TEXTS = [
    '{"age":31,"city":"Kyōto","tags":["a","b"]}',
    '{"age":"unknown","tags":[1,null]}',
    '{"other":{"deep":[1.5,true,null,"x"]}}',
    "[1,2,[3]]",
    '"text"',
    "9223372036854775807",
    "null",
    None,
]


def options(*, keyed: bool, shredded: bool) -> str:
    given = ["'primary-key' = 'k'", "'bucket' = '1'"] if keyed else []
    given += [f"'variant.shreddingSchema' = '{SHREDDING}'"] if shredded else []
    return f" TBLPROPERTIES ({', '.join(given)})" if given else ""


def is_shredded(path: Path) -> bool:
    column = pq.ParquetFile(path).schema_arrow.field("v").type
    return "typed_value" in [field.name for field in column]


def decoded(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def row_of(key: int, text: str | None) -> tuple[Any, ...]:
    """As it is read back, with what stands in the texts."""
    value = decoded(text)
    if text is None:
        return key, None, None, None
    return key, (value,), [(value,), None], {"a": key, "b": (value,)}


def sql_of(key: int, text: str | None) -> str:
    if text is None:
        return f"({key}, NULL, NULL, NULL)"
    value = f"parse_json('{text}')"
    return f"({key}, {value}, array({value}, NULL), named_struct('a', {key}, 'b', {value}))"


def read(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows with the texts of JSON decoded; a JSON null and a NULL are told apart."""

    def one(text: str | None) -> Any:
        return None if text is None else (json.loads(text),)

    return sorted(
        (
            key,
            one(v),
            None if values is None else [one(value) for value in values],
            None if row is None else {"a": row["a"], "b": one(row["b"])},
        )
        for key, v, values, row in rows
    )  # by the keys, which differ


@pytest.mark.parametrize("shredded", [False, True], ids=["plain", "to be shredded"])
@pytest.mark.parametrize("keyed", [False, True], ids=["append", "primary key"])
def test_written_variants_are_read_back_and_by_java(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, *, keyed: bool, shredded: bool
) -> None:
    session.run(f"CREATE TABLE t ({COLUMNS}){options(keyed=keyed, shredded=shredded)}")
    half = len(TEXTS) // 2
    first = ", ".join(sql_of(key, text) for key, text in enumerate(TEXTS[:half]))
    outcome = session.run(f"INSERT INTO t VALUES {first}")
    # For a key the same rows once more, so that files must be merged.
    begin = 0 if keyed else half
    rest = ", ".join(sql_of(key, text) for key, text in enumerate(TEXTS) if key >= begin)
    session.run(f"INSERT INTO t SELECT * FROM (VALUES {rest})")
    assert not any(map(is_shredded, warehouse.glob("default.db/t/bucket-0/*.parquet")))
    assert any("variant.shreddingSchema" in note for note in outcome.notes) is shredded
    expected = [row_of(key, text) for key, text in enumerate(TEXTS)]
    actual = session.run("SELECT * FROM t").to_arrow().to_pylist()
    assert read([tuple(row.values()) for row in actual]) == expected
    assert read(java_paimon.rows(warehouse, "default.t")) == expected
    extracted = session.run("SELECT variant_get(v, '$.age', 'string') AS age FROM t ORDER BY k")
    assert extracted.to_arrow()["age"].to_pylist() == ["31", "unknown", *[None] * 6]
    log = session.run("SELECT * FROM t$audit_log").to_arrow().to_pylist()
    assert read([tuple(row.values())[1:] for row in log]) == expected


@pytest.mark.parametrize("keyed", [False, True], ids=["append", "primary key"])
def test_variants_shredded_by_java_are_read_whole(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, *, keyed: bool
) -> None:
    session.run(f"CREATE TABLE t (k INT NOT NULL, v VARIANT){options(keyed=keyed, shredded=True)}")
    for _ in range(2 if keyed else 1):
        java_paimon.write(warehouse, "default.t", list(enumerate(TEXTS)))
    assert all(map(is_shredded, warehouse.glob("default.db/t/bucket-0/*.parquet")))
    actual = session.run("SELECT * FROM t ORDER BY k").to_arrow()["v"].to_pylist()
    assert [decoded(text) for text in actual] == [decoded(text) for text in TEXTS]
