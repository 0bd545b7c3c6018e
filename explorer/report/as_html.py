"""The report as one HTML file that asks for nothing outside itself.

A chart is there twice: as a picture, for paper and for readers without scripts, and as its specification, from which
the Vega library in the file draws it again so that it answers the mouse. A content security policy forbids requests.
"""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, partial
from importlib.resources import files
from typing import Any

import altair as alt
import jinja2
import vl_convert
import yaml
from markupsafe import Markup

import explorer
from explorer.analysis.composition import Composition
from explorer.analysis.composition_sentences import composition_sentences
from explorer.analysis.control_sentences import control_sentences
from explorer.report.content import Section, SweepContent
from explorer.report.rows import recipe_columns, recipe_rows
from explorer.views import theme
from explorer.views.composition_rows import composition_tables
from explorer.views.control_rows import control_table
from explorer.views.equal_quality import equal_quality_table
from explorer.views.exports import VEGA_LITE
from explorer.views.interactions import CAPTION, interactions
from explorer.views.notes import facts, warnings
from explorer.views.phases import step_times
from explorer.views.tables import CSS, Column, Row, swatch, table
from explorer.views.tradeoff import tradeoff
from explorer.views.waterfall import waterfall

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
        compositions=[
            _composition(hardware, found, number)
            for number, (hardware, found) in enumerate(content.compositions.items(), start=1)
        ],
        steps=None if content.step_times.empty else _chart(step_times, content.step_times, "steps"),
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
    return {
        "title": section.metric,
        "hardware": section.hardware,
        "better": "higher is better" if section.higher_is_better else "lower is better",
        "warnings": warnings(found),
        "facts": facts(found),
        "equal": equal_quality_table(
            found.comparisons,
            payment=found.question.paid_in,
            look=found.look,
            usd_per_hour=found.usd_per_hour,
        ),
        "recipes": _recipes(section),
        "controls": control_table(section.controls),
        "controls_said": control_sentences(section.controls),
        "chart": None if found.scene is None else _chart(partial(tradeoff, height=HEIGHT), found.scene, str(number)),
    }


def _composition(hardware: str, found: Composition, number: int) -> dict[str, Any]:
    """What the template shows of how methods compose: the waterfall is that of the recipe with most methods."""
    together = [recipe for recipe in found.recipes if recipe.by_parts is not None]
    recipe = max(together, key=lambda each: len(each.methods), default=None)
    return {
        "hardware": hardware,
        "budget": f"{found.ssr:g}",
        "recipe": recipe,
        "pairs": _chart(interactions, found, f"pairs-{number}") if found.measured_pairs else None,
        "way": recipe and _chart(partial(waterfall, baseline=found.baseline), recipe, f"way-{number}"),
        "caption": CAPTION,
        "tables": composition_tables(found),
        "sentences": composition_sentences(found)[len(found.recipes) :],  # the table says those of the recipes
    }


def _chart(draw: Callable[..., alt.LayerChart], of: Any, name: str) -> dict[str, Markup]:
    """A chart as picture and as specification. The names in the picture are its own, for they are the page's too."""
    svg = vl_convert.vegalite_to_svg(draw(of, width=PICTURE_WIDTH).to_dict(), vl_version=VEGA_LITE)
    picture = Markup(re.sub(r'(\bid="|url\(#)', rf"\g<1>picture-{name}-", svg))
    return {"name": Markup(name), "picture": picture, "specification": _json(draw(of).to_dict())}


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
