"""Temporary views that choose columns and rows of a table: queries of them read what they use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paimon_magics.session.connection import Connection
from paimon_magics.spark.frame_sources import Narrowed, Source
from paimon_magics.spark.progress import is_connect
from paimon_magics.statements.statement import TableReference

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

__all__ = ["frame_of_view", "note_view"]


@dataclass(frozen=True)
class _ViewRead:
    """A view's source, and the frame that Spark gave for its name when it was made."""

    source: Source
    shown: DataFrame


def note_view(connection: Connection, name: str, source: Source | None) -> None:
    """Note what a new view reads; None for a view that is left to Spark."""
    connection.view_reads.pop(name.lower(), None)
    # Spark Connect gives the frame of a name anew at each call, so that a view which another call
    # has replaced would not be noticed.
    if source is not None and not is_connect(connection.spark):
        read = _ViewRead(source, connection.spark.table(name))
        connection.view_reads[name.lower()] = read


def frame_of_view(
    connection: Connection,
    reference: TableReference,
    names: frozenset[str] | None,
    bound: Mapping[str, object],
) -> DataFrame | None:
    """The rows of a view that the query of `reference` can use, with the columns among `names`
    (None for all); None where Spark reads the view."""
    name = reference.name.object_name
    read = connection.view_reads.get(name.lower())
    if not isinstance(read, _ViewRead) or reference.name.database is not None:
        return None
    if not connection.spark.table(name).sameSemantics(read.shown):
        return None  # PySpark has replaced the view
    shown = read.source.names
    wanted = None if names is None else frozenset(one for one in shown if one.lower() in names)
    filters, rows = reference.filters, reference.rows_wanted
    return read.source.read(Narrowed(wanted, filters, bound, rows))
