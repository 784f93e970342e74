"""A warehouse and a table are known by their ids: another spelling, a move, a rename or a copy
strands no acknowledged row, forgets no label, and doubles nothing."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from tests.backends.s3 import S3Server
from tests.coordinator.inserts.serving import SLOW, TABLE, Served, table_sql
from tests.coordinator.inserts.test_log_on_s3 import post
from tests.coordinator.inserts.test_renaming import mostly, named, serve
from tests.coordinator.process import Process, create_table, read, wait_until

NEW = TableName("renamed", "default")


def start_with(served: Served, warehouse: Path | str) -> None:
    """Start the coordinator again, with the same state, and another text for the warehouse."""
    options = [o for o in served.process.options if not o.startswith("--warehouse=")]
    served.process.options = [*options, f"--warehouse={warehouse}"]
    served.process.start()


def filled(served: Served) -> None:
    """A row that is in the table, and one that waits; each with a label."""
    assert served.insert([[1, "a"]], idempotency_key="one").status_code == 200
    served.flush()
    assert served.insert([[2, "b"]], idempotency_key="two").status_code == 200


def has_everything_once(served: Served) -> None:
    for number, label in ((1, "one"), (2, "two")):
        again = served.insert([[number, "ab"[number - 1]]], idempotency_key=label)
        assert again.json().get("duplicate"), again.text
    assert served.insert([[3, "c"]]).status_code == 200
    served.flush()
    assert sorted(map(int, served.ids())) == [1, 2, 3]  # type: ignore[call-overload]


SPELLINGS: dict[str, Callable[[Path], str]] = {
    "link": lambda lake: f"{lake.parent}/link",
    "file": lambda lake: f"file://{lake}",
    "slashes": lambda lake: f"{lake.parent}//{lake.name}//",
    "dots": lambda lake: f"file:{lake}/../link/.",
}


@pytest.mark.parametrize("log", mostly("store"))
def test_another_spelling_of_the_warehouse_is_the_same_warehouse(
    tmp_path: Path, log: str, request: pytest.FixtureRequest
) -> None:
    with serve(tmp_path, log, request) as served:
        lake = tmp_path / "warehouse"
        (tmp_path / "link").symlink_to(lake)
        filled(served)
        for spelling in SPELLINGS.values():
            served.process.kill()
            start_with(served, spelling(lake))
            assert served.insert([[2, "b"]], idempotency_key="two").json().get("duplicate")
        has_everything_once(served)


def test_s3a_address_is_the_same_warehouse_as_s3(tmp_path: Path, s3: S3Server) -> None:
    bucket = s3.bucket()
    catalog = create_table(bucket.options, table_sql(options=SLOW))
    lake = bucket.options["warehouse"]
    for number, spelling in enumerate([lake, lake.replace("s3:", "s3a:"), f"{lake}//"]):
        options = {**bucket.options, "warehouse": spelling}
        process = Process(spelling, tmp_path / "state", catalog=options)
        process.start()
        assert post(process, "", {"rows": [[1, "a"]]}, "one").get("duplicate", False) is bool(
            number
        )
        if number == 2:
            post(process, "/flush")
        process.kill()
    assert [row["id"] for row in read(catalog, TABLE)] == [1]


@pytest.mark.parametrize("log", mostly("postgres"))
def test_moved_warehouse_keeps_its_identity(
    tmp_path: Path, log: str, request: pytest.FixtureRequest
) -> None:
    with serve(tmp_path, log, request) as served:
        filled(served)
        served.process.kill()
        moved = (tmp_path / "warehouse").rename(tmp_path / "moved")
        start_with(served, moved)
        served.catalog = Catalog.open({"warehouse": str(moved)})
        has_everything_once(served)


@pytest.mark.parametrize("log", mostly("warehouse"))
def test_externally_renamed_table_keeps_its_waiting_inserts(
    tmp_path: Path, log: str, request: pytest.FixtureRequest
) -> None:
    with serve(tmp_path, log, request) as served:
        filled(served)
        folder = tmp_path / "warehouse" / "default.db"
        (folder / "t").rename(folder / NEW.table)
        named(served, NEW)
        has_everything_once(served)
        served.process.kill()
        (folder / NEW.table).rename(folder / "t")  # in a circle, while it is down
        served.process.start()
        named(served, TABLE)
        assert served.insert([[3, "c"]], idempotency_key="one").status_code == 422
        assert served.insert([[1, "a"]], idempotency_key="one").json()["duplicate"]


def rows_of(served: Served) -> list[tuple[object, object]]:
    served.flush()
    return sorted((row["id"], row["name"]) for row in served.rows())  # type: ignore[type-var]


@pytest.mark.parametrize(
    "layout",
    [" TBLPROPERTIES", " PARTITIONED BY (name) TBLPROPERTIES"],
    ids=["same", "partitioned"],
)
@pytest.mark.parametrize("log", mostly("store"))
def test_externally_swapped_tables_keep_their_inserts_and_take_more(
    tmp_path: Path, log: str, layout: str, request: pytest.FixtureRequest
) -> None:
    with serve(tmp_path, log, request) as served:
        sql = table_sql(options=SLOW).replace("TABLE t ", "TABLE renamed ")
        create_table(tmp_path / "warehouse", sql.replace(" TBLPROPERTIES", layout, 1))
        for name, ids in ((TABLE, (1, 2, 3)), (NEW, (11, 12))):
            named(served, name)
            for id in ids:
                assert served.insert([[id, name.table]]).status_code == 200
                if id != ids[-1]:
                    served.flush()
        folder = tmp_path / "warehouse" / "default.db"
        (folder / "t").rename(folder / "aside")
        (folder / "renamed").rename(folder / "t")
        (folder / "aside").rename(folder / "renamed")
        time.sleep(1.5)  # a name is known for a second
        for name, ids, before in ((TABLE, (11, 12), "renamed"), (NEW, (1, 2, 3), "t")):
            named(served, name)
            document = {"table": {"database": "default", "table": name.table}}
            assert served.call("POST", "/v1/tables/check", document).status_code == 200
            wait_until(lambda: served.insert([[99, "z"]]).status_code == 200)
            assert rows_of(served)[: len(ids)] == [(id, before) for id in ids]
            assert rows_of(served)[-1] == (99, "z")


@pytest.mark.parametrize("log", mostly("store"))
def test_a_copy_of_a_table_has_labels_of_its_own(
    tmp_path: Path, log: str, request: pytest.FixtureRequest
) -> None:
    with serve(tmp_path, log, request) as served:
        filled(served)
        folder = tmp_path / "warehouse" / "default.db"
        shutil.copytree(folder / "t", folder / "copy")
        named(served, TableName("copy", "default"))
        assert served.insert([[9, "z"]], idempotency_key="two").json()["lsn"] == 1
        served.flush()
        assert sorted(map(int, served.ids())) == [1, 9]  # type: ignore[call-overload]
        named(served, TABLE)
        has_everything_once(served)


@pytest.mark.parametrize("log", mostly("warehouse"))
def test_recreated_table_forgets_labels_of_the_dropped_table(
    tmp_path: Path, log: str, request: pytest.FixtureRequest
) -> None:
    with serve(tmp_path, log, request) as served:
        assert served.insert([[1, "a"]], idempotency_key="one").status_code == 200
        served.flush()
        for number in range(3):
            served.catalog.drop_table(TABLE)
            create_table(tmp_path / "warehouse", table_sql(options=SLOW))
            time.sleep(1.1)  # until the coordinator looks at the table again
            answer = served.insert([[number, "b"]], idempotency_key="one")
            assert answer.json()["lsn"] == 1, "labels are the dropped table's"
            served.flush()
            assert [int(str(id)) for id in served.ids()] == [number]


@pytest.fixture
def ended(tmp_path: Path) -> Iterator[Served]:
    """A coordinator that was killed while a row waited."""
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        filled(served)
        served.process.kill()
        yield served


@pytest.mark.parametrize("kind", ["another", "a new one", "a copy"])
def test_state_of_a_warehouse_is_refused_to_another(
    tmp_path: Path, ended: Served, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    other = tmp_path / "other"
    if kind == "a copy":
        shutil.copytree(tmp_path / "warehouse", other)
    elif kind == "another":
        with Served(tmp_path / "second", table_sql()) as second:
            second.insert([[1, "a"]])
        (tmp_path / "second" / "warehouse").rename(other)
    else:
        other.mkdir()
    before = sorted(other.rglob("*"))
    with pytest.raises(AssertionError):
        start_with(ended, other)
    text = "".join(capfd.readouterr())
    assert str(tmp_path / "warehouse") in text, text
    assert str(other) in text, text
    assert sorted(other.rglob("*")) == before
    start_with(ended, tmp_path / "warehouse")
    has_everything_once(ended)


def test_a_copied_warehouse_is_refused_by_the_store_of_its_original(
    tmp_path: Path, request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]
) -> None:
    """A store in PostgreSQL has no state folder by which the copy is seen."""
    with serve(tmp_path, "postgres", request) as served:
        filled(served)
        served.process.kill()
        shutil.copytree(tmp_path / "warehouse", tmp_path / "copy")
        options = [o for o in served.process.options if o.startswith("--store=")]
        other = Process(tmp_path / "copy", tmp_path / "other-state", *options)
        with pytest.raises(AssertionError):
            other.start()
        assert "belongs to the warehouse with the id" in "".join(capfd.readouterr())
        served.process.start()
        has_everything_once(served)


@pytest.mark.parametrize("what", ["warehouse", "warehouse/default.db/t"])
def test_backup_without_acknowledged_rows_refuses_inserts(tmp_path: Path, what: str) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        served.insert([[1, "a"]], idempotency_key="one")
        served.flush()
        shutil.copytree(tmp_path / what, tmp_path / "backup")
        served.insert([[2, "b"]], idempotency_key="two")
        served.flush()
        served.process.kill()
        shutil.rmtree(tmp_path / what)
        shutil.copytree(tmp_path / "backup", tmp_path / what)
        served.process.start()

        def is_stopped() -> bool:
            answer = served.insert([[2, "b"]], idempotency_key="two")
            return answer.status_code == 409 and "is gone, and the latest is 1" in answer.text

        wait_until(is_stopped)
        assert served.ids() == [1]
