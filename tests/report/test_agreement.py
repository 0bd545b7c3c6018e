"""One verdict for every face: headline, table, question, panel, reports and terminal say the same of the same sweep.

A face is read from its output only, as a `Claim`, and compared with the claim of the verdict.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from explorer.analysis.ask import ask
from explorer.analysis.confirmed import Confirmed
from explorer.analysis.equal_quality import Call
from explorer.analysis.limits import Limits
from explorer.analysis.sentences import headliner
from explorer.analysis.verdict import Verdict, sweep_verdicts
from explorer.cli import confirm
from explorer.cli.app import app
from explorer.page import html
from explorer.page.html import fragment
from explorer.report.sweep.reported_sweep import ReportedSweep
from explorer.report.sweep_report import FORMATS, read_sweep
from explorer.store import frames
from explorer.store.frames import with_confirming
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.views.explorer.answer import answer
from explorer.views.explorer.comparison_tables import comparison_table
from explorer.views.explorer.payments import PAYMENTS
from explorer.views.explorer.question import Question
from explorer.views.explorer.snapshot import read_snapshot
from explorer.views.explorer.tabs.ask_words import verdict_words
from explorer.views.explorer.tabs.confirm_section import ConfirmSection
from tests.builders import run_record, write_profile, write_run
from tests.sample import write_sample

SEEDS = (0, 1, 2)
QUIET = (0.998, 1.002)  # quartiles of the windows of a profile
NOISE = {0: 0.0, 1: 0.0004, 2: 0.0002}  # by seed modulo three
Curve = tuple[float, float, float]  # accuracy at a quarter, a half and the whole budget
BASELINE: Curve = (0.90, 0.95, 0.97)
BETTER: Curve = (0.94, 0.968, 0.98)


def write(
    runs: Path,
    recipes: Mapping[str, Curve],
    *,
    sweep: str = "digits",
    seeds: tuple[int, ...] = SEEDS,
    twins: Mapping[str, Curve] | None = None,
    seconds: Mapping[str, float] | None = None,
) -> Path:
    """Write and ingest a sweep; `twins` choose as many examples at random as the recipe of the same name does."""
    plain = {name: (name, curve, False) for name, curve in recipes.items()}
    chosen = {f"{name}-random": (name, curve, True) for name, curve in (twins or {}).items()}
    for name, (of, curve, random) in {**plain, **chosen}.items():
        methods = () if name == "baseline" else (name,)
        for ssr, accuracy in zip((0.25, 0.5, 1.0), curve, strict=True):
            for seed in seeds:
                record = run_record(recipe=name, sweep=sweep, ssr=ssr, seed=seed, methods=methods)
                if random:
                    record = replace(record, control="random-subset", control_of=(of,))
                noise = NOISE[(seed + (of != "baseline")) % 3]
                write_run(runs, record, metrics={"accuracy": accuracy + noise})
        last = run_record(recipe=name, sweep=sweep, methods=methods)
        write_profile(runs, last, seconds=(seconds or {}).get(name, 0.04), quartiles=QUIET)
    ingest(runs)
    return runs


def sample(runs: Path, *, seeds: int, other: bool = False) -> Path:
    write_sample(runs, seeds=seeds)
    if other:
        write_sample(runs, sweep="other", seeds=seeds)
    return runs


def confirmed(
    runs: Path,
    fresh: Curve,
    *,
    sweep: str = "digits",
    twin: Curve | None = None,
    seeds: tuple[int, ...] = (3, 4, 5),
) -> Path:
    """A winner of three recipes, and the same once more on fresh seeds; the sweep that is asked about has the name
    "digits", be it the one or the other."""
    first, again = ("digits", "again") if sweep == "digits" else ("first", "digits")
    write(
        runs,
        {"baseline": BASELINE, "fast": BETTER, "worse": (0.8, 0.9, 0.96)},
        sweep=first,
        twins=None if twin is None else {"fast": twin},
    )
    return write(runs, {"baseline": BASELINE, "fast": fresh}, sweep=again, seeds=seeds)


def unfinished(runs: Path) -> Path:
    confirmed(runs, BETTER)
    last = run_record(recipe="fast", sweep="again", seed=5, methods=("fast",))
    (runs / "again" / last.run_id / "result.json").unlink()
    ingest(runs)
    return runs


CASES: dict[str, Callable[[Path], Path]] = {
    "three seeds": lambda runs: sample(runs, seeds=3),
    "two seeds, and another sweep": lambda runs: sample(runs, seeds=2, other=True),
    "one seed": lambda runs: sample(runs, seeds=1),
    "a winner": lambda runs: write(runs, {"baseline": BASELINE, "fast": BETTER}),
    "nothing reached": lambda runs: write(runs, {"baseline": BASELINE, "worse": (0.8, 0.9, 0.96)}),
    "past the target, and one less": lambda runs: write(
        runs, {"baseline": BASELINE, "fast": (0.98, 0.985, 0.99), "good": BETTER}
    ),
    "equivalent": lambda runs: write(runs, {"baseline": BASELINE, "alike": BASELINE}, seconds={"alike": 0.0402}),
    "slower": lambda runs: write(runs, {"baseline": BASELINE, "slow": BETTER}, seconds={"slow": 0.4}),
    "confirmed": lambda runs: confirmed(runs, BETTER),
    "not confirmed": lambda runs: confirmed(runs, BASELINE),
    "not reached on fresh seeds": lambda runs: confirmed(runs, (0.8, 0.9, 0.96)),
    "past the target on fresh seeds": lambda runs: confirmed(runs, (0.98, 0.985, 0.99)),
    "on one fresh seed": lambda runs: confirmed(runs, BETTER, seeds=(3,)),
    "a confirmation in progress": unfinished,
    "a confirmation itself": lambda runs: confirmed(runs, BETTER, sweep="again"),
    "a confirmation itself that does not hold": lambda runs: confirmed(runs, (0.8, 0.9, 0.96), sweep="again"),
    "a control has it too": lambda runs: write(
        runs, {"baseline": BASELINE, "fast": BETTER}, twins={"fast": (0.94, 0.968, 0.9801)}
    ),
    "confirmed, and a control has it too": lambda runs: confirmed(runs, BETTER, twin=(0.94, 0.968, 0.9801)),
    "no baseline": lambda runs: write(runs, {"fast": BETTER, "worse": (0.8, 0.9, 0.96)}),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A claim about a recipe."""

    call: Call | None  # None: this face does not say
    fresh: str = ""  # what fresh seeds say, "asked" where they are asked for
    vanishes: bool = False  # a control has the gain too


def claim_of(found: Verdict) -> Claim:
    fresh = "asked" if found.asks else "" if found.confirmation is None else str(found.confirmation.verdict)
    return Claim(call=found.call, fresh=fresh, vanishes=found.control is not None)


FRESH = {
    r"not confirmed on \d": Confirmed.NOT_CONFIRMED,
    r"confirmed on \d": Confirmed.CONFIRMED,
    r"its confirmation on .* is in progress": Confirmed.IN_PROGRESS,
    r"on fresh seeds, as the confirmation of": Confirmed.ITSELF,
    r"confirm on fresh seeds": "asked",
}
VANISHES = r"no better than its control|its gain vanishes against its control"
CALLS = {str(call): call for call in Call} | {
    "faster than the baseline": Call.LESS,
    "slower than the baseline": Call.MORE,
    "at most": Call.BELOW,  # the column of amounts says it where the note does not
    "unknown": Call.UNKNOWN,
}


def read(words: str) -> Claim:
    """The claim of words in which the call is named."""
    rest, fresh = _fresh(words)
    found = sorted((rest.find(name), call) for name, call in CALLS.items() if name in rest)
    assert found, f"no call in {words!r}"
    return Claim(call=found[0][1], fresh=fresh, vanishes=re.search(VANISHES, words) is not None)


def read_sentence(words: str) -> Claim:
    """The claim of a sentence, in which numbers say whether it is less or more."""
    rest, fresh = _fresh(words)
    vanishes = re.search(VANISHES, words) is not None
    for name, call in (
        ("cannot tell", Call.INCONCLUSIVE),
        ("equivalent within", Call.EQUIVALENT),
        ("is past", Call.BELOW),
        ("does not reach", Call.NOT_REACHED),
        ("be compared", Call.UNKNOWN),
        ("nothing to compare with", Call.NO_BASELINE),
        ("(n=1", Call.ONE_SEED),
        ("(no interval", Call.NO_INTERVAL),
    ):
        if name in rest:
            return Claim(call=call, fresh=fresh, vanishes=vanishes)
    span = re.search(r"% interval ([\d.]+)x-([\d.]+)x", rest)  # of the speedup
    assert span, f"no call in {words!r}"
    low, high = map(float, span.groups())
    assert high < 1 or low > 1, words
    return Claim(call=Call.MORE if high < 1 else Call.LESS, fresh=fresh, vanishes=vanishes)


def _fresh(words: str) -> tuple[str, str]:
    """Split words into those before the part on fresh seeds, which extends to the end of its cell, and that part."""
    for pattern, said in FRESH.items():
        if found := re.search(f"{pattern}[^|]*", words):
            return words[: found.start()] + words[found.end() :], str(said)
    return words, ""


def rows_of(page: str) -> list[str]:
    """The rows of the first table of a page that compares with a baseline, as texts with a bar between cells."""
    tables = [table for table in re.findall(r"<table.*?</table>", page, re.S) if "Reach rate" in table]
    rows = re.findall(r"<tr.*?</tr>", tables[0], re.S) if tables else []
    cells = [re.sub(r"</t[dh]>", " | ", row) for row in rows]
    return [" ".join(unescape(re.sub(r"<[^>]*>", " ", row)).split()) for row in cells]


@dataclass(kw_only=True)
class Case:
    """A store, and its verdicts on the recipes of "digits"."""

    runs: Path
    verdicts: list[Verdict]
    content: ReportedSweep

    @property
    def labels(self) -> list[str]:
        return [each.comparison.label for each in self.verdicts]

    def by_row(self, rows: list[str], *, start: str = "") -> Iterator[tuple[str, Claim | None]]:
        for label in self.labels:
            row = next((row for row in rows if row.startswith(f"{start}{label} ")), None)
            yield label, None if row is None else read(row)


Face = Callable[[Case], Iterator[tuple[str, Claim | None]]]
"""What a face says: of each recipe, or of the one that a headline is about."""


def in_terminal(case: Case) -> Iterator[tuple[str, Claim | None]]:
    _, first, *lines = command("results", "digits", "--runs", str(case.runs)).splitlines()
    yield from case.by_row(lines)
    yield from headlines(case, first)


def in_notebook(case: Case) -> Iterator[tuple[str, Claim | None]]:
    found = answer(read_snapshot(case.runs), Question(sweep="digits"))
    page = fragment(
        *comparison_table(found.verdicts, found.budgets, payment=PAYMENTS["time"], look=found.look, rates=found.rates)
    )
    yield from case.by_row(rows_of(str(page)))
    yield from headlines(case, found.sentence)


def in_questions(case: Case) -> Iterator[tuple[str, Claim | None]]:
    where = database(case.runs)
    rows = frames.results(where, sweep="digits")
    asked = ask(rows, frames.deletion_forecasts(where, sweep="digits"), Limits(quality=0.5), verdicts=case.verdicts)
    for each in asked.candidates:
        if each.verdict is not None:
            yield each.label, read(verdict_words(each))
    said = json.loads(command("ask", "digits", "--quality", "0.5", "--json", "--runs", str(case.runs)))
    (best,) = [each for each in asked.candidates if each.label == said["best"]]
    if best.verdict is not None:
        fresh = "asked" if said["confirm"] else _fresh(said["confirmation"] or "")[1]
        words = said["answer"].partition("own quality: ")[2]
        told = read(words) if said["holds"] else claim_of(best.verdict)  # a guess is compared with nothing
        yield best.label, told
        yield best.label, Claim(call=Call(said["call"]), fresh=fresh, vanishes=told.vanishes)


def in_panel(case: Case) -> Iterator[tuple[str, Claim | None]]:
    """Those that fresh seeds have judged, or are asked to judge; of the others it says that there is nothing."""
    panel, snapshot = ConfirmSection(lambda **_: None), read_snapshot(case.runs)
    panel.show(snapshot, answer(snapshot, Question(sweep="digits")))
    shown = [unescape(re.sub(r"<[^>]*>", "", each.words.value)) for each in panel.winners]
    for found in case.verdicts:
        label = found.comparison.label
        words = next((words for words in shown if words.startswith(f"{label} ")), None)
        if words is not None:
            yield label, read(words)
        elif found.asks or found.judged_by_others:
            yield label, None
    if not shown:
        assert "Nothing to confirm" in panel.children[0].value
        itself = "a confirmation itself" in panel.children[0].value
        for found in case.verdicts:
            yield found.comparison.label, replace(claim_of(found), fresh=str(Confirmed.ITSELF) if itself else "")


def in_confirm(case: Case) -> Iterator[tuple[str, Claim | None]]:
    """`explorer confirm` of each recipe, once its runs are there; it says nothing of the sweep's own seeds."""
    for found in case.verdicts:
        label = found.comparison.label
        if found.confirmation is None:
            continue
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                confirm, "_planned", lambda *_, **__: (SimpleNamespace(spec=SimpleNamespace(name="digits")), "")
            )
            patch.setattr(confirm, "execute", lambda *_, **__: None)
            patch.setattr(confirm, "finish", lambda *_, **__: None)
            done = CliRunner().invoke(
                app, ["confirm", "digits", label, "--runs", str(case.runs)], env={"COLUMNS": "500"}
            )
        words = done.stdout.splitlines()[-1]
        vanishes = re.search(VANISHES, words) is not None
        yield label, Claim(call=found.call, fresh=_fresh(words)[1], vanishes=vanishes)
        assert words.startswith(f"{label}: ") and (done.exit_code == 0) == found.is_confirmed


def in_json(case: Case) -> Iterator[tuple[str, Claim | None]]:
    document = json.loads(report(case, "json"))
    (first, *_) = document["sections"]
    for each in first["equal_quality"]:
        fresh = "asked" if each["asks_confirmation"] else each["confirmed"] or ""
        told = Claim(call=Call(each["call"]), fresh=fresh, vanishes=each["vanishes_against"] is not None)
        yield each["result"]["label"], told
        yield each["result"]["label"], replace(told, call=read(each["words"]).call)
    yield from headlines(case, document["answer"])


def in_markdown(case: Case) -> Iterator[tuple[str, Claim | None]]:
    lines = report(case, "md").splitlines()
    first = next(at for at, line in enumerate(lines) if "| Reach rate |" in line)
    rows = [line.replace("**", "") for line in lines[first : lines.index("", first)]]
    yield from case.by_row(rows, start="| ")
    yield from headlines(case, next(line for line in lines if line.startswith("**")).strip("*"))
    yield from sections(case, "\n".join(lines))


def in_html(case: Case) -> Iterator[tuple[str, Claim | None]]:
    page = report(case, "html")
    yield from case.by_row(rows_of(page))
    text = " ".join(unescape(re.sub(r"<[^>]*>", " ", page.partition("<h1")[2].partition("<h2")[0])).split())
    yield from headlines(case, text)
    yield from sections(case, unescape(re.sub(r"<[^>]*>", "", page)))


def sections(case: Case, page: str) -> Iterator[tuple[str, Claim | None]]:
    """What the report's chapter on confirmations says."""
    told = page.partition("Is it confirmed?")[2].partition("higher is better")[0]
    for found in case.verdicts:
        label = found.comparison.label
        asks = f"{label} is not confirmed:" in told and f"explorer confirm digits {label}" in told
        mine = next((line for line in re.split(r"\n(?=\| |\s*\w)", told) if line.strip("| \n").startswith(label)), "")
        yield label, replace(claim_of(found), fresh="asked" if asks else _fresh(told if mine else "")[1])


def headlines(case: Case, words: str) -> Iterator[tuple[str, Claim | None]]:
    """What a headline says; one that no recipe leads counts the calls of all."""
    best = headliner(case.verdicts)
    if best is not None:
        named = best.comparison.label in words.lower()  # a sentence may begin with it
        yield best.comparison.label, read_sentence(words) if named else None
    elif "no recipe beats" in words.lower():
        for each in case.verdicts:
            yield (
                each.comparison.label,
                claim_of(each) if any(name in words for name, call in CALLS.items() if call is each.call) else None,
            )
    else:
        told = read_sentence(words)
        about = [each for each in case.verdicts if each.call is told.call]
        yield from ((each.comparison.label, told) for each in about or case.verdicts)


FACES: dict[str, Face] = {
    "terminal": in_terminal,
    "notebook": in_notebook,
    "questions": in_questions,
    "panel": in_panel,
    "confirm": in_confirm,
    "json": in_json,
    "markdown": in_markdown,
    "html": in_html,
}


def command(*arguments: str) -> str:
    return CliRunner().invoke(app, [*arguments], env={"COLUMNS": "500"}).stdout


def report(case: Case, format: str) -> str:
    return FORMATS[format](replace(case.content)).decode()  # a copy, which has gathered nothing yet


def disagreements(case: Case, *faces: str) -> list[str]:
    """What faces, or some of them, say of recipes that the verdict does not."""
    expected = {each.comparison.label: claim_of(each) for each in case.verdicts}
    return [
        f"{name}: {label} is {told}, and by the verdict {expected[label]}"
        for name in faces or FACES
        for label, told in FACES[name](case)
        if told != expected[label]
    ]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """The cases, each written when it is first asked for."""
    known: dict[str, Case] = {}

    def of(name: str) -> Case:
        if name not in known:
            runs = CASES[name](tmp_path_factory.mktemp("agreement") / "runs")
            where = database(runs)
            found = sweep_verdicts(frames.results(where, sweep="digits"), with_confirming(where, "digits"))
            known[name] = Case(runs=runs, verdicts=found, content=read_sweep(runs, "digits"))
        return known[name]

    return of


@pytest.fixture(autouse=True)
def plain_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drawing takes its time, and is another test's."""
    monkeypatch.setattr(html, "svg", lambda picture, width: "<svg ></svg>")
    monkeypatch.setattr(html, "_bundle", lambda: "")


SLOW = (
    "two seeds, and another sweep",
    "one seed",
    "equivalent",
    "slower",
    "not confirmed",
    "past the target, and one less",
    "not reached on fresh seeds",
    "past the target on fresh seeds",
    "on one fresh seed",
    "a confirmation itself that does not hold",
    "confirmed, and a control has it too",
    "a confirmation in progress",
    "a confirmation itself",
    "a control has it too",
    "nothing reached",
)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CASES])
def test_all_faces_say_the_same(cases: Callable[[str], Case], name: str) -> None:
    case = cases(name)
    assert case.verdicts and disagreements(case) == []


IGNORED: dict[str, tuple[str, str, str]] = {
    "explorer.cli.verdicts.call_words": ("terminal", "slower", "faster than the baseline"),
    "explorer.cli.verdicts.summary": ("terminal", "nothing reached", "worse reaches it (95% interval 1.50x-1.60x)"),
    "explorer.cli.confirm._words": ("confirm", "not confirmed", "confirmed on 3 fresh seeds: 2.00x faster"),
    "explorer.views.explorer.tabs.ask_words.call_words": ("questions", "equivalent", "faster than the baseline"),
    "explorer.views.explorer.tabs.ask_words.fresh_words": (
        "questions",
        "not confirmed",
        "; confirmed on 3 fresh seeds: 2.00x faster",
    ),
    "explorer.views.explorer.comparison_tables.fresh_words": (
        "notebook",
        "not confirmed",
        "; confirmed on 3 fresh seeds: 2.00x faster",
    ),
    "explorer.views.explorer.comparison_tables.control_words": ("html", "a control has it too", ""),
    "explorer.views.explorer.tabs.confirm_section.control_words": ("panel", "a control has it too", ""),
    "explorer.views.explorer.comparison_tables.verdict_note": ("markdown", "slower", "faster than the baseline"),
    "explorer.report.sweep.metrics_section.call_words": ("json", "slower", "faster than the baseline"),
}
"""A function that says something of a verdict: the face that it belongs to, a case, and what it says without it."""


@pytest.mark.parametrize("function", IGNORED)
@pytest.mark.slow
def test_a_face_that_ignores_the_verdict_is_found(
    cases: Callable[[str], Case], monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    face, name, words = IGNORED[function]
    case = cases(name)
    assert disagreements(case, face) == []
    monkeypatch.setattr(function, lambda *_: words)
    assert disagreements(case, face)
