"""The hubs of `deploy/hub` fit what reads their files: spawners, schemas, systemd, our options."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from traitlets.config import Config, PyFileConfigLoader

from paimon_magics.coordinator.http.authorisation import PUBLIC
from paimon_magics.coordinator.process.arguments import parser
from tests.hub.packages import installed

HUB = Path(__file__).parents[2] / "deploy" / "hub"
DOCS = Path(__file__).parents[2] / "docs"
COMPOSE: dict[str, Any] = yaml.safe_load((HUB / "docker" / "compose.yaml").read_text())["services"]
MANIFESTS = list(yaml.safe_load_all((HUB / "kubernetes" / "coordinators.yaml").read_text()))
VALUES = yaml.safe_load((HUB / "kubernetes" / "values.yaml").read_text())
UNIT = HUB / "systemd" / "paimon-hub-coordinator@.service"

_SPAWNERS = {
    "systemd": ("systemdspawner.SystemdSpawner", ["jupyterhub-systemdspawner==1.0.2"]),
    "docker": (
        "dockerspawner.DockerSpawner",
        ["dockerspawner==14.0.0", "docker==7.2.0", "escapism==1.1.0"],
    ),
}
_SECRETS = ("PAIMON_S3_KEY", "PAIMON_S3_SECRET", "PAIMON_DB_PASSWORD")


@pytest.fixture(params=sorted(_SPAWNERS))
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """One of the hubs, whose spawner's package is installed for the test."""
    with installed(_SPAWNERS[request.param][1], tmp_path):
        yield request.param


def config_of(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """What a hub reads from the files, laid out as its installation lays them out."""
    for file in (HUB / "paimon.py", *(HUB / kind).glob("*.py")):
        shutil.copy(file, folder)
    for name, value in {
        "PAIMON_HUB_COORDINATORS": "one=http://c-1:8123 two=http://c-2:8123",
        "PAIMON_HUB_COORDINATOR_TOKENS": "first second",
        "PAIMON_HUB_NOTEBOOK_OPTIONS": '{"s3.region": "eu-central-1"}',
        "PAIMON_HUB_IMAGE": "paimon-notebook",
        "PAIMON_HUB_NEIGHBOURS": "paimon-hub=hub",
        "PAIMON_HUB_PASSWORD": "a password of the test's",
    }.items():
        monkeypatch.setenv(name, value)
    loader = PyFileConfigLoader("jupyterhub_config.py", path=str(folder))
    return loader.load_config()


def test_spawner_knows_all_its_settings_and_each_user_gets_limits(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(kind, tmp_path, monkeypatch)
    module, name = _SPAWNERS[kind][0].split(".")
    assert config.JupyterHub.spawner_class == _SPAWNERS[kind][0]
    spawner = getattr(importlib.import_module(module), name)
    known = spawner.class_traits(config=True)
    for section in ("Spawner", name):
        assert set(config[section]) <= set(known), section
        for key, value in config[section].items():
            known[key]._validate(spawner.__new__(spawner), value)
    assert config.Spawner.mem_limit and config.Spawner.cpu_limit
    assert any(each.startswith("--MappingKernelManager.cull_idle") for each in config.Spawner.args)
    # The only secrets of a user's server are its own.
    environment = config.Spawner.environment
    assert set(environment) == {
        "PAIMON_COORDINATOR",
        "PAIMON_COORDINATOR_TOKEN",
        "PAIMON_CATALOG_OPTIONS",
    }
    assert environment["PAIMON_COORDINATOR"] == (
        "http://c-1:8123/services/one,http://c-2:8123/services/two"
    )


def test_hub_starts_no_coordinator_that_could_end_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(kind, tmp_path, monkeypatch)
    services = config.JupyterHub.services.get_value([])
    assert [each["name"] for each in services] == ["one", "two"]
    assert [each["api_token"] for each in services] == ["first", "second"]
    assert not any("command" in each for each in services)
    groups = {
        group for role in config.JupyterHub.load_roles.get_value([]) for group in role["groups"]
    }
    assert groups == set(config.JupyterHub.load_groups)


def test_hub_without_its_common_part_does_not_begin(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would begin without its authenticator, its roles and its limits."""
    config_of(kind, tmp_path, monkeypatch)
    monkeypatch.chdir(HUB)
    for name in ("paimon.py", "site.py"):
        (tmp_path / name).rename(tmp_path / "away")
        with pytest.raises(FileNotFoundError):
            PyFileConfigLoader("jupyterhub_config.py", path=str(tmp_path)).load_config()
        (tmp_path / "away").rename(tmp_path / name)


def test_zero_to_jupyterhub_takes_the_same_rights_and_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own configuration has services and roles already, which stay."""
    (tmp_path / "jupyterhub_config.py").write_text(
        "c.JupyterHub.services = [{'name': 'jupyterhub-idle-culler'}]\n"
        "c.JupyterHub.load_roles = [{'name': 'culler'}]\n"
        "c.KubeSpawner.environment = {}\n"
        "load_subconfig('paimon.py')\n"
    )
    config = config_of("kubernetes", tmp_path, monkeypatch)
    names = [each["name"] for each in config.JupyterHub.services]
    assert names == ["jupyterhub-idle-culler", "one", "two"]
    assert len(config.JupyterHub.load_roles) == 4
    assert config.KubeSpawner.environment["PAIMON_COORDINATOR"].startswith("http://c-1")
    assert VALUES["singleuser"]["memory"]["limit"] == config.Spawner.mem_limit
    assert VALUES["singleuser"]["cpu"]["limit"] == config.Spawner.cpu_limit
    groups = VALUES["hub"]["config"]["JupyterHub"]["load_groups"]
    assert set(groups) == {role["groups"][0] for role in config.JupyterHub.load_roles[1:]}
    rules = VALUES["singleuser"]["networkPolicy"]["egressAllowRules"]
    assert VALUES["cull"]["enabled"] and not any(rules.values())


def test_coordinators_of_hubs_are_started_with_existing_options_and_stand_by() -> None:
    (unit,) = re.findall(r"^ExecStart=\S+ (.*)$", UNIT.read_text(), re.MULTILINE)
    (stateful,) = [each for each in MANIFESTS if each["kind"] == "StatefulSet"]
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    lines = [
        shlex.split(unit.replace("%i", "8124")),
        *(
            [*COMPOSE[name]["entrypoint"][1:], *COMPOSE[name]["command"]]
            for name in ("coordinator-1", "coordinator-2")
        ),
        ["--state=/s", "--host=0.0.0.0", "--port=8123", *container["args"]],
    ]
    for words in lines:
        options = parser().parse_args(words)
        assert options.hub and options.standby and options.insecure_http and options.peer
        assert options.port in (8123, 8124)


def test_manifests_fit_the_schemas_of_kubernetes_and_ask_open_paths() -> None:
    for document in MANIFESTS:
        kubernetes_validate.validate(document, "1.30", strict=True)
    (stateful,) = [each for each in MANIFESTS if each["kind"] == "StatefulSet"]
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        path = container[name]["httpGet"]["path"]
        assert path.removeprefix("/services/paimon-coordinator") in PUBLIC


def test_container_of_the_hub_has_no_secret_of_store_or_database() -> None:
    hub = json.dumps(COMPOSE["hub"])
    assert not any(secret in hub for secret in _SECRETS)
    assert all(secret in json.dumps(COMPOSE["coordinator-1"]) for secret in _SECRETS)
    sockets = [name for name, each in COMPOSE.items() if "docker.sock" in json.dumps(each)]
    assert sockets == ["hub"]


def test_keys_of_notebooks_have_the_documented_policy() -> None:
    (policy,) = re.findall(r"```json\n(.*?)```", (DOCS / "deployment.md").read_text(), re.DOTALL)
    assert json.loads((HUB / "docker" / "notebooks.json").read_text()) == json.loads(policy)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd")
def test_systemd_understands_the_units_and_the_properties_of_users_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of("systemd", tmp_path, monkeypatch)
    properties = config.SystemdSpawner.unit_extra_properties
    lines = [f"{name}={value.format(USERNAME='a', USERID=1)}" for name, value in properties.items()]
    (tmp_path / "user.service").write_text("\n".join(["[Service]", "ExecStart=/bin/true", *lines]))
    names = ["user.service"]
    for file in [*(HUB / "systemd").glob("*.service"), HUB / "systemd" / "paimon-hub.slice"]:
        text = re.sub(r"^(Exec\w+)=\S+", r"\1=/bin/true", file.read_text(), flags=re.MULTILINE)
        name = file.name.replace("@.", "@8124.")
        (tmp_path / name).write_text(text)
        names.append(name)
    words = ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in names)]
    output = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60).stderr
    assert not any(name in line for line in output.splitlines() for name in names), output


@pytest.mark.skipif(shutil.which("nft") is None, reason="this machine has no nft")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may check rules")
def test_nftables_understands_the_rules() -> None:
    words = ["nft", "--check", "--file", str(HUB / "systemd" / "nftables.conf")]
    assert subprocess.run(words, check=False).returncode == 0


@pytest.mark.parametrize("file", sorted(HUB.rglob("network")), ids=lambda file: file.name)
def test_script_of_networks_is_executable_bash(file: Path) -> None:
    assert os.access(file, os.X_OK)
    assert subprocess.run(["bash", "-n", str(file)], check=False).returncode == 0
    shown = subprocess.run([str(file)], check=False, capture_output=True, text=True)
    assert shown.returncode == 2 and "network add NUMBER" in shown.stderr
