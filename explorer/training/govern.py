"""`explorer.govern` and `explorer.replay`: custom training loops under signed documents, and their replay.

A run of `explorer.govern` keeps no code. A loop that is a function of `govern` can be called again:

    def train(govern=explorer.govern):
        torch.manual_seed(0)
        model = MyModel()
        optimizer = torch.optim.AdamW(model.parameters())
        with govern(
            model, optimizer, examples=examples, documents="governed", policy="half-depth",
            ledger="runs/own/mine", steps=100,
        ) as governed:
            for rows in batches():                        # the same ones in every call
                governed.step(rows, losses)

    train()
    explorer.replay("runs/own/mine", train)

The function gets another `govern`, of the same signature, which takes the run's own documents and writes nothing: every
entry has to be the one that the ledger has next. The same function trains the run that never had a class, for a
deletion by replay (G3) and for the counterfactual of a certificate; then the places of that class in the batches are
empty. It always begins with its first step, since the checkpoints of such a loop are its owner's.

So it continues after a crash, too: called again with the directory of a run that broke off, it begins with its first
step, what it does is compared with the ledger, and new entries follow where the record ends.

No file names the function to call: the caller does, so that a run's directory executes nothing.
"""

import hashlib
import importlib
import logging
import re
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from explorer import run_files, rundir
from explorer.data.dataset import Blank, Rows, Split, split_of
from explorer.engine.guard import same_bits
from explorer.engine.method import Method
from explorer.engine.state import Region, State
from explorer.entries.kinds import Genesis
from explorer.errors import RecipeError, RunError
from explorer.governance.contributions import Contributions
from explorer.governance.credentials import Credentials, check
from explorer.governance.custom_loop import Governed
from explorer.governance.journal import Journal
from explorer.governance.recorder import Recorder, beginning, tensors_of
from explorer.governance.routing import Routing
from explorer.governance.shared_state import Session
from explorer.governance.writer import History
from explorer.ledger.storage import CHECKPOINT
from explorer.note import Signer
from explorer.recipes.choice import choose, written
from explorer.run_files import LoopRecord, listed_methods
from explorer.runlog.documents import (
    Documents,
    keep,
    quarantine_content,
    read_copies,
    read_documents,
    read_policy,
)
from explorer.runlog.influence import read_record
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import ROUTING, Origin, write_origin
from explorer.runlog.tensors import Tensors, chunk_of
from explorer.training.ledgered import begun, genesis_of, keep_environment, session_of, signer_of, stand_in
from explorer.training.replay import (
    INITIAL,
    NOTHING,
    Comparison,
    Difference,
    Differs,
    Elsewhere,
    Replayed,
    elsewhere,
    flat,
)
from explorer.training.run import EXAMPLES, check_types, class_name, write_own

log = logging.getLogger(__name__)

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,100}")  # of the run: part of the ledger's name


def govern(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    examples: Split,
    documents: str | Path,
    policy: str,
    ledger: str | Path,
    steps: int,
    seed: int = 0,
    every: int = 50,
    methods: Sequence[Method] = (),
) -> Governed:
    """Put a model and its optimiser under a signed policy, and record every step in a ledger.

    Args:
        model: any module; its regions are sealed in place.
        optimizer: of its parameters. Gradients are clipped by a method (below), since a norm over everything would
            carry one class's gradients into the steps of others.
        examples: the training examples that were tagged (`explorer.tag`).
        documents: the directory with trust file, taxonomy, tags and policies (runlog/documents.py).
        policy: the name of one of the policies.
        ledger: the run's directory, which gets the ledger and the finished model: `explorer.load_model(directory,
            into=MODEL)` loads it.
        steps: how many there will be, since policies speak of fractions of training.
        seed: of the draws of sealed regions and of methods.
        every: how many steps lie between two records of the whole state.
        methods: act as well, such as `explorer.methods.gradient_clipping.GradientClipping(threshold=1.0)`.

    A run that broke off in that directory is continued: its steps are made again from the first, and compared with the
    ledger, which continues where it ends (governance/writer.py).

    Raises `ProvenanceError` for documents, tags or a key that cannot be trusted, `DataError` for examples that cannot
    be tagged, `RecipeError` for a model, methods or an optimiser that cannot be governed, such as one that moves a
    tensor by the gradients of others, and for a ledger that has ended, and `RunError` or `LedgerError` where another
    loop, other documents or other examples would continue a ledger.
    """
    # Checked before anything is read: a name with a slash would be another directory, and part of the ledger's origin.
    run = Path(ledger)
    if not NAME.fullmatch(run.name):
        raise RecipeError(
            f"ledger: found {run.name!r}, expected a directory named in letters, digits, '_', '.' and '-'"
        )
    papers = read_documents(Path(documents), policy=policy, now=int(time.time()))
    broken = (run / rundir.LEDGER / CHECKPOINT).exists()
    if broken:
        papers = _papers_again(run, papers)

    def open_journal(given: Given, state: State) -> Journal:
        if broken:
            _check_same_loop(run, given)
        return begin(run, LoopRecord(run_id=run.name, identity=given.identity), papers, given, state)

    return governed(
        model,
        optimizer,
        examples=examples,
        papers=papers,
        routing=Routing(policy=policy),
        steps=steps,
        seed=seed,
        every=every,
        methods=methods,
        open_journal=open_journal,
        keep_model=lambda given, state: write_own(run, state, given.methods, examples, model=class_name(state.model)),
    )


def _papers_again(run: Path, papers: Documents) -> Documents:
    """Return the documents as the run that broke off in this directory judged them: its first entry has the moment.

    Raises `RecipeError` for a run that has ended, and for one that began under other documents.
    """
    if History(run / rundir.LEDGER).ended():
        raise RecipeError(f"ledger: {run}: there is one already, and it has ended: expected another directory")
    kept = read_copies(run)
    for name in ("trust", "taxonomy", "attestation", "policy"):
        if getattr(kept, name) != getattr(papers, name):
            raise RecipeError(
                f"ledger: {run}: a run broke off here under another {name} than the one in {papers.where}: expected the"
                " same to continue it, or another directory"
            )
    return replace(papers, judged=kept.judged, delegation=kept.delegation)


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """Checked inputs of a custom loop."""

    credentials: Credentials
    examples: Split
    methods: tuple[Method, ...]  # all of them
    identity: dict[str, Any]  # as `LoopRecord` has it


def _check_same_loop(run: Path, given: Given) -> None:
    """Raise `RunError` for a loop that is not the one that broke off in this directory."""
    for name, expected, here in _differing(run_files.read(LoopRecord, run / rundir.LOOP), given):
        raise RunError(
            f"ledger: {run}: another loop broke off here: {name}: on record is {expected}, found {here}: expected the"
            " same to continue it, or another directory"
        )
    log.warning("%s: broke off: its steps are made again from the first, and compared with its ledger", run)


def governed(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    examples: Split,
    papers: Documents,
    routing: Routing,
    steps: int,
    seed: int,
    every: int,
    methods: Sequence[Method],
    open_journal: Callable[[Given, State], Journal],
    keep_model: Callable[[Given, State], None],
    shown: Callable[[Given], Split] = lambda given: given.examples,
) -> Governed:
    """Return the loop under these documents; the arguments not listed are those of `govern`, which also lists the
    errors.

    Args:
        papers: the documents, read.
        routing: the method that routes, with the policy and what is left out.
        open_journal: opens the ledger, once the model's layers are known.
        keep_model: keeps the finished model, before the ledger records the end.
        shown: returns the examples that the loop reads.
    """
    for what, count in (("steps", steps), ("every", every)):
        if count < 1:
            raise RecipeError(f"{what}: found {count}, expected 1 or more")
    examples.check()
    check_types(model)
    credentials = check(papers, examples, absent=routing.absent)
    # Every governed loop routes, measures and records; `ordered` puts the caller's methods between these.
    everything = (routing, Contributions(), Recorder(every=every), *methods)
    identity = identity_of(model, optimizer, everything, steps=steps, seed=seed)
    given = Given(credentials=credentials, examples=examples, methods=everything, identity=identity)
    return Governed(
        model,
        optimizer,
        session=session_of(credentials),
        examples=shown(given),
        codes=credentials.codes,
        methods=everything,
        steps=steps,
        seed=seed,
        open_journal=lambda state: open_journal(given, state),
        keep_model=lambda state: keep_model(given, state),
    )


def begin(
    run: Path,
    record: LoopRecord,
    papers: Documents,
    given: Given,
    state: State,
    *,
    signer: Signer | None = None,
    origin: Origin | None = None,
) -> Journal:
    """Begin the directory and the ledger of a run, or continue them.

    Args:
        run: the directory.
        record: the plan of the run.
        papers: the documents; the directory gets copies.
        given: the checked inputs.
        state: of the loop, at step 0.
        signer: of the ledger; None: the trainer.
        origin: of a run that a deletion made.
    """
    delegation = papers.delegation if signer is None else None
    signer = signer or signer_of(record, papers, given.credentials.trust, now=int(time.time()))
    # The genesis has the digest of the environment and of the origin, so these files come before the ledger.
    run.mkdir(parents=True, exist_ok=True)
    keep(papers, run)
    keep_environment(run, recorded=True)
    if origin is not None:
        write_origin(run, origin)
    run_files.write(run / rundir.LOOP, record)
    genesis = _genesis(state, run, record, given)
    return begun(
        run,
        genesis=genesis,
        signer=signer,
        credentials=given.credentials,
        contents=beginning(state),
        delegation=delegation,
    )


def identity_of(
    model: nn.Module, optimizer: Optimizer, methods: Sequence[Method], *, steps: int, seed: int
) -> dict[str, Any]:
    """Return what can be recorded of a loop whose code is the caller's, as `LoopRecord` has it."""
    recipe = {
        "model": class_name(model),
        "optimizer": type(optimizer).__name__,
        "settings": [{k: repr(v) for k, v in group.items() if k != "params"} for group in optimizer.param_groups],
        "methods": [written(method) for method in methods],
    }
    return {"recipe": recipe, "steps": steps, "seed": seed}


def _genesis(state: State, run: Path, record: LoopRecord, given: Given) -> Genesis:
    """Return the first entry of the loop's ledger."""
    data = _manifest(given.examples)
    return genesis_of(state, run, record, given.credentials, methods=given.methods, source=EXAMPLES, data=data)


def _manifest(examples: Split) -> str:
    """Return the SHA-256 over the digests of all examples, in order."""
    total = hashlib.sha256()
    for index in range(len(examples)):
        total.update(hashlib.sha256(examples.content(index)).digest())
    return total.hexdigest()


# --- a reference that does not trust the code that trains ---


class Reference:
    """A training run that does not rely on the training code to keep the target out.

    A fault in that code may be in both runs that are compared, which then agree. So three safeguards lie outside of it:

    - The target's rows are blank (`blank`), so that code which reads them nevertheless ends with another model.
    - A region to which a step admits no class has no optimiser step at all, and a tensor to which it admits none has no
      gradient: with a gradient of zeros decay and momentum would continue.
    - Around each optimiser step such tensors, and the optimiser's state for them, are compared bit for bit.
    """

    def __init__(self, state: State) -> None:
        """Guard the optimisers of this training, in place. It is at step 0."""
        self.moved: list[str] = []  # tensors that moved in a step that admitted no class to them, in words
        self.watched = 0  # optimiser steps around which tensors were compared
        self._state = state
        for region in state.regions.values():
            for optimizer in region.optimizers:
                self._guard(region, optimizer)

    def _guard(self, region: Region, optimizer: Optimizer) -> None:
        """Replace the optimiser's step by a bound method, since torch's schedulers unbind and rebind `step`."""
        step = optimizer.step

        def guarded(this: Optimizer) -> None:
            self._step(region, this, step)

        optimizer.step = MethodType(guarded, optimizer)  # pyright: ignore[reportAttributeAccessIssue]

    def _step(self, region: Region, optimizer: Optimizer, step: Callable[[], None]) -> None:
        admitted = {name for share in self._state.shares if len(share.slots) for name in share.parameters}
        closed = {name: parameter for name, parameter in region.parameters.items() if name not in admitted}
        for parameter in closed.values():
            parameter.grad = None
        if len(closed) == len(region.parameters):
            return
        before = {name: _copied(optimizer, parameter) for name, parameter in closed.items()}
        step()
        self.watched += bool(closed)
        for name, parameter in closed.items():
            if not _same(before[name], _copied(optimizer, parameter)):
                self.moved.append(
                    f"{name}: moved in step {self._state.step}, or its optimiser state did, and no class in the batch"
                    " was admitted to it"
                )


def blank(examples: Split, gone: NDArray[np.bool_]) -> Split:
    """Return the examples with zeros in place of those that are gone, which are not read if they are in shards."""
    if isinstance(examples.inputs, Rows) and isinstance(examples.labels, Rows):
        return split_of(inputs=Blank(examples.inputs, gone), labels=Blank(examples.labels, gone))
    rows = torch.from_numpy(gone)
    inputs, labels = examples.inputs[:].clone(), examples.labels[:].clone()
    inputs[rows], labels[rows] = 0, 0
    return Split(inputs=inputs, labels=labels)


def _copied(optimizer: Optimizer, parameter: Tensor) -> dict[str, Any]:
    """Return a copy of a parameter and of its optimiser state."""
    state = {
        key: value.clone() if isinstance(value, Tensor) else value
        for key, value in optimizer.state.get(parameter, {}).items()
    }
    return {"": parameter.detach().clone(), **state}


def _same(before: dict[str, Any], after: dict[str, Any]) -> bool:
    return before.keys() == after.keys() and all(
        same_bits(value, after[key]) if isinstance(value, Tensor) else value == after[key]
        for key, value in before.items()
    )


# --- execution by a function of the owner ---

OwnLoop = Callable[[Callable[..., Governed]], object]
"""A training loop that takes `govern` as its argument; its result is ignored."""

MODEL, MAIN = "recipe.model", "__main__"  # the class of the model in a record, and the module of a script that was run
COMPARED = ("data", "initial", "classes", "layers", "shared")  # of the first entry; the rest follows from documents


def replay(
    directory: str | Path,
    loop: OwnLoop,
    *,
    private: Path | None = None,
    on_environment: Callable[[tuple[Elsewhere, ...]], None] = lambda environment: None,
) -> Replayed:
    """Execute a run of `explorer.govern` again, from its first step to its end, and compare it with its ledger.

    Args:
        directory: of the run.
        loop: the function that trained it.
        private: where the salts of the tags are now, if not where the run had them.
        on_environment: gets the differences in machine and software before anything is executed.

    Raises `RunError` for a run of a recipe, and for a function that ends before the record does; errors of the loop
    itself come through. A difference is no error: it is in the report.
    """
    # --- the run as it is on record ---
    run = Path(directory)
    ledger = RunLedger(run)
    record, genesis = loop_record(ledger), ledger.genesis
    if genesis.begins:
        raise RunError(f"run {record.run_id}: nothing was trained in it: replay the run that it was made from")
    environment = elsewhere(run, record)
    on_environment(environment)
    policy = read_policy(ledger)
    sealed = frozenset(path for path in genesis.classes if policy is not None and policy.is_confidential(path))
    comparison = Comparison(run, genesis, confidential=sealed)

    # --- execution, with a journal that compares and writes nothing ---
    def open_journal(given: Given, state: State) -> Journal:
        state.resource(Session).chunk = chunk_of(genesis, run / rundir.LEDGER)
        _compare_first(record, given, genesis, _genesis(state, run, record, given), beginning(state))
        return comparison.journal(given.credentials.leaves)

    difference: Difference | None = None
    again = Substitute(record, run_documents(ledger, private), open_journal)
    try:
        loop(again)
    except Differs as caught:
        difference = caught.difference
    # A loop that ends early differs from the ledger in nothing that it did.
    done = comparison.counts.get("step", 0)
    ended = comparison.counts.get("end", 0) == 1 or ledger.outline.end is None
    if difference is None and (done < ledger.steps or not ended):
        raise RunError(f"run {record.run_id}: the loop ended after {done} of {ledger.steps} steps")
    return comparison.report(
        run=record.run_id,
        first=0,
        last=ledger.steps,
        start=0,
        source=INITIAL,
        environment=environment,
        difference=difference,
    )


def train_without(to: Path, record: LoopRecord, loop: OwnLoop, papers: Documents, origin: Origin) -> None:
    """Train the run of this record from its first step into the directory `to`, or continue it there.

    Raises the loop's errors, and `RunError` for a loop that is not the recorded one or ends early.
    """

    def open_journal(given: Given, state: State) -> Journal:
        _check_identity(record, given)
        return begin(to, record, papers, given, state, origin=origin)

    def keep_model(given: Given, state: State) -> None:
        # Named as in the record, which a script that was run calls `__main__`.
        write_own(to, state, given.methods, given.examples, model=flat(record.identity)[MODEL])

    again = Substitute(record, papers, open_journal, keep_model)
    loop(again)
    again.check_ended()


def trained_without(
    run: Path, record: LoopRecord, loop: OwnLoop, *, private: Path | None, scratch: Path
) -> tuple[Tensors, Reference]:
    """Train the run of this record here, from its first step and under a `Reference`; return the tensors that it ends
    with, and the reference. Its ledger goes into the scratch directory, signed by a throw-away key."""
    ended: list[Tensors] = []
    watching: list[Reference] = []
    papers = run_documents(RunLedger(run), private)

    def open_journal(given: Given, state: State) -> Journal:
        _check_identity(record, given)
        watching.append(Reference(state))
        return begin(scratch / record.run_id, record, papers, given, state, signer=stand_in(record.run_id))

    again = Substitute(
        record,
        papers,
        open_journal,
        lambda given, state: ended.append(tensors_of(state)),
        shown=lambda given: blank(given.examples, given.credentials.gone),
    )
    loop(again)
    again.check_ended()
    return ended[0], watching[0]


class Substitute:
    """Substitute for `explorer.govern` that governs by the documents of a recorded run."""

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
        """Govern the loop as `explorer.govern` does; `documents`, `policy` and `ledger` are ignored for the run's
        own."""
        if self._governed is not None:  # a second run would be compared with entries of the first
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
        """Raise `RunError` for a loop that did fewer steps than it had announced."""
        done = 0 if self._governed is None else self._governed.state.step
        planned: Any = self._record.identity.get("steps")
        if done != planned:
            raise RunError(f"run {self._record.run_id}: the loop ended after {done} of {planned} steps")


def loop_record(ledger: RunLedger) -> LoopRecord:
    """Return the record of a loop's run. Raises `RunError` for the run of a recipe."""
    record = read_record(ledger)
    if not isinstance(record, LoopRecord):
        raise RunError(
            f"run {record.run_id}: of a recipe, which needs no function: explorer replay {shlex.quote(str(ledger.run))}"
        )
    return record


def run_documents(ledger: RunLedger, private: Path | None) -> Documents:
    """Return the run's copies of its documents, with the quarantine that its ledger records.

    `private` is where the salts and the trainer's key are now, if not where the run had them.
    """
    # A delegation is to the key of that run, and of no other.
    papers = replace(read_copies(ledger.run), quarantine=quarantine_content(ledger), delegation=None)
    return papers if private is None else replace(papers, private=private.resolve())


def _routing(record: LoopRecord) -> Routing:
    """Return the routing of the record, including what it leaves out."""
    for method in listed_methods(record):
        if ROUTING in method:
            return choose({ROUTING: Routing}, dict(method), kind="method", where=f"run {record.run_id}")
    raise RunError(f"run {record.run_id}: damaged: its record has no {ROUTING!r}")


def _check_identity(record: LoopRecord, given: Given) -> None:
    """Raise `RunError` for a loop with another optimiser, model, methods or length than the recorded one."""
    for name, expected, here in _differing(record, given):
        raise RunError(f"run {record.run_id}: another loop: {name}: on record is {expected}, found {here}")


def _differing(record: LoopRecord, given: Given) -> list[tuple[str, str, str]]:
    expected, here = flat(record.identity), flat(given.identity)
    # A script that was run is `__main__`, and is imported under its own name when its function trains again.
    models = [values.get(MODEL, NOTHING) for values in (expected, here)]
    if any(name.partition(".")[0] == MAIN for name in models):
        expected, here = (
            {**values, MODEL: name.rpartition(".")[2]} for values, name in zip((expected, here), models, strict=True)
        )
    names = sorted(expected.keys() | here.keys())
    values = ((name, expected.get(name, NOTHING), here.get(name, NOTHING)) for name in names)
    return [row for row in values if row[1] != row[2]]


def _compare_first(
    record: LoopRecord, given: Given, expected: Genesis, here: Genesis, contents: dict[str, bytes]
) -> None:
    """Raise `Differs` where the first entry would be another one here."""
    pairs = [(f"recipe: {name}", then, now) for name, then, now in _differing(record, given)]
    pairs += [(name, str(getattr(expected, name)), str(getattr(here, name))) for name in COMPARED]
    blobs = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    pairs += [(f"blobs.{name}", blob.sha256, blobs[name]) for name, blob in expected.blobs.items() if name in blobs]
    for name, then, now in pairs:
        if then != now:
            raise Differs(
                Difference(entry=0, kind=Genesis.KIND, step=0, field=name, expected=then[:200], found=now[:200])
            )


def load_loop(named: str) -> OwnLoop:
    """Return the function that `module:function` names. Raises `RunError` where there is none.

    Importing a module executes it, so the name has to come from the caller, never from a file.
    """
    module, _, name = named.partition(":")
    if not module or not name:
        raise RunError(f"--loop: found {named!r:.100}, expected MODULE:FUNCTION, such as mine:train for mine.py here")
    sys.path.insert(0, "")  # the working directory, which a console script does not have on its path
    try:
        function = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise RunError(f"--loop: cannot import {module!r:.100}: {error}") from error
    finally:
        sys.path.remove("")
    if not callable(function):
        raise RunError(f"--loop: {module} has no function {name!r:.100}")
    return function
