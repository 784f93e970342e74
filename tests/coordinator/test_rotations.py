"""`paimon-coordinator rotate`: secrets and certificates are exchanged while inserts go on."""

from __future__ import annotations

import json
import os
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme

from tests.backends.s3 import Bucket, s3_server
from tests.coordinator.commands import done, run
from tests.coordinator.inserts.serving import SLOW, TABLE, Served, table_sql
from tests.coordinator.inserts.test_log_on_s3 import post
from tests.coordinator.process import Process, create_table, read, wait_until
from tests.coordinator.routes.test_store_options import FIRST, KEYS, SECOND, KeyedServer, with_key
from tests.coordinator.test_moves import Inserting
from tests.coordinator.test_network import certificate

_Said = pytest.CaptureFixture[str]


def is_good(served: Served, token: str) -> bool:
    headers = {"authorization": f"Bearer {token}"}
    return served.call("GET", "//v1/config", headers=headers).status_code == 200


def test_both_tokens_of_a_name_are_good_during_the_overlap(tmp_path: Path) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        state = f"--state={served.process.state}"
        body = {"name": "etl", "allow": ["write=default.*"]}
        old = served.call("POST", "/v1/tokens", body).json()["token"]
        new = done("rotate", "token", "etl", "--overlap=1h", state).strip()
        assert is_good(served, old)
        assert is_good(served, new)
        newest = done("rotate", "token", "etl", "--overlap=0m", state).strip()
        assert [is_good(served, token) for token in (old, new, newest)] == [False, False, True]
        last = served.call("GET", "/v1/tokens").json()["tokens"][-1]
        assert last["allow"] == ["write=default.*"]


def test_own_token_is_exchanged_while_inserts_go_on(tmp_path: Path) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        inserting = Inserting(served)  # with the token before
        inserting.wait_for(10)
        old = served.process.token()
        done("rotate", "own-token", "--overlap=1h", f"--state={served.process.state}")
        assert served.process.token() != old
        wait_until(lambda: is_good(served, served.process.token()), 5)
        inserting.wait_for(len(inserting.acknowledged) + 10)
        acknowledged = inserting.end()
        served.process.end()
        served.process.start()  # the overlap outlives a start
        assert is_good(served, old)
        done("rotate", "own-token", "--overlap=0m", f"--state={served.process.state}")
        wait_until(lambda: is_good(served, served.process.token()), 5)
        assert is_good(served, old) is False
        assert sorted(map(int, served.ids())) == acknowledged  # type: ignore[call-overload]


def test_own_token_of_a_killed_rotation_is_exchanged_by_the_next(tmp_path: Path) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        words = ["rotate", "own-token", f"--state={served.process.state}"]
        assert run(*words, faults="rotate.replaced=kill")[0] == -signal.SIGKILL
        wait_until(lambda: is_good(served, served.process.token()), 5)
        done(*words)
        wait_until(lambda: is_good(served, served.process.token()), 5)


def test_store_keys_are_exchanged_without_a_stop(tmp_path: Path, capfd: _Said) -> None:
    with s3_server() as server:
        keyed = KeyedServer(server)
        options = Bucket(server.endpoint, FIRST, KEYS[FIRST]).options
        catalog = create_table(options, table_sql(options=SLOW))
        process = Process(options["warehouse"], tmp_path / "state", catalog=options)
        process.start()
        try:
            post(process, "", {"rows": [[1, "a"]]})
            post(process, "/flush")
            file, new = tmp_path / "state.json", tmp_path / "new.json"
            new.write_text(json.dumps(with_key(options, SECOND)))
            words = ["rotate", "keys", new, f"--catalog={file}", f"--state={tmp_path / 'state'}"]
            code, _ = run(*words)  # the store does not know them yet
            assert code == 2
            assert FIRST in file.read_text()
            assert KEYS[SECOND] not in capfd.readouterr().err
            keyed.taken = (FIRST, SECOND)
            done(*words)
            headers = {"authorization": f"Bearer {process.token()}"}

            def has_new() -> bool:
                url = f"{process.address}/metrics"
                text = httpx.get(url, headers=headers, trust_env=False).text
                return 'paimon_coordinator_keys{subject=""} 1.0' in text

            wait_until(has_new, 10)
            keyed.taken = SECOND
            post(process, "", {"rows": [[2, "a"]]})
            post(process, "/flush")
            keyed.taken = (FIRST, SECOND)
            assert sorted(str(row["id"]) for row in read(catalog, TABLE)) == ["1", "2"]
        finally:
            process.close()


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[tuple[Process, dict[str, str]]]:
    """A coordinator of a warehouse on S3, and its catalog options; all keys are good."""
    with s3_server() as server:
        KeyedServer(server).taken = (FIRST, SECOND)
        options = Bucket(server.endpoint, FIRST, KEYS[FIRST]).options
        create_table(options, table_sql(options=SLOW))
        process = Process(options["warehouse"], tmp_path / "state", catalog=options)
        yield process, options
        process.close()


def test_file_behind_a_link_gets_the_keys_and_keeps_its_owner_and_mode(
    tmp_path: Path, keyed: tuple[Process, dict[str, str]]
) -> None:
    process, options = keyed
    file, new = tmp_path / "state.json", tmp_path / "new.json"
    real = tmp_path / "etc" / "catalog.json"
    real.parent.mkdir()
    file.rename(real)
    file.symlink_to("etc/catalog.json")
    process.start()
    real.chmod(0o640)
    owner = real.stat()
    if os.geteuid() == 0:
        os.chown(real, 1234, 1235)
        owner = real.stat()
    new.write_text(json.dumps(with_key(options, SECOND)))
    done("rotate", "keys", new, f"--catalog={file}", f"--state={process.state}")
    assert file.is_symlink()
    assert json.loads(real.read_text()) == with_key(options, SECOND)
    kept = real.stat()
    assert (kept.st_mode, kept.st_uid, kept.st_gid) == (owner.st_mode, owner.st_uid, owner.st_gid)
    assert [path.name for path in real.parent.iterdir()] == ["catalog.json"]


def test_exchange_that_is_done_ends_well_where_the_audit_log_takes_no_entry(
    tmp_path: Path, keyed: tuple[Process, dict[str, str]]
) -> None:
    process, options = keyed
    process.start()
    file, new = tmp_path / "state.json", tmp_path / "new.json"
    new.write_text(json.dumps(with_key(options, SECOND)))
    (process.state / "running.json").unlink()  # so that the coordinator can't be asked
    said = done("rotate", "keys", new, f"--catalog={file}", f"--state={process.state}")
    assert "The audit log has no entry of it" in said
    assert json.loads(file.read_text()) == with_key(options, SECOND)


def test_keys_without_the_other_options_are_refused_by_name(
    tmp_path: Path, keyed: tuple[Process, dict[str, str]], capfd: _Said
) -> None:
    process, options = keyed
    process.start()
    file, new = tmp_path / "state.json", tmp_path / "new.json"
    before = file.read_bytes()
    keys = {name: text for name, text in with_key(options, SECOND).items() if "key" in name}
    new.write_text(json.dumps(keys))
    words = ["rotate", "keys", new, f"--catalog={file}", f"--state={process.state}"]
    assert run(*words)[0] == 2
    said = capfd.readouterr().err
    assert "lacks" in said, said
    assert "`s3.endpoint`" in said
    assert "Write all options of that file" in said
    assert file.read_bytes() == before
    assert '"s3.secret-key"' in done("rotate", "keys", "--help")


def test_key_of_a_certificate_stays_where_the_certificate_can_not_be_replaced(
    tmp_path: Path, capfd: _Said
) -> None:
    authority = trustme.CA()
    cert, key = certificate(authority, tmp_path / "old")
    new_cert, new_key = certificate(authority, tmp_path / "new")
    (tmp_path / "state").mkdir()
    before = cert.read_bytes(), key.read_bytes()
    words = [f"--tls-cert={cert}", f"--tls-key={key}", f"--state={tmp_path / 'state'}"]
    faults = "rotate.replaced=raise"
    code, _ = run("rotate", "certificate", new_cert, f"--key={new_key}", *words, faults=faults)
    assert code == 2
    assert "Nothing was changed" in capfd.readouterr().err
    assert (cert.read_bytes(), key.read_bytes()) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs as another account")
@pytest.mark.parametrize("command", ["own-token", "backup", "list", "restore", "move"])
def test_root_leaves_the_files_of_another_account_alone(
    tmp_path: Path, command: str, capfd: _Said
) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    os.chown(state, 65534, 65534)
    words = {
        "own-token": ["rotate", "own-token"],
        "backup": ["backup", tmp_path / "backup"],
        "list": ["token", "list"],
        "restore": ["restore", tmp_path / "backup"],
        "move": ["move", tmp_path / "curated"],
    }
    assert run(*words[command], f"--state={state}")[0] == 2
    assert "sudo -u 'nobody'" in capfd.readouterr().err
    assert list(state.iterdir()) == []


def test_certificate_is_exchanged_without_a_stop(tmp_path: Path, capfd: _Said) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    cert, key = certificate(authority, tmp_path / "old")
    new_cert, new_key = certificate(authority, tmp_path / "new")
    create_table(tmp_path / "warehouse", table_sql(options=SLOW))
    state = tmp_path / "state"
    process = Process(tmp_path / "warehouse", state, f"--tls-cert={cert}", f"--tls-key={key}")
    process.start()
    try:
        words = [f"--tls-cert={cert}", f"--tls-key={key}", f"--state={state}"]
        before = cert.read_bytes()
        assert run("rotate", "certificate", new_cert, f"--key={key}", *words)[0] == 2
        assert cert.read_bytes() == before
        done("rotate", "certificate", new_cert, f"--key={new_key}", *words)
        wanted = ssl.PEM_cert_to_DER_cert(
            new_cert.read_text().partition("-----END")[0] + "-----END CERTIFICATE-----\n"
        )
        host, port = process.address.removeprefix("https://").rsplit(":", 1)

        def serves_new() -> bool:
            pem = ssl.get_server_certificate((host, int(port)), ca_certs=str(tmp_path / "ca.pem"))
            return ssl.PEM_cert_to_DER_cert(pem) == wanted

        wait_until(serves_new, 10)
    finally:
        process.close()


def test_bad_input_of_rotations_is_refused_before_anything_is_changed(
    tmp_path: Path, capfd: _Said
) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        state = f"--state={served.process.state}"
        before = served.process.token()

        def refused(*words: object) -> str:
            code, output = run("rotate", *words)
            assert (code, output) == (2, "")
            return capfd.readouterr().err

        assert "was revoked, or it has ended" in refused("token", "nobody", state)
        assert "is not a duration" in refused("own-token", "--overlap=soon", state)
        assert "There is no state folder" in refused("own-token", "--state=/nowhere")
        keys, other = tmp_path / "keys.json", tmp_path / "other.json"
        keys.write_text("{}")
        other.write_text(json.dumps({"warehouse": "/elsewhere"}))
        said = refused("keys", other, f"--catalog={keys}", state)
        assert "another `warehouse`" in said, said
        assert keys.read_text() == "{}"
        assert "There is no file" in refused("certificate", "/none", "--tls-cert=/none", state)
        assert served.process.token() == before


@pytest.mark.parametrize("words", [(), ("token",), ("own-token",), ("keys",), ("certificate",)])
def test_help_has_examples_of_rotations(words: tuple[str, ...]) -> None:
    assert "paimon-coordinator rotate token" in done("rotate", *words, "--help")
