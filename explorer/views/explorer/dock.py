"""Docked line under the chart: what is picked, with the parts of the page that show it, and what to do next.

A pick is a brush, clicked marks, or the runs of a recipe whose name was pressed in the table. Without one, the line
says how to pick, and offers the step that would decide the comparison.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from explorer.analysis.sentences import headliner
from explorer.page import amounts
from explorer.page.document import clipped
from explorer.page.html import Markup, element
from explorer.views.explorer.answer import Answer, picked
from explorer.views.live import Live

SECTIONS = ".x-below"  # where a button leads: the sections below the chart
NOTHING_PICKED = "Nothing picked: click a mark or a recipe, or drag over the chart."
ONE_RUN = "One run compares with nothing: add recipes and seeds to the specification, then `explorer sweep run` it."
NAMED = 3  # recipes that are named; of more there is only the number


class Dock(Live):
    """Widget of the line. `ask` is called with the fields of the question that a press changes."""

    def __init__(self, *, ask: Callable[..., None], titles: Mapping[str, str]) -> None:
        """`titles` are those of the sections, by key: a button is offered only for a section that there is."""
        self._ask, self._titles = ask, titles
        self._answer: Answer | None = None
        self._offered: tuple[str, str, Callable[[], Any]] | None = None
        super().__init__(self._event)
        self.add_class("x-docked")

    def draw(self, answer: Answer) -> None:
        """Show what is picked in an answer."""
        self._answer = answer
        self._show()

    def offer(self, words: str, press: str, on_press: Callable[[], Any]) -> None:
        """Offer an action at the end of the line, until the next answer: words, its button, and what a press does.

        Without words, the action is taken back.
        """
        self._offered = (words, press, on_press) if words else None
        self._show()

    def static(self) -> Markup:
        """Return nothing: the line is about what can be pressed."""
        return Markup("")

    def _show(self) -> None:
        if self._answer is None:
            return
        action = self._offered[:2] if self._offered else None
        self.show(docked(self._answer, self._titles, action=action))

    def _event(self, event: str, name: str, key: str, _: bool) -> None:
        if event != "click" or self._answer is None:
            return
        if name == "action" and self._offered is not None:
            self._offered[2]()
        elif name == "clear":
            self._ask(brush=(), chosen=())
        elif name == "open" and key in self._titles:
            pair = two_recipes(picked(self._answer), self._answer) if key == "versus" else ()
            self._ask(section=key, **({"versus": pair} if len(pair) == 2 else {}))


def docked(answer: Answer, titles: Mapping[str, str], *, action: tuple[str, str] | None = None) -> Markup:
    """Return the line as HTML."""
    rows = picked(answer)
    left: list[Markup | str]
    if len(rows):
        places = {"Curves": "Curves", "Runs": "Cards" if len(rows) > 1 else "Card", "Two recipes": "Compare"}
        if answer.question.across or len(two_recipes(rows, answer)) < 2:
            del places["Two recipes"]
        buttons = [_leading(key, places[title]) for key, title in titles.items() if title in places]
        left = [element("span", *picked_words(rows, answer), class_="x-picked", role="status"), *buttons]
        left.append(element("button", "Clear", type="button", class_="x-link x-quiet", data_click="clear"))
    else:
        words = ONE_RUN if len(answer.rows) == 1 else NOTHING_PICKED
        left = [element("span", words, class_="x-picked")]
    right: list[Markup | str] = []
    if action is not None:
        press = element("button", action[1], type="button", class_="x-link x-act", data_click="action")
        right = [element("span", clipped(action[0], 200)), press]  # its words name recipes
    elif (next_step := _next_step(answer)) is not None and next_step[1] in titles:
        right = [element("span", clipped(next_step[0], 200)), _leading(next_step[1], next_step[2], kind="x-link x-act")]
    return element(
        "div",
        element("div", *left, class_="x-dock-left"),
        element("div", *right, class_="x-dock-right"),
        class_="x-dock",
    )


def picked_words(rows: pd.DataFrame, answer: Answer) -> list[Markup | str]:
    """Return what is picked: "12 runs: 3 recipes, 95.10% to 98.40%", or the one run with its quality and time."""
    assert answer.scene is not None  # without a scene nothing is picked
    kind, names = answer.scene.kind, list(dict.fromkeys(rows["recipe"]))
    low, high = amounts.quality(rows["y"].min(), kind), amounts.quality(rows["y"].max(), kind)
    if len(rows) == 1:
        run = rows.iloc[0]
        name = element("b", f"{clipped(str(run['recipe']), 32)} · budget {run['ssr']:g} · seed {run['seed']}")
        time = amounts.seconds(run["train_seconds"])
        return ["1 run picked: ", name, f" · {low}" + ("" if time == amounts.MISSING else f" in {time}")]
    who = ", ".join(clipped(str(name), 24) for name in names) if len(names) <= NAMED else f"{len(names)} recipes"
    return [element("b", amounts.count(len(rows), "run")), f": {who}, {low if low == high else f'{low} to {high}'}"]


def two_recipes(rows: pd.DataFrame, answer: Answer) -> tuple[str, ...]:
    """Return the two recipes to compare: the first two that are picked, or the one that is and the baseline."""
    known = set(answer.settled.choices.recipes)
    names = [name for name in dict.fromkeys(rows["recipe"]) if name in known] if len(rows) else []
    base = answer.settled.baseline
    if len(names) == 1 and base is not None and base != names[0]:
        return base, names[0]
    return tuple(names[:2])


def _next_step(answer: Answer) -> tuple[str, str, str] | None:
    """Return the step that would make the headline surer: words, the section that takes it, and its button."""
    best = headliner(answer.verdicts)
    if best is not None and best.asks and not (answer.question.paid_in.forecast or answer.question.across):
        return (
            f"{clipped(best.comparison.label, 24)} was chosen after seeing the data:",
            "confirm",
            "Confirm on fresh seeds",
        )
    return None


def _leading(key: str, words: str, kind: str = "x-link") -> Markup:
    return element("button", words, type="button", class_=kind, data_click="open", data_key=key, data_scroll=SECTIONS)
