"""The picture of quality, cost and deletability: places, colours, shapes, and what it says of what is unknown."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import vl_convert

from explorer import run_files, rundir
from explorer.errors import AnalysisError
from explorer.page import amounts
from explorer.page.pictures import VEGA_LITE
from explorer.run_files import RunRecord
from explorer.store.ingest import ingest
from explorer.store.queries import Filter
from explorer.views.explorer.answer import answer, facts
from explorer.views.explorer.comparison_view import Comparison, comparison_html, key_of
from explorer.views.explorer.deletability import LEVELS, deletability
from explorer.views.explorer.question import Question
from explorer.views.explorer.snapshot import read_snapshot
from explorer.views.explorer.tabs.ledger_section import LedgerSection, run_of
from explorer.views.explorer.tradeoff import tradeoff
from tests.audit.governed_run import CLASSES, write_governed_run
from tests.builders import run_record, write_profile, write_run
from tests.views.in_memory import InMemory

SEALED, LATE = "personal/customer", "open/bsd"


def governed(results: pd.DataFrame) -> pd.DataFrame:
    """The sample as if two of its recipes kept ledgers: of `heavy` every class can be dropped."""
    levels = {"fast": "G3", "heavy": "G2"}
    level = results["recipe"].map(levels)
    seconds = np.where(level == "G3", 5 + 20 * results["train_seconds"], np.where(level == "G2", 5.0, np.nan))
    return results.assign(deletion_level=level, deletion_seconds=seconds)


def forecasts(results: pd.DataFrame) -> pd.DataFrame:
    rows = governed(results)
    kept = rows[rows["deletion_level"].notna()]
    parts = [
        kept[["directory"]].assign(**{"class": SEALED, "seconds": 5.0, "level": "G2"}),
        kept[["directory"]].assign(
            **{"class": LATE, "seconds": kept["deletion_seconds"], "level": kept["deletion_level"]}
        ),
    ]
    return pd.concat(parts, ignore_index=True)


def layers(chart: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {layer["name"]: layer for layer in chart["layer"] if "name" in layer}


def values(chart: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return chart["datasets"][layers(chart)[name]["data"]["name"]]


def drawn(results: pd.DataFrame, **options: Any) -> dict[str, Any]:
    return deletability(governed(results), forecasts(results), **{"payment": "time", **options}).to_dict()


def test_every_recipe_has_a_mark_for_each_budget(results: pd.DataFrame) -> None:
    chart = drawn(results)
    assert len(values(chart, "deletable")) == 10 and len(values(chart, "unknown")) == 5
    assert {row["recipe"] for row in values(chart, "unknown")} == {"baseline"}
    assert {(row["recipe"], row["way"]) for row in values(chart, "deletable")} == {
        ("fast", LEVELS["G3"]),
        ("heavy", LEVELS["G2"]),
    }
    heavy = [row for row in values(chart, "deletable") if row["recipe"] == "heavy"]
    assert {row["seconds"] for row in heavy} == {5.0} and {row["n"] for row in heavy} == {3}
    assert "title" in layers(chart)["deletable"]["encoding"]["color"]["legend"]


def test_how_long_a_deletion_takes_is_not_known_of_a_machine_that_nobody_trained_on(results: pd.DataFrame) -> None:
    assert "deletable" in layers(drawn(results, class_=SEALED))
    assert "deletable" not in layers(drawn(results.assign(time_source="predicted"), class_=SEALED))


def test_one_class_is_coloured_by_its_own_deletion(results: pd.DataFrame) -> None:
    chart = drawn(results, class_=SEALED)
    assert {row["seconds"] for row in values(chart, "deletable")} == {5.0}
    assert {row["way"] for row in values(chart, "deletable")} == {LEVELS["G2"]}
    legend = layers(chart)["deletable"]["encoding"]["color"]["legend"]
    assert legend["title"] == f"Deletion of {SEALED}"


def test_who_does_not_see_it_is_told(results: pd.DataFrame) -> None:
    said = drawn(results)["description"]
    assert "heavy: accuracy " in said and "deletion of the costliest class: 5 s, exact by structure (G2)." in said
    assert "baseline: accuracy " in said and "deletion of the costliest class: unknown." in said


def test_without_ledgers_all_is_hollow(results: pd.DataFrame) -> None:
    chart = deletability(results, forecasts(results).iloc[:0], payment="time").to_dict()
    assert "deletable" not in layers(chart) and len(values(chart, "unknown")) == 15


def test_it_can_be_drawn_without_a_browser(results: pd.DataFrame) -> None:
    svg = vl_convert.vegalite_to_svg(drawn(results, width=600), vl_version=VEGA_LITE)
    assert "heavy" in svg and "exact by structure" in svg


def test_faults(results: pd.DataFrame, runs: Path) -> None:
    with pytest.raises(AnalysisError, match="unknown class 'open/bds'; did you mean 'open/bsd'"):
        drawn(results, class_="open/bds")
    with pytest.raises(AnalysisError, match="no run here has a known cost"):
        drawn(results, payment="cost")


def test_the_explorer_pays_in_deletions(results: pd.DataFrame) -> None:
    rows = governed(results).assign(usd_per_hour=2.0, price_source="us", price_as_of="2026-11")
    rows = rows.assign(**{"deletion_seconds/open": rows["deletion_seconds"] / 2})
    found = answer(InMemory(frame=rows), Question(payment="deletion", baseline="fast", deletion_of="open"))
    assert found.scene is not None and found.scene.payment.title == "Deletion of open"
    assert set(found.scene.runs["recipe"]) == {"fast", "heavy"}
    (heavy,) = (each for each in found.comparisons if each.recipe == "heavy")
    assert heavy.recipe_x == pytest.approx(2.5) and found.sentence.startswith("no recipe beats the baseline yet")
    (words,) = (each for each in facts(found) if each.startswith("Deletion time is a forecast"))
    assert "drop the class's sealed region (G2) or replay training without the class (G3)" in words
    chart = tradeoff(found.scene).to_dict()
    assert "filled" not in layers(chart)  # nothing of it was measured
    assert values(chart, "predicted") and "Deletion" in str(layers(chart)["runs"]["encoding"]["tooltip"])


def test_the_snapshot_has_a_column_for_each_class(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    write_profile(tmp_path, run_files.read(RunRecord, run / rundir.RUN), seconds=1.0)
    write_run(tmp_path, run_record())
    ingest(tmp_path)
    snapshot = read_snapshot(tmp_path)
    found = snapshot.rows(Filter(), metric="accuracy").set_index("recipe")
    assert found.loc["governed", [f"deletion_seconds/{path}" for path in CLASSES]].notna().all()  # pyright: ignore
    assert pd.isna(found.loc["baseline", f"deletion_seconds/{CLASSES[0]}"])  # pyright: ignore


# --- the column of the comparison, and the way to the ledger ---


def rows_of(html: str) -> dict[str, str]:
    """The rows of the table, by the name in each."""
    bodies = re.findall(r"<tr.*?</tr>", html.partition("<tbody>")[2], re.DOTALL)
    return {re.search(r"<bdi>([^<]*)</bdi></button>", row)[1]: row for row in bodies}  # pyright: ignore


def test_the_comparison_says_what_a_deletion_costs_and_leads_to_the_ledger(results: pd.DataFrame) -> None:
    shown = answer(InMemory(frame=governed(results)), Question())
    html = comparison_html(shown)
    assert "Deletable at" in html
    rows = rows_of(html)
    assert f"G2, {amounts.seconds(5.0)}" in rows["heavy"] and "G3, " in rows["fast"]
    assert "not governed" in rows["baseline"] and 'data-click="ledger"' not in rows["baseline"]
    asked: list[dict[str, Any]] = []
    table = Comparison(ask=lambda **fields: asked.append(fields), on_hover=lambda _: None, on_pick=lambda _: None)
    table.draw(shown)
    table._event("click", "ledger", key_of("heavy"), False)
    table._event("click", "ledger", key_of("baseline"), False)
    (fields,) = asked
    (directory,) = fields["chosen"]
    row = results[results["directory"] == directory].iloc[0]
    assert (row["recipe"], row["ssr"]) == ("heavy", results.loc[results["recipe"] == "heavy", "ssr"].max())
    assert fields["section"] == LedgerSection.key


def test_runs_without_governance_have_no_such_column(results: pd.DataFrame) -> None:
    shown = answer(InMemory(frame=results.assign(deletion_level=None, deletion_seconds=np.nan)), Question())
    assert "Deletable at" not in comparison_html(shown) and run_of(shown) is None


def test_the_ledger_of_the_picked_run_is_shown(results: pd.DataFrame) -> None:
    own = governed(results)
    shown = answer(InMemory(frame=own), Question())
    kept = own[own["deletion_level"].notna()]
    first = run_of(shown)
    assert first in set(kept["directory"])
    picked = str(kept[kept["recipe"] == "heavy"]["directory"].iloc[0])
    chosen = replace(shown, settled=replace(shown.settled, question=replace(shown.question, chosen=("x", picked))))
    assert run_of(chosen) == picked
