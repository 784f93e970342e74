"""The tutorials can be run to their end, and `make lab` works on copies of them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_that_show_an_error_do_not_stop_run_all(notebook: Path) -> None:
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] == "code":
            fails = any(output["output_type"] == "error" for output in cell["outputs"])
            is_expected = "raises-exception" in cell["metadata"].get("tags", [])
            assert fails == is_expected, "".join(cell["source"])


def test_lab_opens_copies_and_keeps_changes_in_them(tmp_path: Path) -> None:
    made = ROOT / ".venv" / "made-from-lock"
    if not made.exists() or made.read_text().strip() != str(ROOT):
        pytest.skip("this checkout has no environment of `make env`")
    folder = tmp_path / "mine"
    folder.mkdir()
    changed = folder / NOTEBOOKS[0].name
    changed.write_text("changed")
    # One option of its own, and one default that is told otherwise.
    options = f"LAB_ARGS=--ServerApp.root_dir={tmp_path} --show-config-json"
    environment = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
    shown = subprocess.run(
        ["make", "--no-print-directory", "lab", f"LAB_FOLDER={folder}", options],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    server = json.loads(shown[shown.index("{") :])["ServerApp"]
    assert (server["root_dir"], server["ip"]) == (str(tmp_path), "127.0.0.1")
    assert changed.read_text() == "changed"
    copies = {path.name: path.read_bytes() for path in folder.iterdir() if path != changed}
    assert copies == {path.name: path.read_bytes() for path in NOTEBOOKS[1:]}
