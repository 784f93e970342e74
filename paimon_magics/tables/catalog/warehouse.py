"""The check of the catalog options and of the warehouse that they name, before anything is
written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlparse

from paimon_magics.errors import (
    SetupError,
    likely_meant,
    nearest,
)
from paimon_magics.redaction import conceal_options
from paimon_magics.tables.stores.paths import plain_location
from paimon_magics.tables.stores.s3_access import s3_access, with_region
from paimon_magics.tables.stores.s3_diagnosis import check_access
from paimon_magics.tables.stores.store import OBJECT_SCHEMES, S3_SCHEMES, open_object_store

__all__ = ["METASTORES", "REMOTE_SCHEMES", "checked_options"]

# Each metastore with the options that it requires.
METASTORES = {
    "filesystem": ("warehouse",),
    "jdbc": ("uri", "warehouse"),
    "rest": ("uri", "warehouse", "token.provider"),
}
# Metastores that a user may ask for, with the alternative.
_NOT_OFFERED = {
    "hive": "Open the warehouse folder of Hive's tables as a filesystem catalog (warehouse=…, "
    "without 'metastore'); Hive can go on using them",
    "dlf": "Use a rest catalog with 'token.provider' = 'dlf'",
}
REMOTE_SCHEMES = tuple(sorted((*OBJECT_SCHEMES, "hdfs", "viewfs")))


def checked_options(options: Mapping[str, str]) -> dict[str, str]:
    """Paimon's catalog options, completed: the metastore, the warehouse as an absolute path or URI,
    and S3's region from the environment.

    Raises SetupError for an unknown metastore, a missing option or a warehouse that can't be used.
    """
    conceal_options(options)
    checked = dict(options)
    metastore = checked.setdefault("metastore", "filesystem")
    if metastore not in METASTORES:
        raise _unknown_metastore(metastore)
    for key in METASTORES[metastore]:
        if not checked.get(key):
            raise SetupError(
                f"The option '{key}' is missing for a {metastore} catalog.",
                hint=f"Add '{key}' to the catalog options.",
            )
    if metastore != "rest":
        checked["warehouse"] = _checked_warehouse(checked["warehouse"])
        checked = with_region(checked)
        if urlparse(checked["warehouse"]).scheme in S3_SCHEMES:
            check_access(checked["warehouse"], s3_access(checked))
        elif urlparse(checked["warehouse"]).scheme in OBJECT_SCHEMES:
            open_object_store(checked["warehouse"], checked)  # refuses what can't be reached
    return checked


def _unknown_metastore(metastore: str) -> SetupError:
    offered = ", ".join(METASTORES)
    instead = _NOT_OFFERED.get(metastore.strip().lower())
    if instead is not None:
        return SetupError(
            f"A catalog with the metastore '{metastore}' is not offered. Offered are: {offered}.",
            hint=f"{instead}; or serve the warehouse by a Paimon REST catalog.",
        )
    return SetupError(
        f"There is no metastore '{metastore}'.",
        hint=f"{likely_meant(metastore, METASTORES)} Offered are: {offered}.".strip(),
    )


def _checked_warehouse(warehouse: str) -> str:
    """The warehouse as an absolute path or a URI. Raises SetupError if it can't be used."""
    uri = urlparse(warehouse)
    if uri.scheme in REMOTE_SCHEMES:
        return plain_location(warehouse)
    if uri.scheme == "file":
        if uri.netloc not in ("", "localhost"):
            raise SetupError(
                f"The warehouse {warehouse} names the host '{uri.netloc}'.",
                hint=f"Write a local folder with three slashes: file:///{uri.netloc}{uri.path}",
            )
        _check_local(Path(unquote(uri.path)), warehouse)
        return f"file://{os.path.normpath(f'/{uri.path}'.replace('//', '/'))}"
    if len(uri.scheme) > 1 and "://" in warehouse:
        raise SetupError(
            f"The warehouse {warehouse} has the unknown scheme '{uri.scheme}'.",
            hint=nearest(uri.scheme, (*REMOTE_SCHEMES, "file"), what="schemes"),
        )
    path = Path(os.path.abspath(os.path.expanduser(warehouse)))
    _check_local(path, warehouse)
    return str(path)


def _check_local(path: Path, warehouse: str) -> None:
    existing = path
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise SetupError(
            f"The warehouse {warehouse} can't be a folder: {existing} is a file.",
            hint="Give the path of a folder, which may be new.",
        )
    if existing == path and os.access(path, os.R_OK | os.X_OK):
        return  # tables can be read, also where nothing can be written
    if not os.access(existing, os.W_OK | os.X_OK):
        raise SetupError(
            f"The warehouse {warehouse} can't be written: no permission to write in {existing}.",
            hint="Give the path of a folder that you can write to.",
        )
