"""The status page: plain HTML without scripts, and with nothing else to load.

It is made from the coordinator's memory and its store; no table is opened for it. All texts come
from users or other programs, and are escaped.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from paimon_magics.columnar.time_zones import UTC, moments_in_zone
from paimon_magics.coordinator.core.state import State, pending_transactions
from paimon_magics.coordinator.core.values import Phase, TransactionState
from paimon_magics.coordinator.http.pages import Markup, moment_text, page
from paimon_magics.coordinator.inserts.engine.group_commit import GroupCommit
from paimon_magics.coordinator.protocol.principals import Principal, Scope
from paimon_magics.coordinator.routes.administration import COMPACTION_COLUMNS, about
from paimon_magics.coordinator.routes.dead_letters import LETTER_COLUMNS
from paimon_magics.coordinator.routes.metrics import QUEUE_COLUMNS, queue_rows
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.service.health import Health
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.tables.snapshots.provenance import noted

_Cells = tuple[object, ...]

_COMMITS_SHOWN = 50
_FINISHED_SHOWN = 200


class PageRequest(NamedTuple):
    """What a page is about, and the zone of its times, by the name of `known_zone`."""

    warehouse: str
    zone: str = UTC


def status_page(
    coordinator: Coordinator,
    shown: PageRequest,
    health: Health,
    group: GroupCommit | None = None,
    letters: Sequence[_Cells] = (),
    compacted: Sequence[_Cells] = (),
) -> str:
    """The page at this moment, with its times in the reader's zone; `letters` are rows in
    `LETTER_COLUMNS`, `compacted` those in `COMPACTION_COLUMNS`."""
    now_ms = coordinator.runtime.clock.now_ms()
    queues = [] if group is None else queue_rows(group, now_ms)
    state = coordinator.state
    finished: Sequence[TransactionState] = ()
    published: Sequence[Publication] = ()
    if health.is_store_readable:  # else the page would wait for it
        finished = coordinator.store.transactions.recently_finished(_FINISHED_SHOWN)
        published = coordinator.store.publications.recent(_COMMITS_SHOWN)
    commits = _commits(finished, published)
    content = page(
        [
            _head(coordinator, shown, health),
            _section("Problems", _PROBLEMS, _problems(health), "There are none."),
            _section("Tables", _TABLES, _tables(state, commits), "Nothing was committed yet."),
            _section("Open transactions", _OPEN, _open(state, now_ms), "None is open."),
            _section("Small inserts", QUEUE_COLUMNS, queues, "There were none yet."),
            _section("Compactions", COMPACTION_COLUMNS, compacted, "No table needs a compaction."),
            _section("Dead letters", LETTER_COLUMNS, letters, "There are none.", _LETTERS),
            _section(
                "Recent commits", _COMMITS, [c.cells for c in commits], "There were none yet."
            ),
            _section("Ended without a commit", _ENDED, _ended(finished), "There are none."),
            _section("Recent errors", _ERRORS, _errors(coordinator), "There are none."),
        ]
    )
    return moments_in_zone(content, shown.zone)


# ---- the parts ----

_LETTERS = (
    "Acknowledged rows that could not be loaded. Retry inserts them again; discard removes them "
    "from this list. The table paimon_magics.dead_letters keeps their contents."
)
_PROBLEMS = ("about", "problem")
_TABLES = ("table", "#snapshot", "@committed", "#open", "state")
_OPEN = ("id", "table", "state", "user", "notebook", "host", "engine", "#age", "#lease left")
_COMMITS = ("@time", "table", "#snapshot", "kind", "user", "notebook", "#rows", "#files", "through")
_ENDED = ("@time", "table", "outcome", "whose", "reason", "id")
_ERRORS = ("@last time", "#times", "message")


class _Commit(NamedTuple):
    at_ms: int
    location: str
    table: str
    snapshot_id: int
    kind: str
    user: str
    notebook: str
    rows: int | None
    files: int | None
    through: str

    @property
    def cells(self) -> _Cells:
        return (moment_text(self.at_ms), *self[2:])


def _head(coordinator: Coordinator, shown: PageRequest, health: Health) -> str:
    state = coordinator.state
    facts = about(coordinator, shown.warehouse, Principal(None, Scope.ADMIN))
    lines = [
        f"<h1>Paimon coordinator</h1><p><code>{html.escape(shown.warehouse)}</code><br>"
        f"{html.escape(facts['user'])} on {html.escape(facts['host'])} (process "
        f"{facts['process']}), version {html.escape(facts['version'])}, since "
        f"{moment_text(facts['started_at_ms'])}</p>",
        '<form method="get" action="./"><label>Times in '
        f'<input name="zone" value="{html.escape(shown.zone)}"></label> '
        "<button>Show</button></form>",
    ]
    if not health.is_ready:
        lines += [
            f'<p class="bad">Not accepting requests: {html.escape(problem.problem)}</p>'
            for problem in health.problems
            if problem.blocks
        ]
    elif state.pause is not None:
        lines.append(
            f'<p class="bad">Paused by {html.escape(state.pause.by or "somebody")} since '
            f"{moment_text(state.pause.since_ms)}: nothing new begins.</p>"
        )
    else:
        lines.append("<p>It takes new transactions.</p>")
    return "".join(lines)


def _problems(health: Health) -> list[_Cells]:
    return [
        (problem.subject or problem.name, problem.problem)
        for problem in health.problems
        if not problem.blocks
    ]


def _tables(state: State, commits: Sequence[_Commit]) -> list[_Cells]:
    """The tables that have recent commits or open transactions, or are stopped."""
    last = {commit.location: commit for commit in reversed(commits)}
    opened = Counter(transaction.location for transaction in pending_transactions(state))
    names = {commit.location: commit.table for commit in last.values()}
    for transaction in pending_transactions(state):
        names[transaction.location] = transaction.table or transaction.location
    rows: list[_Cells] = []
    for location in sorted({*names, *state.stopped}, key=lambda each: names.get(each, each)):
        commit, stopped = last.get(location), state.stopped.get(location)
        snapshot: _Cells = (None, None)
        if commit is not None:
            snapshot = (commit.snapshot_id, moment_text(commit.at_ms))
        status = "takes commits"
        if stopped is not None:
            status = f"stopped since {moment_text(stopped.since_ms)}: {stopped.reason}"
        rows.append((names.get(location, location), *snapshot, opened[location], status))
    return rows


def _open(state: State, now_ms: int) -> list[_Cells]:
    return [
        (
            transaction.id,
            transaction.table or transaction.location,
            transaction.phase.value,
            transaction.owner,
            transaction.origin.notebook,
            transaction.origin.host,
            transaction.origin.engine,
            _seconds(now_ms - transaction.begun_at_ms),
            _seconds(transaction.expires_at_ms - now_ms)
            if transaction.phase is Phase.ACTIVE
            else None,
        )
        for transaction in pending_transactions(state)
    ]


def _commits(
    finished: Iterable[TransactionState], published: Iterable[Publication]
) -> list[_Commit]:
    commits = [
        _Commit(
            transaction.ended_at_ms,
            transaction.location,
            transaction.table or transaction.location,
            receipt.snapshot_id,
            receipt.commit_kind or "",
            transaction.owner,
            transaction.origin.notebook,
            receipt.delta_rows,
            transaction.files,
            "transaction",
        )
        for transaction in finished
        if (receipt := transaction.receipt) is not None and receipt.snapshot_id is not None
    ]
    for publication in published:
        if publication.is_transaction or not publication.certain:
            continue
        notes = noted(dict(publication.properties))
        commits.append(
            _Commit(
                publication.published_at_ms,
                publication.location,
                str(publication.table),
                publication.snapshot_id,
                publication.commit_kind,
                notes.get("user") or publication.commit_user,
                notes.get("notebook", ""),
                publication.rows,
                None,
                "REST catalog",
            )
        )
    return sorted(commits, key=lambda commit: commit.at_ms, reverse=True)[:_COMMITS_SHOWN]


def _ended(finished: Iterable[TransactionState]) -> list[_Cells]:
    rows: list[_Cells] = [
        (
            moment_text(transaction.ended_at_ms),
            transaction.table or transaction.location,
            transaction.phase.value,
            transaction.who,
            transaction.reason,
            transaction.id,
        )
        for transaction in finished
        if transaction.phase is not Phase.COMMITTED
    ]
    return rows[:_COMMITS_SHOWN]


def _errors(coordinator: Coordinator) -> list[_Cells]:
    return [(moment_text(e.at_ms), e.count, e.message) for e in coordinator.recent_errors.list()]


# ---- HTML ----


def _section(
    title: str, headings: Sequence[str], rows: Sequence[_Cells], none: str, about: str = ""
) -> str:
    """A heading and a table. Columns whose heading begins with `#` are numbers, with `@` times.
    `about` is a text above the rows; `none` is shown if there are no rows.
    """
    if not rows:
        return f'<h2>{title}</h2><p class="none">{none}</p>'
    kinds = {"#": ' class="n"', "@": ' class="t"'}
    classes = [kinds.get(heading[:1], "") for heading in headings]
    head = "".join(
        f'<th scope="col"{c}>{h.lstrip("#@")}</th>' for c, h in zip(classes, headings, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{c}>{_shown(value)}</td>" for c, value in zip(classes, row, strict=True))
        + "</tr>"
        for row in rows
    )
    text = f"<p>{html.escape(about)}</p>" if about else ""
    return (
        f"<h2>{title}</h2>{text}<section><table><thead><tr>{head}</tr></thead><tbody>{body}"
        "</tbody></table></section>"
    )


def _shown(value: object) -> str:
    match value:
        case None:
            return ""
        case int():
            return f"{value:,}"
        case Markup():
            return value
        case _:
            return html.escape(str(value))


def _seconds(ms: int) -> str:
    return f"{max(ms, 0) // 1000:,} s"
