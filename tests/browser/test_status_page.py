"""The coordinator's page in a browser: its buttons are real, and it reaches nothing elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.table_changes import AlterTable
from tests.browser.lab import browser_page
from tests.coordinator.inserts.serving import SLOW, Served, table_sql

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = [pytest.mark.slow, pytest.mark.browser]

HEIGHT = """node => {
  const range = document.createRange();
  range.selectNodeContents(node);
  return range.getBoundingClientRect().height;
}"""
EVIL = "<b>bold</b> & \"quoted\" 'text' 🐟"


def alter(served: Served, change: str) -> None:
    statement = parse_statement(f"ALTER TABLE t {change}")
    assert isinstance(statement, AlterTable)
    served.catalog.alter_table(served.name, statement.changes)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A coordinator with four dead letters: rows that the schema does not take any more."""
    options = f"'alter-column-null-to-not-null.disabled' = 'false', {SLOW}"
    with Served(tmp_path_factory.mktemp("page"), table_sql(options=options)) as served:
        for number in range(4):
            served.insert([[number, None]])
        served.insert([[9, EVIL]])
        alter(served, "ALTER COLUMN name SET NOT NULL")
        served.flush()
        alter(served, "ALTER COLUMN name DROP NOT NULL")
        yield served


@pytest.fixture
def page(served: Served) -> Iterator[Page]:
    with browser_page() as (page, elsewhere):
        page.set_extra_http_headers({"authorization": f"Bearer {served.process.token()}"})
        page.goto(f"{served.process.address}/")
        yield page
        assert elsewhere == []


def letters(page: Page) -> Locator:
    return page.locator("section", has=page.get_by_role("button", name="Retry")).locator("tbody tr")


def records(page: Page) -> list[str]:
    return [row.locator("td").nth(1).inner_text() for row in letters(page).all()]


def test_buttons_retry_and_discard_dead_letters(served: Served, page: Page) -> None:
    assert records(page) == ["1", "2", "3", "4"]
    letters(page).nth(1).get_by_role("button", name="Retry").click()
    page.wait_for_load_state()
    assert page.url == f"{served.process.address}/"
    assert records(page) == ["1", "3", "4"]
    letters(page).nth(0).get_by_role("button", name="Discard").click()
    page.wait_for_load_state()
    assert records(page) == ["3", "4"]
    served.flush()
    assert served.ids() == [9, 1]


def test_page_shows_times_in_the_zone_that_is_typed(served: Served, page: Page) -> None:
    waiting = records(page)
    assert all(" UTC" in row.inner_text() for row in letters(page).all())
    page.get_by_label("Times in").fill("Asia/Kolkata")
    page.get_by_role("button", name="Show").click()
    page.wait_for_load_state()
    assert " UTC" not in page.locator("body").inner_text()
    assert all(" Asia/Kolkata" in row.inner_text() for row in letters(page).all())
    letters(page).nth(0).get_by_role("button", name="Discard").click()
    page.wait_for_load_state()
    assert records(page) == waiting[1:]
    assert page.get_by_label("Times in").input_value() == "Asia/Kolkata"
    page.get_by_label("Times in").fill("Mars/Olympus")
    page.get_by_role("button", name="Show").click()
    page.get_by_text("The time zone `Mars/Olympus` is not known.").wait_for()


def test_refused_retry_shows_reason_and_link_back(served: Served, page: Page) -> None:
    waiting = records(page)
    alter(served, "ALTER COLUMN name SET NOT NULL")
    letters(page).nth(0).get_by_role("button", name="Retry").click()
    page.wait_for_load_state()
    assert "column `name`: NULL is not allowed" in page.locator("p.bad").inner_text()
    assert page.title() == "Paimon coordinator"
    page.get_by_role("link", name="Back to the page").click()
    page.wait_for_load_state()
    assert records(page) == waiting
    page.locator('input[name="proof"]').first.evaluate("field => field.value = 'made up'")
    letters(page).nth(0).get_by_role("button", name="Discard").click()
    page.get_by_text("The button has expired, or belongs to another page.").wait_for()
    page.goto(f"{served.process.address}/")
    assert records(page) == waiting


def test_timestamps_and_buttons_do_not_wrap(page: Page) -> None:
    """Whatever the width: what is wider can be scrolled to."""
    for width in (1300, 480):
        page.set_viewport_size({"width": width, "height": 900})
        for shown in letters(page).nth(0).locator("td.t, form").all():
            assert shown.evaluate(HEIGHT) < 40, shown.inner_text()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
