"""`explorer.govern`: signed documents, a ledger and a model of one's own, wired together."""

import hashlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from explorer import records, rundir
from explorer.canonical import digest
from explorer.data.dataset import Split
from explorer.engine.method import Method
from explorer.engine.state import State
from explorer.entries.run import Genesis, Sources
from explorer.errors import RecipeError
from explorer.governance.contributions import Contributions
from explorer.governance.credentials import Credentials, check
from explorer.governance.digests import training_state
from explorer.governance.documents import Documents, keep, read_documents
from explorer.governance.journal import Journal
from explorer.governance.layers import shared_names
from explorer.governance.own_loop import Governed
from explorer.governance.recorder import Recorder, beginning
from explorer.governance.routing import Routing
from explorer.governance.session import Session
from explorer.note import Signer
from explorer.recipes.choice import written
from explorer.recipes.finished import EXAMPLES, check_types, class_name, write_own
from explorer.recipes.governed import session_of
from explorer.recipes.ledger import begun, keep_environment, parent_of, signer_of
from explorer.records import LoopRecord
from explorer.runlog.origin import Origin, write_origin

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,100}")  # of the run: part of the ledger's


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
    """Put a model and its optimiser under a signed policy, and everything they do into a ledger.

    `examples` are the training examples that were tagged (`explorer.tag`); `documents` is the directory with trust,
    taxonomy, tags and policies (governance/documents.py), `policy` the name of one of these; `ledger` becomes the run's
    directory, with the ledger in it; `steps` is how many there will be, since policies speak of shares of training;
    every so many of them the whole state goes on record. The finished model stays in the run's `model/`, from where
    `explorer.load_model(directory, into=MODEL)` gives it back. Further `methods` act as well. Gradients are clipped by
    one of them, since a norm over everything would carry one class's gradients into the steps of others:

        methods=[GradientClipping(threshold=1.0)]        (explorer.methods.gradient_clipping)

    Raises `ProvenanceError` for documents, tags or a key that are not to be believed, `DataError` for examples that no
    tag can be about, `RecipeError` for what cannot be governed, an optimiser that moves tensors by the gradients of
    others among them, and for a ledger that is there already.
    """
    run = Path(ledger)
    if not NAME.fullmatch(run.name):
        raise RecipeError(
            f"ledger: found {run.name!r}, expected a directory named in letters, digits, '_', '.' and '-'"
        )
    if (run / rundir.LEDGER).exists():
        raise RecipeError(f"ledger: {run}: there is one already; a loop of one's own begins a new one each time")
    papers = read_documents(Path(documents), policy=policy, now=int(time.time()))

    def open_journal(given: Given, state: State) -> Journal:
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
        keep_model=lambda given, state: write_own(run, state, given.methods, examples),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """What a loop of one's own was given, checked."""

    found: Credentials
    examples: Split
    methods: tuple[Method, ...]  # all of them
    identity: dict[str, Any]  # as `LoopRecord` has it


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
    """The loop under these documents. `open_journal` says where it is written, once the layers are known, and `shown`
    which examples it is handed. Raises as `govern` does."""
    for what, count in (("steps", steps), ("every", every)):
        if count < 1:
            raise RecipeError(f"{what}: found {count}, expected 1 or more")
    examples.check()
    check_types(model)
    found = check(papers, examples, absent=routing.absent)
    everything = (routing, Contributions(), Recorder(every=every), *methods)
    identity = identity_of(model, optimizer, everything, steps=steps, seed=seed)
    given = Given(found=found, examples=examples, methods=everything, identity=identity)
    return Governed(
        model,
        optimizer,
        session=session_of(found),
        examples=shown(given),
        codes=found.codes,
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
    """Begin the directory and the ledger of a run, or go on with them. It is signed by the trainer, if not by
    `signer`; a run that a deletion made has an origin."""
    signer = signer or signer_of(record.run_id, papers, given.found.trust)
    run.mkdir(parents=True, exist_ok=True)
    keep(papers, run)
    keep_environment(run, recorded=True)
    if origin is not None:
        write_origin(run, origin)
    records.write(run / rundir.LOOP, record)
    genesis = genesis_of(state, run, record, given, origin)
    return begun(run, genesis=genesis, signer=signer, found=given.found, contents=beginning(state))


def identity_of(
    model: nn.Module, optimizer: Optimizer, methods: Sequence[Method], *, steps: int, seed: int
) -> dict[str, Any]:
    """What is known of a loop that is the caller's, as `LoopRecord` has it."""
    recipe = {
        "model": class_name(model),
        "optimizer": type(optimizer).__name__,
        "settings": [{k: repr(v) for k, v in group.items() if k != "params"} for group in optimizer.param_groups],
        "methods": [written(method) for method in methods],
    }
    return {"recipe": recipe, "steps": steps, "seed": seed}


def genesis_of(state: State, run: Path, record: LoopRecord, given: Given, origin: Origin | None) -> Genesis:
    """As its recipe it names what is known of the loop."""
    found = given.found
    environment = (run / rundir.ENVIRONMENT).read_bytes()
    named = rundir.read_json(run / rundir.ENVIRONMENT)
    return Genesis(
        run=record.run_id,
        recipe=digest(record.identity),
        code=named["training_code"],
        environment=hashlib.sha256(environment).hexdigest(),
        data=_manifest(given.examples),
        tags={EXAMPLES: Sources(root=found.tags.root, attestation=found.tags.attestation)},
        taxonomy=found.tags.table.taxonomy,
        policy=None if found.routing is None else found.routing.policy.digest,
        trust=found.trust.digest,
        judged=found.judged,
        strategy="microbatch",
        seed=state.seed,
        initial=training_state(state, step=0).parameters,
        classes=found.classes,
        layers=tuple(layer.name for layer in state.resource(Session).layers),
        shared=shared_names(state.resource(Session).layers),
        begins=0,
        start=None,
        parents=() if origin is None else (parent_of(origin),),
        blobs={},
        methods={method.name: method.traits for method in given.methods},
    )


def _manifest(examples: Split) -> str:
    """SHA-256 over the contents of all examples, in their order."""
    total = hashlib.sha256()
    for index in range(len(examples)):
        total.update(hashlib.sha256(examples.content(index)).digest())
    return total.hexdigest()
