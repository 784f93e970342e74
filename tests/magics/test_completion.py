"""What IPython offers in cells and on lines, with and without a connection; `|` is the cursor."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

import pandas as pd
import pyarrow as pa
import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

from paimon_magics.magics.configuration import PaimonMagics
from paimon_magics.magics.options import CELL_OPTIONS
from paimon_magics.planning.options.table_options import OPTIONS
from paimon_magics.planning.reads.read_points import READ_OPTIONS
from paimon_magics.planning.reads.stream_points import STREAM_OPTIONS, STREAM_PURPOSES
from paimon_magics.session.opening import active_session
from tests.magics.conftest import Run


def completed(shell: InteractiveShell, text: str) -> list[str]:
    """The cell with each completion in place, as a frontend would have it."""
    cell, cursor = text.replace("|", ""), text.index("|")
    with provisionalcompleter():
        found = list(shell.Completer.completions(cell, cursor))
    assert all(one.end == cursor for one in found)
    return [cell[: one.start] + one.text for one in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%%paimon\nSEL|", "%%paimon\nSELECT"),
        ("%%paimon\nsel|", "%%paimon\nselect"),
        ("%%paimon --pre|\nSELECT 1", "%%paimon --preview"),
        ("%%paimon -t pa|", "%%paimon -t pandas"),
        ("%paimon hist|", "%paimon history"),
        ("x = %paimon hist|", "x = %paimon history"),
        ("a = 1\n%paimon hist|", "a = 1\n%paimon history"),
        ("%paimon config disp|", "%paimon config display_rows"),
        ("%paimon connect ware|", "%paimon connect warehouse="),
        ("%paimon health --fa|", "%paimon health --fail-on"),
        ("%paimon health --fail-on ser|", "%paimon health --fail-on serious"),
        ("%paimon config confirm=F|", "%paimon config confirm=False"),
        ("%paimon connect coordinator=em|", "%paimon connect coordinator=embedded"),
        ("%paimon connect --cl|", "%paimon connect --close"),
        ("%paimon coordinator dr|", "%paimon coordinator drain"),
        ("%paimon queue shop.t acc|", "%paimon queue shop.t accept-loss"),
        ("%paimon explain SELECT 1 FR|", "%paimon explain SELECT 1 FROM"),
        ("%%paimon\nINSERT O|", "%%paimon\nINSERT OVERWRITE"),
        ("%%paimon\nSELECT count_i|", "%%paimon\nSELECT count_if("),
        (
            "%%paimon\nCREATE TABLE t (a INT, b STRING) PARTITIONED BY (|",
            "%%paimon\nCREATE TABLE t (a INT, b STRING) PARTITIONED BY (b",
        ),
        ("%paimon help strea|", "%paimon help streams"),
        (
            's.stream("t", **{"read.stream.maxS|',
            's.stream("t", **{"read.stream.maxSnapshotsPerTrigger',
        ),
        ('s.stream("t", **{"branch": "b", "cons|', 's.stream("t", **{"branch": "b", "consumer-id'),
        ('s.stream("t", **{"scan.mode": "latest-|', 's.stream("t", **{"scan.mode": "latest-full'),
        (
            'spark.readStream.format("paimon").option("scan.snap|',
            'spark.readStream.format("paimon").option("scan.snapshot-id',
        ),
        ("%paimon help trunc|", "%paimon help TRUNCATE TABLE"),
        ("%%paimon\nCALL sys.create_t|", "%%paimon\nCALL sys.create_tag("),
        (
            "%%paimon\nCREATE TABLE t (a INT) TBLPROPERTIES ('merge-e|')",
            "%%paimon\nCREATE TABLE t (a INT) TBLPROPERTIES ('merge-engine",
        ),
        (
            "%%paimon\nCREATE TABLE t (a INT) TBLPROPERTIES ('merge-engine' = 'part|')",
            "%%paimon\nCREATE TABLE t (a INT) TBLPROPERTIES ('merge-engine' = 'partial-update",
        ),
    ],
)
def test_words_are_completed_without_a_connection(
    shell: InteractiveShell, text: str, expected: str
) -> None:
    assert expected in completed(shell, text)


def test_every_option_of_a_cell_is_offered(shell: InteractiveShell) -> None:
    assert set(completed(shell, "%%paimon --|\nSELECT 1")) == {
        f"%%paimon {option.flags[-1]}" for option in CELL_OPTIONS
    }


def test_option_completion_shows_type_and_default(shell: InteractiveShell) -> None:
    cell = "%%paimon\nALTER TABLE t SET TBLPROPERTIES ('snapshot.num-retained.mi"
    with provisionalcompleter():
        (found,) = shell.Completer.completions(cell, len(cell))
    about = found.type.replace("\u00a0", " ")
    assert found.text == "snapshot.num-retained.min"
    assert about == "integer, default 10: minimum number of snapshots kept"


def test_every_completed_option_has_a_purpose() -> None:
    assert {*READ_OPTIONS, "primary-key"} <= set(OPTIONS)
    assert tuple(STREAM_PURPOSES) == STREAM_OPTIONS
    purposes = [*(option.purpose for option in OPTIONS.values()), *STREAM_PURPOSES.values()]
    assert all(text and text[-1] != "." for text in purposes)


@pytest.mark.parametrize(
    "text",
    ["%%paimon\nUPDATE |", "%%paimon -o |\nSELECT 1",
     "%paimon coordinator pause |", "%paimon snapshots t |",
     "%%paimon\nSELECT 1 WHERE 'a' = '|", "%%paimon\nSELECT TIMESTAMP '|",
     "%%paimon\nSET spark.sql.session.timeZone = |", "%%paimon\nUPDATE nothing_like_this_|"],
)  # fmt: skip
def test_python_names_are_not_offered_if_nothing_else_fits(
    shell: InteractiveShell, text: str
) -> None:
    """Nor is an empty text, which would be an empty entry of a menu."""
    assert completed(shell, text) == []


def test_connect_completes_folders(
    shell: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lakehouse").mkdir()
    monkeypatch.chdir(tmp_path)
    assert "%paimon connect lakehouse/" in completed(shell, "%paimon connect lakeh|")


def test_python_cells_keep_python_completion(shell: InteractiveShell) -> None:
    shell.user_ns["selection"] = 1
    assert completed(shell, "sele|") == ["selection"]


def test_reloading_does_not_duplicate_completions(shell: InteractiveShell) -> None:
    shell.run_cell("%reload_ext paimon_magics").raise_error()
    assert len(shell.Completer.custom_matchers) == 1
    shell.run_cell("%unload_ext paimon_magics").raise_error()
    assert shell.Completer.custom_matchers == []


@pytest.mark.spark
def test_names_of_the_catalog_are_completed(connected: InteractiveShell, run: Run) -> None:
    run(
        "%%paimon\nCREATE DATABASE shop; "
        "CREATE TABLE shop.`order items` (id INT, `unit price` INT); "
        "CREATE TABLE places (place STRUCT<city: STRING, near: ARRAY<STRUCT<zip: INT>>>); "
        "CREATE TABLE visits (id INT, at TIMESTAMP) PARTITIONED BY (at); "
        "INSERT INTO visits VALUES (1, '2026-07-01 04:00:00')"
    )
    run(
        "%%paimon\nALTER TABLE orders CREATE TAG opening;"
        "INSERT INTO orders VALUES (9, 'x', 'wed');"
        "CALL sys.create_branch('orders', 'trial'); CALL sys.reset_consumer('orders', 'nightly', 1)"
    )
    session = active_session()
    assert session is not None
    harvest = pd.DataFrame({"apples": [1]})
    connected.user_ns.update(today="mon", unit=len, harvest=harvest, pears=pa.table(harvest))
    made = session.history("orders").data.column("commit_time")[0].as_py()
    made = made.astimezone(ZoneInfo(session.spark.conf.get("spark.sql.session.timeZone")))
    made_ms = round(made.timestamp() * 1000)
    at_two = made.isoformat(" ", "milliseconds")
    pairs = {
        "SELECT * FROM ord|": "orders",
        "SELECT * FROM sh|": "shop",
        "SELECT * FROM shop.|": "`order items`",
        "SELECT * FROM shop.`ord|`": "order items",
        "SELECT * FROM orders$aud|": "audit_log",
        "SELECT it| FROM orders": "item",
        "SELECT o.it| FROM orders o": "item",
        "SELECT | FROM shop.`order items`": "`unit price`",
        "SELECT s.da| FROM (SELECT * FROM orders) s": "day",
        "WITH w AS (SELECT id AS number, day FROM orders) SELECT nu| FROM w": "number",
        "SELECT rowk| FROM orders$audit_log": "rowkind",
        "SELECT file_p| FROM orders$files": "file_path",
        "SELECT o.place.ci| FROM places o": "city",
        "SELECT place.near.z| FROM places": "zip",
        "SELECT `unit p| FROM shop.`order items`": "unit price",
        "SELECT * FROM orders JOIN orders o USING (it|": "item",
        "SELECT * FROM paimon_incremental_query('ord|": "orders",
        "SELECT * FROM paimon_incremental_query('orders', |": "'opening'",
        "SELECT * FROM orders WHERE day = |": "'tue'",
        "SELECT * FROM visits WHERE at = |": "'2026-07-01 04:00:00'",
        "SELECT * FROM orders WHERE day IN ('mon', 'tu|')": "tue",
        "INSERT OVERWRITE orders PARTITION (|": "day",
        "INSERT OVERWRITE orders PARTITION (day = 'w|')": "wed",
        "SELECT * FROM orders VERSION AS OF |": "'opening'",
        "SELECT * FROM orders VERSION AS OF '|'": "2",
        "SELECT * FROM orders TIMESTAMP AS OF |": f"'{at_two}'",
        "SELECT * FROM orders o JOIN orders FOR TIMESTAMP AS OF '2|'": at_two,
        "SELECT * FROM orders TIMESTAMP AS OF cur|": "current_timestamp() - INTERVAL 1 DAY",
        "ALTER TABLE orders DELETE TAG |": "opening",
        "CALL sys.rollback(table => 'orders', version => '|')": "opening",
        "CALL sys.rollback('ord|')": "orders",
        "CALL sys.copy(source_table => 'shop.`ord|')": "shop.`order items`",
        "CALL sys.delete_tag('orders', '|')": "opening",
        "CALL sys.create_tag(table => 'orders', snapshot => |": "2",
        "CALL sys.rollback_to_timestamp('orders', |": str(made_ms),
        "CALL sys.merge_branch(table => 'orders', source_branch => 'tr|": "trial",
        "CALL sys.merge_branch(table => 'orders', target_branch => |": "'main'",
        "CALL sys.reset_consumer('orders', |": "'nightly'",
        "CALL sys.mark_partition_done(table => 'orders', partitions => '|": "day=wed",
        "CALL sys.migrate_table(|": "delete_origin => ",
        "CALL sys.migrate_table(source_type => 'hive', delete_origin => f|": "false",
        "CALL sys.compact(compact_strategy => 'm|": "minor",
        "SELECT * FROM orders WHERE day = :to|": "today",
        "DESCRIBE orders it|": "item",
        "SELECT * FROM har|": "harvest",
        "SELECT * FROM orders JOIN pea|": "pears",
        "SELECT h.app| FROM harvest h": "apples",
    }
    for text, expected in pairs.items():
        cell = f"%%paimon\n{text}"
        completed(connected, cell)  # asks for what is not known yet
        assert session.known_names.wait(30)
        completed(connected, cell)
        assert session.known_names.wait(30)
        before = text.partition("|")[0]
        ends = [done for done in completed(connected, cell) if done.endswith(expected)]
        assert ends, (text, completed(connected, cell))
        assert ends[0].startswith("%%paimon\n" + before[: len(before) - len(expected)])
    for line, expected in {
        "%paimon diff orders op|": "%paimon diff orders opening",
        "%paimon diff orders 1..o|": "%paimon diff orders 1..opening",
        "%paimon files orders --partition |": "%paimon files orders --partition day=wed",
        "%paimon explain SELECT * FROM ord|": "%paimon explain SELECT * FROM orders",
    }.items():
        completed(connected, line)
        assert session.known_names.wait(30)
        assert expected in completed(connected, line)
    magics = connected.magics_manager.registry["PaimonMagics"]
    assert isinstance(magics, PaimonMagics)
    cell = "%%paimon\nSELECT :un"
    assert magics.completer.offers(cell, len(cell)) == ("un", [])  # no function


@pytest.mark.spark
def test_completion_follows_tables_created_and_dropped_by_cells(
    connected: InteractiveShell, run: Run
) -> None:
    session = active_session()
    assert session is not None

    def tables() -> list[str]:
        completed(connected, "%%paimon\nSELECT * FROM |")
        assert session.known_names.wait(30)
        return completed(connected, "%%paimon\nSELECT * FROM |")

    assert "%%paimon\nSELECT * FROM later" not in tables()
    run("%%paimon\nCREATE TABLE later (id INT)")
    assert "%%paimon\nSELECT * FROM later" in tables()
    run("%%paimon\nDROP TABLE later")
    assert "%%paimon\nSELECT * FROM later" not in tables()
