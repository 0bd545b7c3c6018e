"""The comparison of recipes with their baseline as a table that answers: the verdict first, intervals drawn around 1x.

A check box shows or hides a recipe; a hover isolates its curve; a press on its name picks its runs; a heading sorts.
The baseline is always the first row. What is missing in several cells for one reason has that reason once, as a
footnote. A further column is one more `Column` in `COLUMNS`.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from explorer import costing
from explorer.analysis.axis_words import gain_name, ratio_words
from explorer.analysis.equal_budget import EqualBudget
from explorer.analysis.equal_quality import EQUIVALENT, Call, EqualQuality, Outcome
from explorer.analysis.reprice import DELETION, own_price
from explorer.analysis.sentences import by_how_much, call_words, control_words, fresh_words, inference_words
from explorer.analysis.verdict import Verdict
from explorer.page import amounts
from explorer.page.document import clipped, one_line
from explorer.page.html import Colour, Markup, chip, element, fragment, inline
from explorer.views.explorer.answer import Answer, facts, warnings
from explorer.views.explorer.comparison_tables import (
    best_first,
    comparison_table,
    least_first,
    speedup,
    speedup_title,
    tuned_note,
)
from explorer.views.explorer.dock import SECTIONS
from explorer.views.explorer.payments import amount
from explorer.views.explorer.tabs.ledger_section import LEDGER
from explorer.views.live import Live
from explorer.views.notebook import swatch

NAME = 30  # characters of a recipe's name in the table; the whole name is its hover text
WIDTH, HEIGHT = 132, 26  # of a drawn interval, in pixels
WIDEST = 16.0  # the largest speedup on the axis of intervals; what lies beyond has an arrow

NOTHING = Markup("")


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A row: a recipe with its comparison, or the baseline of a setting."""

    label: str
    recipe: str
    shown: bool  # in the chart
    verdict: Verdict | None = None  # None for the baseline
    at_budget: EqualBudget | None = None
    base: EqualQuality | None = None  # for the baseline, one of the comparisons with it

    @property
    def comparison(self) -> EqualQuality:
        """The row's own comparison; for the baseline, one of those with it."""
        result = self.verdict.comparison if self.verdict else self.base
        assert result is not None  # a line has one of both
        return result


@dataclass(frozen=True, kw_only=True, slots=True)
class Governed:
    """The governed runs of a recipe at its largest budget."""

    level: str  # the gravest: one run that needs a replay makes it G3
    seconds: float  # of deleting the costliest class, the median; NaN where unknown
    directory: str  # of the first run by seed


@dataclass(kw_only=True, slots=True)
class Sheet:
    """A table while it is made: its answer, the range of its intervals, and the reasons that became footnotes."""

    answer: Answer
    low: float  # of the axis of intervals, as speedups
    high: float
    several: bool  # machines
    governed: Mapping[str, Governed]  # by recipe
    reasons: list[str] = field(default_factory=list)

    def mark(self, reason: str | None) -> Markup:
        """Return the mark of a footnote; the same reason has the same mark."""
        if not reason:
            return Markup("")
        if reason not in self.reasons:
            self.reasons.append(reason)
        number = str(self.reasons.index(reason) + 1)
        return element("sup", number, title=clipped(reason, 300))

    def place(self, gain: float) -> float:
        """Return where a speedup lies along the axis, from 0 to 1 and beyond; the axis is logarithmic."""
        return math.log(gain / self.low) / math.log(self.high / self.low)


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column: its heading given a sheet, its cell for a row, and the key of `question.ORDERS` that sorts by it.

    `only_wide` is left out where there is little room. A column whose heading is empty is left out.
    """

    title: Callable[[Sheet], str | Markup]
    cell: Callable[[Line, Sheet], Markup]
    order: str = ""
    kind: str = "x-number"
    only_wide: bool = False


class Comparison(Live):
    """Widget of the table. `ask` is called with the fields of the question that a press changes, `on_hover` with a
    recipe's label or None, `on_pick` with the recipe whose runs are picked."""

    def __init__(
        self, *, ask: Callable[..., None], on_hover: Callable[[str | None], None], on_pick: Callable[[str], None]
    ) -> None:
        self._ask, self._on_hover, self._on_pick = ask, on_hover, on_pick
        self._answer: Answer | None = None
        self._recipes: dict[str, str] = {}  # by key
        super().__init__(self._event)

    def draw(self, answer: Answer | None) -> None:
        """Show the comparison of an answer, or nothing."""
        self._answer = answer
        self._recipes = {} if answer is None else {key_of(name): name for name in answer.settled.choices.recipes}
        self.show(NOTHING if answer is None else comparison_html(answer))

    def static(self) -> Markup:
        """Return the comparison as a plain table: this one needs the page's style to be read."""
        shown = self._answer
        if shown is None:
            return NOTHING
        tables = comparison_table(
            shown.verdicts, shown.budgets, payment=shown.question.paid_in, look=shown.look, rates=shown.rates
        )
        return fragment(*tables)

    def _event(self, event: str, name: str, key: str, checked: bool) -> None:
        if self._answer is None:
            return
        question, recipes = self._answer.question, self._answer.settled.choices.recipes
        recipe = self._recipes.get(key)
        match event, name:
            case "hover", _:
                self._on_hover(recipe)
            case "click", "pick" if recipe is not None:
                self._on_pick(recipe)
            case "click", "ledger" if (runs := governed_runs(self._answer).get(recipe or "")) is not None:
                self._ask(brush=(), chosen=(runs.directory,), section=LEDGER)
            case "click", "sort":
                self._ask(order=f"-{key}" if question.order == key else key)
            case "click", "all":
                self._ask(recipes=(), methods=())
            case "change", "show" if recipe is not None:
                kept = {*question.recipes, recipe} if checked else {*question.recipes} - {recipe}
                self._ask(recipes=tuple(name for name in recipes if name in kept))


def key_of(recipe: str) -> str:
    """Return the key of a recipe in the HTML: a name from outside may be long, or steer the text around it."""
    return hashlib.sha256(recipe.encode(errors="surrogatepass")).hexdigest()[:16]


# ---- the table


def comparison_html(answer: Answer) -> Markup:
    """Return the table with its footnotes and, folded, how it is computed."""
    lines = list(_lines(answer))
    if not lines:
        return element("div", *_below(answer, []), class_="x-compare")
    sheet = _sheet(answer, lines)
    columns = [(column, title) for column in COLUMNS if (title := column.title(sheet))]
    heads = [_head(column, title, answer.question.order) for column, title in columns]
    rows = [_row(line, [column for column, _ in columns], sheet) for line in lines]
    hidden = len({line.recipe for line in lines if not line.shown})
    table = element(
        "table",
        element("thead", element("tr", *heads)),
        element("tbody", *rows),
        class_="x-table x-compared",
        aria_label="Recipes compared with the baseline",
    )
    parts = [element("div", table, class_="x-scroll", tabindex="0"), *_below(answer, sheet.reasons)]
    if hidden:
        again = element("button", "Show all", type="button", class_="x-link", data_click="all")
        words = f"{amounts.count(hidden, 'recipe')} hidden from the chart, still counted in the intervals. "
        parts.insert(1, element("p", words, again, class_="x-note"))
    return element("div", *parts, class_="x-compare")


def _lines(answer: Answer) -> Iterator[Line]:
    """Yield the rows: the baselines, then the recipes in the order that was asked for."""
    shown = set(answer.rows["recipe"])
    at_budget = {(result.setting, result.label): result for result in answer.all_budgets}
    pairs = [
        (verdict, at_budget.get((verdict.comparison.setting, verdict.comparison.label)))
        for verdict in answer.all_verdicts
    ]
    order = answer.question.order
    pairs.sort(key=lambda pair: ORDER_BY[order.removeprefix("-")](*pair))
    if order.startswith("-"):
        pairs.reverse()
    bases = {verdict.comparison.baseline_setting: (verdict.comparison, result) for verdict, result in reversed(pairs)}
    for base, result in reversed(bases.values()):
        yield Line(label=base.baseline, recipe=base.baseline, shown=True, base=base, at_budget=result)
    for verdict, result in pairs:
        one = verdict.comparison
        yield Line(label=one.label, recipe=one.recipe, shown=one.recipe in shown, verdict=verdict, at_budget=result)


def _by_reach(verdict: Verdict, _: EqualBudget | None) -> tuple[float, str]:
    return -(verdict.comparison.reach_rate or 0.0), verdict.comparison.label


ORDER_BY: Mapping[str, Callable[[Verdict, EqualBudget | None], tuple[object, ...]]] = {
    "least": lambda verdict, _: least_first(verdict.comparison),
    "best": best_first,
    "recipe": lambda verdict, _: (verdict.comparison.label,),
    "reach": _by_reach,
}
"""The keys of `question.ORDERS`, each with what it sorts by."""


def _sheet(answer: Answer, lines: list[Line]) -> Sheet:
    gains = [1 / 1.3, 1.3]  # so that the axis has both sides, even for equal recipes
    for line in lines:
        result = line.comparison
        ratios = [result.ratio, result.adjusted_low, result.adjusted_high] if line.verdict else []
        gains += [1 / ratio for ratio in ratios if ratio]
    low, high = (min(max(end, 1 / WIDEST), WIDEST) for end in (min(gains), max(gains)))
    return Sheet(
        answer=answer,
        low=low / 1.05,
        high=high * 1.05,
        several=len({line.comparison.setting.machine for line in lines}) > 1,
        governed=governed_runs(answer),
    )


def _head(column: Column, title: str | Markup, order: str) -> Markup:
    kind = f"{column.kind}{' x-only-wide' if column.only_wide else ''}"
    if not column.order:
        return element("th", title, scope="col", class_=kind)
    direction = {column.order: "ascending", f"-{column.order}": "descending"}.get(order)
    arrow = {"ascending": " ↓", "descending": " ↑"}.get(direction or "", "")
    button = element("button", title, arrow, type="button", class_="x-sort", data_click="sort", data_key=column.order)
    return element("th", button, scope="col", class_=kind, aria_sort=direction or "none")


def _row(line: Line, columns: list[Column], sheet: Sheet) -> Markup:
    first, *rest = columns
    cells = [
        element("td", column.cell(line, sheet), class_=f"{column.kind}{' x-only-wide' if column.only_wide else ''}")
        for column in rest
    ]
    kind = "x-base" if line.verdict is None else "" if line.shown else "x-hidden"
    return element(
        "tr",
        element("th", first.cell(line, sheet), scope="row"),
        *cells,
        class_=kind or None,
        data_hover="recipe",
        data_click="pick",
        data_key=key_of(line.recipe),
    )


def _below(answer: Answer, reasons: list[str]) -> Iterator[Markup]:
    """Yield what is below the table: footnotes, warnings, and the folded notes on how to read it."""
    for number, reason in enumerate(reasons, start=1):
        yield element("p", element("sup", str(number)), f" {clipped(reason, 300)}", class_="x-note")
    for words in warnings(answer):
        yield element("p", one_line(words), class_="x-note x-warn")
    notes = [*facts(answer), f"Equivalent: the whole interval lies within {EQUIVALENT - 1:.0%} of 1x, the grey band."]
    said = [element("li", one_line(words)) for words in notes]
    yield element(
        "details", element("summary", "How this is computed"), element("ul", *said, class_="x-note"), class_="x-how"
    )


# ---- cells


def _recipe(line: Line, sheet: Sheet) -> Markup:
    """Return the cell that names a row: check box, mark, name, and the verdict as a chip."""
    box = Markup("")
    if line.verdict is not None:
        label = f"Show {clipped(line.label)}"
        box = element(
            "input",
            type="checkbox",
            checked=line.shown,
            aria_label=label,
            title=label,
            data_change="show",
            data_key=key_of(line.recipe),
        )
    drawn = inline(swatch(line.label, sheet.answer.look)[:1]) if line.shown else Markup("")
    mark = drawn[: drawn.index("<bdi")] if "<bdi" in drawn else Markup("")
    short = clipped(line.label, NAME)
    name = element(
        "button",
        element("bdi", short),
        type="button",
        class_="x-name",
        title=clipped(line.label, 1000) if short != line.label else "Pick its runs at the full budget",
    )
    return element("span", box, mark, name, class_="x-who") + element("span", *_chips(line, sheet), class_="x-chips")


def _chips(line: Line, sheet: Sheet) -> Iterator[Markup]:
    result = line.comparison
    if line.verdict is None:
        tuned = bool(result.tuning)
        hover = tuned_note(result.tuning or "") if tuned else "the specification claims no tuning of this baseline"
        yield chip("tuned baseline" if tuned else "untuned baseline", "quiet" if tuned else "warn", hover=hover)
        if sheet.several:
            yield element("small", clipped(str(result.baseline_setting.machine), 40))
        return
    words, tone = verdict_chip(line.verdict)
    hover = "; ".join(filter(None, (call_words(line.verdict), control_words(line.verdict))))
    yield chip(words, tone, hover=hover + fresh_words(line.verdict))
    if line.verdict.is_confirmed:
        yield chip("confirmed", "good", hover=fresh_words(line.verdict).removeprefix("; "))
    if result.slower_inference:
        yield chip("slower inference", "warn", hover=f"inference takes {inference_words(result)}")
    if "predicted" in result.time_source.split("+"):
        yield chip("predicted time", "quiet")
    if sheet.several:
        yield element("small", clipped(str(result.setting.machine), 40))


def verdict_chip(verdict: Verdict) -> tuple[str, Colour]:
    """Return the verdict on a recipe in a word or two, and its tone."""
    result = verdict.comparison
    if verdict.is_refuted:
        return "not confirmed", "bad"
    if verdict.control is not None and verdict.call is Call.LESS:
        return "no better than control", "bad"
    match verdict.call:
        case Call.LESS:
            return "wins", "good"
        case Call.MORE:
            return gain_name(result.x, more=True), "bad"
        case Call.EQUIVALENT:
            return f"equivalent within {EQUIVALENT - 1:.0%}", "quiet"
        case Call.BELOW:
            return "past the target", "warn"
        case Call.NOT_REACHED:
            return "not reached", "bad"
        case Call.NO_BASELINE:
            return "no baseline there", "warn"
        case Call.UNKNOWN:
            return "not compared", "quiet"
        case _:  # inconclusive, one seed, no interval
            return str(verdict.call), "quiet"


def _forest(line: Line, sheet: Sheet) -> Markup:
    """Return the interval of the speedup around 1x as a picture; its numbers are in the next cell."""
    one, margin = sheet.place(1) * WIDTH, [sheet.place(end) * WIDTH for end in (1 / EQUIVALENT, EQUIVALENT)]
    middle = HEIGHT / 2
    parts = [
        element(
            "rect",
            x=f"{margin[0]:.1f}",
            y=0,
            width=f"{margin[1] - margin[0]:.1f}",
            height=HEIGHT,
            fill="currentColor",
            opacity=0.08,
        ),
        element("line", x1=f"{one:.1f}", x2=f"{one:.1f}", y1=0, y2=HEIGHT, stroke="currentColor", opacity=0.35),
    ]
    result = line.comparison
    mark = sheet.answer.look.mark(line.label)
    decided = line.verdict is None or line.verdict.call in (Call.LESS, Call.MORE, Call.EQUIVALENT)
    colour = mark.colour if mark and decided else "currentColor"
    faint = None if decided else 0.55
    if line.verdict is None:
        gains: list[float] = [1.0]
    else:
        gains = [1 / value for value in (result.adjusted_high, result.ratio, result.adjusted_low) if value]
    ends = [min(max(sheet.place(gain) * WIDTH, 0.0), float(WIDTH)) for gain in gains]
    if len(ends) == 3:
        stroke = {"stroke": colour, "opacity": faint, "stroke_width": 3, "stroke_linecap": "round"}
        parts.append(element("line", x1=f"{ends[0]:.1f}", x2=f"{ends[2]:.1f}", y1=middle, y2=middle, **stroke))
        # An end that lies beyond the axis is an arrow, so that a cut interval does not look like a short one.
        for end, beyond, sign in ((0.0, gains[0] < sheet.low, 1), (float(WIDTH), gains[2] > sheet.high, -1)):
            if beyond:
                d = f"M{end + 6 * sign:.1f},{middle - 5}L{end:.1f},{middle}L{end + 6 * sign:.1f},{middle + 5}"
                parts.append(element("path", d=d, fill="none", **{**stroke, "stroke_width": 2}))
    if ends:
        at = ends[len(ends) // 2]
        parts.append(element("circle", cx=f"{at:.1f}", cy=middle, r=4.5, fill=colour, opacity=faint))
    return element(
        "svg",
        *parts,
        width=WIDTH,
        height=HEIGHT,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        class_="x-forest",
        aria_hidden="true",
    )


def _axis(sheet: Sheet) -> Markup:
    """Return the axis of the drawn intervals, with 1x and a round speedup on either side."""
    # 1x always has its label; the others have one where they lie far enough from it and from one another.
    ticks = [1.0]
    for tick in (0.5, 2.0, 0.1, 10.0, 0.25, 4.0, 0.8, 1.25):
        if sheet.low <= tick <= sheet.high and all(abs(sheet.place(tick) - sheet.place(t)) > 0.3 for t in ticks):
            ticks.append(tick)
    marks = [
        element(
            "text",
            f"{tick:g}x",
            x=f"{min(max(sheet.place(tick) * WIDTH, 9), WIDTH - 9):.1f}",
            y=11,
            text_anchor="middle",
            fill="currentColor",
            font_size=11,
        )
        for tick in ticks
    ]
    return element(
        "svg", *marks, width=WIDTH, height=14, viewBox=f"0 0 {WIDTH} 14", class_="x-forest", aria_hidden="true"
    )


def _forest_title(sheet: Sheet) -> Markup:
    return element("span", _words_of_speedup(sheet), class_="x-unseen") + _axis(sheet)


def _words_of_speedup(sheet: Sheet) -> str:
    return f"{speedup_title(sheet.answer.question.paid_in.column)} as a picture"


def _speedup_title(sheet: Sheet) -> str:
    title = speedup_title(sheet.answer.question.paid_in.column)
    target, scene = sheet.answer.target, sheet.answer.scene
    return title if target is None or scene is None else f"{title} at {amounts.quality(target, scene.kind)}"


def _speedup(line: Line, sheet: Sheet) -> Markup:
    result = line.comparison
    if line.verdict is None:
        return two_lines("1.00x", amount(result.baseline_x, sheet.answer.question.paid_in))
    if result.ratio is None:
        return two_lines(
            amounts.MISSING, "", sheet.mark(result.reason or "" if line.verdict.call is Call.UNKNOWN else "")
        )
    low, high = result.adjusted_low, result.adjusted_high
    if low is not None and high is not None:
        span = " to ".join(ratio_words(1 / max(end, 1e-300)) for end in (high, low))
        return two_lines(speedup(result), span)
    if result.outcome is Outcome.BELOW and result.ratio is not None:
        # On two lines, since "at least 0.88x" would make the table wider than its place.
        return two_lines(f"{ratio_words(1 / max(result.ratio, 1e-300))}x", "or more")
    return two_lines(speedup(result), "no interval", sheet.mark(_why(result)))


def _why(result: EqualQuality) -> str:
    """Return the reason for a missing interval."""
    if result.n == 1:
        return "one seed (n=1) shows no noise, so there is no interval"
    return result.reason or "too few seeds reach the target for an interval"


def _amount(line: Line, sheet: Sheet) -> Markup:
    """Return the amount that a row needs for the target, and for a time its cost."""
    result, payment = line.comparison, sheet.answer.question.paid_in
    x = result.baseline_x if line.verdict is None else result.recipe_x
    if x is None or (line.verdict is not None and result.outcome not in (Outcome.REACHED, Outcome.BELOW)):
        return two_lines(amounts.MISSING, "")
    machine = (result.baseline_setting if line.verdict is None else result.setting).machine
    rate = sheet.answer.rates.get(machine) if payment.key == "time" else None
    cost = "" if rate is None else amounts.dollars(costing.cost_usd(x, own_price(rate)))
    return two_lines(amount(x, payment), cost)


def _same_title(sheet: Sheet) -> str:
    paid = sheet.answer.question.paid_in
    return "In the same time" if paid.key == "time" else f"At the same {paid.label.lower()}"


def _at_budget(line: Line, sheet: Sheet) -> Markup:
    """Return the quality at the baseline's budget: the baseline's own, or how much better or worse a recipe is."""
    result = line.at_budget
    if result is None:
        return two_lines(amounts.MISSING, "")
    kind = result.setting.kind
    if line.verdict is None:
        return two_lines(
            amounts.quality(result.baseline_quality, kind), amount(result.budget, sheet.answer.question.paid_in)
        )
    if result.difference is None:
        return two_lines(amounts.MISSING, "", sheet.mark(result.reason))
    words = by_how_much(result.difference, kind)
    if result.adjusted_low is None or result.adjusted_high is None:
        reason = "one seed (n=1) shows no noise, so there is no interval" if result.n == 1 else result.reason
        return two_lines(words, "no interval", sheet.mark(reason))
    return two_lines(
        words, " to ".join(kind.number(end, sign="+") for end in (result.adjusted_low, result.adjusted_high))
    )


def _reach(line: Line, sheet: Sheet) -> Markup:
    result = line.comparison
    if line.verdict is None or result.reach_rate is None:
        return two_lines("", "")
    return two_lines(f"{result.reach_rate:.0%}", f"n={result.n}")


def _deletable_title(sheet: Sheet) -> str:
    """Return the heading where runs are governed, and nothing where none is."""
    return "Deletable at" if sheet.governed else ""


def _deletable(line: Line, sheet: Sheet) -> Markup:
    """Return the level and the forecast time of deleting a row's costliest class, with the way to its ledger."""
    runs = sheet.governed.get(line.recipe)
    if runs is None:
        return two_lines(amounts.MISSING, "not governed")
    words = runs.level + ("" if amounts.missing(runs.seconds) else f", {amounts.seconds(runs.seconds)}")
    badge = element(
        "button",
        "ledger",
        type="button",
        class_="x-link",
        title=f"Which class moved which layer of {clipped(line.label)}, at the cell that moved most",
        data_click="ledger",
        data_key=key_of(line.recipe),
        data_scroll=SECTIONS,
    )
    return two_lines(words, badge)


def governed_runs(answer: Answer) -> dict[str, Governed]:
    """Return the governed runs of each recipe at its largest budget, as one; recipes without such runs are absent."""
    rows = answer.settled.rows
    governed = rows.loc[
        rows["deletion_level"].notna(), ["recipe", "directory", "ssr", "seed", "deletion_level", DELETION]
    ]
    largest = governed[governed["ssr"] == governed.groupby("recipe")["ssr"].transform("max")]
    by_recipe = largest.sort_values("seed", kind="stable").groupby("recipe", sort=False)
    parts = by_recipe["deletion_level"].max(), by_recipe[DELETION].median(), by_recipe["directory"].first()
    return {
        str(recipe): Governed(level=level, seconds=seconds, directory=str(directory))
        for recipe, level, seconds, directory in zip(parts[0].index, *parts, strict=True)
    }


def two_lines(first: str | Markup, second: str | Markup, mark: Markup = NOTHING) -> Markup:
    """Return a cell with a figure and, smaller, what is known about it."""
    return element("b", first) + (element("small", second, mark) if second or mark else NOTHING)


COLUMNS: list[Column] = [
    Column(title=lambda _: "Recipe", cell=_recipe, order="recipe", kind=""),
    Column(title=_forest_title, cell=_forest, kind="x-drawn"),
    Column(title=_speedup_title, cell=_speedup, order="least"),
    Column(
        title=lambda sheet: f"{sheet.answer.question.paid_in.label} to target",
        cell=_amount,
        only_wide=True,
    ),
    Column(title=_same_title, cell=_at_budget, order="best"),
    Column(title=lambda _: "Reach rate", cell=_reach, order="reach"),
    Column(title=_deletable_title, cell=_deletable),
]
"""The columns, from left to right; the first one names the row."""
