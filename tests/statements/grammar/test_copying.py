"""COPY INTO as values: its clauses in any order, its texts, and what is refused."""

from __future__ import annotations

import pytest

from paimon_magics.errors import StatementSyntaxError
from paimon_magics.statements.copying import CopyIntoFiles, CopyIntoTable
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.subjects import subject_of

CSV = "FILE_FORMAT = (TYPE = CSV)"


def load(text: str) -> CopyIntoTable:
    statement = parse_statement(text)
    assert isinstance(statement, CopyIntoTable)
    return statement


def export(text: str) -> CopyIntoFiles:
    statement = parse_statement(text)
    assert isinstance(statement, CopyIntoFiles)
    return statement


def test_clauses_of_a_load_are_read_in_any_order() -> None:
    copy = load(
        "COPY INTO shop.orders (id, `a b`) FROM '/data' ON_ERROR = SKIP_FILE FORCE = TRUE "
        "FILES = ('a.csv', 'b.csv') REJECTED_ROWS = shop.bad PATTERN = '.*\\.csv' "
        "FILE_FORMAT = (TYPE = CSV, SKIP_HEADER = 1, NULL_IF = ('NULL', '\\N')) VALIDATE 5 ROWS"
    )
    assert (copy.target, copy.columns, copy.path) == (
        TableName("orders", "shop"), ("id", "a b"), "/data"
    )  # fmt: skip
    assert (copy.on_error, copy.force, copy.files) == ("SKIP_FILE", True, ("a.csv", "b.csv"))
    assert (copy.rejected, copy.pattern) == (TableName("bad", "shop"), r".*\.csv")
    assert copy.format.type == "CSV"
    assert copy.format.options == (("SKIP_HEADER", "1"), ("NULL_IF", ("NULL", r"\N")))
    assert (copy.validate, copy.validated_rows) == (True, 5)


def test_defaults_of_a_load_are_those_of_the_connector() -> None:
    copy = load(f"copy into t from '/x' {CSV}")
    assert (copy.columns, copy.pattern, copy.force, copy.on_error) == (
        None, None, False, "ABORT_STATEMENT"
    )  # fmt: skip
    assert not copy.validate and copy.rejected is None


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        (r"'a\.b'", r"a\.b"),
        (r"'a\\b'", r"a\b"),
        (r"'a\tb'", "a\tb"),
        ("'it''s'", "it's"),
        (r"'it\'s'", "it's"),
        ('"a"', "a"),
    ],
)
def test_texts_keep_backslashes_as_the_connector_does(literal: str, value: str) -> None:
    assert load(f"COPY INTO t FROM '/x' {CSV} PATTERN = {literal}").pattern == value


def test_exported_table_becomes_a_query_that_reads_it() -> None:
    copy = export("COPY INTO '/out' FROM db.`t$snapshots` FILE_FORMAT = (TYPE = ORC)")
    assert copy.query_text == "SELECT * FROM db.`t$snapshots`"
    assert subject_of(copy).sources == (TableName("t", "db", system_table="snapshots"),)
    assert (copy.overwrite, copy.single, copy.partition_by) == (False, False, ())


def test_exported_query_keeps_its_brackets_and_parameters() -> None:
    text = (
        "COPY INTO '/out' FROM (SELECT a, count(*) FROM t WHERE b IN (1, :x) GROUP BY a) "
        "PARTITION BY (a) OVERWRITE = TRUE FILE_FORMAT = (TYPE = PARQUET)"
    )
    copy = export(text)
    place = copy.query.range
    assert text[place.start : place.end].endswith("(1, :x) GROUP BY a")
    assert (copy.query.parameters, copy.partition_by, copy.overwrite) == (("x",), ("a",), True)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("COPY INTO t FROM /x", "a path in quotes", "FROM '/data/orders/'"),
        ("COPY INTO t FROM @stage/x", "a path in quotes", "no stages"),
        ("COPY INTO t FROM '/x'", "FILE_FORMAT is missing", "TYPE = CSV"),
        ("COPY INTO t FROM ' ' " + CSV, "path is empty", "a file or a folder"),
        ("COPY INTO t FROM '/x' FILEFORMAT = CSV", "FILEFORMAT", "FILE_FORMAT = (TYPE"),
        ("COPY INTO t FROM '/x' FILE_FORMT = (TYPE = CSV)", "FILE_FORMT", "FILE_FORMAT"),
        ("COPY INTO t FROM '/x' FILE_FORMAT = (SEP = ',')", "must include TYPE", "TYPE = CSV"),
        ("COPY INTO t FROM '/x' FILE_FORMAT = (TYPE = CSV, TYPE = CSV)", "Duplicate", "one of"),
        (f"COPY INTO t FROM '/x' {CSV} {CSV}", "FILE_FORMAT occurs twice", "one of them"),
        (f"COPY INTO t FROM '/x' {CSV} ON_ERROR = SKIP_FILE_3", "SKIP_FILE_3", "ABORT_STATEMENT"),
        (f"COPY INTO t FROM '/x' {CSV} FORCE = maybe", "TRUE or FALSE", ""),
        (f"COPY INTO t FROM '/x' {CSV} OVERWRITE = TRUE", "OVERWRITE", "FORCE"),
        (f"COPY INTO t FROM '/x' {CSV} VALIDATE 0 ROWS", "VALIDATE", "10 ROWS"),
        (f"COPY INTO t FROM '/x' {CSV} VALIDATION_MODE = RETURN_ERRORS", "VALIDATION", "VALIDATE"),
        (f"COPY INTO t FROM (SELECT 1) {CSV}", "files, not a query", "INSERT INTO"),
        (f"COPY INTO '/x' FROM SELECT 1 {CSV}", "must be in brackets", "(SELECT"),
        (f"COPY INTO '/x' FROM (DROP TABLE t) {CSV}", "a query", ""),
        (f"COPY INTO '/x' FROM t {CSV} FORCE = TRUE", "FORCE", "OVERWRITE"),
    ],
)
def test_mistakes_get_an_answer_with_the_next_step(text: str, message: str, hint: str) -> None:
    with pytest.raises(StatementSyntaxError) as raised:
        parse_statement(text)
    assert message in raised.value.message
    assert hint in raised.value.hint
    assert raised.value.position is not None
