"""Upkeep of a table's files, as values that CALL asks for: no row changes by it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paimon_magics.errors import InvalidValueError, UnsupportedStatementError


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


@dataclass(frozen=True, slots=True)
class DefineFunction:
    """`sys.create_function`: keep a function without definitions, which `sys.alter_function` adds.
    Parameters and results are documents (`DataField`)."""

    function: str
    parameters: tuple[Mapping[str, Any], ...]
    results: tuple[Mapping[str, Any], ...]
    is_deterministic: bool
    comment: str | None
    options: tuple[tuple[str, str], ...]

    def document(self) -> dict[str, Any]:
        """The members of a `CreateFunctionRequest`."""
        return {
            "inputParams": list(self.parameters),
            "returnParams": list(self.results),
            "deterministic": self.is_deterministic,
            "definitions": {},
            "comment": self.comment,
            "options": dict(self.options),
        }


@dataclass(frozen=True, slots=True)
class ChangeFunction:
    """`sys.alter_function`: make a change, which is a document (`FunctionChange`)."""

    function: str
    change: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RemoveFunction:
    """`sys.drop_function`: drop a function, whatever its definitions are."""

    function: str


def json_objects(text: str, parameter: str) -> tuple[dict[str, Any], ...]:
    """The objects in a JSON array, the value of a `parameter`; none for a blank text. Raises
    InvalidValueError for another text."""
    try:
        documents = json.loads(text) if text.strip() else []
    except ValueError:
        documents = None
    if not isinstance(documents, list) or not all(isinstance(each, dict) for each in documents):
        raise _no_json(parameter, text)
    return tuple(documents)


def _no_json(parameter: str, text: str) -> InvalidValueError:
    return InvalidValueError(
        f"`{parameter}` is no JSON of that form: {text}",
        hint='Write fields as [{"id": 0, "name": "x", "type": "INT"}], and a change as '
        '{"action": "updateComment", "comment": "…"}.',
    )


def function_change(function: str, change: str) -> ChangeFunction:
    """The change of `sys.alter_function`. Raises InvalidValueError for a text that is none,
    UnsupportedStatementError for a definition in another language than SQL."""
    documents = json_objects(f"[{change}]", "change")
    if len(documents) != 1:
        raise _no_json("change", change)
    (document,) = documents
    definition = document.get("definition")
    kind = definition.get("type") if isinstance(definition, dict) else "sql"
    if kind != "sql":
        raise UnsupportedStatementError(
            f"A definition of the type {kind} is not offered here: it is Java, which Paimon's "
            "connector compiles and loads into Spark.",
            hint="CREATE FUNCTION f(x INT) RETURNS INT RETURN x + 1 keeps a function in SQL.",
        )
    return ChangeFunction(function.strip(), document)


DatabaseMaintenance = (
    CompactDatabase
    | CopyTable
    | MigrateTable
    | MigrateDatabase
    | AlterViewDialect
    | DefineFunction
    | ChangeFunction
    | RemoveFunction
)
"""What a CALL can ask for on several tables, or on none of Paimon's."""

Maintenance = (
    CompactTable
    | CompactManifest
    | RescaleBuckets
    | RewriteFileIndex
    | MergeBranch
    | DatabaseMaintenance
)
"""What a CALL can ask for besides changes of versions."""
