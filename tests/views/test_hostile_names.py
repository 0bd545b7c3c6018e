"""The explorer over recipes, machines and data with hostile names: nothing of theirs leaves its place on the page."""

from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import ipywidgets as widgets
import pytest

from explorer.canonical import digest
from explorer.run_files import Hardware
from explorer.store.ingest import ingest
from explorer.views.explore import SECTIONS, Explorer, explore
from explorer.views.live import Live
from tests.builders import run_record, write_run

LONG = "w" * 5_000
NAMES = ("baseline", "<img src=x onerror=alert(1)>", "\u202egnp.exe", "a\x01b\x1b[31m", f"{LONG}x{LONG}")
MACHINE = Hardware(device="cpu", name="<b>H</b>\u202e'\"`=", threads=1)


class Tags(HTMLParser):
    """What of a page would act."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("img", "script") or any(name.startswith("on") for name, _ in attrs):
            self.found.append(tag)


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Explorer:
    runs = tmp_path_factory.mktemp("hostile") / "runs"
    for at, name in enumerate(NAMES):
        for ssr in (0.25, 1.0):
            for seed in range(2):
                methods = (name,) if at else ()
                made = run_record(recipe=name, ssr=ssr, seed=seed, methods=methods, hardware=MACHINE, tuning=NAMES[1])
                run_id = f"r{at}-{ssr:g}-{seed}-{digest(made.identity)[:8]}"
                quality = 0.9 + 0.05 * ssr + 0.001 * seed + 0.002 * at
                record = replace(made, run_id=run_id, dataset="=d\u202e", model="<b>m</b>'")
                write_run(runs, record, metrics={"accuracy": quality}, contended=False, step_seconds=0.01 / (1 + at))
    ingest(runs)
    return explore(runs)


def pages(widget: Any) -> Iterator[str]:
    if isinstance(widget, widgets.HTML):
        yield str(widget.value)
    if isinstance(widget, Live):
        yield widget.html
    for child in getattr(widget, "children", ()):
        yield from pages(child)


@pytest.mark.parametrize("section", [kind.key for kind in SECTIONS])
def test_no_name_acts_steers_or_floods(view: Explorer, section: str) -> None:
    chosen = tuple(view.shown["directory"].drop_duplicates().head(3))
    view.ask(replace(view.question, section=section, versus=NAMES[2:4], chosen=chosen))
    found = [page for page in pages(view) if "<style" not in page]
    tags = Tags()
    tags.feed("".join(found))
    assert not tags.found
    for page in found:
        assert not {"\u202e", "\x01", "\x1b"} & set(page)
        assert LONG not in page
    assert "gnp.exe" in "".join(found)
