"""The graph of a lineage and the table beside it: both say the same, what is claimed is marked, names stay text."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from markupsafe import Markup

from explorer.entries.fields import LedgerState
from explorer.entries.kinds import Genesis, Parent
from explorer.page.html import fragment
from explorer.release import lineage as searching
from explorer.runlog.run_ledger import RunLedger
from explorer.views.ledger.lineage_section import HEIGHT, WIDTH, Arrow, Box, graph, lineage_blocks, placed
from explorer.views.ledger.open_run import open_run
from tests.audit.governed_run import sign_again, write_governed_run
from tests.provenance.people import NOW

HOSTILE = '"><script>alert(1)</script> \u202egnp.exe'


def box(key: str, column: int, **more: bool) -> Box:
    return Box(key=key, title=f"run {key}", line="digest", hover=HOSTILE, column=column, **more)


def arrow(source: str, target: str, **more: bool) -> Arrow:
    return Arrow(source=source, target=target, words=HOSTILE, **more)


def drawn(markup: Markup) -> ElementTree.Element:
    """The picture, as a parser sees it: what is not escaped is no XML."""
    return ElementTree.fromstring(str(markup))


def test_every_box_has_a_place_of_its_own() -> None:
    boxes = [box(str(number), number % 3) for number in range(20)]
    spots = [(spot.x, spot.y) for spot in placed(boxes, []).values()]
    assert len(spots) == 20
    for at, (x, y) in enumerate(spots):
        assert all(abs(x - a) >= WIDTH or abs(y - b) >= HEIGHT for a, b in spots[:at])


def test_columns_are_generations_and_children_lie_beside_their_parents() -> None:
    boxes = [box("old", -2), box("a", 0), box("b", 0), box("of b", 1), box("of a", 1)]
    spots = placed(boxes, [arrow("a", "of a"), arrow("b", "of b")])
    assert spots["old"].x < spots["a"].x == spots["b"].x < spots["of a"].x
    assert spots["of a"].y == spots["a"].y and spots["of b"].y == spots["b"].y


def test_what_is_claimed_is_dashed_and_names_stay_text() -> None:
    picture = graph(
        [box("a", 0, bold=True), box("b", 1, claimed=True)],
        [arrow("a", "b", claimed=True), arrow("a", "nobody")],
        words=HOSTILE,
    )
    root = drawn(picture)
    assert len(list(root.iter("rect"))) == 2 and "<script" not in picture
    dashed = [each.tag for each in root.iter() if each.get("stroke-dasharray")]
    assert dashed == ["path", "rect"]
    assert drawn(graph([box("a", 0)], [], words="alone")).find(".//*[@stroke-dasharray]") is None


def test_a_circle_and_an_empty_graph_are_drawn() -> None:
    circle = graph([box("a", 0), box("b", 1)], [arrow("a", "b"), arrow("b", "a"), arrow("a", "a")], words="a circle")
    assert len([each for each in drawn(circle).iter("path") if each.get("class") == "x-graph-arrow"]) == 3
    assert not list(drawn(graph([], [], words="nothing")).iter("rect"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that says that it goes on from one that is not here."""
    made = write_governed_run(tmp_path_factory.mktemp("lineage") / "runs")
    state = LedgerState(origin="example.com/<b>never-seen", size=9, root="a" * 64)
    parent = Parent(kind="deletion", ledger=state, model=None, attestation=None, admitted={})
    sign_again(made, lambda _, e: replace(e, parents=(parent,)) if isinstance(e, Genesis) else e)
    return made


def test_the_table_says_what_the_graph_shows(run: Path, tmp_path: Path) -> None:
    (tmp_path / "trust.json").write_bytes((run / "governance" / "trust.json").read_bytes())
    shown = fragment(*lineage_blocks(open_run(run, trust=tmp_path / "trust.json", now=NOW)))
    assert "\u2713 verified" in shown and "\u2013 claimed only" in shown
    assert "by a deletion: only claimed" in shown and "its name is all that is known" in shown
    assert "example.com/&lt;b&gt;never-seen" in shown and "<b>" not in shown
    root = RunLedger(run).ledger.checkpoint().root.hex()
    assert shown.count(root[:12]) >= 2  # in the graph and in the table
    assert "\u2713" not in fragment(*lineage_blocks(open_run(run, trust=None, now=NOW)))


def test_a_run_alone_says_so_and_one_with_too_many_relatives_too(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = open_run(write_governed_run(tmp_path / "runs"), trust=None, now=NOW)
    assert "It continues no other run" in fragment(*lineage_blocks(alone))
    monkeypatch.setattr(searching, "MOST", 1)
    assert "of more are shown; the limit is" in fragment(*lineage_blocks(open_run(run, trust=None, now=NOW)))
