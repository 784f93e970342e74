"""What clients were answered, and what must therefore be in the tables at the end.

A *table* is one that was created once, whatever its name is: it is known here by its id, as the
server saw it when it took the request. `begun` and `ended` are steps of the scheduler.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

__all__ = ["NEVER", "Attempt", "Change", "Ledger"]

NEVER = 2**62


@dataclass(eq=False)
class Attempt:
    """One request to add rows to a table. `state` is "sent", "done", "refused" or "unclear".
    `is_small` for a small insert, which has its place among statements."""

    rows: tuple[int, ...]
    table: str
    state: str = "sent"
    begun: int = 0
    ended: int = NEVER
    channel: str = ""
    is_small: bool = False


@dataclass(eq=False)
class Change:
    """One request to drop, rename or truncate a table, or to roll it back. Small inserts that begin
    at the step `placed` or later have their place behind it, and are not removed by it."""

    kind: str
    table: str
    state: str = "sent"
    begun: int = 0
    ended: int = NEVER
    placed: int = NEVER


@dataclass
class Ledger:
    """All attempts and changes of a run. `problems` are the broken promises."""

    attempts: list[Attempt] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    dead: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    waiting: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def check(self, found: dict[str, list[int]]) -> None:
        """Compare with the tables that are there at the end, each with its rows in order."""
        by_table: dict[str, dict[int, list[Attempt]]] = defaultdict(lambda: defaultdict(list))
        for attempt in self.attempts:
            for row in attempt.rows:
                by_table[attempt.table][row].append(attempt)
        for table in sorted(found.keys() | by_table.keys()):
            if table in found:
                self._check_table(table, found[table], by_table[table])
            elif not self._may_be_gone(table):
                states = {a.state for attempts in by_table[table].values() for a in attempts}
                if states & {"done"}:
                    self.problems.append(f"table {table} is gone, though nobody dropped it")
        for change in self.changes:
            if change.kind == "drop" and change.state == "done" and change.table in found:
                self.problems.append(f"table {change.table} is there, though it was dropped")

    def _may_be_gone(self, table: str) -> bool:
        return any(
            change.kind == "drop" and change.table == table and change.state != "refused"
            for change in self.changes
        )

    def _check_table(self, table: str, rows: list[int], sent: dict[int, list[Attempt]]) -> None:
        counts: dict[int, int] = defaultdict(int)
        for row in rows:
            counts[row] += 1
        removals = [
            c for c in self.changes if c.kind in ("truncate", "rollback") and c.table == table
        ]
        for row, count in sorted(counts.items()):
            if row not in sent:
                self.problems.append(f"row {row} is in {table}, to which nobody sent it")
            if count > 1:
                self.problems.append(f"row {row} is {count} times in {table}")
        for row, attempts in sorted(sent.items()):
            states = {attempt.state for attempt in attempts}
            count = counts.get(row, 0)
            if states == {"refused"} and count:
                self.problems.append(f"row {row} is in {table}, which refused it")
            done = [a for a in attempts if a.state == "done"]
            if not done:
                continue
            # An unclear attempt may have been carried out before the one that says so.
            first = min(attempt.begun for attempt in attempts if attempt.state != "refused")
            last = min(attempt.ended for attempt in done)
            is_gone = is_kept = may_be_back = False
            for change in removals:
                if change.state == "refused":
                    continue
                if change.kind == "rollback":
                    may_be_back = may_be_back or last < change.ended
                elif last < change.begun and change.state == "done":
                    is_gone = True
                is_behind = first >= change.placed and all(a.is_small for a in attempts)
                if first < change.ended and not is_behind:
                    is_kept = True  # it may be gone, or not
            if is_gone and not may_be_back and count:
                self.problems.append(f"row {row} is in {table}, which was truncated after it")
            if not count and not is_kept and row not in self.dead[table]:
                self.problems.append(f"row {row} is missing in {table}, which acknowledged it")
        self._check_order(table, rows, sent)

    def _check_order(self, table: str, rows: list[int], sent: dict[int, list[Attempt]]) -> None:
        channels: dict[str, list[int]] = defaultdict(list)
        for row in rows:
            for channel in {a.channel for a in sent.get(row, ()) if a.channel}:
                channels[channel].append(row)
        for channel, found in channels.items():
            if found != sorted(found):
                self.problems.append(f"rows of channel {channel} are out of order in {table}")
