"""What a widget shows: the blocks of a page, in the classes of its own style sheet."""

import pytest

from explorer.page.document import (
    Code,
    Column,
    Facts,
    Fold,
    Heading,
    Mark,
    Paragraph,
    Row,
    Span,
    Table,
    with_note,
)
from explorer.page.html import element, fragment, inline, style


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (Heading(2, "Shares"), '<h2 class="x-heading">Shares</h2>'),
        (Paragraph("a < b", "note"), '<p class="x-note">a &lt; b</p>'),
        (Paragraph("it failed", "alert"), '<p class="x-note x-warn" role="alert">it failed</p>'),
        (Paragraph("fast is best", "lead"), '<p class="x-answer" role="status">fast is best</p>'),
        (Code("explorer <run>"), '<pre class="x-said" tabindex="0">explorer &lt;run&gt;</pre>'),
        (Facts([("Time", "1 s")]), '<dl class="x-facts">\n<dt>Time</dt><dd>1 s</dd>\n</dl>'),
        (Fold("More", [Paragraph("all")]), "<details><summary>More</summary><p>all</p>\n</details>"),
    ],
)
def test_a_block_is_html(block: Paragraph, expected: str) -> None:
    assert fragment(block) == f"{expected}\n"


def test_a_table_says_what_its_rows_are() -> None:
    name = Span("fast", "name", mark=Mark(outline="M0,0H1", colour="#0072B2"))
    remark = (Span("at most "), Span("slow", "warn"))
    table = Table(
        [Column("Recipe"), Column("Time", number=True)], [Row((with_note((name,), remark), "1 s"), strong=True)]
    )
    shown = fragment(table)
    assert '<tr class="x-bold"><th scope="row"><svg class="x-mark"' in shown
    assert '<bdi>fast</bdi><small>at most <span class="x-warn">slow</span></small></th>' in shown
    assert '<td class="x-number">1 s</td>' in shown


def test_a_file_opens_in_a_window_of_its_own_and_a_script_is_no_target() -> None:
    assert inline((Span("open", "link", "../runs/a%20b/run.ipynb"),)) == (
        '<a href="../runs/a%20b/run.ipynb" target="_blank" rel="noopener">open</a>'
    )
    for target in ("javascript:alert(1)", "//example.org", "/etc/passwd", "data:text/html,x", "a\nb"):
        with pytest.raises(ValueError, match="cannot lead"):
            Span("open", "link", target)


def test_a_digest_is_whole_on_hover() -> None:
    assert inline((Span("3f9c", "code", hover="3f9c" * 16),)) == f'<code title="{"3f9c" * 16}">3f9c</code>'


def test_html_among_blocks_stays_and_words_are_escaped() -> None:
    made = fragment(element("li", "<b>", class_="x-part", hidden=True, title=None))
    assert made == '<li class="x-part" hidden>&lt;b&gt;</li>'
    assert element("rect", width=9, aria_hidden="true") == '<rect width="9" aria-hidden="true"/>'
    assert style().startswith("<style>/* One look")
