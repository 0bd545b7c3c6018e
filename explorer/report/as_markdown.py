"""The report as Markdown, for a pull request or a wiki."""

import re
from collections.abc import Sequence

import yaml

from explorer.analysis.composition_sentences import composition_sentences
from explorer.analysis.control_sentences import control_sentences
from explorer.report.content import Section, SweepContent
from explorer.report.rows import EQUAL_QUALITY, equal_quality_rows, recipe_columns, recipe_rows
from explorer.views import composition_rows
from explorer.views.control_rows import CONTROLS, control_rows
from explorer.views.notes import facts, warnings


def as_markdown(content: SweepContent) -> str:
    """The whole report. Every text from outside is escaped, so that it can neither format nor link."""
    parts = [f"# {_plain(content.sweep)}", f"**{_plain(_sentence(content.sentence))}**"]
    for section in content.sections:
        parts += _section(section)
    for hardware, found in content.compositions.items():
        parts += [f"## How methods compose on {_plain(hardware)}"]
        parts += [_table(composition_rows.RECIPES, composition_rows.recipe_rows(found))] if found.recipes else []
        parts += [_table(composition_rows.PAIRS, composition_rows.pair_rows(found))] if found.measured_pairs else []
        parts += ["\n".join(f"- {_plain(words)}" for words in composition_sentences(found))]
    parts += ["## How it was measured"]
    parts += ["\n".join(f"- {name}: {_plain(value)}" for name, value in content.facts.items())]
    parts += [f"- Integrity: {content.integrity}"]
    parts += ["\n".join(f"- {_plain(finding)}" for finding in content.findings)] if content.findings else []
    parts += [f"- Database: `sha256:{content.database_sha256}`"]
    if content.specification is not None:
        document = yaml.safe_dump(content.specification, sort_keys=False, allow_unicode=True)
        parts += ["## Specification", _indented(document)]
    return "\n\n".join(parts) + "\n"


def _section(section: Section) -> list[str]:
    said = [*warnings(section.answer), *facts(section.answer)]
    parts = [
        f"## {_plain(section.metric)} on {_plain(section.hardware)}",
        _table(EQUAL_QUALITY, equal_quality_rows(section)),
        "\n".join(f"- {_plain(words)}" for words in said),
        _table(recipe_columns(section), recipe_rows(section)),
    ]
    if section.controls:
        parts.append("### Controls")
        parts.append(_table(CONTROLS, control_rows(section.controls)))
        parts.append("\n".join(f"- {_plain(_sentence(words))}" for words in control_sentences(section.controls)))
    return parts


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(_plain, line)) + " |" for line in lines)


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _plain(words: str) -> str:
    """The text with what Markdown and HTML would take for markup escaped, on one line."""
    if set(words) == {"-"}:
        return words
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(words.split()))


def _indented(document: str) -> str:
    """A code block that its content cannot end."""
    return "\n".join(f"    {line}" for line in document.splitlines())
