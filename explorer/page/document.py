"""The neutral document: what is shown, as values, before it becomes text, HTML, PDF or Markdown.

    title      what the document is: the window's title, the running head on paper
    subtitle   what it says, in a sentence: the largest words on its first page
    blocks     headings, paragraphs, tables, pictures, ... from top to bottom
    facts      where it comes from, printed small at its end
    made       when, in seconds since 1970

Widgets and verbs show blocks without a page around them. A text is words, or spans of words of a certain kind. Nothing
in a document is markup: a renderer shows every text as it is, except for characters that would make it show something
else (`clean`, `one_line`).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # a verb that prints a table need not load what draws charts
    import altair as alt

Tone = Literal["plain", "lead", "note", "warning", "good", "bad", "alert", "status", "empty"]
Kind = Literal["plain", "name", "strong", "code", "link", "small", "warn"]

ANCHOR = re.compile(r"[a-z][a-z0-9-]*")
TARGET = re.compile(r"#[a-z][a-z0-9-]*|https://[!-~]+|(?:[\w.~%-]+/)*[\w.~%-]+", re.ASCII)
LONGEST_WORD = 160  # characters that a line of a widget holds
LONGEST_HOVER = 1000  # characters of a name

_TURNING = "\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff"
INVISIBLE = re.compile(f"[\x00-\x08\x0b-\x1f{_TURNING}]")  # all but tab and newline
STEERING = re.compile(f"[\x00-\x1f{_TURNING}]")
_ENDLESS = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """The shape and colour of a group in the charts: an SVG path around (0, 0), at most 12 wide."""

    outline: str
    colour: str


@dataclass(frozen=True, slots=True)
class Span:
    """Words of one kind. `small` is a remark on a line of its own, and may consist of spans. A `name` comes from
    outside: a widget clips it and isolates its direction. `link` leads to `target`: "#" and the anchor of a block or
    row of the page, an address that begins with https://, or the relative path of a file. A `mark` precedes the words.
    A mouse over the words shows `hover`."""

    text: "Text"
    kind: Kind = "plain"
    target: str = ""
    mark: Mark | None = None
    hover: str = ""

    def __post_init__(self) -> None:
        if bool(self.target) != (self.kind == "link") or (self.target and not TARGET.fullmatch(self.target)):
            raise ValueError(f"a {self.kind} cannot lead to {self.target!r:.80}")
        assert isinstance(self.text, str) or self.kind == "small", "only a remark consists of spans"


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
    """A paragraph: `lead` is the first one of a section, larger; `note` is small; `warning` weakens a statement;
    `good` and `bad` are verdicts; `alert` is an error, `status` the state of work in progress, and `empty` takes the
    place of what is not there."""

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
    """A column: its heading, and whether it holds numbers, which are set flush right."""

    title: Text
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

    `name` is an anchor, unique on the page. `description` describes the chart to readers who cannot see it. An
    `interactive` one is drawn once more in HTML, so that it answers the mouse.
    """

    name: str
    draw: "Callable[[int | str], alt.LayerChart]"
    caption: Text = ""
    description: str
    interactive: bool = False
    live: "Callable[[], dict[str, Any]] | None" = (
        None  # what HTML draws in its place: Vega-Lite with fields to choose by
    )

    def __post_init__(self) -> None:
        assert self.description and ANCHOR.fullmatch(self.name), "a picture has a name and a description"


@dataclass(frozen=True, slots=True)
class Code:
    """Lines to be taken as they are. With a `title` a reader on a screen unfolds them."""

    text: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with their values."""

    pairs: Sequence[tuple[str, Text]]


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks under a title, which a reader on a screen unfolds."""

    title: str
    blocks: "Sequence[Block]"


Block = Heading | Paragraph | Bullets | Table | Picture | Code | Facts | Fold


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
        """Yield the blocks under each heading of level 2; those before the first one have none."""
        heading: Heading | None = None
        section: list[Block] = []
        for block in self.blocks:
            if isinstance(block, Heading) and block.level == 2:
                if heading or section:
                    yield heading, section
                heading, section = block, []
            else:
                section.append(block)
        yield heading, section


def spans(text: Text) -> tuple[Span, ...]:
    """Return a text as spans whose words are clean; a remark keeps its inner spans."""
    if isinstance(text, str):
        return (Span(clean(text)),)
    return tuple(
        Span(
            clean(span.text) if isinstance(span.text, str) else spans(span.text),
            span.kind,
            span.target,
            span.mark,
            span.hover,
        )
        for span in text
    )


def flat(text: Text) -> tuple[Span, ...]:
    """Return a text as clean spans of bare words, for a renderer that nests none."""
    return tuple(
        span if isinstance(span.text, str) else Span("".join(words(part.text) for part in span.text), span.kind)
        for span in spans(text)
    )


def words(text: Text) -> str:
    """Return the bare words of a text."""
    return clean(text if isinstance(text, str) else " ".join(words(span.text) for span in text))


def clean(text: str) -> str:
    """Return the text with a visible sign for each character that no document can hold or that changes direction.

    >>> clean("fast\\u202etsaf\\x00")
    'fast�tsaf�'
    """
    return INVISIBLE.sub("\N{REPLACEMENT CHARACTER}", text)


def clipped(name: str, most: int = 60) -> str:
    """Return a name on one line of at most so many characters: a longer one loses its middle. What would steer the text
    around it (control characters, changes of direction, half characters) becomes the replacement character.

    >>> clipped("resnet8-with-a-name-that-never-ends", most=15), clipped("two\\nlines"), clipped("\\u202egnp.exe")
    ('resnet8…er-ends', 'two lines', '\ufffdgnp.exe')
    """
    line = STEERING.sub("\N{REPLACEMENT CHARACTER}", " ".join(name.split()))
    if len(line) <= most:
        return line
    # The end of a name often tells more than its middle: ids end in a digest.
    half = (most - 1) // 2
    return f"{line[: most - 1 - half]}\N{HORIZONTAL ELLIPSIS}{line[len(line) - half :]}"


def as_baseline(name: str) -> str:
    """Return the name of a baseline with the word that says so, unless that is its name.

    >>> as_baseline("plain"), as_baseline("baseline")
    ('plain (baseline)', 'baseline')
    """
    return name if name == "baseline" else f"{name} (baseline)"


def isolated(name: str, most: int = 60) -> str:
    """Return a clipped name for the middle of a sentence of plain text: one that is not in ASCII is set between the
    marks that keep its direction to itself (Unicode Bidirectional Algorithm, FSI and PDI).

    >>> isolated("fast"), isolated("\u05d0\u05d1")
    ('fast', '\u2068\u05d0\u05d1\u2069')
    """
    short = clipped(name, most)
    return short if short.isascii() else f"\u2068{short}\u2069"


def one_line(words: str) -> str:
    """Return a sentence that holds names from outside on one line: what would steer the text around it becomes the
    replacement character, and a word that no line holds loses its middle.

    >>> one_line("\\u202egnp.exe needs less time")
    '�gnp.exe needs less time'
    """
    line = STEERING.sub("\N{REPLACEMENT CHARACTER}", " ".join(words.split()))
    return _ENDLESS.sub(lambda word: clipped(word[0], LONGEST_WORD), line)


def with_note(text: Text, note: Text) -> Text:
    """Return a text with a small remark beneath it."""
    return (*(text if isinstance(text, tuple) else (Span(text),)), Span(note, "small")) if note else text


def sentence(phrase: str, *, names: Iterable[str] = ()) -> str:
    """Return a phrase as a sentence: a full stop and a capital letter, unless it begins with one of `names`, which stay
    as they are.

    >>> sentence("no run is finished"), sentence("fast is better", names=["fast"])
    ('No run is finished.', 'fast is better.')
    """
    # A recipe called "fast" stays as it is written, also at the beginning of a sentence.
    named = any(re.match(rf"{re.escape(name)}\b", phrase) for name in names)
    first = phrase[:1] if named else phrase[:1].upper()
    return f"{first}{phrase[1:]}" + ("" if phrase.endswith((".", "?", "!")) else ".")


def _check(anchor: str) -> None:
    assert not anchor or ANCHOR.fullmatch(anchor), f"{anchor!r} cannot be an anchor"
