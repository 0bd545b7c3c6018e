"""A page in three formats: whatever its texts hold, they are shown as they are and do nothing."""

import io
import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import altair as alt
import pandas as pd
import pypdf
import pytest
import typst

from explorer.page import html, pdf
from explorer.page.document import (
    Block,
    Bullets,
    Code,
    Column,
    Facts,
    Heading,
    Page,
    Paragraph,
    Picture,
    Row,
    Span,
    Table,
    with_note,
)
from explorer.page.markdown import render_markdown
from explorer.page.pictures import LONGEST, specification

LONG = "w" * 10_000
HOSTILE = {
    "script": "</script><script>alert(1)</script>",
    "attribute": "\" onmouseover='alert(1)' x=\"",
    "template": "{{ 7 * 6 }}{% raw %}",
    "typst": '#eval("1 + 1") $x$ @ref <label> \\ #{panic()}',
    "formula": "=cmd|' /C calc'!A0",
    "markdown": "**b** `c` [x](javascript:alert(1)) ![i](https://example.org/i.png) www.example.org",
    "json": '"}], "kind": "code", [{"',
    "rtl": "שלום مرحبا",
    "long": LONG,
}
TURNED = "abc\u202edef\x01ghi"  # a sign that turns words around, and one that no XML holds


def draw(width: int | str) -> alt.LayerChart:
    frame = pd.DataFrame({"name": [*HOSTILE.values(), TURNED], "x": range(len(HOSTILE) + 1)})
    bars = alt.Chart(frame).mark_bar().encode(x="x:Q", y="name:N")
    return alt.LayerChart(layer=[bars]).properties(width=width)


def page(texts: Sequence[str], *, picture: bool = True) -> Page:
    """A page that has every text in every place."""
    rows = [
        Row((with_note(text, text), "1", (Span(text, "code"),)), anchor=f"row-{at}") for at, text in enumerate(texts)
    ]
    blocks: list[Block] = [Paragraph("", "lead")]
    for at, text in enumerate(texts):
        blocks += [Heading(2, text, f"heading-{at}"), Paragraph(text, "warning"), Code(text, title=text)]
    blocks += [Bullets(texts, numbered=True), Facts([(text, text) for text in texts])]
    blocks += [Table([Column("a"), Column("n", number=True), Column(texts[0])], rows, caption=texts[0])]
    blocks += [Paragraph((Span("to a row", "link", "#row-0"), Span("to nothing", "link", "#nowhere")))]
    if picture:
        blocks.append(Picture(name="bars", draw=draw, description=texts[0], caption=texts[0], interactive=True))
    return Page(title=texts[0], subtitle=texts[0], blocks=blocks, facts=[(texts[0], texts[0])], made=1_700_000_000)


class Elements(HTMLParser):
    """The elements of a document with their attributes, and its words outside scripts and styles."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self._quiet = False
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._quiet = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._quiet = self._quiet and tag not in ("script", "style")

    def handle_data(self, data: str) -> None:
        self.words += "" if self._quiet else data


@pytest.mark.slow
def test_html_shows_every_text_and_runs_none() -> None:
    content = html.render_html(page([*HOSTILE.values(), TURNED]))
    seen = Elements(content)
    for text in HOSTILE.values():
        assert seen.words.count(text) >= 6
    assert "abc\N{REPLACEMENT CHARACTER}def" in seen.words and "\u202e" not in content and "\x01" not in content
    assert not any(name.startswith("on") for _, attributes in seen.found for name in attributes)
    scripts = [attributes for tag, attributes in seen.found if tag == "script"]
    assert [each.get("type") for each in scripts] == ["application/json", None, None]
    assert "alert(1)" not in "".join(re.findall(r"<script>(.*?)</script>", content, flags=re.DOTALL))


def test_html_is_a_document_that_a_screen_reader_can_walk() -> None:
    content = html.render_html(page(["a", "b"], picture=False))
    seen = Elements(content).found
    tags = [tag for tag, _ in seen]
    assert dict(seen)["html"] == {"lang": "en"}
    assert tags.count("h1") == tags.count("main") == tags.count("header") == tags.count("footer") == 1
    levels = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert all(attributes["scope"] in ("col", "row") for tag, attributes in seen if tag == "th")
    anchors = {attributes["id"] for _, attributes in seen if "id" in attributes}
    links = [str(attributes["href"]) for tag, attributes in seen if tag == "a"]
    assert {"#heading-0", "#heading-1", "#row-0"} < set(links) and {link[1:] for link in links} - anchors == {"nowhere"}
    assert "script-src" not in content and "<script" not in content  # nothing is interactive


def test_markdown_shows_every_text_and_formats_none() -> None:
    content = render_markdown(page([*HOSTILE.values(), TURNED]))
    assert LONG in content and "\u202e" not in content
    prose = "\n".join(line for line in content.splitlines() if not line.startswith("    "))
    prose = re.sub(r"(?<!\\)(`+)(?!`).*?(?<!`)\1(?!`)", "", prose)  # code is shown as it is
    assert not re.search(r"(?<!\\)(?:\\\\)*(<script|\[x\]\(|!\[|\*\*b\*\*|https?:)", prose)
    assert "\\<script\\>alert(1)" in prose and "\\[x\\](javascript:alert(1))" in prose
    tables = [line for line in content.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in tables} == {4}  # no text adds a cell


@pytest.fixture(scope="module")
def hostile_pdf() -> tuple[bytes, str]:
    """A hostile page as PDF, and its words as a reader of PDF finds them."""
    content = pdf.render_pdf(page([*HOSTILE.values(), TURNED]))
    found = pypdf.PdfReader(io.BytesIO(content))
    return content, "".join("".join(each.extract_text().split()) for each in found.pages)


@pytest.mark.slow
def test_pdf_shows_every_text_and_evaluates_none(hostile_pdf: tuple[bytes, str]) -> None:
    content, words = hostile_pdf
    assert content.startswith(b"%PDF-")
    for name, text in HOSTILE.items():
        if name not in ("rtl", "long"):  # extracted in the order in which they stand on paper
            assert "".join(text.split()) in words, name
    assert words.count("w") >= 10 * len(LONG)


def test_pdf_is_the_same_twice_and_has_outline_language_and_tags() -> None:
    made = page(["a", "b"])
    content = pdf.render_pdf(made)
    assert content == pdf.render_pdf(made)
    for part in (b"/Outlines", b"/Lang", b"/StructTreeRoot", b"/MarkInfo"):
        assert part in content
    assert b"D:20231114" in content  # when it was made


def test_pdf_gets_its_texts_as_data_alone() -> None:
    """The template that is compiled is the one of the package, to the byte; what differs is in page.json."""
    with pdf.source(page([HOSTILE["typst"]], picture=False)) as template:
        assert template.read_bytes() == Path(pdf.__file__).with_name("page.typ").read_bytes()
        assert json.loads((template.parent / "page.json").read_text())["title"] == HOSTILE["typst"]
        headings = json.loads(typst.query(template, "heading", root=template.parent))
        assert HOSTILE["typst"] in json.dumps(headings, ensure_ascii=False).replace('\\"', '"').replace("\\\\", "\\")
    with pytest.raises(RuntimeError, match="panicked"):  # the control: as source it would be run
        typst.compile(b"#{panic()}")


def test_names_in_charts_are_made_fit_for_drawing() -> None:
    drawn = Picture(name="bars", draw=draw, description="bars")
    (rows,) = specification(drawn, 300)["datasets"].values()
    names = [row["name"] for row in rows]
    assert max(map(len, names)) == LONGEST
    assert names[-1].startswith("abc\N{REPLACEMENT CHARACTER}def\N{REPLACEMENT CHARACTER}ghi")


def test_a_link_leads_into_the_page_or_to_an_address_and_nowhere_else() -> None:
    for target in ("javascript:alert(1)", "http://example.org", "//example.org", "#a b", "data:text/html,x"):
        with pytest.raises(ValueError, match="cannot lead to"):
            Span("x", "link", target)
