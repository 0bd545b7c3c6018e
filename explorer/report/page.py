"""The neutral document that a report is before it becomes HTML, PDF or Markdown.

    title      what the document is: the window's title, the running head on paper
    subtitle   what it says, in a sentence: the largest words on its first page
    blocks     headings, paragraphs, tables, pictures, ... from top to bottom
    facts      where it comes from, printed small at its end
    made       when, in seconds since 1970

A text is words, or spans of words of a certain kind. Nothing in a page is markup: whatever a text holds, a renderer
shows it as it is, except for characters that would make it show something else (`clean`).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import altair as alt

Tone = Literal["plain", "lead", "note", "warning", "good", "bad"]
Kind = Literal["plain", "strong", "code", "link", "small", "warn"]

ANCHOR = re.compile(r"[a-z][a-z0-9-]*")
TARGET = re.compile(r"#[a-z][a-z0-9-]*|https://[!-~]+")
INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """The shape in the colour that stands for something in the charts: an SVG path around (0, 0), at most 12 wide."""

    outline: str
    colour: str


@dataclass(frozen=True, slots=True)
class Span:
    """Words of one kind. `small` is a remark on a line of its own, `link` leads to `target`: "#" and the anchor of a
    block or row of the page, or an address that begins with https://. A `mark` stands before the words."""

    text: str
    kind: Kind = "plain"
    target: str = ""
    mark: Mark | None = None

    def __post_init__(self) -> None:
        if bool(self.target) != (self.kind == "link") or (self.target and not TARGET.fullmatch(self.target)):
            raise ValueError(f"a {self.kind} cannot lead to {self.target!r:.80}")


Text = str | tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of level 2 to 4; level 1 is the page's subtitle. One with an anchor can be linked to, and one of level
    2 is in the table of contents."""

    level: int
    text: Text
    anchor: str = ""

    def __post_init__(self) -> None:
        assert 2 <= self.level <= 4, "level 1 is the page's own"
        _check(self.anchor)


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph: `lead` is the first one of a section, larger; `note` is small; `warning` weakens what is said;
    `good` and `bad` are verdicts."""

    text: Text
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list; `numbered` from 0, as entries and rules are."""

    items: Sequence[Text]
    tone: Tone = "plain"
    numbered: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, and whether it holds numbers, which stand flush right."""

    title: str
    number: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A row of cells; the first one names it. `strong` lifts a row, `quiet` lowers it; an anchor can be linked to."""

    cells: Sequence[Text]
    strong: bool = False
    quiet: bool = False
    anchor: str = ""

    def __post_init__(self) -> None:
        _check(self.anchor)


@dataclass(frozen=True, slots=True)
class Table:
    """A table with at least one row."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    caption: Text = ""

    def __post_init__(self) -> None:
        assert self.rows, "a table without rows is a sentence"
        assert all(len(row.cells) == len(self.columns) for row in self.rows), "a cell for every column"


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """A chart: `draw(width)` draws it so many pixels wide, or for "container" as wide as its place.

    `name` is an anchor, unique on the page. `description` says what there is to see to whom cannot see it. Where it is
    `interactive`, HTML draws it once more so that it answers the mouse.
    """

    name: str
    draw: Callable[[int | str], alt.LayerChart]
    caption: Text = ""
    description: str
    interactive: bool = False

    def __post_init__(self) -> None:
        assert self.description and ANCHOR.fullmatch(self.name), "a picture has a name and a description"


@dataclass(frozen=True, slots=True)
class Code:
    """Lines to be taken as they are. With a `title` a reader on a screen unfolds them."""

    text: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and what they are."""

    pairs: Sequence[tuple[str, Text]]


Block = Heading | Paragraph | Bullets | Table | Picture | Code | Facts


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """The document."""

    title: str
    subtitle: Text
    blocks: Sequence[Block]
    facts: Sequence[tuple[str, Text]] = ()
    made: int

    @property
    def sections(self) -> Iterator[tuple[Heading | None, list[Block]]]:
        """The blocks under each heading of level 2; what stands before the first one has none."""
        heading: Heading | None = None
        found: list[Block] = []
        for block in self.blocks:
            if isinstance(block, Heading) and block.level == 2:
                if heading or found:
                    yield heading, found
                heading, found = block, []
            else:
                found.append(block)
        yield heading, found


def spans(text: Text) -> tuple[Span, ...]:
    """A text as spans, and their words clean."""
    found = (Span(text),) if isinstance(text, str) else text
    return tuple(Span(clean(each.text), each.kind, each.target, each.mark) for each in found)


def words(text: Text) -> str:
    """The bare words of a text."""
    return clean(text if isinstance(text, str) else " ".join(span.text for span in text))


def clean(text: str) -> str:
    """The text with what no document can hold, and what turns the words after it around, replaced by a visible sign.

    >>> clean("fast\\u202etsaf\\x00")
    'fast�tsaf�'
    """
    return INVISIBLE.sub("\N{REPLACEMENT CHARACTER}", text)


def with_note(text: Text, note: str) -> Text:
    """A text with a small remark beneath it."""
    return (*(text if isinstance(text, tuple) else (Span(text),)), Span(note, "small")) if note else text


def sentence(phrase: str, *, names: Iterable[str] = ()) -> str:
    """A phrase as a sentence: a full stop and a capital letter, unless it begins with one of `names`, which stay as
    they are.

    >>> sentence("no run is finished"), sentence("fast is better", names=["fast"])
    ('No run is finished.', 'fast is better.')
    """
    named = any(re.match(rf"{re.escape(name)}\b", phrase) for name in names)
    first = phrase[:1] if named else phrase[:1].upper()
    return f"{first}{phrase[1:]}" + ("" if phrase.endswith((".", "?", "!")) else ".")


def _check(anchor: str) -> None:
    assert not anchor or ANCHOR.fullmatch(anchor), f"{anchor!r} cannot be an anchor"
