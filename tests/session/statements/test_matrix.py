"""The table of docs/statements.md: which statement each kind of table takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from paimon_magics import Session
from paimon_magics.errors import PaimonMagicsError

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_PAGE = Path(__file__).parents[3] / "docs" / "statements.md"
_KEYS = {"primary-key": "p,k", "bucket": "1"}
_KINDS: Mapping[str, Mapping[str, str]] = {
    "append": {},
    "`data-evolution.enabled`": {
        "row-tracking.enabled": "true",
        "data-evolution.enabled": "true",
    },
    "`deduplicate`": _KEYS | {"merge-engine": "deduplicate"},
    "`partial-update`": _KEYS | {"merge-engine": "partial-update"},
    "`aggregation`": _KEYS | {"merge-engine": "aggregation", "fields.v.aggregate-function": "max"},
    "`first-row`": _KEYS | {"merge-engine": "first-row"},
}
_MET: Mapping[str, Mapping[str, str]] = {
    "deletion vectors are on": {"deletion-vectors.enabled": "true"},
    "its files need no merge": {},
    "it removes records on delete": {"partial-update.remove-record-on-delete": "true"},
    "it has a number of buckets": {"bucket": "2", "bucket-key": "k"},
    "it is no key": {},
    "it has a changelog": {"changelog-producer": "lookup"},
}
"""The options with which a table meets a condition."""

_UNMET: Mapping[str, Mapping[str, str]] = {
    "its files need no merge": {"write-only": "true"},
    "it has a number of buckets": {"bucket": "-1"},
}
"""Those with which it does not, where it is not enough to leave out the former."""

_OTHERWISE: Mapping[str, str] = {
    "its files need no merge": "INSERT INTO t VALUES (1, 'x', 'a'); DELETE FROM t WHERE k = 1",
    "it is no key": "ALTER TABLE t ALTER COLUMN k TYPE BIGINT",
}
"""Statements that don't meet a condition of theirs."""

_SOURCE = "(SELECT {} AS k, 'm' AS v, 'a' AS p) AS s ON t.k = s.k AND t.p = s.p"
_MATCHED = f"MERGE INTO t USING {_SOURCE.format(1)} WHEN MATCHED THEN"
_NEW = f"MERGE INTO t USING {_SOURCE.format(7)} WHEN NOT MATCHED THEN INSERT *"
_STATEMENTS: Mapping[str, tuple[str, ...]] = {
    "SELECT, also of an earlier state": ("SELECT * FROM t", "SELECT * FROM t VERSION AS OF 1"),
    "SELECT of system tables": tuple(
        f"SELECT * FROM `t${name}`" for name in ("audit_log", "binlog", "ro", "files")
    ),
    "INSERT INTO": ("INSERT INTO t VALUES (9, 'z', 'a')", "INSERT INTO t (k, p) VALUES (8, 'a')"),
    "INSERT OVERWRITE": ("INSERT OVERWRITE t PARTITION (p = 'a') VALUES (9, 'z')",),
    "DELETE of rows": ("DELETE FROM t WHERE k = 1",),
    "DELETE of whole partitions, TRUNCATE, DROP PARTITION": (
        "DELETE FROM t WHERE p = 'b'",
        "ALTER TABLE t DROP PARTITION (p = 'a')",
        "TRUNCATE TABLE t",
    ),
    "UPDATE": ("UPDATE t SET v = 'q' WHERE k = 1",),
    "MERGE that inserts or updates": (
        f"{_MATCHED} UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *",
        _NEW,
    ),
    "MERGE that deletes": (f"{_MATCHED} DELETE",),
    "CALL sys.compact": ("CALL sys.compact('t')",),
    "CALL sys.rescale": ("CALL sys.rescale('t', 2)",),
    "ALTER TABLE ADD, RENAME, DROP COLUMN, TYPE": (
        "ALTER TABLE t ADD COLUMN n INT",
        "ALTER TABLE t ALTER COLUMN n TYPE BIGINT",
        "ALTER TABLE t RENAME COLUMN n TO m",
        "ALTER TABLE t DROP COLUMN m",
    ),
    "Tags and branches, rollback": (
        "CALL sys.create_tag('t', 'x', 1)",
        "CALL sys.create_branch('t', 'b', 'x')",
        "CALL sys.rollback('t', '1')",
    ),
    "read as a stream": (),
    "changes": (),
}


def _rows() -> dict[str, dict[str, str]]:
    section = _PAGE.read_text(encoding="utf-8").partition("## Which statement, on which table")[2]
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    cells = [[_plain(cell) for cell in line.strip("|").split("|")] for line in lines]
    kinds = cells[0][1:]
    return {row[0]: dict(zip(kinds, row[1:], strict=True)) for row in cells[2:]}


def _plain(cell: str) -> str:
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", cell.strip())


_TABLE = _rows()


def _make(session: Session, options: Mapping[str, str]) -> None:
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    session.run("DROP TABLE IF EXISTS t")
    session.run(
        "CREATE TABLE t (k INT, v STRING, p STRING) PARTITIONED BY (p)"
        + (f" TBLPROPERTIES ({properties})" if properties else "")
    )
    session.run("INSERT INTO t VALUES (1, 'a', 'a'), (2, 'b', 'b')")
    session.run("INSERT INTO t VALUES (3, 'c', 'a')")


def _run(session: Session, statement: str) -> None:
    if statement == "read as a stream":
        session.stream("t")
    elif statement == "changes":
        next(session.changes("t", from_snapshot=1, wait=False))
    else:
        for text in _STATEMENTS[statement]:
            outcome = session.run(text)
            if text.startswith("SELECT"):
                outcome.to_arrow()


def test_documented_and_tested_matrix_have_the_same_rows() -> None:
    assert set(_TABLE) == set(_STATEMENTS)
    assert all(set(row) == set(_KINDS) for row in _TABLE.values())


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("statement", _STATEMENTS)
def test_statements_are_accepted_or_refused_as_documented(
    session: Session, statement: str, kind: str
) -> None:
    word, _, condition = _TABLE[statement][kind].partition(" ")
    assert word in ("yes", "no", "if")
    if word != "no":
        _make(session, {**_KINDS[kind], **_MET.get(condition, {})})
        _run(session, statement)
    if word == "yes":
        return
    _make(session, {**_KINDS[kind], **_UNMET.get(condition, {})})
    *before, refused = _OTHERWISE.get(condition, "").split("; ")
    for text in before:
        session.run(text)
    history = session.history("t").to_pylist()
    with pytest.raises(PaimonMagicsError):
        if refused:
            session.run(refused)
        else:
            _run(session, statement)
    assert session.history("t").to_pylist() == history
