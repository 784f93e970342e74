"""The page of a coordinator, and what it is drawn from: nothing of what it shows is ever run."""

from __future__ import annotations

import base64
import hashlib
import logging
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from paimon_magics.coordinator.core.values import Origin, Stopped
from paimon_magics.coordinator.http.pages import HEADERS
from paimon_magics.coordinator.routes.metrics import Metrics
from paimon_magics.coordinator.routes.status_page import PageRequest, status_page
from paimon_magics.coordinator.service.coordinator import Coordinator, RecentErrors
from paimon_magics.coordinator.service.health import Health, standard_monitor
from paimon_magics.coordinator.store.state_store import open_store
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.settings import Settings
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import TABLE, create_table, write

EVIL = "<script>alert('1')</script>\"&"
PROVENANCE = (("paimon-magics.user", "ada"), ("paimon-magics.files", "3"))


class Page(HTMLParser):
    """The cells of each table by the heading above it, and the names of all tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.tables: dict[str, list[list[str]]] = {}
        self.text = ""
        self._title = ""
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._in = tag
        if tag == "h2":
            self._title = ""
        elif tag == "tr":
            self.tables.setdefault(self._title, []).append([])
        elif tag in ("td", "th"):
            self.tables[self._title][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._in == "h2":
            self._title += data
        elif self._in in ("td", "th"):
            self.tables[self._title][-1][-1] += data

    def rows(self, title: str) -> list[dict[str, str]]:
        head, *rows = self.tables.get(title, [[]])
        return [dict(zip(head, row, strict=True)) for row in rows]


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return create_table(tmp_path / "warehouse", "CREATE TABLE t (k INT)")


@pytest.fixture
def coordinator(catalog: Catalog, tmp_path: Path) -> Iterator[Coordinator]:
    opened = Coordinator(catalog, open_store(tmp_path / "state"), Settings())
    opened.start()
    yield opened
    opened.stop()


def page_of(coordinator: Coordinator) -> Page:
    return Page(status_page(coordinator, PageRequest("/data/lake"), health_of(coordinator)))


def health_of(coordinator: Coordinator) -> Health:
    return standard_monitor(coordinator, coordinator.runtime).now()


def test_page_of_a_new_coordinator_lists_no_tables(coordinator: Coordinator) -> None:
    page = page_of(coordinator)
    assert page.tables == {}
    assert "/data/lake" in page.text and "It takes new transactions." in page.text


def test_page_lists_commits_and_open_transactions_with_owners(
    coordinator: Coordinator, catalog: Catalog
) -> None:
    origin = Origin("sales.ipynb", "vm7", "spark 4.3.0")
    id, transaction, _ = coordinator.transactions.begin(TABLE, None, "ada", origin)
    messages = write(catalog, transaction, [{"k": 1}, {"k": 2}])
    coordinator.transactions.commit(id, CommitRequest(transaction, Append(), messages, PROVENANCE))
    ended, _, _ = coordinator.transactions.begin(TABLE, None, "bob")
    coordinator.transactions.abort(ended, "bob ended it")
    open_, _, _ = coordinator.transactions.begin(TABLE, None, "eve", origin)
    page = page_of(coordinator)
    (commit,) = page.rows("Recent commits")
    assert commit.pop("time").endswith(" UTC")
    assert commit == {
        "table": "default.t",
        "snapshot": "1",
        "kind": "APPEND",
        "user": "ada",
        "notebook": "sales.ipynb",
        "rows": "2",
        "files": "3",
        "through": "transaction",
    }
    (shown,) = page.rows("Open transactions")
    assert (shown["id"], shown["user"], shown["state"]) == (open_, "eve", "active")
    assert re.fullmatch(r"\d s", shown["age"])
    assert re.fullmatch(r"(59|60) s", shown["lease left"])
    (table,) = page.rows("Tables")
    assert (table["table"], table["snapshot"], table["open"], table["state"]) == (
        "default.t",
        "1",
        "1",
        "takes commits",
    )


def test_page_lists_commits_of_engines(coordinator: Coordinator) -> None:
    publication = Publication(
        id="x",
        table=TableName("orders", "shop"),
        location="/w/shop.db/orders",
        snapshot_id=1234,
        manifest_list="list",
        commit_user="flink-job",
        commit_identifier=1,
        commit_kind="COMPACT",
        published_at_ms=1_795_000_000_000,
        is_transaction=False,
        rows=-5,
    )
    coordinator.watching.note(publication)
    (commit,) = page_of(coordinator).rows("Recent commits")
    assert commit == {
        "time": "2026-11-18 11:06:40 UTC",
        "table": "shop.orders",
        "snapshot": "1,234",
        "kind": "COMPACT",
        "user": "flink-job",
        "notebook": "",
        "rows": "-5",
        "files": "",
        "through": "REST catalog",
    }


def test_page_shows_the_pause_and_stopped_tables(catalog: Catalog, tmp_path: Path) -> None:
    store = open_store(tmp_path / "state")
    store.halts.save_stopped("/w/shop.db/orders", Stopped("snapshot 3 was overwritten", 1))
    coordinator = Coordinator(catalog, store, Settings())
    coordinator.start()
    coordinator.pause("ada")
    page = page_of(coordinator)
    coordinator.stop()
    (table,) = page.rows("Tables")
    assert table["table"] == "/w/shop.db/orders"
    assert "snapshot 3 was overwritten" in table["state"]
    assert re.search(r"Paused by ada since \S+ \S+ UTC: nothing new begins\.", page.text)


def test_page_escapes_names_given_by_others(coordinator: Coordinator, catalog: Catalog) -> None:
    id, _, _ = coordinator.transactions.begin(TABLE, None, EVIL, Origin(EVIL, EVIL, EVIL))
    coordinator.pause(EVIL)
    logging.getLogger("paimon_magics.coordinator").warning("%s", EVIL)
    coordinator.transactions.abort(id, EVIL)
    text = status_page(coordinator, PageRequest(EVIL), health_of(coordinator))
    page = Page(text)
    assert "<script" not in text
    assert page.tags <= {
        *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "br", "code"),
        *(
            "form",
            "label",
            "input",
            "button",
            "section",
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
        ),
    }
    assert EVIL in page.rows("Recent errors")[0]["message"]
    assert page.text.count(EVIL) >= 3


def test_page_shows_every_time_in_the_zone_of_its_reader(coordinator: Coordinator) -> None:
    log = logging.getLogger("paimon_magics.coordinator")
    log.warning("After snapshot 7 (APPEND by bob at 2026-11-01 06:30:00 UTC).")
    coordinator.pause("ada, who said: '2026-11-01 06:30:00 UTC'")
    shown = PageRequest("/data/lake", "America/New_York")
    page = Page(status_page(coordinator, shown, health_of(coordinator)))
    assert page.text.count(" UTC") == 1 and "'2026-11-01 06:30:00 UTC'" in page.text
    (error,) = page.rows("Recent errors")
    assert error["last time"].endswith(" America/New_York")
    assert error["message"].endswith("at 2026-11-01 01:30:00-05:00 America/New_York).")


def test_content_policy_allows_only_the_style_of_the_page(
    coordinator: Coordinator,
) -> None:
    style = re.search(
        r"<style>(.*?)</style>",
        status_page(coordinator, PageRequest(""), health_of(coordinator)),
        re.DOTALL,
    )
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = HEADERS["content-security-policy"]
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';")


def test_recent_errors_are_bounded_and_repeats_are_counted() -> None:
    kept = RecentErrors()
    kept.begin()
    log = logging.getLogger("paimon_magics.coordinator.tests")
    try:
        for number in range(60):
            log.error("error %d", number)
        log.warning("error 30")
        log.info("nothing")
    finally:
        kept.end()
    log.error("after the end")
    listed = kept.list()
    assert (len(listed), kept.total) == (50, 61)
    assert [(e.message, e.count) for e in listed[:2]] == [("error 30", 2), ("error 59", 1)]


def test_metrics_follow_prometheus_naming(coordinator: Coordinator) -> None:
    families = list(Metrics(coordinator).registry.collect())
    assert len(families) > 8
    for family in families:
        assert family.name.startswith("paimon_coordinator_"), family.name
        assert family.documentation.endswith("."), family.name
        for sample in family.samples:
            if family.type == "counter":
                assert sample.name.endswith(("_total", "_created")), sample.name
            else:
                assert not sample.name.endswith("_total"), sample.name
        for other in ("_ms", "_milliseconds", "_kb", "_mb"):
            assert not family.name.endswith(other), "base units: seconds, bytes"
