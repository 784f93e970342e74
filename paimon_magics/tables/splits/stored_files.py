"""Turns manifest entries into the files that tasks read: by bucket, with their paths."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.reads.splits import Deletions, RawFiles, StoredFile
from paimon_magics.tables.manifests.names import APPENDED

_Ints = npt.NDArray[np.int64]

COMMIT = "commit"
"""The column of files that says which snapshot added each, as a list of its number and its time in
milliseconds; most reads do without it."""


def by_bucket(files: pa.Table) -> tuple[pa.Table, list[range]]:
    """Sort the files by partition and bucket (stable); return them and each bucket's range."""
    partition = files["partition"].combine_chunks().dictionary_encode().indices
    codes = np.asarray(partition).astype(np.int64)
    bucket = np.asarray(files["bucket"]).astype(np.int64)
    order = np.lexsort((bucket, codes))
    codes, bucket = codes[order], bucket[order]
    changes = np.flatnonzero((np.diff(codes) != 0) | (np.diff(bucket) != 0)) + 1
    bounds = [0, *changes.tolist(), len(order)]
    ordered = files.take(pa.array(order)).combine_chunks()
    return ordered, [range(a, b) for a, b in pairwise(bounds)]


def files_of_partitions(files: pa.Table, partitions: Collection[bytes] | None) -> pa.Table:
    """The files of some partitions (serialized); all files for None."""
    if partitions is None:
        return files
    wanted = pa.array(sorted(partitions), pa.large_binary())
    return files.filter(pc.is_in(files["partition"].combine_chunks(), value_set=wanted))


def _single(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def stores_elsewhere(files: pa.Table) -> frozenset[str]:
    """The URI schemes of files that lie outside the table's folder."""
    external = files["external_path"].drop_null().to_pylist()
    return frozenset(urlsplit(path).scheme or "file" for path in external)


def stored_files(
    files: pa.Table,
    rows: _Ints,
    paths: pa.Array,
    deletions: Mapping[tuple[bytes, int, str], Deletions],
    *,
    by_snapshot: bool = False,
) -> list[StoredFile]:
    """The files at the positions `rows`, in that order; `paths` are those of all files.

    `by_snapshot` is the option `sequence.snapshot-ordering`: then rows of appended files have the
    number of their snapshot, and those of compacted files the numbers that are stored
    (`KeyValueFileReaderFactory`). Raises UnsupportedStatementError for a file that does not record
    which of the two it is.
    """
    chosen = pa.array(rows)
    taken = files.take(chosen).append_column("path", paths.take(chosen))
    if COMMIT not in taken.column_names:
        taken = taken.append_column(COMMIT, pa.nulls(len(rows)))
    columns = [
        taken[name].to_pylist()
        for name in (
            "path", "partition", "bucket", "file_name", "schema_id", "row_count", "file_size",
            "delete_row_count", "level", "min_sequence_number", "max_sequence_number",
            "first_row_id", "write_cols", "file_source", COMMIT,
        )
    ]  # fmt: skip
    stored = []
    for path, partition, bucket, name, *row in zip(*columns, strict=True):
        schema_id, count, size, deleted, level, least, sequence, first, written, source, by = row
        if by_snapshot and source is None:
            raise UnsupportedStatementError(
                f"The file {path} does not say whether it was appended or compacted, so "
                "'sequence.snapshot-ordering' can't order its rows.",
                hint="The option must be set when a table is created. Copy the rows to a new "
                "table.",
            )
        stored.append(
            StoredFile(
                path=path,
                format=name.rsplit(".", 1)[-1].lower(),
                schema_id=schema_id,
                rows=count,
                size_bytes=size,
                deleted_rows=deleted,
                level=level,
                min_sequence_number=least,
                max_sequence_number=sequence,
                first_row_id=first,
                write_columns=None if written is None else tuple(written),
                deletions=deletions.get((partition, bucket, name)),
                sequence_number=least if by_snapshot and source == APPENDED else None,
                bucket=bucket,
                commit=None if by is None else tuple(by),
            )
        )
    return stored


def raw_files(
    files: pa.Table, raw: npt.NDArray[np.bool_], paths: pa.Array, more: Sequence[StoredFile]
) -> tuple[RawFiles, ...]:
    """The files marked in `raw` and those of `more`, grouped by schema and format."""
    marked = pa.array(raw)
    taken = files.select(["file_name", "schema_id", "row_count", "file_size"]).filter(marked)
    formats = pc.utf8_lower(pc.replace_substring_regex(taken["file_name"], r"^.*\.", ""))
    columns = {
        "schema_id": (taken["schema_id"], [file.schema_id for file in more]),
        "format": (formats, [file.format for file in more]),
        "path": (paths.filter(marked), [file.path for file in more]),
        "rows": (taken["row_count"], [file.rows for file in more]),
        "bytes": (taken["file_size"], [file.size_bytes for file in more]),
    }
    table = pa.table(
        {
            name: pa.chunked_array([_single(column), pa.array(others, column.type)])
            for name, (column, others) in columns.items()
        }
    )
    kinds = table.select(["schema_id", "format"])
    kinds = kinds.group_by(kinds.column_names, use_threads=False).aggregate([])
    return tuple(_of_kind(table, **kind) for kind in kinds.to_pylist())


def _of_kind(files: pa.Table, schema_id: int, format: str) -> RawFiles:
    same = pc.equal(files["schema_id"], schema_id), pc.equal(files["format"], format)
    members = files.filter(pc.and_(*same))
    return RawFiles(
        schema_id=schema_id,
        format=format,
        # By numpy, which makes objects of columns several times as fast.
        paths=tuple(members["path"].to_numpy().tolist()),
        row_counts=tuple(members["rows"].to_numpy().tolist()),
        sizes_bytes=tuple(members["bytes"].to_numpy().tolist()),
    )


def schema_ids(files: pa.Table) -> frozenset[int]:
    """The schemas that the files were written with."""
    return frozenset(pc.unique(files["schema_id"]).to_pylist())
