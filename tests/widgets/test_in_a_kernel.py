"""What a kernel sends, to a person and to a program that runs notebooks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from paimon_widgets.assets import WIDGET

REPORT = """from paimon_magics.session.reports.report import Report
%load_ext paimon_magics
Report("THING", "all is well", ())"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[BlockingKernelClient]:
    path = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": path, "IPYTHONDIR": str(tmp_path)}
    manager, client = start_new_kernel(kernel_name="python3", env=environment)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def shown(client: BlockingKernelClient, *, allow_stdin: bool) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    def heard(message: dict[str, Any]) -> None:
        if message["msg_type"] == "execute_result":
            found.append(message["content"]["data"])

    client.execute_interactive(REPORT, allow_stdin=allow_stdin, output_hook=heard, timeout=60)
    (data,) = found
    return data


def test_interactive_client_gets_widget_and_program_gets_page_only(
    client: BlockingKernelClient,
) -> None:
    to_a_person = shown(client, allow_stdin=True)
    to_a_program = shown(client, allow_stdin=False)
    assert to_a_person.pop(WIDGET)["model_id"]
    assert to_a_person == to_a_program
    assert set(to_a_program) == {"text/plain", "text/html"}
