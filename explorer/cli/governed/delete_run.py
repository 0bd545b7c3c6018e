"""`explorer delete run` and `explorer delete evidence`: make the run without a target, and measure what is left of it.

These verbs train, and load torch; `delete.py` has those that do not.
"""

import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer import run_files, rundir
from explorer.analysis.forgetting import Findings, Reference, Seeds, judge, reference
from explorer.cli import options
from explorer.cli.governed.delete import certified, time_words
from explorer.cli.run import print_elsewhere
from explorer.cli.signing import provide_trainer
from explorer.costing import Duration
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
from explorer.runlog.tagged_records import numbers_of, words_of
from explorer.runlog.target import SWEEP, Target, read_origin, resolve
from explorer.training.deletion import IMMATERIAL, Compared, delete, train_counterfactual
from explorer.training.forgetting_evidence import STEPS, Bench
from explorer.training.govern import load_loop
from explorer.training.loop_time import measure_loop
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
        typer.Option(
            "--level", metavar="G2|G3", help="Deletion level. Default: the available one that takes the least work."
        ),
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
            help="Text or file of the deletion request. Only a commitment to it is kept.",
        ),
    ] = None,
    trust: options.OwnTrust = None,
    expires: options.Expires = None,
    governance: options.Private = None,
    data: options.Data = None,
    ranks: options.Ranks = None,
    loop: options.OwnLoop = None,
    json: options.Json = False,
) -> Answer:
    """Delete examples from a run: make the run without them, with a certificate that anyone can check.

    The same command continues after an interruption. The old run stays as it is; its files to destroy are listed.
    """
    ledger = RunLedger(run)
    target = resolve(ledger, class_=class_, authority=authority, records=numbers_of(ledger, record or ()))
    planned = plan(ledger, target, private=governance)
    route = _route(planned, ledger, level, loop=loop, private=governance)
    if not json:
        print(visible("\n".join(_planned(planned, route, ledger))), flush=True)
    text = _text(request) if request is not None else f"delete {target.words}"
    provide_trainer(run, private=governance)
    trust = trust or run / rundir.GOVERNANCE / "trust.json"
    # A key or a document that would be refused at the end is refused now, before hours of training.
    trusted, now = read_trust(trust), options.clock()
    trainer_key(run, trust=trusted, now=now, private=governance)
    open_whole(run, papers=run, trust=trusted, now=now)

    with step_bar("deletion") as show:
        new = delete(
            run,
            target,
            route=route,
            to=out or runs_of(run) / SWEEP,
            data=data,
            private=governance,
            ranks=ranks,
            on_progress=show,
            loop=None if loop is None else load_loop(loop),
        )
    keep_request(new, text)
    if _waits(new, trusted):
        return _waiting(run, new, trust, route)
    return certified(run, new, trust=trust, expires=expires, private=governance, not_reached=planned.beyond)


def _waits(new: Path, trust: Trust) -> bool:
    """Return whether others have to cosign the new ledger and none has yet."""
    others = any(count for role, count in trust.quorum.checkpoints.items() if role is not Role.TRAINER)
    return others and not any((new / rundir.LEDGER / WITNESS).glob("*"))


def _waiting(old: Path, new: Path, trust: Path, route: Route) -> Answer:
    """Answer with the commands that lead from a finished run to its certificate."""
    here = from_here(new)
    anchor = ("--trust", str(trust))
    cosign = shlex.join(("explorer", "ledger", "cosign", str(here / rundir.LEDGER), "--key", "KEY", *anchor))
    certify = shlex.join(("explorer", "delete", "certify", str(here), "--old", str(old), *anchor))
    made = {"run": new.name, "directory": str(new), "level": route.level}
    lines = [
        f"{new.name}: made, and not certified yet: {here}",
        "  the trust file requires cosignatures of its ledger first: each cosigner runs the first command, then you the"
        " second",
        f"    {cosign}",
        f"    {certify}",
    ]
    rest = {"deleted": False, "certificate": None, "next": [cosign, certify]}
    return Answer(page=lambda: lines, record=lambda: {**made, **rest})


def _route(planned: Plan, ledger: RunLedger, level: str | None, *, loop: str | None, private: Path | None) -> Route:
    """Return the route of the deletion. Raises `RunError` if it is not available."""
    if level not in (None, *LEVELS):
        raise RunError(f"--level: {unknown('level', level or '', LEVELS)}; weaker levels delete nothing")
    forecast = planned.forecast
    if level == "G2" and forecast.route.level == "G3":
        raise RunError(
            f"--level G2: {planned.target.words} reached more than its own sealed regions, which"
            " `explorer delete plan` lists; G3 is available"
        )
    route, hindering = forecast.route, forecast.obstacles
    if level == "G3" and forecast.reach.first is None:
        raise RunError(
            f"--level G3: {planned.target.words} reached nothing in the run, so there is nothing to replay;"
            " G2 is available"
        )
    if level == "G3" and route.level == "G2":
        route = replay_route(ledger, forecast.reach)
        hindering = obstacles(Presence(ledger), forecast.reach, level="G3", private=private)
    # With the code of the user's own loop at hand, its absence from the record is no obstacle.
    if loop is not None:
        hindering = tuple(obstacle for obstacle in hindering if obstacle != NO_CODE)
    if hindering:
        raise RunError(f"{planned.run}: cannot be done here and now: {'; '.join(hindering)}")
    return route


def _text(request: str) -> str:
    """Return the text of a request: the content of a file, or the words themselves."""
    try:
        path = Path(request)
        if not path.is_file():
            return request
    except (OSError, ValueError):  # too long for a file name, or with a zero byte in it
        return request
    try:
        return read_bytes(path, max_bytes=MAX_REQUEST, error=ProvenanceError).decode()
    except UnicodeDecodeError as error:
        raise ProvenanceError(f"{path}: found bytes that are not UTF-8; expected the text of a request") from error


def _planned(planned: Plan, route: Route, ledger: RunLedger) -> list[str]:
    lines = [f"{planned.run}: {words_of(ledger, planned.target)}"]
    lines += [f"  continues {words}" for words in planned.continues]
    if route.level == "G2":
        lines.append(f"  G2, exact by structure: drops {', '.join(route.dropped) or 'nothing'}; nothing is trained")
        return lines
    time = time_of(ledger.run, route)
    lines.append(f"  G3, exact by replay: {route.steps} steps, from step {route.start} on")
    return [*lines, f"  time: {time_words(time)}"]


# --- explorer delete evidence ---

NO_PROOF = (
    "Evidence, not proof: measurements that find nothing do not show that nothing is left. A deletion rests on the"
    " ledger and on the certificate that names it: explorer delete verify."
)
COLUMNS = ("loss on it", "on the others", "membership", "relearned in", "equal")
NUMBERS = ("target", "others", "quality", "auc", "relearned")
FEW = 8  # with fewer references, the table says what they cannot show


def evidence(
    run: options.RunDirectory,
    class_: Annotated[
        str,
        typer.Argument(metavar="CLASS", help="A class of the run, or a branch of the taxonomy with all its classes."),
    ],
    references: Annotated[
        list[Path],
        typer.Option(
            "--references",
            metavar="DIR",
            help="A finished run of the same plan without the class, of any seed, or the run that a deletion made;"
            " repeatable. Give at least three seeds.",
        ),
    ],
    data: options.Data = None,
) -> Answer:
    """Measure what a model knows about a class, compared with models trained without it. This proves nothing.

    The measures are the loss on the class's examples and on the others, the quality, a membership test for each
    example, and how fast the class is learned again. The models are the run, the run with the class's regions off (G0),
    the run with the layers that the class trained put back (G1), and the runs that deletions made (G2, G3).
    """
    target = resolve(RunLedger(run), class_=class_)
    bench = Bench(run, target, data=data)
    # A reference that a deletion made is a model to be judged; the others say what to expect without the class.
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
    findings = {name: judge(subject, retrained) for name, subject in subjects.items()}
    words = f"{bench.record.run_id}: {target.words}, compared with {len(retrained)} runs without it\n"
    head = {"run": bench.record.run_id, "classes": target.classes, "quality": bench.record.quality}
    return Answer(
        page=lambda: [words, *_evidence_blocks(findings, statistics, quality=bench.record.quality)],
        record=lambda: {
            **head,
            "models": [{"model": name, **asdict(judged)} for name, judged in findings.items()],
            "references": asdict(statistics),
            "says": NO_PROOF,
        },
    )


def _evidence_blocks(findings: dict[str, Findings], references: Reference, *, quality: str) -> Iterator[Block | str]:
    before, after = COLUMNS[:2], COLUMNS[2:]
    columns = ("model", *before, quality.replace("_", " "), *after)
    rows = [[name, *_cells(judged, references)] for name, judged in findings.items()]
    # Below the models: what the references reach on average, and the range of one more of them.
    seeds = [getattr(references, name) for name in NUMBERS]
    means = [f"some > {STEPS}" if seed is None else f"{seed.mean:.3f}" for seed in seeds]
    rows.append([f"retrained without it, mean of {references.target.n}", *means, None])
    for end, word in (("least", "one more of these: from"), ("most", "to")):
        rows.append([word, *(None if seed is None else f"{getattr(seed, end):.3f}" for seed in seeds), None])
    yield table(columns, rows, right=columns[1:])
    yield "* outside the range of one more run without the class (95%, Student's t over the seeds)"
    yield "losses in nats; membership: area under the curve, 0.5 is chance, with a bootstrap interval over the examples"
    yield f"relearned in: steps until the class is known as well as the run knew it, or > {STEPS} if that takes longer"
    yield "equal: every loss, the quality and the steps are those of the retrained run of the same seed, bit for bit"
    if references.target.n < FEW:
        yield (
            f"{references.target.n} references are few: an example's score is compared with the mean of at most"
            f" {references.target.n - 1} models, so a weak trace of one example can go unseen"
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
    """List the differences from the machine that recorded the run, each of which changes the bits of a replay."""
    record = run_files.read_plan(run)
    if record is None:
        return ()
    differing = [change for change in elsewhere(run, record) if change.what not in IMMATERIAL]
    words = [f"{change.what}: {change.recorded} when it was recorded, {change.here} here" for change in differing]
    if not isinstance(record, RunRecord):  # its data comes from the function that trains
        return tuple(words)
    try:
        dataset = recipe_of(record).dataset
        load(dataset, data)
        if dataset.digest(data) != record.identity["data"]:
            words.append(f"the data of {record.dataset} is not the data that the run was trained on")
    except (ExplorerError, KeyError) as error:
        words.append(f"the data of {record.dataset} cannot be read: {error}")
    return tuple(words)


def loop_time(run: Path, target: Target, *, loop: str, private: Path | None) -> Duration:
    """Measure the time of a step of the loop that `loop` names, without the target."""
    return measure_loop(run, target, load_loop(loop), private=private)


def counterfactual(
    checked: Verified, new: Path, *, data: Path | None, private: Path | None, loop: str | None, quiet: bool
) -> Compared:
    """Train the run without the target of a verified certificate, and compare every tensor with the new run.

    `private` holds the salts of the tags if they have moved, `loop` names a training loop of the user's own, and
    `quiet` leaves differences of the environment unmentioned.
    """
    structure = checked.certificate.structure
    return train_counterfactual(
        new,
        dropped=() if structure is None else structure.dropped,
        data=data,
        private=private,
        loop=None if loop is None else load_loop(loop),
        on_environment=lambda differing: None if quiet else print_elsewhere(differing),
    )
