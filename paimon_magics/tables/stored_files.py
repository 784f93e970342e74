"""Files as their manifests say → files as tasks read them: by bucket, with their paths.

Paths follow from partition, bucket and name; nothing is listed or opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.utils.file_store_path_factory import canonical_data_file_path

from paimon_magics.columnar.binary_rows import decode_rows
from paimon_magics.planning.definitions import TableDefinition
from paimon_magics.planning.splits import Deletions, RawFiles, StoredFile
from paimon_magics.tables.types import arrow_type

__all__ = ["by_bucket", "file_paths", "raw_files", "schema_ids", "stored_files", "stores_elsewhere"]

_Ints = npt.NDArray[np.int64]


def by_bucket(files: pa.Table) -> tuple[pa.Table, list[range]]:
    """The files ordered by partition and bucket, otherwise as they were, and the range of each."""
    partition = files["partition"].combine_chunks().dictionary_encode().indices
    codes = np.asarray(partition).astype(np.int64)
    bucket = np.asarray(files["bucket"]).astype(np.int64)
    order = np.lexsort((bucket, codes))
    codes, bucket = codes[order], bucket[order]
    changes = np.flatnonzero((np.diff(codes) != 0) | (np.diff(bucket) != 0)) + 1
    bounds = [0, *changes.tolist(), len(order)]
    ordered = files.take(pa.array(order)).combine_chunks()
    return ordered, [range(a, b) for a, b in pairwise(bounds)]


def file_paths(
    paimon: Any, definition: TableDefinition, files: pa.Table, groups: Sequence[range]
) -> list[str]:
    """Where each file is, of the buckets `groups`. `paimon` is pypaimon's table."""
    partitions = _partition_values(definition, files, groups)
    names = files["file_name"].to_pylist()
    external = files["external_path"].to_pylist()
    bucket_ids = files["bucket"].to_pylist()
    paths: list[str] = []
    folders: dict[tuple[Any, ...], str] = {}
    for group, partition in zip(groups, partitions, strict=True):
        bucket = f"bucket-{bucket_ids[group.start]}"
        folder = folders.get(partition)
        if folder is None:
            number = bucket_ids[group.start]
            folder = str(canonical_data_file_path(paimon, partition, number, "")).rstrip("/")
            folder = folders[partition] = folder.removesuffix(bucket)
        paths += [external[i] or f"{folder}{bucket}/{names[i]}" for i in group]
    return paths


def stores_elsewhere(files: pa.Table) -> frozenset[str]:
    """The schemes of the paths of files that are not in the table's folder."""
    external = files["external_path"].drop_null().to_pylist()
    return frozenset(urlsplit(path).scheme or "file" for path in external)


def _partition_values(
    definition: TableDefinition, files: pa.Table, groups: Sequence[range]
) -> list[tuple[Any, ...]]:
    types = [arrow_type(definition.column(key).type) for key in definition.partition_keys]
    firsts = pa.array([group.start for group in groups])
    columns = decode_rows(files["partition"].combine_chunks().take(firsts), types)
    if not columns:
        return [()] * len(groups)
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def stored_files(
    files: pa.Table,
    rows: _Ints,
    paths: Sequence[str],
    deletions: Mapping[tuple[bytes, int, str], Deletions],
) -> list[StoredFile]:
    """The files in those rows, in their order; `paths` are those of all files."""
    taken = files.take(pa.array(rows))
    columns = [
        taken[name].to_pylist()
        for name in (
            "partition", "bucket", "file_name", "schema_id", "row_count", "file_size",
            "delete_row_count", "level", "min_sequence_number", "max_sequence_number",
            "first_row_id", "write_cols",
        )
    ]  # fmt: skip
    found = []
    for place, row in enumerate(zip(*columns, strict=True)):
        partition, bucket, name, schema_id, count, size, deleted, *ids, written = row
        level, least, sequence, first = ids
        found.append(
            StoredFile(
                path=paths[int(rows[place])],
                format=_format_of(name),
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
            )
        )
    return found


def raw_files(
    files: pa.Table, raw: npt.NDArray[np.bool_], paths: Sequence[str], more: Sequence[StoredFile]
) -> tuple[RawFiles, ...]:
    """The files marked in `raw`, and `more`, by schema and format."""
    found: dict[tuple[int, str], list[tuple[str, int, int]]] = {}
    places = np.flatnonzero(raw)
    taken = files.filter(pa.array(raw))
    for place, name, schema_id, rows, size in zip(
        places.tolist(),
        taken["file_name"].to_pylist(),
        taken["schema_id"].to_pylist(),
        taken["row_count"].to_pylist(),
        taken["file_size"].to_pylist(),
        strict=True,
    ):
        found.setdefault((schema_id, _format_of(name)), []).append((paths[place], rows, size))
    for file in more:
        found.setdefault((file.schema_id, file.format), []).append(
            (file.path, file.rows, file.size_bytes)
        )
    return tuple(
        RawFiles(
            schema_id=schema_id,
            format=file_format,
            paths=tuple(path for path, _, _ in members),
            row_counts=tuple(rows for _, rows, _ in members),
            sizes_bytes=tuple(size for _, _, size in members),
        )
        for (schema_id, file_format), members in found.items()
    )


def schema_ids(files: pa.Table) -> frozenset[int]:
    """The schemas that the files were written with."""
    return frozenset(pc.unique(files["schema_id"]).to_pylist())


def _format_of(name: str) -> str:
    return name.rsplit(".", 1)[-1].lower()
