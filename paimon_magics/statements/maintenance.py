"""Upkeep of a table's files, as values that CALL asks for: no row changes by it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CompactTable:
    """`sys.compact`: members are its parameters, as texts; None where they are not given.

    `partitions` is like `dt=2026-01-01,h=1;dt=2026-01-02`, `where` a condition on partition
    columns, `options` like `k=v,k=v`.
    """

    partitions: str | None = None
    compact_strategy: str | None = None
    order_strategy: str | None = None
    order_by: str | None = None
    where: str | None = None
    options: str | None = None
    partition_idle_time: str | None = None


@dataclass(frozen=True, slots=True)
class CompactDatabase:
    """`sys.compact_database`: tables by regular expressions for the whole of a database's name, and
    of a table's as `database.table`; None is all, or for `excluding_tables` none."""

    including_databases: str | None = None
    including_tables: str | None = None
    excluding_tables: str | None = None
    options: str | None = None


@dataclass(frozen=True, slots=True)
class CompactManifest:
    """`sys.compact_manifest`: merge a table's manifests. With `dry_run` they are only counted."""

    options: str | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class RescaleBuckets:
    """`sys.rescale`: write partitions anew with `bucket_num` buckets, or as many as the table's
    option `bucket` says. `partitions` and `where` as in `CompactTable`."""

    bucket_num: int | None = None
    partitions: str | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True)
class RewriteFileIndex:
    """`sys.rewrite_file_index`: give files the indexes that the table's options ask for now.
    `where` as in `CompactTable`."""

    where: str | None = None


@dataclass(frozen=True, slots=True)
class MergeBranch:
    """`sys.merge_branch`: add the rows to the branch `target` that only the branch `source` has.
    `main` is the table itself."""

    source: str
    target: str = "main"


@dataclass(frozen=True, slots=True)
class CopyTable:
    """`sys.copy`: copy the files of the table `source` to `target`, which is created if it is
    missing; else its partitions are replaced. `where` as in `CompactTable`."""

    source: str
    target: str
    where: str | None = None


@dataclass(frozen=True, slots=True)
class MigrateTable:
    """`sys.migrate_table`: make a table with the rows of a table in Spark's own catalog, under the
    name `target` or the same one; the origin is dropped then, unless `delete_origin` is false."""

    source_type: str
    table: str
    options: tuple[tuple[str, str], ...] = ()
    delete_origin: bool = True
    target: str | None = None
    parallelism: int | None = None


@dataclass(frozen=True, slots=True)
class MigrateDatabase:
    """`sys.migrate_database`: migrate all tables of a database in Spark's own catalog."""

    source_type: str
    database: str
    options: tuple[tuple[str, str], ...] = ()
    parallelism: int | None = None


@dataclass(frozen=True, slots=True)
class AlterViewDialect:
    """`sys.alter_view_dialect`: `add`, `update` or `drop` the text of a view for an engine, by
    default Spark's."""

    view: str
    action: str
    engine: str = "spark"
    query: str | None = None


DatabaseMaintenance = (
    CompactDatabase | CopyTable | MigrateTable | MigrateDatabase | AlterViewDialect
)
"""What a CALL can ask for on several tables, or on none of Paimon's."""

Maintenance = (
    CompactTable
    | CompactDatabase
    | CompactManifest
    | RescaleBuckets
    | RewriteFileIndex
    | MergeBranch
    | CopyTable
    | MigrateTable
    | MigrateDatabase
    | AlterViewDialect
)
"""What a CALL can ask for besides changes of versions."""
