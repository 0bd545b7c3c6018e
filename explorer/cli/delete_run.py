"""`explorer delete run`: make the run without a target, and certify it unless others have to cosign first."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer import run_files, rundir
from explorer.analysis.forgetting import Findings, Reference, Seeds, judge, reference
from explorer.cli import options
from explorer.cli.delete import certified, time_words
from explorer.cli.run import print_elsewhere
from explorer.cli.signing import provide_trainer
from explorer.data.sources import load
from explorer.deletion.deletion_plan import Plan, keep_request, plan
from explorer.deletion.evidence import open_whole
from explorer.deletion.verify_deletion import Verified
from explorer.errors import ExplorerError, ProvenanceError, RunError, unknown
from explorer.ledger.verify import WITNESS
from explorer.page.document import Block
from explorer.page.progress import step_bar
from explorer.page.terminal import Answer, from_here, table, visible
from explorer.project import runs_of
from explorer.provenance.trust import Role, Trust, read_trust
from explorer.run_files import RunRecord
from explorer.rundir import read_bytes
from explorer.runlog.documents import trainer_key
from explorer.runlog.forecast import NO_CODE, Route, obstacles, replay_route, time_of
from explorer.runlog.influence import Presence
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import SWEEP, read_origin, resolve
from explorer.training.deletion import IMMATERIAL, Compared, delete, train_counterfactual
from explorer.training.forgetting_evidence import STEPS, Bench
from explorer.training.govern import load_loop
from explorer.training.replay import elsewhere
from explorer.training.run_plan import recipe_of

MAX_REQUEST = 2**20
LEVELS = ("G2", "G3")


def run(
    run: options.RunDirectory,
    class_: options.Class = None,
    record: options.Records = None,
    authority: options.AuthorityName = None,
    level: Annotated[
        str | None,
        typer.Option("--level", metavar="G2|G3", help="Deletion level. Default: the one that takes less work."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Parent directory of the new run. Default: deletions/ in the directory of runs.",
        ),
    ] = None,
    request: Annotated[
        str | None,
        typer.Option(
            "--request",
            metavar="TEXT|FILE",
            help="Text or file of the deletion request; only a commitment to it is kept.",
        ),
    ] = None,
    trust: Annotated[
        Path | None, typer.Option("--trust", metavar="TRUST", help="Trust file. Default: the run's own copy.")
    ] = None,
    expires: options.Expires = None,
    governance: options.Private = None,
    data: options.Data = None,
    loop: options.OwnLoop = None,
    json: options.Json = False,
) -> Answer:
    """Delete examples from a run: make the run without them, with a certificate that anyone can check.

    After an interruption the same command continues. The old run stays; its files to destroy are listed.
    """
    ledger = RunLedger(run)
    target = resolve(ledger, class_=class_, authority=authority, records=record or ())
    planned = plan(ledger, target)
    route = _route(planned, ledger, level, loop=loop)
    if not json:
        print(visible("\n".join(_planned(planned, route, run))), flush=True)
    text = _text(request) if request is not None else f"delete {target.words}"
    provide_trainer(run, private=governance)
    trust = trust or run / rundir.GOVERNANCE / "trust.json"
    believed, now = read_trust(trust), options.clock()
    trainer_key(run, trust=believed, now=now, private=governance)  # what can be refused is, before hours of training
    open_whole(run, papers=run, trust=believed, now=now)

    with step_bar("deletion") as show:
        new = delete(
            run,
            target,
            route=route,
            to=out or runs_of(run) / SWEEP,
            data=data,
            private=governance,
            on_progress=show,
            loop=None if loop is None else load_loop(loop),
        )
    keep_request(new, text)
    if _waits(new, believed):
        return _waiting(run, new, trust, route)
    return certified(run, new, trust=trust, expires=expires, private=governance, not_reached=planned.beyond)


def _waits(new: Path, trust: Trust) -> bool:
    """Return whether others have to cosign the new ledger and none has yet."""
    others = any(count for role, count in trust.quorum.checkpoints.items() if role is not Role.TRAINER)
    return others and not any((new / rundir.LEDGER / WITNESS).glob("*"))


def _waiting(old: Path, new: Path, trust: Path, route: Route) -> Answer:
    """Answer that the new run is finished and not yet certified."""
    here = from_here(new)
    cosign = f"explorer ledger cosign {here / rundir.LEDGER} --key KEY --trust {trust}"
    certify = f"explorer delete certify {here} --old {old} --trust {trust}"
    made = {"run": new.name, "directory": str(new), "level": route.level}
    lines = [
        f"{new.name}: made, and not certified yet: {here}",
        "  the trust file asks others to cosign its ledger first; each of them, and then you:",
        *(f"    {each}" for each in (cosign, certify)),
    ]
    rest = {"deleted": False, "certificate": None, "next": [cosign, certify]}
    return Answer(page=lambda: lines, record=lambda: {**made, **rest})


def _route(planned: Plan, ledger: RunLedger, level: str | None, *, loop: str | None) -> Route:
    """Return the route of the deletion. Raises `RunError` if it is not available."""
    if level not in (None, *LEVELS):
        raise RunError(f"--level: {unknown('level', level or '', LEVELS)}; below G2 nothing is deleted")
    forecast = planned.forecast
    if level == "G2" and forecast.route.level == "G3":
        raise RunError(
            f"--level G2: {planned.target.words} reached more than sealed regions of its own;"
            " `explorer delete plan` says what; G3 is available"
        )
    route, hindering = forecast.route, forecast.obstacles
    if level == "G3" and forecast.reach.first is None:
        raise RunError(
            f"--level G3: {planned.target.words} reached nothing in the run: nothing is to replay; G2 is available"
        )
    if level == "G3" and route.level == "G2":
        route = replay_route(ledger, forecast.reach)
        hindering = obstacles(Presence(ledger), forecast.reach, level="G3")
    if loop is not None:
        hindering = tuple(each for each in hindering if each != NO_CODE)
    if hindering:
        raise RunError(f"{planned.run}: cannot be done here and now: {'; '.join(hindering)}")
    return route


def _text(request: str) -> str:
    """Return the text of a request: the content of a file, or the words themselves."""
    try:
        path = Path(request)
        if not path.is_file():
            return request
    except (OSError, ValueError):  # too long for a name, or with a zero in it
        return request
    try:
        return read_bytes(path, max_bytes=MAX_REQUEST, error=ProvenanceError).decode()
    except UnicodeDecodeError as error:
        raise ProvenanceError(f"{path}: a request is UTF-8 text") from error


def _planned(planned: Plan, route: Route, run: Path) -> list[str]:
    lines = [f"{planned.run}: {planned.target.words}"]
    if route.level == "G2":
        lines.append(f"  G2, exact by structure: without {', '.join(route.dropped) or 'anything'}, nothing is trained")
        return lines
    time = time_of(run, route)
    lines.append(f"  G3, exact by replay: {route.steps} steps, from step {route.start} on")
    return [*lines, f"  time: {time_words(time)}"]


NO_PROOF = (
    "Evidence, and no proof: that measurements find nothing does not show that nothing is left. What a deletion rests"
    " on is the ledger and the certificate that names it: explorer delete verify."
)
COLUMNS = ("loss on it", "on the others", "membership", "relearned in", "equal")
NUMBERS = ("target", "others", "quality", "auc", "relearned")
FEW = 8  # references below which the table says what they cannot show


def evidence(
    run: options.RunDirectory,
    class_: Annotated[str, typer.Argument(metavar="CLASS", help="A class of the run, or a branch of classes.")],
    references: Annotated[
        list[Path],
        typer.Option(
            "--references",
            metavar="DIR",
            help="A finished run of the same plan without the class, of any seed, or what a deletion left. Say it again"
            " for each: three seeds at least.",
        ),
    ],
    data: options.Data = None,
) -> Answer:
    """Measure what a model knows about a class, compared with models trained without it. This proves nothing.

    Loss on the class's examples and on the others', quality, a membership test for each example, and how fast the class
    is learned again. Measured are the run, the run with the class's regions off (G0), the run with the layers that the
    class trained put back (G1), and what deletions left (G2, G3).
    """
    target = resolve(RunLedger(run), class_=class_)
    bench = Bench(run, target, data=data)
    origins = {path: read_origin(path) for path in references}
    for path, origin in origins.items():
        if origin is not None and (origin.run, origin.target) != (bench.record.run_id, target):
            raise RunError(f"{path}: a deletion of {origin.target.words} from {origin.run}; expected {target.words}")
    retrained = [bench.without(path) for path, origin in origins.items() if origin is None]
    statistics = reference(retrained)
    subjects = {"the run": bench.whole()}
    subjects |= {"G0, its regions off": bench.switched_off()} if bench.sealed else {}
    subjects |= {"G1, localised and ablated": bench.ablated()}
    for path, origin in origins.items():
        if origin is not None:
            subjects[f"{origin.level}, as its {rundir.ORIGIN} says"] = bench.without(path)
    findings = {name: judge(each, retrained) for name, each in subjects.items()}
    words = f"{bench.record.run_id}: {target.words}, compared with {len(retrained)} runs without it\n"
    head = {"run": bench.record.run_id, "classes": target.classes, "quality": bench.record.quality}
    return Answer(
        page=lambda: [words, *_evidence_blocks(findings, statistics, quality=bench.record.quality)],
        record=lambda: {
            **head,
            "models": [{"model": name, **asdict(each)} for name, each in findings.items()],
            "references": asdict(statistics),
            "says": NO_PROOF,
        },
    )


def _evidence_blocks(findings: dict[str, Findings], references: Reference, *, quality: str) -> Iterator[Block | str]:
    before, after = COLUMNS[:2], COLUMNS[2:]
    columns = ("model", *before, quality.replace("_", " "), *after)
    rows = [[name, *_cells(each, references)] for name, each in findings.items()]
    seeds = [getattr(references, name) for name in NUMBERS]
    means = [f"some > {STEPS}" if seed is None else f"{seed.mean:.3f}" for seed in seeds]
    rows.append([f"retrained without it, mean of {references.target.n}", *means, None])
    for end, word in (("least", "one more of these: from"), ("most", "to")):
        rows.append([word, *(None if each is None else f"{getattr(each, end):.3f}" for each in seeds), None])
    yield table(columns, rows, right=columns[1:])
    yield "* outside of where one more run without the class would lie (95%, Student's t over the seeds)"
    yield "losses in nats; membership: area under the curve, 0.5 is chance, with a bootstrap interval over the examples"
    yield f"relearned in: steps until the class is known as well as the run knew it; > {STEPS}: not within so many"
    yield "equal: every loss, the quality and the steps are those of the retrained run of the same seed, bit for bit"
    if references.target.n < FEW:
        yield (
            f"{references.target.n} references are few: each example's score is taken from the mean of at most"
            f" {references.target.n - 1} models, so that a weak trace of one example goes unseen"
        )
    yield NO_PROOF


def _cells(findings: Findings, references: Reference) -> list[Any]:
    """Return the numbers of one model, each marked where it lies outside the range of one more reference."""
    member, steps = findings.membership, findings.relearned
    values = {"target": findings.target, "others": findings.others, "quality": findings.quality, "auc": member.auc}
    cells = {name: f"{value:.3f}{_mark(value, getattr(references, name))}" for name, value in values.items()}
    cells["auc"] = f"{cells['auc']} [{member.low:.2f}, {member.high:.2f}]"
    cells["relearned"] = f"> {STEPS}" if steps is None else f"{steps}{_mark(steps, references.relearned)}"
    twin = None if findings.same is None else "yes" if findings.same else "no"
    return [*(cells[name] for name in NUMBERS), twin]


def _mark(value: float, seeds: Seeds | None) -> str:
    return "" if seeds is None or seeds.expects(value) else "*"


def elsewhere_words(run: Path, data: Path | None) -> tuple[str, ...]:
    """List the differences from where the run was recorded: with any of them a replay gives other bits, or fails."""
    if not (run / rundir.RUN).exists():
        return ()
    record = run_files.read(RunRecord, run / rundir.RUN)
    differing = [each for each in elsewhere(run, record) if each.what not in IMMATERIAL]
    words = [f"{each.what}: {each.recorded} when it was recorded, {each.here} here" for each in differing]
    try:
        dataset = recipe_of(record).dataset
        load(dataset, data)
        if dataset.digest(data) != record.identity["data"]:
            words.append(f"the data of {record.dataset} is not what the run was given")
    except (ExplorerError, KeyError) as error:
        words.append(f"the data of {record.dataset} cannot be read: {error}")
    return tuple(words)


def counterfactual(
    checked: Verified, new: Path, *, data: Path | None, private: Path | None, loop: str | None, quiet: bool
) -> Compared:
    structure = checked.certificate.structure
    return train_counterfactual(
        new,
        dropped=() if structure is None else structure.dropped,
        data=data,
        private=private,
        loop=None if loop is None else load_loop(loop),
        on_environment=lambda differing: None if quiet else print_elsewhere(differing),
    )
