"""Secrets that this process knows are in no text that leaves it, whoever raised or logged it."""

from __future__ import annotations

import logging
import subprocess
import sys
import traceback

import obstore
import pytest
from obstore.store import S3Store

from paimon_magics.boundary import full_trace, short_errors
from paimon_magics.errors import SetupError
from paimon_magics.redaction import conceal, conceal_options, is_secret_name, masked, redacted
from paimon_magics.tables.stores.object_client import ObstoreClient
from paimon_magics.tables.stores.s3_access import S3Store as OurS3Store

SECRET = "9dK/8fh+known=to-nobody"


@pytest.fixture(autouse=True)
def known() -> None:
    conceal_options({"s3.secret-key": SECRET, "token.provider": "bear", "s3.region": "us-east-1"})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"key {SECRET} is wrong", "key *** is wrong"),
        ("9dK%2F8fh%2Bknown%3Dto-nobody", "***"),
        ("jdbc:postgresql://ada:tea@db/x", "jdbc:postgresql://ada:***@db/x"),
        ("Authorization: Bearer abcdefgh123", "Authorization: Bearer ***"),
        ("sc://lake:15002/;token=abc;user_id=ada", "sc://lake:15002/;token=***;user_id=ada"),
        ("?X-Amz-Signature=00ff&x=1", "?X-Amz-Signature=***&x=1"),
        ('{"secret_access_key": "abcdef"}', '{"secret_access_key": "***"}'),
        ("pass token=…, or set PAIMON_COORDINATOR_TOKEN", None),
        ("a bear in us-east-1, by s3.secret-key=…", None),
        ("http://127.0.0.1:8123 token-file=/state/token", None),
    ],
)
def test_redaction_removes_only_secrets_from_texts(text: str, shown: str | None) -> None:
    assert redacted(text) == (text if shown is None else shown)


def test_only_secret_options_are_masked() -> None:
    shown = {
        "s3.secret-key": "***",
        "fs.s3.accessKeySecret": "***",
        "s3.session-token": "***",
        "jdbc.password": "***",
        "s3.region": "us-east-1",
        "token.provider": "us-east-1",
    }
    assert {name: masked(name, "us-east-1") for name in shown} == shown
    assert masked("s3.access-key", "AKIAABCDEFGHIJKLMNOP") == "AKIA…MNOP"
    assert masked("s3.access-key", "minioadmin") == "***"
    assert not is_secret_name("token.provider") and is_secret_name("PAIMON_COORDINATOR_TOKEN")


def failing(depth: int) -> None:
    if depth == 0:
        raise OSError(5, f"refused {SECRET}", f"/x?secret={SECRET}")
    try:
        failing(depth - 1)
    except OSError as error:
        raise ValueError(f"with {SECRET}", {"secret": SECRET}) from error


class Stubborn(Exception):
    """Its text is not among what can be changed."""

    def __str__(self) -> str:
        return f"still {SECRET}"


@short_errors
def entry(kind: str) -> None:
    try:
        if kind == "stubborn":
            raise Stubborn
        failing(1)
    except Exception as error:
        if kind == "foreign":
            raise
        error.add_note(f"noted {SECRET}")
        raise SetupError(f"It failed: {error}", hint=f"Look at {SECRET}.") from error


@pytest.mark.parametrize("kind", ["ours", "foreign", "stubborn"])
def test_tracebacks_contain_no_secret(kind: str) -> None:
    with pytest.raises((SetupError, ValueError)) as raised:
        entry(kind)
    error = raised.value
    told = [str(error), repr(error), full_trace(error), *traceback.format_exception(error)]
    told += [repr(error.__cause__), str(error.__cause__)]
    assert all(SECRET not in text for text in told)
    assert any("***" in text for text in told)


def test_library_panic_is_raised_as_setup_error(monkeypatch: pytest.MonkeyPatch) -> None:
    store = OurS3Store("s3://lake/w", {"s3.secret-key": SECRET, "s3.region": "x"})
    # The client as it would be made for a bucket before an address in digits.
    panicking = S3Store(
        "lake",
        config={"endpoint": "http://lake.127.0.0.1:1", "region": "x", "access_key_id": "k",
                "secret_access_key": SECRET},
        virtual_hosted_style_request=True,
        client_options={"allow_http": True},
    )  # fmt: skip
    with pytest.raises(BaseException, match="InvalidIpv4Address") as panicked:
        obstore.put(panicking, "x", b"1")
    assert not isinstance(panicked.value, Exception)
    monkeypatch.setattr(store, "_client", lambda **_: ObstoreClient(panicking))
    with pytest.raises(SetupError, match="InvalidIpv4Address"):
        store.read("s3://lake/w/x")


LOGGED = """
import logging, threading
from paimon_magics.coordinator.ownership.redacted_log import keep_secrets_out_of_logs
from paimon_magics.redaction import conceal
conceal("known-to-nobody")
keep_secrets_out_of_logs()
logging.getLogger("uvicorn.error").error("it said %s", "known-to-nobody")
def work():
    raise ValueError("in a thread: known-to-nobody")
thread = threading.Thread(target=work)
thread.start(); thread.join()
raise RuntimeError("at the end: known-to-nobody")
"""


def test_the_log_of_a_process_has_no_secret() -> None:
    done = subprocess.run([sys.executable, "-c", LOGGED], capture_output=True, text=True)
    said = done.stdout + done.stderr
    for word in ("it said ***", "in a thread: ***", "at the end: ***"):
        assert word in said
    # The source lines of a program that has it in its text are its own; ours come from nowhere.
    assert "known-to-nobody" not in said


def test_short_values_are_not_redacted() -> None:
    conceal("key")
    logging.getLogger(__name__).debug("nothing")
    assert redacted("the key of a row") == "the key of a row"


@pytest.mark.parametrize("word", ["secret", "password", "paimon", "Secret"])
def test_common_words_are_not_redacted_in_messages(word: str) -> None:
    conceal_options({"s3.secret-key": word, "jdbc": f"postgresql://ada:{word}@db/x"})
    assert redacted("s3.secret-key of paimon, password") == "s3.secret-key of paimon, password"
    assert redacted(f"postgresql://ada:{word}@db/x") == "postgresql://ada:***@db/x"
