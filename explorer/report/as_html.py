"""The report as one HTML file that asks for nothing outside itself.

A chart is there twice: as a picture, for paper and for readers without scripts, and as its specification, from which
the Vega library in the file draws it again so that it answers the mouse. A content security policy forbids requests.
"""

import json
import re
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
import vl_convert
import yaml
from markupsafe import Markup

import explorer
from explorer.report.content import Section, SweepContent
from explorer.report.rows import recipe_columns, recipe_rows
from explorer.views import theme
from explorer.views.axes import PAYMENTS
from explorer.views.equal_quality import equal_quality_table
from explorer.views.exports import VEGA_LITE
from explorer.views.notes import facts, warnings
from explorer.views.tables import CSS, Column, Row, swatch, table
from explorer.views.tradeoff import tradeoff

PICTURE_WIDTH = 880
HEIGHT = 400


def as_html(content: SweepContent) -> str:
    """The whole page."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(files("explorer.report").joinpath("sweep.html.j2").read_text(encoding="utf-8"))
    return template.render(
        content=content,
        sentence=f"{content.sentence[:1].upper()}{content.sentence[1:]}.",
        sections=[_section(section, number) for number, section in enumerate(content.sections, start=1)],
        specification=_yaml(content),
        css=Markup(CSS),
        bundle=Markup(_bundle()),
        embed=_json(theme.EMBED),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=explorer.__version__,
    )


def _section(section: Section, number: int) -> dict[str, Any]:
    """What the template shows of one metric on one hardware."""
    found = section.answer
    shown = {
        "title": section.metric,
        "hardware": section.hardware,
        "better": "higher is better" if section.higher_is_better else "lower is better",
        "warnings": warnings(found),
        "facts": facts(found),
        "equal": equal_quality_table(
            found.comparisons,
            payment=PAYMENTS[found.question.payment],
            look=found.look,
            usd_per_hour=found.usd_per_hour,
        ),
        "recipes": _recipes(section),
        "picture": None,
        "specification": None,
    }
    if found.scene is not None:
        shown["picture"] = _picture(tradeoff(found.scene, width=PICTURE_WIDTH, height=HEIGHT).to_dict(), number)
        shown["specification"] = _json(tradeoff(found.scene, height=HEIGHT).to_dict())
    return shown


def _picture(specification: dict[str, Any], number: int) -> Markup:
    """The chart as SVG. The names in it are numbered, because names have to be unique on a page."""
    svg = vl_convert.vegalite_to_svg(specification, vl_version=VEGA_LITE)
    return Markup(re.sub(r'(\bid="|url\(#)', rf"\g<1>picture-{number}-", svg))


def _recipes(section: Section) -> Markup:
    columns = [Column(title=title, number=position > 1) for position, title in enumerate(recipe_columns(section))]
    look = section.answer.look
    return table(columns, [Row(cells=(swatch(label, look), *rest)) for label, *rest in recipe_rows(section)])


def _yaml(content: SweepContent) -> str | None:
    if content.specification is None:
        return None
    return yaml.safe_dump(dict(content.specification), sort_keys=False, allow_unicode=True)


def _json(value: Any) -> Markup:
    """JSON for a script element: nothing in it can end the element."""
    return Markup(json.dumps(value, allow_nan=False).replace("<", "\\u003c"))


@cache
def _bundle() -> str:
    """The Vega libraries as one script."""
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    assert "</script" not in script.lower(), "the library would end its own script element"
    return script
