"""Writers that race: of any number of commits none is lost, none is doubled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.tables.commits.commit import commit
from paimon_magics.tables.commits.decoded_request import decoded
from paimon_magics.tables.stores.local_store import publish_local_file
from tests.coordinator.forking import Forked
from tests.faults.appending import TABLE, append, committer_of, open_catalog, written

COLUMNS = (Column(0, "writer", AtomicType("INT")), Column(1, "number", AtomicType("INT")))


def run_together(
    commands: list[list[str]],
    environment: Mapping[str, str] | None = None,
    seconds_max: float = 300,
) -> list[list[int]]:
    """Start the programs (a module, its arguments), let them go at the same moment, and return the
    numbers that they printed."""
    started = [
        Forked(module, arguments, {**os.environ, **(environment or {})})
        for module, *arguments in commands
    ]
    try:
        for process in started:
            assert process.stdout.readline() == "ready\n"
        for process in started:
            process.stdin.write("go\n")
            process.stdin.flush()
        printed = [process.communicate(timeout=seconds_max)[0] for process in started]
        assert [process.returncode for process in started] == [0] * len(started)
    finally:
        for process in started:
            process.kill()
    return [[int(line) for line in text.split()] for text in printed]


def test_concurrent_processes_publish_each_name_exactly_once(tmp_path: Path) -> None:
    names = 500
    won = run_together(
        [["tests.faults.publishing", str(tmp_path), str(w), str(names)] for w in range(4)]
    )
    assert sorted(name for names_won in won for name in names_won) == list(range(names))
    assert sum(map(bool, won)) > 1, "one process did everything: they did not race"
    for writer, names_won in enumerate(won):
        for name in names_won:
            assert (tmp_path / f"snapshot-{name}").read_text() == str(writer) * 100
    assert len(list(tmp_path.iterdir())) == names, "temporary files were left"


def test_concurrent_processes_append_without_losing_rows(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path / "warehouse")
    catalog.create_table(TABLE, TableSchema(COLUMNS))
    commits = 25
    snapshots = run_together(
        [
            ["tests.faults.appending", str(tmp_path / "warehouse"), str(writer), str(commits)]
            for writer in range(2)
        ]
    )
    assert sorted(snapshots[0] + snapshots[1]) == list(range(1, 2 * commits + 1))
    assert all(ids == sorted(ids) for ids in snapshots)
    assert stored_rows(catalog) == [(w, n) for w in range(2) for n in range(commits)]
    assert unreferenced_metadata(tmp_path / "warehouse", catalog) == set()


def test_commit_losing_the_race_is_replanned_on_top(tmp_path: Path) -> None:
    """Another writer publishes the very snapshot that this commit has prepared, three times."""
    catalog = open_catalog(tmp_path / "warehouse")
    catalog.create_table(TABLE, TableSchema(COLUMNS))
    ours, theirs = committer_of(catalog), committer_of(open_catalog(tmp_path / "warehouse"))
    append(catalog, ours, [(0, 0)])
    lost: list[str] = []

    def publish_too_late(path: str, content: bytes) -> bool:
        if len(lost) < 3:
            lost.append(path)
            append(catalog, theirs, [(1, len(lost))])
            assert Path(path).exists()
        return publish_local_file(path, content)

    request = written(catalog.load(TABLE), ours.begin(TABLE), [(0, 1)])
    receipt = commit(decoded(catalog.load(TABLE), request), publish_too_late)
    assert [Path(path).name for path in lost] == ["snapshot-2", "snapshot-3", "snapshot-4"]
    assert (receipt.snapshot_id, receipt.total_rows, receipt.delta_rows) == (5, 5, 1)
    assert stored_rows(catalog) == [(0, 0), (0, 1), (1, 1), (1, 2), (1, 3)]
    assert unreferenced_metadata(tmp_path / "warehouse", catalog) == set()


def stored_rows(catalog: object) -> list[tuple[int, int]]:
    builder = catalog.load(TABLE).paimon.new_read_builder()  # type: ignore[attr-defined]
    rows = builder.new_read().to_arrow(builder.new_scan().plan().splits()).to_pylist()
    return sorted((row["writer"], row["number"]) for row in rows)


def unreferenced_metadata(warehouse: Path, catalog: object) -> set[str]:
    """Files of the manifest folder that no snapshot leads to."""
    from pypaimon.manifest.manifest_list_manager import ManifestListManager

    paimon = catalog.load(TABLE).paimon  # type: ignore[attr-defined]
    lists = ManifestListManager(paimon)
    manager = paimon.snapshot_manager()
    referenced: set[str] = set()
    for snapshot_id in range(1, manager.get_latest_snapshot().id + 1):
        snapshot = manager.get_snapshot_by_id(snapshot_id)
        for name in (
            snapshot.base_manifest_list,
            snapshot.delta_manifest_list,
            snapshot.changelog_manifest_list,
        ):
            if name:
                referenced.add(name)
                referenced |= {meta.file_name for meta in lists.read(name)}
    found = {path.name for path in (warehouse / "default.db" / "t" / "manifest").iterdir()}
    assert referenced <= found
    return found - referenced
