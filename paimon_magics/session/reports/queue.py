"""A report on the coordinator: its open transactions, its queues of small inserts, and what it
compacts.

It is read again on each request; nothing here runs by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from paimon_magics.coordinator.client.administration import Status
from paimon_magics.planning.formatting import count_text
from paimon_magics.session.reports.report import Bar, Chart, Report, Section

if TYPE_CHECKING:
    from paimon_magics.session.reports.administration import Administration

__all__ = ["queue_of"]

# Columns that stay the same between runs; times and ids are only in the data.
_TRANSACTIONS_SHOWN = ("table", "state")
_QUEUES_SHOWN = ("table", "state", "mode", "visible", "waiting_rows", "dead_letters", "last_error")


def queue_of(administration: Administration) -> Report:
    """Report coordinator, transactions, queues and compactions.

    Raises SetupError without a coordinator.
    """
    status = administration.status_now()
    transactions = administration.transaction_rows()
    queues = administration.queue_rows()
    waiting = sum(queues.column("waiting_rows").to_pylist())
    summary = (
        f"{_state(status)}; {count_text(transactions.num_rows, 'transaction')} open; "
        f"{count_text(waiting, 'row')} of small inserts {'waits' if waiting == 1 else 'wait'}"
    )
    bars = tuple(
        Bar(one["table"], one["waiting_rows"], count_text(one["waiting_rows"], "row"))
        for one in queues.to_pylist()
    )
    charts = (Chart("Rows that wait to be loaded", bars),) if waiting else ()
    sections = (
        Section("Open transactions", transactions, "", _TRANSACTIONS_SHOWN),
        Section("Small inserts", queues, "", _QUEUES_SHOWN, charts=charts),
        Section("Compactions", administration.compaction_rows(), "", only_live=True),
        Section("Coordinator", _coordinator(status, administration.in_zone), "", only_live=True),
    )

    def refresh() -> Report | None:
        return None if administration.is_closed else queue_of(administration)

    return Report("QUEUE", summary, sections, refresh=refresh)


def _state(status: Status) -> str:
    if status.problem is not None:
        return f"The coordinator takes nothing: {status.problem}"
    if status.pause is not None:
        return f"The coordinator is paused by {status.pause.by or 'somebody'}"
    return "The coordinator takes new transactions"


def _coordinator(status: Status, in_zone: Callable[[str], str]) -> pa.Table:
    rows = [
        ("state", _state(status)),
        ("warehouse", status.warehouse),
        ("address", status.address),
        ("started by", f"{status.user} on {status.host} (process {status.process})"),
        ("version", status.version),
        *(("being published", commit) for commit in status.pending_commits),
        *(("stopped", f"{one.location}: {one.reason}") for one in status.stopped_tables),
    ]
    names, values = zip(*rows, strict=True)
    return pa.table({"what": pa.array(names), "value": pa.array(list(map(in_zone, values)))})
