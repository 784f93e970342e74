"""Changes of definitions whose answers are lost, whose coordinator is deposed, or that come at the
same time from several clients."""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from paimon_magics.coordinator.client.interface import Definitions
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.coordinator.protocol.definition_changes import (
    DatabaseCreation,
    DefinitionChange,
    TableDrop,
    TableRename,
    change_document,
)
from paimon_magics.errors import (
    CommitConflictError,
    PaimonMagicsError,
    SetupError,
    StatementError,
    UnknownNameError,
    UnknownOutcomeError,
)
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.planning.schemas.replacements import TableReplacement
from paimon_magics.planning.schemas.table_schema import TableSchema, plan_create_table
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName
from paimon_magics.statements.table_changes import AddColumn, RenameColumn
from paimon_magics.tables.catalog.catalog import Catalog
from tests.backends.s3 import s3_server
from tests.coordinator.cutting import CuttingProxy
from tests.coordinator.process import Process, wait_until, write
from tests.coordinator.team import Team
from tests.faults.outside_writer import OutsideWriter

T, U = TableName("t", "default"), TableName("u", "default")


def schema(columns: str = "k INT, v STRING") -> TableSchema:
    statement = parse_statement(f"CREATE TABLE t ({columns})")
    assert isinstance(statement, CreateTable)
    return plan_create_table(statement)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    made = Process(tmp_path / "warehouse", tmp_path / "state")
    made.start()
    yield made
    made.close()


@pytest.fixture
def catalog(process: Process) -> Catalog:
    return Catalog.open({"warehouse": str(process.warehouse)})


@pytest.fixture
def proxy(process: Process) -> Iterator[CuttingProxy]:
    made = CuttingProxy(process.address, b"POST /v1/changes")
    yield made
    made.close()


@pytest.fixture
def client(proxy: CuttingProxy, process: Process) -> Iterator[RemoteCoordinator]:
    made = RemoteCoordinator(At(proxy.address, process.token()))
    yield made
    made.close()


_DEPOSED = b"""HTTP/1.1 503 Service Unavailable\r
Content-Length: 70\r
Connection: close\r
\r
{"error": {"type": "BrokeOffError", "message": "deposed", "hint": ""}}"""


@pytest.fixture(params=["it lives", "it was restarted", "it was deposed"])
def lost(
    request: pytest.FixtureRequest,
    proxy: CuttingProxy,
    client: RemoteCoordinator,
    catalog: Catalog,
    process: Process,
) -> Callable[[Callable[[Definitions], object]], object]:
    """Make a change whose answer is lost; its coordinator lives, or is restarted by then."""
    definitions = Definitions(catalog, client.change_definition)
    lose = proxy.lose

    def restarted() -> bool:
        process.kill()
        process.start()
        return lose()

    def make(change: Callable[[Definitions], object]) -> object:
        if request.param == "it was deposed":
            proxy.answer = _DEPOSED
        if request.param != "it lives":
            proxy.lose = restarted  # type: ignore[method-assign]
        proxy.cuts = 1
        made = change(definitions)
        assert proxy.cuts == 0
        return made

    return make


Lost = Callable[[Callable[[Definitions], object]], object]


def test_create_with_lost_answer_creates_the_table_once(lost: Lost, catalog: Catalog) -> None:
    assert lost(lambda d: d.create_table(T, schema())) is True
    assert catalog.load(T).schema.column_names == ("k", "v")


def test_create_with_lost_answer_does_not_claim_a_table_of_others(
    lost: Lost, catalog: Catalog
) -> None:
    catalog.create_table(T, schema("other INT"))
    assert lost(lambda d: d.create_table(T, schema(), if_not_exists=True)) is False
    with pytest.raises(StatementError, match="exists already"):
        lost(lambda d: d.create_table(T, schema()))


def test_drop_with_lost_answer_drops_the_table(lost: Lost, catalog: Catalog) -> None:
    catalog.create_table(T, schema())
    assert lost(lambda d: d.drop_table(T)) is True
    assert not catalog.table_exists(T)


def test_rename_with_lost_answer_renames_the_table(lost: Lost, catalog: Catalog) -> None:
    catalog.create_table(T, schema())
    lost(lambda d: d.rename_table(T, U))
    assert catalog.list_tables("default") == ["u"]


def test_column_swap_with_lost_answer_is_applied_once(lost: Lost, catalog: Catalog) -> None:
    catalog.create_table(T, schema())
    swap = (RenameColumn(("k",), "x"), RenameColumn(("v",), "k"), RenameColumn(("x",), "v"))
    lost(lambda d: d.alter_table(T, swap, 0))
    table = catalog.load(T)
    assert (table.schema.schema_id, table.schema.column_names) == (1, ("v", "k"))


def test_add_column_with_lost_answer_adds_the_column(lost: Lost, catalog: Catalog) -> None:
    catalog.create_table(T, schema())
    lost(lambda d: d.alter_table(T, [AddColumn(("x",), AtomicType("INT"))], 0))
    assert catalog.load(T).schema.column_names == ("k", "v", "x")


def test_replacement_with_lost_answer_makes_one_schema(lost: Lost, catalog: Catalog) -> None:
    catalog.create_table(T, schema())
    lost(lambda d: d.replace_table(TableReplacement(T, schema("other INT"), 0)))
    table = catalog.load(T)
    assert (table.schema.schema_id, table.schema.column_names) == (1, ("other",))


def test_replacement_by_another_table_with_lost_answer_is_made_once(
    lost: Lost, catalog: Catalog
) -> None:
    catalog.create_table(T, schema())
    lost(lambda d: d.replace_table(TableReplacement(T, schema("other INT"), 0, is_dropped=True)))
    table = catalog.load(T)
    assert (table.schema.schema_id, table.schema.column_names) == (0, ("other",))


def test_lost_answers_do_not_break_creating_and_dropping_databases(
    lost: Lost, catalog: Catalog
) -> None:
    assert lost(lambda d: d.create_database("shop", {"comment": "new"})) is True
    assert catalog.database_exists("shop")
    catalog.create_table(TableName("t", "shop"), schema())
    assert lost(lambda d: d.drop_database("shop", cascade=True)) is True
    assert not catalog.database_exists("shop")


def test_repeated_drop_spares_a_recreated_table(
    proxy: CuttingProxy, client: RemoteCoordinator, catalog: Catalog, process: Process
) -> None:
    catalog.create_table(T, schema())
    lose = proxy.lose

    def restarted_and_made_anew() -> bool:
        process.kill()
        catalog.create_table(T, schema("other INT"))
        process.start()
        return lose()

    proxy.lose, proxy.cuts = restarted_and_made_anew, 1  # type: ignore[method-assign]
    assert Definitions(catalog, client.change_definition).drop_table(T) is True
    assert catalog.load(T).schema.column_names == ("other",)


def test_refused_repeat_of_a_change_that_was_made_does_not_deny_it(
    proxy: CuttingProxy, client: RemoteCoordinator, catalog: Catalog, process: Process
) -> None:
    lose = proxy.lose

    def restarted_and_written() -> bool:
        process.kill()
        writer = OutsideWriter()
        writer.commit(process.warehouse, [{"k": 1, "v": "a"}])
        writer.close()
        process.start()
        return lose()

    proxy.lose, proxy.cuts = restarted_and_written, 1  # type: ignore[method-assign]
    with pytest.raises(StatementError, match="exists already") as refusal:
        Definitions(catalog, client.change_definition).create_table(T, schema())
    assert "may have been carried out" in refusal.value.hint


@pytest.mark.parametrize(
    "change", [TableDrop(T, created_at_ms=1), TableRename(T, U, created_at_ms=1)], ids=str
)
def test_change_spares_a_table_that_took_the_name_of_the_one_meant(
    process: Process, catalog: Catalog, change: DefinitionChange
) -> None:
    catalog.create_table(T, schema(), if_not_exists=False)
    with pytest.raises(CommitConflictError, match=r"`default\.t` is another table now"):
        process.client().change_definition(change)
    assert catalog.list_tables("default") == ["t"]


@pytest.mark.parametrize("kind", ["view", "function"])
def test_database_with_views_or_functions_is_dropped_by_cascade_only(
    process: Process, catalog: Catalog, kind: str
) -> None:
    client = process.client()
    definitions = Definitions(catalog, client.change_definition)
    assert definitions.create_database("shop", {}, if_not_exists=False)
    view = {"fields": [], "query": "SELECT 1", "dialects": {}, "comment": None, "options": {}}
    body: dict[str, object] = {"identifier": {"database": "shop", "object": "v"}, "schema": view}
    if kind == "function":
        body = {"name": "v", "inputParams": [], "returnParams": [], "deterministic": True,
                "definitions": {}, "comment": None, "options": {}}  # fmt: skip
    path = f"{process.address}/v1/paimon/databases/shop/{kind}s"
    headers = {"Authorization": f"Bearer {process.token()}"}
    answer = httpx.post(path, json=body, headers=headers, trust_env=False)
    assert answer.is_success, answer.text
    with pytest.raises(StatementError, match=rf"not empty: it has 1 {kind} \(`v`\)") as refused:
        definitions.drop_database("shop", cascade=False)
    assert f"Drop its {kind}s first" in refused.value.hint
    kept = httpx.get(f"{path}/v", headers=headers, trust_env=False)
    assert kept.is_success, kept.text
    assert definitions.drop_database("shop", cascade=True)
    assert not catalog.database_exists("shop")


def test_repeated_change_gets_the_same_refusal(
    proxy: CuttingProxy, client: RemoteCoordinator, catalog: Catalog
) -> None:
    definitions = Definitions(catalog, client.change_definition)
    proxy.cuts = 2
    with pytest.raises(UnknownNameError, match="There is no database `nowhere`"):
        definitions.create_table(TableName("t", "nowhere"), schema())
    assert proxy.cuts == 0


def test_id_of_another_change_is_refused(process: Process, catalog: Catalog) -> None:
    for database, status in (("one", 200), ("one", 200), ("two", 400)):
        change = change_document(DatabaseCreation(database))
        answer = httpx.post(
            f"{process.address}/v1/changes",
            json={"id": "1", "repeated": False, "change": change},
            headers={"Authorization": f"Bearer {process.token()}"},
            trust_env=False,
        )
        assert answer.status_code == status, answer.text
    assert "given to another change" in answer.text
    assert not catalog.database_exists("two")


def test_client_with_a_wrong_token_changes_nothing(process: Process, catalog: Catalog) -> None:
    catalog.create_table(T, schema())
    stranger = RemoteCoordinator(At(process.address, "a wrong token"))
    definitions = Definitions(catalog, stranger.change_definition)
    for change in (
        lambda: definitions.drop_table(T),
        lambda: definitions.create_table(U, schema()),
        lambda: definitions.drop_database("default", cascade=True),
    ):
        with pytest.raises(SetupError):
            change()
    assert catalog.list_tables("default") == ["t"]
    stranger.close()


def test_a_damaged_table_can_be_dropped(lost: Lost, catalog: Catalog, process: Process) -> None:
    catalog.create_table(T, schema())
    (Path(process.warehouse) / "default.db/t/schema/schema-0").write_bytes(b"")
    assert lost(lambda d: d.drop_table(T)) is True
    assert catalog.list_tables("default") == []


def test_pause_blocks_definition_changes(process: Process, catalog: Catalog) -> None:
    catalog.create_table(T, schema())
    admin = process.client()
    admin.administration().pause()
    waiting = RemoteCoordinator(At(process.address, process.token()), coordinator_wait_ms=500)
    with pytest.raises(PaimonMagicsError, match="paused"):
        Definitions(catalog, waiting.change_definition).drop_table(T)
    assert catalog.table_exists(T)
    admin.administration().resume()
    assert Definitions(catalog, waiting.change_definition).drop_table(T)
    waiting.close()


def test_a_deposed_coordinator_changes_nothing(tmp_path: Path) -> None:
    team = Team(tmp_path, 2, "--log=warehouse")
    try:
        owner, standby = team.owner(), team.standby()
        catalog = Catalog.open({"warehouse": str(team.warehouse)})
        Definitions(catalog, owner.client().change_definition).create_table(T, schema())
        assert owner.running is not None
        owner.running.send_signal(19)  # SIGSTOP: it does not hear that another one takes over
        wait_until(owner.is_stopped)
        wait_until(lambda: _owns(standby))
        body = {"id": "1", "repeated": False, "change": change_document(TableDrop(T))}
        answers: list[httpx.Response] = []
        thread = threading.Thread(target=lambda: answers.append(_sent(owner, body)))
        thread.start()
        owner.go_on()
        thread.join(60)
        (answer,) = answers
        assert answer.status_code == 503, answer.text
        assert catalog.table_exists(T)
        # A client goes on to the new owner.
        old = RemoteCoordinator(At(f"{owner.address},{standby.address}", owner.token()))
        assert Definitions(catalog, old.change_definition).drop_table(T)
        assert not catalog.table_exists(T)
        old.close()
    finally:
        team.close()


def _sent(member: Process, body: object) -> httpx.Response:
    headers = {"Authorization": f"Bearer {member.token()}"}
    with httpx.Client(trust_env=False, headers=headers, timeout=60) as http:
        return http.post(f"{member.address}/v1/changes", json=body)


def _owns(member: Process) -> bool:
    try:
        return httpx.get(f"{member.address}/health/owner", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def test_recreated_tables_contain_only_their_own_rows(process: Process, catalog: Catalog) -> None:
    """Each client creates, fills, renames and drops tables under three names. A table's only column
    says who created it, so that a row of another table's can't be in it."""
    names = [TableName(name, "default") for name in ("a", "b", "c")]
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    created: Counter[bool] = Counter()
    lock = threading.Lock()

    def run(number: int) -> None:
        chance = random.Random(seed + number)
        client = process.client()
        definitions = Definitions(catalog, client.change_definition)
        for _ in range(12):
            name, other = chance.sample(names, 2)
            try:
                match chance.randrange(4):
                    case 0 | 1:
                        mark = f"c{uuid.uuid4().hex}"
                        made = definitions.create_table(name, schema(f"{mark} INT"))
                        with lock:
                            created[made] += 1
                        transaction = client.begin(name)
                        rows = [{mark: 1}]
                        try:
                            messages = write(catalog, transaction, rows)
                        except (KeyError, ValueError, OSError):  # it is another table by now
                            client.abort(transaction)
                            continue
                        client.commit(CommitRequest(transaction, Append(), messages))
                    case 2:
                        definitions.rename_table(name, other)
                    case _:
                        definitions.drop_table(name)
            except (StatementError, SetupError, PaimonMagicsError, OSError) as error:
                assert not isinstance(error, UnknownOutcomeError), error

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))
    assert created[True] > 0
    for name in catalog.list_tables("default"):
        table = catalog.load(TableName(name, "default"))
        (column,) = table.schema.column_names
        builder = table.paimon.new_read_builder()
        actual = builder.new_read().to_arrow(builder.new_scan().plan().splits())
        assert actual.num_rows <= 1 and actual.column_names == [column]
    assert _owns(process)


def test_a_database_in_an_object_store_is_dropped_with_its_tables(tmp_path: Path) -> None:
    with s3_server() as server:
        bucket = server.bucket()
        process = Process(bucket.options["warehouse"], tmp_path / "state", catalog=bucket.options)
        process.start()
        catalog = Catalog.open(bucket.options)
        client = process.client()
        definitions = Definitions(catalog, client.change_definition)
        definitions.create_database("shop", {})
        name = TableName("t", "shop")
        definitions.create_table(name, schema())
        transaction = client.begin(name)
        messages = write(catalog, transaction, [{"k": 1, "v": "a"}])
        client.commit(CommitRequest(transaction, Append(), messages))
        assert definitions.drop_database("shop", cascade=True) is True
        assert catalog.stored_databases() == []
        process.close()


def test_changed_database_keeps_its_properties_when_the_answer_is_lost(
    lost: Callable[[Callable[[Definitions], object]], object], client: RemoteCoordinator
) -> None:
    updates = (("comment", "of all"), ("team", "red"))
    lost(lambda definitions: definitions.alter_database("default", updates, ("never",)))
    lost(lambda definitions: definitions.alter_database("default", (), ("team",)))
    properties = client.database_properties("default")
    assert properties.pop("location") and properties == {"comment": "of all"}
