"""A denied access, and a store that does not answer, are told apart from damage."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paimon_magics.errors import SetupError, TableDamagedError, error_of_task, sent_to_driver
from paimon_magics.tables.stores.corruption import (
    AccessFailure,
    access_failure,
    damaged,
    denied_path,
)
from paimon_magics.tables.stores.store import StoreRefusedError

DENIED = [
    OSError("When reading information for key 'a/b' in bucket 'lake': AWS Error ACCESS_DENIED "
            "during HeadObject operation: No response body."),
    OSError("s3://lake/t/data.parquet can't be read: 403 Forbidden (AccessDenied: no)"),
    OSError("AWS Error UNKNOWN (HTTP status 403) during GetObject operation"),
    OSError("AWS Error INVALID_ACCESS_KEY_ID during GetObject operation"),
    OSError("x can't be read: 401 Unauthorized"),
    "AccessDeniedException: s3a://lake/x: getFileStatus: Forbidden (Service: S3, Status Code: 403)",
    "AccessControlException: Permission denied: user=ada, access=READ",
]  # fmt: skip
UNREACHABLE = [
    OSError("AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 7"),
    OSError("s3://lake/t/x can't be read: it can't be reached"),
    ConnectionResetError(104, "Connection reset by peer"),
    "ConnectException: Connection refused",
    "UnknownHostException: lake.example",
]
OF_CONTENT = [
    ValueError("AccessDenied is no number"),
    OSError("Couldn't deserialize thrift: TProtocolException: Invalid data"),
    OSError("Parquet file size is 0 bytes in /lake/Permission denied/403 Forbidden.parquet"),
    FileNotFoundError(2, "No such file", "/lake/AccessDenied"),
    "RuntimeException: file:/lake/AccessDenied/x.parquet is not a Parquet file",
    "it is gone",
]


@pytest.mark.parametrize("reason", DENIED, ids=str)
def test_denied_access_is_never_damage(reason: object) -> None:
    error = damaged("The data file x", reason)
    assert access_failure(reason) is AccessFailure.DENIED
    assert type(error) is SetupError and "deni" in error.message.lower()
    assert "'s3.access-key'" in error.hint and "AWS_ACCESS_KEY_ID" in error.hint
    assert "Restore" not in error.hint and "go back" not in error.hint


@pytest.mark.parametrize("reason", UNREACHABLE, ids=str)
def test_store_that_does_not_answer_is_never_damage(reason: object) -> None:
    error = damaged("The data file x", reason)
    assert access_failure(reason) is AccessFailure.UNREACHABLE
    assert type(error) is SetupError and "can't be reached" in error.message
    assert "Restore" not in error.hint


@pytest.mark.parametrize("reason", OF_CONTENT, ids=str)
def test_unreadable_content_and_missing_file_stay_damage(reason: object) -> None:
    assert access_failure(reason) is None
    assert isinstance(damaged("The data file x", reason), TableDamagedError)


def test_cause_of_a_wrapped_failure_is_searched() -> None:
    try:
        raise RuntimeError("read failed") from DENIED[0]
    except RuntimeError as error:
        assert access_failure(error) is AccessFailure.DENIED


def test_refusal_of_a_store_reaches_the_driver_with_its_hint() -> None:
    refused = StoreRefusedError("x can't be written: 403 Forbidden", hint="Check the keys.")
    with pytest.raises(StoreRefusedError) as raised, sent_to_driver():
        raise refused
    found = error_of_task("\n".join(raised.value.__notes__))
    assert type(found) is SetupError and found.hint == "Check the keys."


LOCAL = [
    "PermissionError: [Errno 13] Permission denied: '{}'",
    "FileNotFoundException: {} (Permission denied)",
    "OSError: Permission denied (os error 13): {}",
]


@pytest.mark.parametrize("text", LOCAL)
def test_denied_local_path_is_found_in_every_form_of_the_message(text: str) -> None:
    path = "/no-such-lake/t/.attempts/.a.0.tmp"
    error = damaged("The data file x", text.format(path))
    of_root = f"may not write {path}, which is gone since"
    of_others = "may not write / (owner root, group root, mode 0755)"
    assert of_root in error.message or of_others in error.message
    assert "'s3.access-key'" not in error.hint


@pytest.mark.skipif(os.name != "posix", reason="Windows has other rights")
def test_denied_local_file_names_account_owner_and_mode(tmp_path: Path) -> None:
    file = tmp_path / "data.parquet"
    file.write_bytes(b"")
    file.chmod(0o640)
    error = damaged("The data file", PermissionError(13, "Permission denied", str(file)))
    assert f"{file} (owner " in error.message and "mode 0640" in error.message
    assert "several-people-on-one-machine" in error.hint


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (
            "PermissionError: [Errno 13] Permission denied: '/a/o [d]d%/w/p=a/x'",
            "/a/o [d]d%/w/p=a/x",
        ),
        ("java.io.FileNotFoundException: /a b/w/x (Permission denied)", "/a b/w/x"),
        ("Generic error: /a/b (os error 13)", "/a/b"),
        ("No such file: '/a/b'", None),
    ],
)
def test_path_that_was_denied_may_have_spaces(text: str, path: str | None) -> None:
    assert denied_path(text) == path
