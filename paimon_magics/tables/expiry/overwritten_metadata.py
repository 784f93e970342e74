"""Removes the metadata of an overwritten snapshot: its manifests and manifest lists, which nothing
refers to once its commit has been published again.

Its data files were published again, and stay. If the process dies in between, the removal can be
repeated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pypaimon.manifest.manifest_list_manager import ManifestListManager

from paimon_magics.planning.commits.expiry import NO_FLOOR
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.expiry.protected_files import ProtectedFiles
from paimon_magics.tables.manifests.names import manifest_folder, remove_metadata, token_of
from paimon_magics.tables.snapshots.changelogs import kept_changelogs
from paimon_magics.tables.snapshots.latest import usable_snapshots

__all__ = ["remove_overwritten", "repetition_token"]


def repetition_token(p: Publication, run: int) -> str:
    """The token of a run that publishes an overwritten commit again, for its metadata files."""
    return f"{p.id}-{p.snapshot_id}r{run}"


def remove_overwritten(catalog: Catalog, p: Publication, runs: int) -> int:
    """Remove the metadata of an overwritten snapshot and of the `runs` runs that published it
    again, without the files that anything in the table refers to; return the number of files.

    The caller makes sure that none of the runs can publish any more, and that nobody else changes
    the table. Reads every snapshot, tag and branch. Raises UnknownNameError if the table is gone,
    and what the store raises.
    """
    table = catalog.load(replace(p.table, branch=None))
    tokens = [repetition_token(p, run) for run in range(1, runs + 1)]
    lists = [p.manifest_list, p.changelog_list, p.base_list]
    own = token_of(p.manifest_list)
    if own is not None and own.startswith(p.id):  # else a client's, which many commits may share
        tokens.append(own)
        lists = []
    chain = usable_snapshots(table.paimon, table.store)
    changelogs = kept_changelogs(table)
    kept = ProtectedFiles(table)
    manager = ManifestListManager(table.paimon)
    keep = kept.metadata(0, NO_FLOOR, chain, changelogs)
    leading = [*chain, *changelogs, *kept.tags, *kept.beside]
    keep |= _with_manifests(manager, (one.changelog_manifest_list for one in leading))
    removed = sum(remove_metadata(table.paimon, token, keep) for token in tokens)
    left = _with_manifests(manager, lists) - keep
    folder = manifest_folder(table.paimon)
    # A list is removed after the manifests that it names.
    ordered = sorted(left, key=lambda name: name in lists)
    table.paths.delete(f"{folder}/{name}" for name in ordered)
    return removed + len(left)


def _with_manifests(manager: Any, lists: Iterable[str | None]) -> set[str]:
    """The names of the manifest lists that exist, and of the manifests in them."""
    found: set[str] = set()
    for name in lists:
        if name is None:
            continue
        try:
            metas = manager.read(name)
        except FileNotFoundError:  # removed, and its manifests before it
            continue
        found.add(name)
        for meta in metas:
            found |= {meta.file_name, *(meta.extra_files or ())}
    return found
