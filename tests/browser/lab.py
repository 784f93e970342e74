"""A JupyterLab of the tests' own on 127.0.0.1, and a browser on it that reaches nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import nbformat
import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page, Request, WebSocket

_EXTENSION = Path(__file__).resolve().parents[2] / "labextension"
_TOKEN = "a-token-of-the-tests"
_SECONDS_MAX = 90
_SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    # Cells out of sight are on the page, too.
    "notebook-extension/tracker": {"windowingMode": "none"},
}
_NAMES = ("chromium", "google-chrome")


class Lab:
    """A running server, whose files are those in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        # As the wheel puts it beside the others.
        extensions = folder / ".data" / "labextensions"
        extensions.mkdir(parents=True)
        (extensions / "paimon-magics").symlink_to(_EXTENSION)
        for name, values in _SETTINGS.items():
            file = folder / ".config/lab/user-settings/@jupyterlab" / f"{name}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(values))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "JUPYTER_CONFIG_DIR": str(folder / ".config"),
            "JUPYTER_DATA_DIR": str(folder / ".data"),
            # Before what lies in the environment: that is as old as the last `make env`.
            "JUPYTER_PREFER_ENV_PATH": "0",
            "JUPYTER_RUNTIME_DIR": str(folder / ".runtime"),
            "IPYTHONDIR": str(folder / ".ipython"),
            "PAIMON_COORDINATOR": "in-process",
        }
        self._log = folder / "lab.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root"),
                    "--ServerApp.ip=127.0.0.1",
                    f"--ServerApp.port={port}",
                    f"--IdentityProvider.token={_TOKEN}",
                    f"--ServerApp.root_dir={folder}",
                    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
                    "--LabApp.news_url=None",
                ],
                env=environment,
                cwd=folder,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + _SECONDS_MAX
        while not self._answers():
            assert self._process.poll() is None and time.monotonic() < deadline, self.log()
            time.sleep(0.1)

    def log(self) -> str:
        return self._log.read_text()[-5000:]

    def end_kernels(self) -> None:
        """End every notebook's kernel, as one does who shuts it down."""
        headers = {"Authorization": f"token {_TOKEN}"}
        for kind in ("sessions", "kernels"):
            for each in httpx.get(f"{self.address}/api/{kind}", headers=headers).json():
                httpx.delete(f"{self.address}/api/{kind}/{each['id']}", headers=headers)

    def stop(self) -> None:
        with contextlib.suppress(httpx.HTTPError):
            self.end_kernels()
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def write(self, name: str, *cells: str) -> None:
        """A notebook with these cells of code."""
        notebook = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(cell) for cell in cells],
            metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        )
        nbformat.write(notebook, self.folder / name)

    def open(self, page: Page, name: str) -> None:
        """Open a notebook, and wait until its cells can be run."""
        page.goto(f"{self.address}/lab/tree/{name}?token={_TOKEN}&reset")
        page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=60_000)
        page.get_by_text("| Idle").first.wait_for(timeout=60_000)

    def run_all(self, page: Page) -> None:
        """What "Run All Cells" does."""
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_text("Run All Cells", exact=True).click()
        page.get_by_text("| Busy").first.wait_for(timeout=60_000)

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.address}/api").is_success
        return False


@contextlib.contextmanager
def browser_page() -> Iterator[tuple[Page, list[str]]]:
    """A page of Debian's Chromium, and the addresses elsewhere that it or anything it opened asked
    for, by HTTP or as a socket: no other host than this one is found. Without a browser the test
    ends here, as a failure where CI=true."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no Chromium to test with")
        pytest.skip("no Chromium to test with: install the package chromium")
    from playwright.sync_api import sync_playwright

    elsewhere: list[str] = []

    def only_here(asked: Request | WebSocket) -> None:
        if urlsplit(asked.url).hostname not in ("127.0.0.1", None):
            elsewhere.append(asked.url)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"],
        )
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        page.context.on("request", only_here)
        page.on("websocket", only_here)
        yield page, elsewhere
        browser.close()
