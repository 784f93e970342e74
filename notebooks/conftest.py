"""For notebooks that run as tests: the coordinators that they start keep their state in a temporary
folder, and end with the run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

_STATE = Path(tempfile.mkdtemp(prefix="paimon-notebooks-"))
os.environ["XDG_STATE_HOME"] = str(_STATE)


def pytest_unconfigure() -> None:
    """Called by pytest at its very end."""
    for announced in _STATE.glob("paimon-magics/*/running.json"):
        with suppress(OSError, ValueError):
            os.kill(json.loads(announced.read_text())["pid"], signal.SIGTERM)
    shutil.rmtree(_STATE, ignore_errors=True)
