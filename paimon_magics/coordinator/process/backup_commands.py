"""`paimon-coordinator backup` and `restore`: the store of a coordinator, to a file and back."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import shutil
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from paimon_magics.coordinator.ownership.state_folder import StateFolder
from paimon_magics.coordinator.process.offline import (
    CommandParser,
    add_catalog_options,
    add_state_options,
    add_yes,
    asking,
    check_stopped,
    confirm,
    existing_folder,
    note_in_audit_log,
    offline,
)
from paimon_magics.coordinator.process.restoring import (
    BACKUP_PATH,
    STORE_FILE,
    Restoring,
    check_fits,
    manifest_of,
    shown_lines,
    write_backup_of_folder,
    write_backup_of_postgres,
)
from paimon_magics.coordinator.store.backups import Backup, new_file
from paimon_magics.coordinator.store.state_store import open_store, store_address
from paimon_magics.errors import InvalidValueError, PaimonMagicsError, SetupError
from paimon_magics.tables.catalog.catalog import Catalog

_BACKUP_EXAMPLE = """example:
  paimon-coordinator backup /backup/lake.sqlite --state /var/lib/paimon-coordinator

The coordinator may run. The file has the store and the small inserts that wait to be loaded, with
their rows: keep it as secret as the tables. What is in the tables is in the warehouse."""
_RESTORE_EXAMPLE = """examples:
  paimon-coordinator restore /backup/lake.sqlite --state /var/lib/paimon-coordinator --yes
  paimon-coordinator restore --in-place --state /var/lib/paimon-coordinator --yes

No coordinator may run meanwhile. The second accepts a database, a state folder or a warehouse that
was put back by other means, as by psql. Tokens and grants end unless it is certain that none was
taken away since; the output has the commands that make them again."""


def backup_command(arguments: Sequence[str]) -> list[str]:
    """Carry out `backup`, and return the lines to show. Raises errors of ours."""
    options = _backup_parser().parse_args(arguments)
    target = Path(options.file)
    address = store_address(options.store)
    folder = existing_folder(options.state)
    bound = folder.binding()
    manifest = manifest_of(
        "" if bound is None else bound.id,
        "" if bound is None else bound.location,
        log=options.log,
    )
    if address is not None:
        write_backup_of_postgres(address, target, manifest)
        _note(folder, address, target)
        return [_written(target)]
    if not (folder.path / STORE_FILE).exists():
        raise SetupError(
            f"The state folder {folder.path} has no store.",
            hint="Name the folder of a coordinator that was started, or its --store.",
        )
    running = folder.running() if folder.is_held() else None
    if running is None:
        folder.hold()
        try:
            write_backup_of_folder(folder.path, target, manifest)
            with closing(open_store(folder.path)) as store:
                note_in_audit_log(store, "back up", str(target))
        finally:
            folder.let_go()
        return [_written(target)]
    with ExitStack() as ending, new_file(target) as partial:
        ask = asking(folder, running, ending)
        its_file = Path(ask.once("POST", BACKUP_PATH, {})[1]["file"])
        try:
            partial.touch(0o600)
            shutil.copyfile(its_file, partial)
        finally:
            its_file.unlink(missing_ok=True)
    return [_written(target)]


def restore_command(arguments: Sequence[str]) -> list[str]:
    """Carry out `restore`, and return the lines to show. Raises errors of ours."""
    options = _restore_parser().parse_args(arguments)
    if (options.file is None) != options.in_place:
        raise InvalidValueError(
            "Either a backup's file or --in-place says what to restore.",
            hint="paimon-coordinator restore --help has an example of each.",
        )
    address = store_address(options.store)
    if address is not None:
        Path(options.state).mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = existing_folder(options.state)
    check_stopped(folder, "a restore")
    backup = None if options.file is None else Backup(Path(options.file))

    def check(catalog: Catalog) -> None:
        check_fits(backup, options.log, folder, catalog)

    with offline(options, folder, "a restore", check) as place:
        restoring = Restoring(place, address, options.log, options.keep_rights)
        known = None
        where = (address is not None and "the database") or f"{folder.path}"
        if backup is None:
            confirm(
                f"The store in {where} and the warehouse {place.warehouse} are accepted as they "
                "are: what they lack is gone.",
                options,
            )
        else:
            at = datetime.datetime.fromtimestamp(backup.manifest.at_ms / 1000, datetime.UTC)
            tables = restoring.at_risk(backup)
            lost = (
                f" Inserts into {', '.join(tables)} that were acknowledged since and are not in "
                "the tables are lost."
            )
            confirm(
                f"The store in {where} is replaced by its state of {at:%Y-%m-%d %H:%M} UTC: what "
                f"it was told since is gone.{lost if tables else ''}",
                options,
            )
            known = restoring.standing_of(backup)
            restoring.replace(backup)
        restoring.accept(known)
        with closing(open_store(folder.path, address, is_heir=True)) as store:
            note_in_audit_log(store, "restore", options.file or "in place")
        return list(shown_lines(restoring.lines))


def _note(folder: StateFolder, address: str, target: Path) -> None:
    """Keep an audit entry of a backup that is made. Another machine's coordinator may have the
    store: then its log of sessions at the database is what there is."""
    with contextlib.suppress(PaimonMagicsError), ExitStack() as ending:
        running = folder.running() if folder.is_held() else None
        if running is not None:
            ask = asking(folder, running, ending)
            ask.once("POST", BACKUP_PATH, {"file": str(target)})
            return
        with closing(open_store(folder.path, address)) as store:
            note_in_audit_log(store, "back up", str(target))


def _written(target: Path) -> str:
    return f"{target} has {target.stat().st_size:,} bytes."


def _backup_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="paimon-coordinator backup",
        description="Writes the store of a coordinator into a file.",
        epilog=_BACKUP_EXAMPLE,
    )
    parser.add_argument("file", help="the file to write, which does not exist yet")
    add_state_options(parser)
    return parser


def _restore_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="paimon-coordinator restore",
        description="Puts a backup in the place of a coordinator's store.",
        epilog=_RESTORE_EXAMPLE,
    )
    parser.add_argument("file", nargs="?", help="a file that `backup` has written")
    parser.add_argument(
        "--in-place", action="store_true", help="accept the store and the warehouse as they are"
    )
    parser.add_argument(
        "--keep-rights",
        action="store_true",
        help="keep tokens and grants: no right was taken away since the store's state",
    )
    add_state_options(parser)
    add_catalog_options(parser)
    add_yes(parser)
    return parser
