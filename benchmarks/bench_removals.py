"""What removes files: CALL remove_orphan_files on 100,000 files in 10,000 partitions, and
expire_snapshots of 1,000 snapshots against Paimon's Spark connector (where PAIMON_SPARK_JAR names
its jar), on copies of one table, in turns.

The aims: cleaning takes under 10 s and 500 MB, measured in a process of its own; expiry is at least
3 × as fast as the connector's.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import connector
from measure import peak_mb

from paimon_magics.coordinator.client.in_process import InProcessCommitter
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.planning.schemas.table_schema import plan_create_table
from paimon_magics.settings import Settings
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.removals import RemoveOrphanFiles
from paimon_magics.statements.statement import CreateTable, TableName
from paimon_magics.tables.catalog.catalog import Catalog

_FILES = int(os.environ.get("FILES", "100000"))
_PARTITIONS = int(os.environ.get("PARTITIONS", "10000"))
_SNAPSHOTS = int(os.environ.get("SNAPSHOTS", "1000"))
_RUNS = int(os.environ.get("RUNS", "3"))
_NAME = TableName("t", "default")
_OLD_S = 3 * 86_400


def created(folder: Path, sql: str) -> Catalog:
    """A catalog with the table of a CREATE TABLE statement."""
    catalog = Catalog.open({"warehouse": str(folder)})
    statement = parse_statement(sql)
    assert isinstance(statement, CreateTable)
    catalog.create_table(_NAME, plan_create_table(statement))
    return catalog


def wide(folder: Path) -> None:
    """A table of many files in many partitions: the files of real commits, as names of files that
    are empty but one. A tenth of as many orphans lie beside them."""
    import pyarrow as pa

    from paimon_magics.tables.writing.commit_messages import read_messages, write_message

    catalog = created(folder, "CREATE TABLE t (k INT, p INT) PARTITIONED BY (p)")
    committer = InProcessCommitter(catalog, Settings())
    table = catalog.load(_NAME)
    builder = table.paimon.new_batch_write_builder()
    write = builder.new_write()
    write.write_arrow(pa.table({"k": pa.array([1], pa.int32()), "p": pa.array([0], pa.int32())}))
    from pypaimon.write.commit_message_serializer import serialize_commit_message

    (message,) = write.prepare_commit()
    body = serialize_commit_message(message, table.paimon.partition_keys_fields)
    root = Path(table.location)
    (sample,) = (root / "p=0" / "bucket-0").iterdir()
    content = sample.read_bytes()
    each = _FILES // _PARTITIONS
    messages = []
    for partition in range(_PARTITIONS):
        (copy,) = read_messages(table.paimon, [body])
        copy.partition = (partition,)
        (pattern,) = copy.new_files
        place = root / f"p={partition}" / "bucket-0"
        place.mkdir(parents=True, exist_ok=True)
        copy.new_files = []
        for number in range(each):
            name = f"data-{partition}-{number}.parquet"
            (place / name).write_bytes(content)
            copy.new_files.append(_named(pattern, name))
        messages.append(write_message(table.paimon, copy))
        if partition % 10 == 0:
            (place / f"data-{partition}-orphan.parquet").write_bytes(content)
    transaction = committer.begin(_NAME)
    committer.commit(CommitRequest(transaction, Append(), tuple(messages)))
    at = time.time() - _OLD_S
    for path in root.rglob("*"):
        os.utime(path, (at, at))


def _named(pattern: object, name: str) -> object:
    import copy

    file = copy.copy(pattern)
    file.file_name = name  # type: ignore[attr-defined]
    return file


def clean(folder: Path) -> None:
    """Remove the orphans of that table, and print what that took."""
    committer = InProcessCommitter(Catalog.open({"warehouse": str(folder)}), Settings())
    before_mb = peak_mb()
    started = time.perf_counter()
    receipt = committer.remove(_NAME, RemoveOrphanFiles())
    seconds = time.perf_counter() - started
    print(
        f"remove_orphan_files of {_FILES:,} files in {_PARTITIONS:,} partitions: "
        f"{receipt.files:,} removed in {seconds:.1f} s, {peak_mb():.0f} MB "
        f"({before_mb:.0f} MB before)"
    )


def long(folder: Path) -> None:
    """A table of many snapshots, each of a file more, or of one in place of the others."""
    import pyarrow as pa
    from pypaimon.write.commit_message_serializer import serialize_commit_message

    catalog = created(
        folder, "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('write-only' = 'true')"
    )
    committer = InProcessCommitter(catalog, Settings())
    table = catalog.load(_NAME)
    rows = pa.table({"k": pa.array([1], pa.int32()), "v": ["a"]})
    for _ in range(_SNAPSHOTS):
        transaction = committer.begin(_NAME)
        write = table.paimon.new_batch_write_builder().new_write()
        write.write_arrow(rows)
        messages = [serialize_commit_message(m, []) for m in write.prepare_commit()]
        committer.commit(CommitRequest(transaction, Append(), tuple(messages)))


def expire(folder: Path) -> None:
    """Expire all snapshots but one, on copies of that table, here and by the connector."""
    call = "retain_max => 1, retain_min => 1, max_deletes => 1000000"
    with connector.connect(str(folder)) as session:
        ours, theirs = [], []
        for run in range(_RUNS):
            for mine in (True, False) if connector.JAR else (True,):
                name = f"{'a' if mine else 'b'}{run}"
                root = folder / "default.db"
                shutil.copytree(root / "t", root / name)
                started = time.perf_counter()
                if mine:
                    rows = session.run(f"CALL sys.expire_snapshots(table => '{name}', {call})")
                    assert rows.to_pylist()[0]["deleted_snapshots_count"] == _SNAPSHOTS - 1
                    ours.append(time.perf_counter() - started)
                else:
                    spark = session.spark
                    text = f"CALL connector.sys.expire_snapshots(table => 'default.{name}', {call})"
                    assert spark.sql(text).collect()[0][0] == _SNAPSHOTS - 1
                    theirs.append(time.perf_counter() - started)
                left = len(list((root / name / "manifest").iterdir()))
                shutil.rmtree(root / name)
                print(
                    f"  {name}: {(ours if mine else theirs)[-1]:.2f} s, {left} metadata files left"
                )
    line = f"expire_snapshots of {_SNAPSHOTS - 1:,} snapshots: {min(ours):.2f} s"
    if theirs:
        line += f", connector {min(theirs):.2f} s: {min(theirs) / min(ours):.1f} ×"
    print(line)


def main() -> None:
    """Make the tables and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clean", type=Path)
    parser.add_argument("--only", choices=("clean", "expire"))
    arguments = parser.parse_args()
    if arguments.clean:
        clean(arguments.clean)
        return
    with tempfile.TemporaryDirectory(prefix="removals-") as place:
        if arguments.only != "expire":
            wide(Path(place) / "wide")
            subprocess.run([sys.executable, __file__, "--clean", f"{place}/wide"], check=True)
        if arguments.only != "clean":
            long(Path(place) / "long")
            expire(Path(place) / "long")


if __name__ == "__main__":
    main()
