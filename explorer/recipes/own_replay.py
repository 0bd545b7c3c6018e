"""Training loops of one's own, executed again: by a function that its owner hands over.

A run of `explorer.govern` keeps no code. Where the loop is a function of what governs it, it can be called again:

    def train(govern=explorer.govern):
        torch.manual_seed(0)
        model = MyModel()
        optimizer = torch.optim.AdamW(model.parameters())
        with govern(
            model, optimizer, examples=examples, documents="governed", policy="half-depth",
            ledger="runs/own/mine", steps=100,
        ) as governed:
            for rows in batches():                        # the same ones each time
                governed.step(rows, losses)

    train()
    explorer.replay("runs/own/mine", train)

The function gets another `govern`, of the same signature, which takes the run's own documents and writes nothing: every
entry has to be the one that the ledger has next. The same function trains the run that never had a class, for a
deletion by replay (G3) and for the counterfactual of a certificate; then the places of that class in the batches are
empty. It always begins with its first step, since the states of such a loop are its owner's.

No file names a function to be called: who replays says which, so that a run's directory executes nothing.
"""

import hashlib
import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from explorer import rundir
from explorer.data.dataset import Split
from explorer.engine.method import Method
from explorer.engine.state import State
from explorer.entries.run import Genesis
from explorer.errors import RecipeError, RunError
from explorer.governance.class_secrets import erased, read_secrets
from explorer.governance.digests import tensors_of
from explorer.governance.documents import Documents, read_copies
from explorer.governance.journal import Journal
from explorer.governance.own_loop import Governed
from explorer.governance.recorder import beginning
from explorer.governance.routing import Routing
from explorer.governance.spool import ALL
from explorer.recipes.choice import choose
from explorer.recipes.comparison import NOTHING, Comparison, Difference, Differs, commitments, flat
from explorer.recipes.finished import write_own
from explorer.recipes.govern import Given, begin, genesis_of, governed
from explorer.recipes.ledger import stand_in
from explorer.recipes.reference import Reference, blank
from explorer.recipes.replay import INITIAL, Elsewhere, Replayed, elsewhere
from explorer.records import LoopRecord, listed_methods
from explorer.runlog.counterfactual import ROUTING
from explorer.runlog.origin import Origin
from explorer.runlog.papers import quarantine_content, read_policy
from explorer.runlog.presence import read_record
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.tensors import Tensors

OwnLoop = Callable[[Callable[..., Governed]], object]
"""A training loop that governs by what it is handed; what it returns is not looked at."""

COMPARED = ("data", "initial", "classes", "layers", "shared")  # of the first entry; the others are the documents'


def replay(
    directory: str | Path,
    loop: OwnLoop,
    *,
    private: Path | None = None,
    on_environment: Callable[[tuple[Elsewhere, ...]], None] = lambda found: None,
) -> Replayed:
    """Execute a run of `explorer.govern` again, from its first step to its end, and compare it with its ledger.

    `private` is where the salts of the tags are now, if not where the run had them. `on_environment` is told what
    differs here before anything is executed. Raises `RunError` for a run of a recipe, and for a function that does not
    come to the end of what is on record; what the loop itself raises comes through. That something differs is no
    error, but in the report.
    """
    run = Path(directory)
    ledger = RunLedger(run)
    record, genesis = _loop_record(ledger), ledger.genesis
    if genesis.begins:
        raise RunError(f"run {record.run_id}: nothing was trained in it: replay the run that it was made from")
    environment = elsewhere(run, record)
    on_environment(environment)
    secrets = read_secrets(run, genesis)
    missing = erased(secrets, genesis)
    policy = read_policy(ledger)
    sealed = frozenset(path for path in genesis.classes if policy is not None and policy.is_confidential(path))
    comparison = Comparison(run / rundir.LEDGER, commitments(genesis, missing, confidential=sealed))

    def open_journal(given: Given, state: State) -> Journal:
        _compare_first(record, given, genesis, genesis_of(state, run, record, given, None), beginning(state))
        leaves = given.found.leaves
        return Journal(comparison, genesis=genesis, secrets=secrets, leaves=leaves, spool=None, confidential=sealed)

    difference: Difference | None = None
    again = _Again(record, _papers(ledger, private), open_journal)
    try:
        loop(again)
    except Differs as found:
        difference = found.difference
    counts = comparison.counts
    ended = counts.get("end", 0) == 1 or ledger.outline.end is None
    if difference is None and (counts.get("step", 0) < ledger.steps or not ended):
        raise RunError(f"run {record.run_id}: the loop ended after {counts.get('step', 0)} of {ledger.steps} steps")
    return Replayed(
        run=record.run_id,
        first=0,
        last=ledger.steps,
        start=0,
        source=INITIAL,
        environment=environment,
        entries=sum(counts.values()) - counts.get("blobs", 0),
        steps=counts.get("step", 0),
        states=counts.get("state", 0),
        blobs=counts.get("blobs", 0),
        secrets_missing=tuple(sorted(missing)),
        sealed_missing=tuple(sorted(missing & (sealed | {ALL}))) if sealed else (),
        difference=difference,
    )


def train_without(to: Path, record: LoopRecord, loop: OwnLoop, papers: Documents, origin: Origin) -> None:
    """Train the run of this record from its first step into its directory; begun there, it goes on.

    Raises as the loop does, and `RunError` for one that is not the recorded one or does not come to its end.
    """

    def open_journal(given: Given, state: State) -> Journal:
        _check_identity(record, given)
        return begin(to, record, papers, given, state, origin=origin)

    def keep_model(given: Given, state: State) -> None:
        write_own(to, state, given.methods, given.examples)

    again = _Again(record, papers, open_journal, keep_model)
    loop(again)
    again.check_ended()


def trained_without(
    run: Path, record: LoopRecord, loop: OwnLoop, *, private: Path | None, scratch: Path
) -> tuple[Tensors, Reference]:
    """What the run of this record ends with, trained here from its first step as `Reference` says. Its ledger goes into
    the scratch directory, signed by nobody."""
    ended: list[Tensors] = []
    watching: list[Reference] = []
    papers = _papers(RunLedger(run), private)

    def open_journal(given: Given, state: State) -> Journal:
        _check_identity(record, given)
        watching.append(Reference(state))
        return begin(scratch / record.run_id, record, papers, given, state, signer=stand_in(record.run_id))

    again = _Again(
        record,
        papers,
        open_journal,
        lambda given, state: ended.append(tensors_of(state)),
        shown=lambda given: blank(given.examples, given.found.gone),
    )
    loop(again)
    again.check_ended()
    return ended[0], watching[0]


class _Again:
    """What a loop calls in place of `explorer.govern`."""

    def __init__(
        self,
        record: LoopRecord,
        papers: Documents,
        open_journal: Callable[[Given, State], Journal],
        keep_model: Callable[[Given, State], None] = lambda given, state: None,
        shown: Callable[[Given], Split] = lambda given: given.examples,
    ) -> None:
        self._record, self._papers = record, papers
        self._open_journal, self._keep_model, self._shown = open_journal, keep_model, shown
        self._governed: Governed | None = None

    def __call__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        examples: Split,
        documents: str | Path = "",
        policy: str = "",
        ledger: str | Path = "",
        steps: int,
        seed: int = 0,
        every: int = 50,
        methods: Sequence[Method] = (),
    ) -> Governed:
        """As `explorer.govern`; documents, policy and ledger are the run's own."""
        if self._governed is not None:
            raise RecipeError("the loop governs a second time: expected a function that trains one run")
        self._governed = governed(
            model,
            optimizer,
            examples=examples,
            papers=self._papers,
            routing=_routing(self._record),
            steps=steps,
            seed=seed,
            every=every,
            methods=methods,
            open_journal=self._open_journal,
            keep_model=self._keep_model,
            shown=self._shown,
        )
        return self._governed

    def check_ended(self) -> None:
        """Raise `RunError` for a loop that did not do the steps that it had announced."""
        done = 0 if self._governed is None else self._governed.state.step
        planned: Any = self._record.identity.get("steps")
        if done != planned:
            raise RunError(f"run {self._record.run_id}: the loop ended after {done} of {planned} steps")


def _loop_record(ledger: RunLedger) -> LoopRecord:
    record = read_record(ledger)
    if not isinstance(record, LoopRecord):
        raise RunError(f"run {record.run_id}: of a recipe, which says all by itself: explorer replay {ledger.run}")
    return record


def _papers(ledger: RunLedger, private: Path | None) -> Documents:
    papers = replace(read_copies(ledger.run), quarantine=quarantine_content(ledger))
    return papers if private is None else replace(papers, private=private.resolve())


def _routing(record: LoopRecord) -> Routing:
    """The routing of the record, what it leaves out included."""
    for each in listed_methods(record):
        if ROUTING in each:
            return choose({ROUTING: Routing}, dict(each), kind="method", where=f"run {record.run_id}")
    raise RunError(f"run {record.run_id}: damaged: its record has no {ROUTING!r}")


def _check_identity(record: LoopRecord, given: Given) -> None:
    """Raise `RunError` for a loop with another optimiser, model, methods or length than the recorded one."""
    for name, expected, found in _differing(record, given):
        raise RunError(f"run {record.run_id}: another loop: {name}: on record is {expected}, found {found}")


def _differing(record: LoopRecord, given: Given) -> list[tuple[str, str, str]]:
    expected, found = flat(record.identity), flat(given.identity)
    names = sorted(expected.keys() | found.keys())
    values = ((name, expected.get(name, NOTHING), found.get(name, NOTHING)) for name in names)
    return [each for each in values if each[1] != each[2]]


def _compare_first(
    record: LoopRecord, given: Given, expected: Genesis, found: Genesis, contents: dict[str, bytes]
) -> None:
    """Raise `Differs` where the first entry would have been another one."""
    pairs = [(f"recipe: {name}", then, now) for name, then, now in _differing(record, given)]
    pairs += [(name, str(getattr(expected, name)), str(getattr(found, name))) for name in COMPARED]
    blobs = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    pairs += [(f"blobs.{name}", blob.sha256, blobs[name]) for name, blob in expected.blobs.items() if name in blobs]
    for name, then, now in pairs:
        if then != now:
            raise Differs(
                Difference(entry=0, kind=Genesis.KIND, step=0, field=name, expected=then[:200], found=now[:200])
            )


def load_loop(named: str) -> OwnLoop:
    """The function that `module:function` names. Raises `RunError` where there is none.

    Importing a module executes it: this is for names that the caller gives, and never for one that a file has.
    """
    module, _, name = named.partition(":")
    if not module or not name:
        raise RunError(f"--loop: found {named!r:.100}, expected MODULE:FUNCTION, such as mine:train for mine.py here")
    sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise RunError(f"--loop: cannot import {module!r:.100}: {error}") from error
    finally:
        sys.path.remove("")
    if not callable(found):
        raise RunError(f"--loop: {module} has no function {name!r:.100}")
    return found
