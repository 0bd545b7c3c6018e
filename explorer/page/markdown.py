"""A page as Markdown, for a pull request or a wiki. Every text is escaped, so that it can neither format nor link.

Pictures are replaced by their descriptions; their numbers are in tables. Only links that lead out of the page are kept,
because few readers of Markdown know anchors of table rows.
"""

import re
from collections.abc import Iterable

from explorer.page.document import (
    Block,
    Bullets,
    Code,
    Facts,
    Fold,
    Heading,
    Page,
    Paragraph,
    Picture,
    Span,
    Table,
    Text,
    clean,
    spans,
    words,
)

SIGNS = {"warning": "**Note:** ", "bad": "**Not in order:** ", "good": "**In order:** "}


def render_markdown(page: Page) -> str:
    """Return the whole document."""
    parts = [f"# {inline(page.title)}", f"**{inline(page.subtitle)}**", *map(_block, page.blocks)]
    parts += ["---", "\n".join(f"- {inline(name)}: {inline(value)}" for name, value in page.facts)]
    return "\n\n".join(part for part in parts if part) + "\n"


def inline(text: Text) -> str:
    """Return a text on one line."""
    return "".join(map(_span, spans(text))).strip()


def plain(text: str) -> str:
    """Return words on one line, with all markup of Markdown and HTML escaped.

    >>> plain("a_b <b> | [x](y)")
    'a\\\\_b \\\\<b\\\\> \\\\| \\\\[x\\\\](y)'
    """
    line = re.sub(r"\s+", " ", clean(text))
    line = re.sub(r"([\\`*_\[\]<>|#~&$])", r"\\\1", line)
    return re.sub(r"(?i)(https?|ftp|mailto)(:)|(www)(\.)", r"\1\3\\\2\4", line)  # what would be a link by itself


def _span(span: Span) -> str:
    if span.kind == "small":
        return f" ({inline(span.text)})"
    bare = words(span.text)
    match span.kind:
        case "strong":
            return f"**{plain(bare)}**"
        case "code":
            return _code(bare)
        case "link" if not span.target.startswith("#"):
            return f"[{plain(bare)}](<{span.target}>)"
        case _:
            return plain(bare)


def _code(text: str) -> str:
    """Return words as code, between more backticks than they have in a row. A bar would end the cell of a table."""
    if "|" in text or not text.strip():
        return plain(text)
    # CommonMark, 6.1: a code span ends at as many backticks as it began with.
    fence = "`" * (1 + max((len(ticks) for ticks in re.findall("`+", text)), default=0))
    space = " " if "`" in text else ""
    line = re.sub(r"\s+", " ", text)
    return f"{fence}{space}{line}{space}{fence}"


def _begin(line: str) -> str:
    """Return a line that begins neither a list, a rule, nor the underline of a heading."""
    return re.sub(r"^(\d*)([-+=.)])(?=[-=\s]|$)", r"\1\\\2", line)


def _block(block: Block) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {inline(block.text)}"
        case Paragraph():
            return SIGNS.get(block.tone, "") + _begin(inline(block.text))
        case Bullets():
            sign = "{}. " if block.numbered else "- "
            return "\n".join(sign.format(at) + _begin(inline(item)) for at, item in enumerate(block.items))
        case Facts():
            return "\n".join(f"- {inline(name)}: {inline(value)}" for name, value in block.pairs)
        case Code():
            return (f"{plain(block.title)}:\n\n" if block.title else "") + _indented(block.text)
        case Fold():
            return "\n\n".join((f"**{plain(block.title)}**", *map(_block, block.blocks)))
        case Picture():
            return f"*Picture: {plain(block.description)}*"
        case Table():
            return _table(block)


def _table(table: Table) -> str:
    ruler = ["---:" if column.number else "---" for column in table.columns]
    lines = [_line(plain(words(column.title)) for column in table.columns), _line(ruler)]
    lines += [_line(_strong(inline(cell), row.strong) for cell in row.cells) for row in table.rows]
    caption = f"{inline(table.caption)}\n\n" if table.caption else ""
    return caption + "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _strong(cell: str, strong: bool) -> str:
    return f"**{cell}**" if strong and cell and "*" not in cell else cell


def _indented(text: str) -> str:
    """Return a code block that its content cannot end."""
    return "\n".join(f"    {line}" for line in clean(text).splitlines())
