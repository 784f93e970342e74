"""A folder of another account on this machine."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from paimon_magics.errors import SetupError
from paimon_magics.tables.stores.local_store import LocalStore

NOBODY = 65534


def as_another_account(folder: Path) -> str:
    """What an account that may only read the folder gets when it writes there."""
    ends, begins = os.pipe()
    child = os.fork()
    if child == 0:
        text = "written"
        try:
            if os.geteuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            LocalStore().create(str(folder / "file"), b"content")
        except SetupError as error:
            text = f"{error.message} {error.hint}"
        except BaseException as error:
            text = repr(error)
        os.write(begins, text.encode())
        os._exit(0)
    os.close(begins)
    with os.fdopen(ends) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


@pytest.mark.parametrize("is_there", [True, False])
def test_missing_permission_names_account_folder_and_next_step(
    tmp_path: Path, is_there: bool
) -> None:
    for outer in (tmp_path, *tmp_path.parents):
        if outer == Path(tempfile.gettempdir()):
            break
        outer.chmod(0o755)
    folder = tmp_path / "warehouse"
    folder.mkdir()
    folder.chmod(0o555)
    text = as_another_account(folder if is_there else folder / "t")
    assert "has no permission to write to" in text and str(folder) in text
    assert "Ask who looks after the folder" in text and "disk" not in text
    folder.chmod(0o777)
    assert as_another_account(folder) == "written"
