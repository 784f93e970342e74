"""What `deploy/` offers to copy fits what is here: options, metrics, schemas, and stores that are
backed up and restored."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import httpx
import kubernetes_validate
import pytest
import yaml

from paimon_magics.coordinator.core.values import Pause
from paimon_magics.coordinator.http.authorisation import PUBLIC
from paimon_magics.coordinator.process.arguments import parser
from paimon_magics.coordinator.service.health import NAMES
from paimon_magics.coordinator.store.state_store import open_store
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.spark.connect_server import PORT, launch_words
from paimon_magics.spark.connect_server import parser as spark_server_parser
from tests.coordinator.commands import done
from tests.coordinator.inserts.serving import Served, table_sql
from tests.coordinator.postgres import PostgresServer
from tests.coordinator.process import TABLE, read, write

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFESTS = DEPLOY / "kubernetes" / "coordinator.yaml"
COMPOSE = DEPLOY / "compose.yaml"
HUB_COMPOSE = DEPLOY / "hub" / "docker" / "compose.yaml"
UNIT = DEPLOY / "paimon-coordinator.service"
SPARK_UNIT = DEPLOY / "spark-connect" / "paimon-spark-connect.service"
MONITORING = DEPLOY / "monitoring"
_METRIC = re.compile(r"paimon_coordinator_\w+")


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(MANIFESTS.read_text()))


def command_lines() -> list[list[str]]:
    """The options of every coordinator that is started there."""
    (stateful,) = [each for each in documents() if each["kind"] == "StatefulSet"]
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    image = json.loads(entry)[1:]
    (unit,) = re.findall(r"^ExecStart=\S+ (.*)$", UNIT.read_text(), re.MULTILINE)
    compose = yaml.safe_load(COMPOSE.read_text())["services"]["coordinator"]["command"]
    return [image + container["args"], image + compose, shlex.split(unit)]


def test_command_lines_use_existing_options() -> None:
    for words in command_lines():
        options = parser().parse_args(words)
        assert options.warehouse == "s3://lake/warehouse"
        assert options.tls_cert or options.insecure_http


def test_probes_ask_paths_that_are_open_without_a_token() -> None:
    documents = yaml.safe_load_all(MANIFESTS.read_text())
    (pod,) = [d["spec"]["template"]["spec"] for d in documents if "template" in d.get("spec", {})]
    probes = {
        name: container[name]["httpGet"]["path"]
        for container in pod["containers"]
        for name in ("livenessProbe", "readinessProbe", "startupProbe")
    }
    assert probes == {
        "livenessProbe": "/health/live",
        "readinessProbe": "/health/ready",
        "startupProbe": "/health/startup",
    }
    assert set(probes.values()) <= PUBLIC


@pytest.mark.parametrize(
    ("file", "service", "place"),
    [
        (COMPOSE, "coordinator", "http://127.0.0.1:8123"),
        (
            HUB_COMPOSE,
            "coordinator-1",
            "http://127.0.0.1:8123/services/paimon-coordinator-1",
        ),
    ],
    ids=["coordinator", "hub"],
)
def test_the_check_of_a_compose_file_follows_readiness(
    served: Served, file: Path, service: str, place: str
) -> None:
    (command, python, *words) = yaml.safe_load(file.read_text())["services"][service][
        "healthcheck"
    ]["test"]
    assert (command, python) == ("CMD", "python")
    assert place in words[1]

    def status(address: str) -> int:
        asked = [sys.executable, words[0], words[1].replace(place, address)]
        return subprocess.run(asked, capture_output=True, check=False).returncode

    assert status(served.process.address) == 0
    assert status(f"{served.process.address}/nothing") != 0


def test_the_manifests_fit_the_schemas_of_kubernetes() -> None:
    for document in documents():
        kubernetes_validate.validate(document, "1.30", strict=True)
    broken = documents()[1]
    broken["spec"]["replicas"] = "one"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, "1.30", strict=True)


@pytest.mark.parametrize("file", [COMPOSE, HUB_COMPOSE], ids=["coordinator", "hub"])
def test_the_compose_files_fit_their_schema(file: Path, tmp_path: Path) -> None:
    program = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    check = [*program, "vendor.compose-spec"]
    assert subprocess.run([*check, str(file)], check=False).returncode == 0
    broken = tmp_path / "compose.yaml"
    broken.write_text(file.read_text().replace("restart:", "restarts:"))
    assert subprocess.run([*check, str(broken)], check=False).returncode != 0


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd")
@pytest.mark.parametrize("file", [UNIT, SPARK_UNIT], ids=lambda file: file.stem)
def test_systemd_understands_the_unit(file: Path, tmp_path: Path) -> None:
    unit = tmp_path / file.name
    program = re.compile(r"^ExecStart=/opt/paimon-magics/bin/\S+", re.MULTILINE)
    unit.write_text(program.sub("ExecStart=/bin/true", file.read_text()))
    words = ["systemd-analyze", "verify", "--man=no", str(unit)]
    completed = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert file.name not in completed.stderr, completed.stderr


def test_unit_of_the_spark_server_uses_existing_options() -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", SPARK_UNIT.read_text(), re.MULTILINE)
    program, *words = shlex.split(line)
    scripts = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts[Path(program).name].partition(":")
    assert callable(getattr(importlib.import_module(module), function))
    options, others = spark_server_parser().parse_known_args(words)
    assert options.port == PORT
    assert others == ["--master", "local[*]", "--driver-memory", "4g"]
    submit = Path(launch_words(options.host, options.port, Path("/tmp"), others)[0])
    completed = subprocess.run([submit, "--help"], capture_output=True, text=True, check=False)
    for option in (*others[::2], "--load-spark-defaults", "--properties-file"):
        assert option in completed.stderr, completed.stderr


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("deployed")
    with Served(folder, table_sql(), "--audit-table=ops.audit") as one:
        assert one.insert([[1, "a"]]).status_code == 200
        yield one


def test_dashboard_and_alerts_use_existing_metrics(served: Served) -> None:
    client = served.process.client()
    transaction = client.begin(TABLE)
    rows = write(served.catalog, transaction, [{"id": 2, "name": "b"}])
    client.commit(CommitRequest(transaction, Append(), rows))
    headers = {"Authorization": f"Bearer {served.process.token()}"}
    there = httpx.get(f"{served.process.address}/metrics", headers=headers, trust_env=False).text
    known = set(re.findall(r"^(paimon_coordinator_\w+)", there, re.MULTILINE))
    # Facts that this coordinator has none of, as of a certificate: `test_alerts.py` has them.
    known |= {f"paimon_coordinator_{name}" for name in NAMES}
    alerts = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    asked = [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    asked += [each["expr"] for panel in dashboard["panels"] for each in panel["targets"]]
    for expression in asked:
        assert set(_METRIC.findall(expression)) <= known, expression


def test_state_folder_copied_after_a_shutdown_can_be_restored(tmp_path: Path) -> None:
    with Served(tmp_path, table_sql()) as one:
        state = one.process.state
        token = one.call("POST", "/v1/tokens", {"name": "etl", "allow": ["write"]}).json()["token"]
        one.insert([[1, "a"]], idempotency_key="first")
        one.flush()
        # The database is locked while it runs, so that nobody copies half of it.
        with pytest.raises(apsw.BusyError):
            apsw.Connection(str(state / "coordinator.sqlite")).execute("SELECT * FROM meta")
        one.process.end()
        copy = tmp_path / "copy"
        shutil.copytree(state, copy)
        one.process.start()
        late = one.call("POST", "/v1/tokens", {"name": "late", "allow": ["write"]}).json()["token"]
        one.process.kill()
        shutil.rmtree(state)
        shutil.copytree(copy, state)
        with pytest.raises(AssertionError):
            one.process.start()  # tokens may have been revoked since
        done("restore", "--in-place", f"--state={state}", "--yes")
        one.process.start()
        headers = {"authorization": f"Bearer {token}"}
        assert one.call("GET", "//v1/config", headers=headers).status_code == 200
        # What was made after the copy is gone; what was acknowledged before it is known.
        headers = {"authorization": f"Bearer {late}"}
        assert one.call("GET", "//v1/config", headers=headers).status_code == 401
        again = one.insert([[1, "a"]], idempotency_key="first")
        assert again.json().get("duplicate") is True, again.text
        one.insert([[2, "b"]])
        one.flush()
        assert sorted(str(row["id"]) for row in read(one.catalog)) == ["1", "2"]


def test_a_dump_of_a_store_in_postgresql_is_restored_into_an_empty_database(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in postgres.environment.items():
        monkeypatch.setenv(name, value)
    address = postgres.empty_database()
    store = open_store(tmp_path / "first", address)
    store.halts.save_pause(Pause("ada", 7))
    dump = subprocess.run(
        [program("pg_dump"), "--no-owner", address], capture_output=True, check=True
    ).stdout
    store.close()
    address = postgres.empty_database()
    restore = [program("psql"), "--quiet", "--set=ON_ERROR_STOP=1", address]
    subprocess.run(restore, input=dump, check=True, stdout=subprocess.DEVNULL)
    restored = open_store(tmp_path / "second", address)
    assert restored.halts.pause() == Pause("ada", 7)
    restored.close()


def program(name: str) -> str:
    """A program of PostgreSQL's, whose servers' programs need not be on the path."""
    result = shutil.which(name) or next(
        map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)), None
    )
    assert result is not None, name
    return result
