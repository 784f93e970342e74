"""The wheel holds both packages, and nothing else by any other name."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    built = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_both_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    (metadata,) = [top for top in tops if top.endswith(".dist-info")]
    (data,) = [top for top in tops if top.endswith(".data")]
    assert tops - {metadata, data} == {"paimon_magics", "paimon_widgets"}


def test_wheel_installs_the_jupyterlab_extension_in_its_place(
    wheel: zipfile.ZipFile,
) -> None:
    root = ROOT / "labextension"
    expected = {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()}
    place = "/data/share/jupyter/labextensions/paimon-magics/"
    actual = {name.partition(place)[2] for name in wheel.namelist() if place in name}
    assert actual == expected >= {"package.json", "static/remoteEntry.js"}


def test_the_wheel_holds_every_file_of_both_packages(wheel: zipfile.ZipFile) -> None:
    expected = {
        path.relative_to(root).as_posix()
        for root, package in ((ROOT, "paimon_magics"), (ROOT / "widgets", "paimon_widgets"))
        for path in (root / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "paimon_magics/py.typed" in expected
    assert expected <= set(wheel.namelist())


def test_the_wheel_carries_its_licence(wheel: zipfile.ZipFile) -> None:
    (licence,) = [n for n in wheel.namelist() if n.endswith("licenses/LICENSE")]
    assert wheel.read(licence) == (ROOT / "LICENSE").read_bytes()
