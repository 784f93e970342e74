"""Sessions whose coordinator hands out keys of its store: of MinIO, which enforces them, or where
there is none of moto, which does not; see `coordinator/data_tokens`. A key lasts seconds here, so
that statements outlive several."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pyspark.sql import SparkSession

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import OutdatedPlanError, PaimonMagicsError, UnknownNameError
from paimon_magics.session.doctor import doctor
from tests.backends.minio import minio, minio_program
from tests.backends.s3 import Bucket, s3_server
from tests.coordinator.process import Process

SECONDS = 12


@pytest.fixture(autouse=True)
def no_keys_among_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "PAIMON_COORD", "PAIMON_WARE", "PAIMON_CAT")):
            monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    if minio_program() is not None:
        with minio(tmp_path_factory.mktemp("minio")) as server:
            yield server.bucket()
    else:
        with s3_server() as simulated:
            yield simulated.bucket()


@pytest.fixture(scope="module")
def coordinator(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    process = Process(
        bucket.options["warehouse"],
        tmp_path_factory.mktemp("coordinator") / "state",
        *("--data-tokens=sts", "--sts-role=arn:aws:iam::123456789012:role/lake"),
        f"--data-token-seconds={SECONDS}",
        catalog=bucket.options,
    )
    process.start()
    try:
        yield process
    finally:
        process.close()


def token(coordinator: Process, name: str, *allow: str) -> str:
    answer = httpx.post(
        f"{coordinator.address}/v1/tokens",
        json={"name": name, "allow": list(allow)},
        headers={"Authorization": f"Bearer {coordinator.token()}"},
    )
    return str(answer.json()["token"])


def connected(spark: SparkSession, coordinator: Process, token: str) -> Session:
    """A session with nothing but the coordinator's address and a token, whose executors read."""
    return paimon_magics.connect(
        coordinator=coordinator.address, token=token, spark=spark, local_rows_max=0
    )


@pytest.fixture(scope="module")
def filled(spark: SparkSession, coordinator: Process) -> None:
    with connected(spark, coordinator, token(coordinator, "owner", "write")) as session:
        session.run("CREATE DATABASE shop")
        for table in ("orders", "secret"):
            session.run(f"CREATE TABLE shop.{table} (k INT, v STRING)")
            session.run(f"INSERT INTO shop.{table} VALUES (1, 'a'), (2, 'b')")
        session.run(
            "CREATE TABLE shop.keyed (k INT, v STRING)"
            " TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2')"
        )
        session.run("INSERT INTO shop.keyed SELECT * FROM shop.orders")


def rows(session: Session, text: str) -> list[tuple[object, ...]]:
    frame = session.run(text).dataframe
    assert frame is not None
    return sorted(tuple(row) for row in frame.collect())


@pytest.mark.usefixtures("filled")
def test_session_has_no_lasting_key_and_reads_writes_and_changes(
    spark: SparkSession, coordinator: Process, bucket: Bucket
) -> None:
    with connected(spark, coordinator, token(coordinator, "owner", "write")) as session:
        assert bucket.options["s3.secret-key"] not in session.catalog_options.values()
        assert not [key for key in session.catalog_options if "access" in key and "key" in key]
        session.run("INSERT INTO shop.orders VALUES (3, 'c')")
        session.run("MERGE INTO shop.keyed t USING shop.orders s ON t.k = s.k "
                    "WHEN MATCHED THEN UPDATE SET v = upper(s.v) "
                    "WHEN NOT MATCHED THEN INSERT *")  # fmt: skip
        session.run("DELETE FROM shop.orders WHERE k = 3")
        session.run("CALL sys.compact('shop.keyed')")
        assert rows(session, "SELECT * FROM shop.orders") == [(1, "a"), (2, "b")]
        assert rows(session, "SELECT * FROM shop.keyed") == [(1, "A"), (2, "B"), (3, "c")]
        assert len(rows(session, "SELECT * FROM shop.keyed$files")) >= 1


@pytest.mark.usefixtures("filled")
def test_streams_and_their_consumers_run_with_keys_of_the_coordinator(
    spark: SparkSession, coordinator: Process, bucket: Bucket, tmp_path: Path
) -> None:
    with connected(spark, coordinator, token(coordinator, "owner", "write")) as session:
        session.run("CREATE TABLE shop.copy (k INT, v STRING)")
        for _ in range(2):
            stream = session.write_stream(
                session.stream("shop.orders", **{"consumer-id": "copying"}),
                "shop.copy",
                checkpoint=str(tmp_path / "checkpoint"),
                trigger="available-now",
            )
            assert stream.wait(120)
        assert rows(session, "SELECT * FROM shop.copy") == [(1, "a"), (2, "b")]
        query = str(stream.query.id)
    assert bucket.objects("warehouse/shop.db/copy/.streams") == [
        f"warehouse/shop.db/copy/.streams/{query}"
    ]


@pytest.mark.usefixtures("filled")
def test_session_of_a_reader_sees_and_reads_their_tables_alone(
    spark: SparkSession, coordinator: Process
) -> None:
    with connected(spark, coordinator, token(coordinator, "ada", "read=shop.orders")) as session:
        assert rows(session, "SELECT * FROM shop.orders")
        assert [row[1] for row in rows(session, "SHOW TABLES IN shop")] == ["orders"]
        with pytest.raises(UnknownNameError):
            session.run("SELECT * FROM shop.secret")
        with pytest.raises(UnknownNameError):
            session.run("SELECT * FROM shop.missing")
        with pytest.raises(PaimonMagicsError):
            session.run("INSERT INTO shop.orders VALUES (9, 'z')")


@pytest.mark.usefixtures("filled")
def test_a_task_that_outlives_its_key_renews_it(spark: SparkSession, coordinator: Process) -> None:
    with connected(spark, coordinator, token(coordinator, "owner", "write")) as session:
        session.run("CREATE TABLE shop.slow (k INT)")
        spark.udf.register("wait_for_key", _waits, "int")
        frame = spark.range(1).selectExpr("wait_for_key(int(id)) AS k")
        session.write(frame, "shop.slow")  # one task, whose file is uploaded at its end
        assert rows(session, "SELECT * FROM shop.slow") == [(0,)]
        frame = session.table("shop.slow")
        time.sleep(SECONDS + 1)
        assert [tuple(row) for row in frame.collect()] == [(0,)]


def _waits(value: int) -> int:
    time.sleep(SECONDS + 3)
    return value


@pytest.mark.usefixtures("filled")
def test_session_of_a_revoked_user_reads_no_more_after_its_keys_time(
    spark: SparkSession, coordinator: Process
) -> None:
    with connected(spark, coordinator, token(coordinator, "goes", "read")) as session:
        frame = session.table("shop.secret")
        assert len(frame.collect()) == 2
        httpx.delete(
            f"{coordinator.address}/v1/tokens/goes",
            headers={"Authorization": f"Bearer {coordinator.token()}"},
        )
        time.sleep(SECONDS + 1)
        with pytest.raises(Exception, match=r"gave no key of the store|wrong, expired or revoked"):
            frame.collect()


@pytest.mark.usefixtures("filled")
def test_doctor_says_what_binds(spark: SparkSession, coordinator: Process, bucket: Bucket) -> None:
    with connected(spark, coordinator, token(coordinator, "owner", "write")) as session:
        assert "from the coordinator, for minutes" in doctor(session)["Store"]["keys"]
    own = {key: value for key, value in bucket.options.items() if key != "warehouse"}
    with paimon_magics.connect(
        coordinator=coordinator.address,
        token=token(coordinator, "owner", "write"),
        catalog=own,
        spark=spark,
    ) as session:
        assert "this session's own" in doctor(session)["Store"]["keys"]
        assert any("go around" in advice.problem for advice in doctor(session).advice)


@pytest.mark.usefixtures("filled")
def test_grants_that_fit_into_no_key_are_named_at_connect(
    spark: SparkSession, coordinator: Process
) -> None:
    many = [f"read=shop.table_{number}" for number in range(60)]
    with pytest.raises(PaimonMagicsError, match="The policy of the key has"):
        connected(spark, coordinator, token(coordinator, "many", *many))


def test_copy_into_leaves_the_history_to_the_coordinator(
    spark: SparkSession, coordinator: Process, bucket: Bucket, filled: None, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("11,x\n12,y\n")
    writer = token(coordinator, "loader", "change=shop.orders")
    statement = f"COPY INTO shop.orders FROM '{tmp_path}' FILE_FORMAT = (TYPE = CSV)"
    folder = "warehouse/shop.db/orders/copy-into/"
    with connected(spark, coordinator, writer) as session:
        first = session.run(statement).to_pylist()
        assert [(row["status"], row["rows_loaded"]) for row in first] == [("LOADED", 2)]
        records = bucket.objects(f"{folder}history")
        assert len(records) == 1, "written by the coordinator: such a key may not"
        assert bucket.objects(f"{folder}pending") == []
        again = session.run(statement).to_pylist()
        assert {row["status"] for row in again} == {"SKIPPED"}
        if minio_program() is not None:  # moto enforces no policy
            store = session.catalog.stores.of(session.warehouse)
            place = f"{session.warehouse.rstrip('/')}/shop.db/orders/copy-into"
            for name in (records[0].rpartition("/")[2], "load-0123456789abcdef-1"):
                with pytest.raises(PaimonMagicsError):
                    store.write(f"{place}/history/{name}", b"forged")
            with pytest.raises(PaimonMagicsError):
                store.write(f"{place}/pending/paimon-magics-forged", b"forged")


def test_two_sessions_with_keys_load_a_file_once(
    spark: SparkSession, coordinator: Process, filled: None, tmp_path: Path
) -> None:
    (tmp_path / "twice.csv").write_text("21,x\n22,y\n")
    statement = f"COPY INTO shop.orders FROM '{tmp_path}' FILE_FORMAT = (TYPE = CSV)"
    writer = token(coordinator, "loader", "change=shop.orders")  # a process has one token
    answers: list[str] = []
    both = threading.Barrier(2)

    def load() -> None:
        with connected(spark, coordinator, writer) as session:
            both.wait(60)
            try:
                answers.extend(row["status"] for row in session.run(statement).to_pylist())
            except OutdatedPlanError:
                answers.append("OUTDATED")
            both.wait(240)

    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert len(answers) == 2 and answers.count("LOADED") == 1, answers
    with connected(spark, coordinator, token(coordinator, "owner", "write")) as session:
        loaded = session.run("SELECT k FROM shop.orders WHERE k BETWEEN 21 AND 22").to_pylist()
        assert sorted(row["k"] for row in loaded) == [21, 22]
