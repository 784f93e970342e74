"""`paimon-coordinator rotate`: tokens, the state folder's own token, the store's keys and the
certificate are exchanged while the coordinator runs.

What is new is tried before anything is replaced. Files are replaced by a rename; the coordinator
and its standbys that have them read them again within two seconds. A command that was killed can be
repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from paimon_magics.coordinator.ownership.catalog_options import catalog_options
from paimon_magics.coordinator.ownership.folder_token import rotate_token
from paimon_magics.coordinator.ownership.state_folder import StateFolder
from paimon_magics.coordinator.process.network import Certificate
from paimon_magics.coordinator.process.offline import (
    CommandParser,
    add_place,
    asking,
    existing_folder,
    note_in_audit_log,
)
from paimon_magics.coordinator.process.right_commands import duration_ms, rotate_token_of
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
new ones; with --data-tokens, for --data-token-seconds more. --overlap 0m ends the token before at
once, as after a leak."""
_KEYS_EXAMPLE = f"""new.json is an object of catalog options, which replaces that in --catalog:
  {{"warehouse": "s3://lake/warehouse", "s3.endpoint": "https://s3.example.org",
   "s3.access-key": "the new one", "s3.secret-key": "the new one"}}

{_EXAMPLE}"""


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
            _, lines = _noted(folder, options, "the state folder's own token")
            return [f"{folder.token_file} has a new token.", *lines]
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

    present, new = read(options.catalog), read(options.file)
    try:
        check_keys(new, present)
    except SetupError as error:
        lacking = ", ".join(f"`{name}`" for name in sorted(present.keys() - new.keys()))
        if not lacking:
            raise
        raise SetupError(
            f"{error.message} {options.file} lacks {lacking}, which {options.catalog} has.",
            hint="Write all options of that file into it, with the new keys: it takes its place.",
        ) from error
    _replace([(options.file, options.catalog)])
    answer, lines = _noted(folder, options, f"the store's keys in {options.catalog}")
    seconds = answer.get("data_token_seconds")
    if seconds:
        lines.append(
            f"Its clients have keys that were made of the old ones, for up to {seconds} s: revoke "
            "the old ones at the store after that."
        )
    shown = f"{options.catalog} has the new options; the coordinator reads them within 2 s."
    return [shown, *lines]


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
    _replace(list(zip(reversed(new), reversed(old), strict=True)))
    _, lines = _noted(folder, options, f"the certificate in {options.tls_cert}")
    return [f"{options.tls_cert} is new; new connections get it within 2 s.", *lines]


def _noted(
    folder: StateFolder, options: argparse.Namespace, what: str
) -> tuple[dict[str, Any], list[str]]:
    """Keep an audit entry of an exchange: by the coordinator that runs, else in its store. Return
    the coordinator's answer, and what to say where there is no entry: the exchange is done."""
    try:
        with ExitStack() as ending:
            running = folder.running() if folder.is_held() else None
            if running is not None:
                ask = asking(folder, running, ending)
                return ask.once("POST", ROTATED_PATH, {"what": what})[1], []
            folder.hold()
            ending.callback(folder.let_go)
            store = open_store(folder.path, store_address(options.store))
            ending.callback(store.close)
            note_in_audit_log(store, "rotate", what)
            return {}, []
    except PaimonMagicsError as error:
        return {}, [f"The audit log has no entry of it: {error.message}"]


def _replace(files: Sequence[tuple[str | Path, str | Path]]) -> None:
    """Give files others' contents, each in one step, with the owners and permissions that they
    have; none of them if that fails for one. A link stays, and leads to the new content."""
    target = Path()
    with ExitStack() as ending:
        try:
            new, done = [], []
            for source, name in files:
                target = Path(os.path.realpath(name))
                before = _partial(target.read_bytes(), target, ending)
                new.append((_partial(Path(source).read_bytes(), target, ending), before, target))
            for partial, before, target in new:
                partial.replace(target)
                done.append((before, target))
                reach("rotate.replaced")
        except OSError as error:
            for before, changed in done:
                before.replace(changed)
            raise SetupError(
                f"{target} can't be replaced: {error.strerror or error}.",
                hint="Check the permissions of it and of its folder. Nothing was changed.",
            ) from error


def _partial(content: bytes, target: Path, ending: ExitStack) -> Path:
    """A file beside another with this content, and the other's owner and permissions; `ending`
    removes it."""
    partial = target.with_name(f".{target.name}-{uuid.uuid4().hex}.tmp")
    ending.callback(lambda: partial.unlink(missing_ok=True))
    like = target.stat()
    with os.fdopen(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        own = os.fstat(file.fileno())
        if (own.st_uid, own.st_gid) != (like.st_uid, like.st_gid):
            os.fchown(file.fileno(), like.st_uid, like.st_gid)
        os.fchmod(file.fileno(), like.st_mode & 0o777)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return partial


def _overlap_ms(options: argparse.Namespace) -> int:
    return 0 if options.overlap in ("0", "0m", "0h", "0d") else duration_ms(options.overlap)


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="paimon-coordinator rotate",
        description="Exchanges secrets and certificates while the coordinator runs.",
        epilog=_EXAMPLE,
    )
    words = parser.add_subparsers(dest="word", required=True)
    token = words.add_parser("token", help="make a new token of a name; the one before ends later")
    token.add_argument("name", help="its name, or its id")
    add_place(token)
    own = words.add_parser("own-token", help="exchange the token in the state folder")
    keys = words.add_parser("keys", help="exchange the keys of the warehouse's store")
    keys.add_argument(
        "file", help="a JSON file with all options of that of --catalog, and the new keys in it"
    )
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
    for command in (token, own, certificate):
        command.epilog = _EXAMPLE
    keys.epilog = _KEYS_EXAMPLE
    return parser
