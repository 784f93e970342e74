"""A report on how a query prunes files, table by table."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.formatting import count_text, size_text
from paimon_magics.session.bound_values import bindings_text, with_values
from paimon_magics.session.connection import Connection
from paimon_magics.session.parameters import bind
from paimon_magics.session.reports.report import Bar, Chart, Report, Section
from paimon_magics.session.statements.read_plans import TableRead, table_reads
from paimon_magics.statements.grammar.parsing import parse_cell
from paimon_magics.statements.kinds import Explain
from paimon_magics.statements.statement import Insert, Query
from paimon_magics.tables.splits.file_pruning import PruningStep

__all__ = ["pruning_of"]

_SCHEMA = pa.schema(
    [
        ("step", pa.string()),
        ("files", pa.int64()),
        ("buckets", pa.int64()),
        ("partitions", pa.int64()),
        ("bytes", pa.int64()),
    ]
)


def pruning_of(connection: Connection, text: str, parameters: Mapping[str, object]) -> Report:
    """Report what a query, or the query of an INSERT, reads: a section for each table. Runs
    nothing.

    Raises UnsupportedStatementError for other statements, and what the query itself would raise.
    """
    statements = parse_cell(text)
    if len(statements) != 1:
        raise UnsupportedStatementError(
            f"%paimon explain takes one query, not {len(statements)} statements.",
            hint="%paimon explain SELECT …; several statements: a cell with %%paimon --explain.",
        )
    statement = statements[0]
    if isinstance(statement, Explain):
        statement = statement.inner
    match statement:
        case Query():
            query = statement.query
        case Insert():
            query = statement.source
        case _:
            raise UnsupportedStatementError(
                f"%paimon explain takes a query or an INSERT, not "
                f"`{statement.text.split()[0].upper()}`.",
                hint="Other statements are explained by a cell with %%paimon --explain.",
            )
    bound = bind(query.parameters, parameters, statement.text, connection.zone)
    reads = table_reads(connection, statement.text, query, bound)
    text = with_values(statement.text, bound)
    opened = [read for read in reads if read.pruning_steps and read.opens_files]
    left = sum(read.pruning_steps[-1].files for read in opened)
    everything = sum(read.pruning_steps[0].files for read in reads if read.pruning_steps)
    summary = (
        f"{count_text(len(reads), 'table')}; {left:,} of {count_text(everything, 'file')} would be "
        "read"
        if reads
        else "The query reads no table."
    )
    notes = []
    if bound:
        notes.append(f"With {bindings_text(bound)}, the query is:\n    {text}")
    notes.append("Spark's own plan: %%paimon --explain")
    return Report("PRUNING", summary, tuple(map(_section, reads)), tuple(notes))


def _section(read: TableRead) -> Section:
    rows = [
        {
            "step": one.step,
            "files": one.files,
            "buckets": one.buckets,
            "partitions": one.partitions,
            "bytes": one.size_bytes,
        }
        for one in read.pruning_steps
    ]
    bars = tuple(Bar(one.step, one.files, _amount(one)) for one in read.pruning_steps)
    charts = (Chart("Files left after each step", bars),) if bars else ()
    note = " ".join(f"{said[0].upper()}{said[1:]}." for said in (read.how, *read.conditions))
    found = pa.Table.from_pylist(rows, schema=_SCHEMA) if rows else pa.table({})
    return Section(read.name, found, "", charts=charts, note=note)


def _amount(one: PruningStep) -> str:
    files = count_text(one.files, "file")
    return files if one.size_bytes is None else f"{files}, {size_text(one.size_bytes)}"
