"""`paimon-coordinator rotate`: tokens, the state folder's own token, the store's keys and the
certificate are exchanged while the coordinator runs.

What is new is tried before anything is replaced. Files are replaced by a rename; the coordinator
and its standbys that have them read them again within two seconds. A command that was killed can be
repeated.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from paimon_magics.coordinator.client.owner_requests import Requests
from paimon_magics.coordinator.client.starting import At
from paimon_magics.coordinator.ownership.catalog_options import catalog_options
from paimon_magics.coordinator.ownership.folder_token import rotate_token
from paimon_magics.coordinator.ownership.state_folder import StateFolder
from paimon_magics.coordinator.process.network import Certificate
from paimon_magics.coordinator.process.offline import existing_folder, note_in_audit_log
from paimon_magics.coordinator.process.right_commands import add_place, duration_ms, rotate_token_of
from paimon_magics.coordinator.process.rotation_files import ROTATED_PATH, check_keys
from paimon_magics.coordinator.store.state_store import open_store, store_address
from paimon_magics.errors import InvalidValueError, PaimonMagicsError, SetupError
from paimon_magics.faults import reach

_EXAMPLE = """examples:
  paimon-coordinator rotate token etl --overlap 2d --state /var/lib/paimon-coordinator
  paimon-coordinator rotate own-token --overlap 1h --state /var/lib/paimon-coordinator
  paimon-coordinator rotate keys new.json --catalog /etc/lake/catalog.json --state …
  paimon-coordinator rotate certificate new.crt --key new.key \\
    --tls-cert /etc/lake/tls.crt --tls-key /etc/lake/tls.key --state …

The coordinator may run, and goes on. Old store keys must be good until the standbys have read the
new ones. --overlap 0m ends the token before at once, as after a leak."""


def rotate_command(arguments: Sequence[str]) -> list[str]:
    """Carry out `rotate`, and return the lines to show. Raises errors of ours."""
    options = _parser().parse_args(arguments)
    match options.word:
        case "token":
            return rotate_token_of(options, _overlap_ms(options))
        case "own-token":
            folder = existing_folder(options.state)
            overlap_ms = _overlap_ms(options)
            folder.token()  # there may be none yet
            rotate_token(folder.path, overlap_ms / 1000)
            reach("rotate.replaced")
            _note(folder, options, "the state folder's own token")
            return [f"{folder.token_file} has a new token."]
        case "keys":
            return _rotate_keys(options)
        case _:
            return _rotate_certificate(options)


def _rotate_keys(options: argparse.Namespace) -> list[str]:
    folder = existing_folder(options.state)
    bound = folder.binding()
    warehouse = None if bound is None else bound.location

    def read(file: str) -> dict[str, str]:
        chosen = catalog_options(
            warehouse="-", file=file, environment={}, assignments=options.catalog_option
        )
        own = json.loads(Path(file).read_text(encoding="utf-8")).get("warehouse", warehouse)
        return chosen | ({} if own is None else {"warehouse": str(own)})

    check_keys(read(options.file), read(options.catalog))
    _replace(Path(options.file), Path(options.catalog))
    reach("rotate.replaced")
    _note(folder, options, f"the store's keys in {options.catalog}")
    return [f"{options.catalog} has the new options; the coordinator reads them within 2 s."]


def _rotate_certificate(options: argparse.Namespace) -> list[str]:
    folder = existing_folder(options.state)
    if (options.key is None) != (options.tls_key is None):
        raise InvalidValueError(
            "--key and --tls-key belong together.",
            hint="Leave out both where the certificate's file has its key.",
        )
    new = [Path(options.file), *([Path(options.key)] if options.key else [])]
    old = [Path(options.tls_cert), *([Path(options.tls_key)] if options.tls_key else [])]
    for file in (*new, *old):
        if not file.is_file():
            raise InvalidValueError(f"There is no file {file}.", hint="Name a PEM file.")
    Certificate(new[0], new[1] if len(new) > 1 else None)  # raises
    for source, target in zip(reversed(new), reversed(old), strict=True):
        _replace(source, target)
        reach("rotate.replaced")
    _note(folder, options, f"the certificate in {options.tls_cert}")
    return [f"{options.tls_cert} is new; new connections get it within 2 s."]


def _note(folder: StateFolder, options: argparse.Namespace, what: str) -> None:
    """Keep an audit entry: by the coordinator that runs, else in its store."""
    running = folder.running() if folder.is_held() else None
    if running is not None:
        with closing(Requests(At(running.address, folder.token()))) as ask:
            ask.once("POST", ROTATED_PATH, {"what": what})
        return
    folder.hold()
    try:
        # The exchange is done, whatever becomes of the entry.
        with (
            contextlib.suppress(PaimonMagicsError),
            closing(open_store(folder.path, store_address(options.store))) as store,
        ):
            note_in_audit_log(store, "rotate", what)
    finally:
        folder.let_go()


def _replace(source: Path, target: Path) -> None:
    """Give a file another's content, in one step, with the permissions that it has."""
    partial = target.with_name(f".{target.name}-{uuid.uuid4().hex}.tmp")
    try:
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
        with os.fdopen(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as file:
            with source.open("rb") as content:
                shutil.copyfileobj(content, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except OSError as error:
        raise SetupError(
            f"{target} can't be replaced: {error.strerror or error}.",
            hint="Check the permissions of its folder. Nothing was changed.",
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _overlap_ms(options: argparse.Namespace) -> int:
    return 0 if options.overlap in ("0", "0m", "0h", "0d") else duration_ms(options.overlap)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="paimon-coordinator rotate",
        description="Exchanges secrets and certificates while the coordinator runs.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    words = parser.add_subparsers(dest="word", required=True)
    token = words.add_parser("token", help="make a new token of a name; the one before ends later")
    token.add_argument("name", help="its name, or its id")
    add_place(token)
    own = words.add_parser("own-token", help="exchange the token in the state folder")
    keys = words.add_parser("keys", help="exchange the keys of the warehouse's store")
    keys.add_argument("file", help="the JSON file with the new catalog options")
    keys.add_argument("--catalog", required=True, help="the file that the coordinator was given")
    keys.add_argument("--catalog-option", action="append", default=[], help="as the coordinator's")
    certificate = words.add_parser("certificate", help="exchange the certificate of TLS")
    certificate.add_argument("file", help="the PEM file with the new certificate and its chain")
    certificate.add_argument("--key", help="the PEM file with the new key")
    certificate.add_argument("--tls-cert", required=True, help="the coordinator's certificate")
    certificate.add_argument("--tls-key", help="the coordinator's key")
    for command in (token, own):
        command.add_argument(
            "--overlap",
            default="1h",
            metavar="TIME",
            help="how long the token before is good, such as 2d, 1h or 0m (default: 1h)",
        )
    for command in (own, keys, certificate):
        command.add_argument("--state", required=True, help="the state folder of the coordinator")
        command.add_argument("--store", help="postgresql://… if the coordinator's store is there")
    for command in (token, own, keys, certificate):
        command.epilog = _EXAMPLE
        command.formatter_class = argparse.RawDescriptionHelpFormatter
    return parser
