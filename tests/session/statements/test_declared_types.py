"""CREATE TABLE AS keeps the lengths of CHAR and VARCHAR, and comments, of columns that its query
hands on."""

from __future__ import annotations

import pytest

from paimon_magics import Session

pytestmark = pytest.mark.spark


def test_create_table_as_keeps_lengths_and_comments_of_columns(session: Session) -> None:
    session.run(
        "CREATE TABLE a (k INT COMMENT 'the key', c CHAR(3) COMMENT 'code', v VARCHAR(5), "
        "s STRUCT<x: CHAR(2), y: INT COMMENT 'inner'>, l ARRAY<VARCHAR(4)>, t STRING)"
    )
    session.run(
        "INSERT INTO a VALUES (1, 'a', 'b', named_struct('x', 'q', 'y', 1), array('z'), 'p')"
    )
    session.run("CREATE TABLE b AS SELECT *, upper(v) AS u, c AS renamed FROM a WHERE k > 0")
    created = session.run("SHOW CREATE TABLE b").to_pylist()[0]["createtab_stmt"]
    for column in (
        "`k` INT COMMENT 'the key'",
        "`c` CHAR(3) COMMENT 'code'",
        "`v` VARCHAR(5)",
        "`s` STRUCT<`x`: CHAR(2), `y`: INT COMMENT 'inner'>",
        "`l` ARRAY<VARCHAR(4)>",
        "`t` STRING",
        "`u` STRING",
        "`renamed` CHAR(3)",
    ):
        assert column in created, created
    assert session.run("SELECT c, v, u, t FROM b").to_pylist() == [
        {"c": "a  ", "v": "b", "u": "B", "t": "p"}
    ]
    session.run("CREATE TABLE j AS SELECT x.v AS w, y.k FROM a x JOIN b y ON x.k = y.k")
    assert "`w` VARCHAR(5)" in session.run("SHOW CREATE TABLE j").to_pylist()[0]["createtab_stmt"]
    session.run("CREATE TABLE e AS SELECT snapshot_id FROM a$snapshots")
    assert session.run("SELECT count(*) AS n FROM e").to_pylist() == [{"n": 1}]
