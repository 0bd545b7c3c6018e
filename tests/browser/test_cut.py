"""What `cut` finds, on pages of a few lines: no pass of a view means anything if it finds nothing."""

import pytest
from playwright.sync_api import Page

from tests.browser.lab import cut

pytestmark = pytest.mark.browser

TABLE = f"<table class='x-table'><tr>{'<td>wide</td>' * 60}</tr></table>"
WIDGET = "<div class='explorer'><div class='widget-html-content' style='width: 400px; {}'>{}</div></div>"
BUTTONS = "<div style='width: 400px; display: flex; overflow: hidden'>{}</div>"


@pytest.mark.parametrize(
    ("place", "content", "kind"),
    [
        ("overflow: hidden", TABLE, "table"),
        ("overflow: auto", TABLE, "table"),  # a bar that appears by itself hides the rest, and no key reaches it
        ("overflow: hidden", f"<div style='overflow: auto; width: 800px' tabindex='0'>{TABLE}</div>", "table"),
        ("", f"<div style='width: 3000px'>{TABLE}</div>", "table"),  # out of the window
        ("", BUTTONS.format("<button style='flex: none; width: 150px'>Stop</button>" * 3), "button"),
    ],
)
def test_what_sticks_out_of_its_place_is_found(page: Page, place: str, content: str, kind: str) -> None:
    page.set_content(WIDGET.format(place, content))
    assert [words.split()[0] for words in cut(page)] == [f"<{kind}"]


@pytest.mark.parametrize(
    "content",
    [
        f"<div style='overflow: auto; max-width: 100%' tabindex='0'>{TABLE}</div>",
        "<table><tr><td>narrow</td></tr></table>",
        BUTTONS.format("<button style='width: 150px'>Stop</button>" * 2),
    ],
)
def test_what_scrolls_by_itself_or_fits_is_not(page: Page, content: str) -> None:
    page.set_content(WIDGET.format("overflow: hidden", content))
    assert cut(page) == []
