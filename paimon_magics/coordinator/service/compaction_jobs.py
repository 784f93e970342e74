"""What a coordinator asks the process that compacts for it, and what that answers. Picklable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from paimon_magics.planning.compaction.schedule import Seen
from paimon_magics.statements.statement import TableName

__all__ = ["OUT_OF_MEMORY", "Budget", "CompactionAnswer", "CompactionJob"]

OUT_OF_MEMORY = 73
"""The exit code of a process that needs more memory than its budget."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What compactions may take: `workers` processes, each with `memory_bytes` of memory. A bucket
    with more than `bytes_max` to read is left to people; one portion of work reads
    `portion_bytes`, or a single bucket."""

    workers: int = 1
    memory_bytes: int = 1 << 30
    bytes_max: int = 2 << 30
    portion_bytes: int = 256 << 20


@dataclass(frozen=True)
class CompactionJob:
    """Look at a table or, if it `works`, compact a portion of it, through the coordinator at
    `address`. `options` are the catalog's."""

    table: TableName
    options: Mapping[str, str]
    address: str
    token: str
    budget: Budget
    works: bool

    def __repr__(self) -> str:
        return f"CompactionJob({self.table}, works={self.works})"  # it holds secrets


@dataclass(frozen=True, slots=True)
class CompactionAnswer:
    """What is left to do, and what was done. `hindered` if nothing could be done now, because
    others compact or change the same files. `problem` says why a job failed, `is_gone` if the table
    does not exist."""

    seen: Seen = field(default_factory=Seen)
    buckets: int = 0
    read_bytes: int = 0
    hindered: bool = False
    problem: str = ""
    is_gone: bool = False
