"""Governed and recorded runs: their signed documents, checked against the data, and their ledger.

The trainer's key signs the ledger under the trainer's name and the run's, `example.com/trainer/<run id>`; away from
home, a key of the run's own that the trainer delegated (provenance/delegation.py). The first entry names the inputs of
the run by digest; its `recipe` is the whole identity in `run.json`: recipe, budget, seed, data, machine, versions and
documents. Environment and code are those that the run began with. A run that a deletion made begins where it continues
another one, which it names as its parent (runlog/target.py).
"""

import hashlib
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer import rundir
from explorer.canonical import canonical, digest
from explorer.data.batches import Typing
from explorer.data.dataset import DataSource, Fitted
from explorer.data.sources import load
from explorer.engine.lanes import blocks
from explorer.engine.loop import Loop
from explorer.engine.method import Method
from explorer.engine.state import State
from explorer.entries.fields import Blob
from explorer.entries.kinds import Genesis, Lanes, Parent, Sources, TrainingState
from explorer.errors import ProvenanceError, RecipeError, RunError
from explorer.governance.credentials import Credentials, check, quarantine_json
from explorer.governance.journal import Journal
from explorer.governance.layers import shared_names
from explorer.governance.recorder import Recorder, beginning, training_state
from explorer.governance.routing import Routing
from explorer.governance.shared_state import Session
from explorer.ledger.storage import write_blob
from explorer.note import Algorithm, Signer
from explorer.provenance.commitments import new_salts
from explorer.provenance.delegation import open_delegation
from explorer.provenance.envelope import parse_envelope
from explorer.provenance.keys import new_key, public_bytes, read_private
from explorer.provenance.policy import RoutingPolicy
from explorer.provenance.regions import SealedRegion
from explorer.provenance.routing_weights import confidential
from explorer.provenance.tag_attestation import Absent
from explorer.provenance.trust import Trust
from explorer.recipes import machine
from explorer.recipes.recipe import Recipe
from explorer.recipes.settings import GOVERNED
from explorer.run_files import Plan, RunRecord
from explorer.runlog.anchor import DELEGATION
from explorer.runlog.documents import DELEGATION_FILE, Documents, open_trainer, read_documents
from explorer.runlog.target import Origin, read_origin
from explorer.training.start import Start, start_in

# --- documents ---

log = logging.getLogger(__name__)


def documents_of(recipe: Recipe, directory: Path | None, *, now: int) -> Documents | None:
    """Return the documents of a recipe, from their author's directory; None for a recipe that needs none.

    Raises `RecipeError` for a method that needs documents where there are none, and `ProvenanceError` for documents
    that cannot be read.
    """
    if directory is None:
        return refuse_governed(recipe)
    return read_documents(directory, policy=policy_of(recipe), now=now)


def refuse_governed(recipe: Recipe) -> None:
    """Raise `RecipeError` if a method of the recipe acts on signed documents."""
    for method in recipe.methods:
        if method.name in GOVERNED:
            raise RecipeError(
                f"recipe {recipe.name!r}: {method.name!r} acts on signed documents, and there are none: expected"
                " 'governance: DIR' next to 'task'"
            )


def policy_of(recipe: Recipe) -> str | None:
    """Return the name of the policy that the recipe routes by."""
    return next((method.policy for method in recipe.methods if isinstance(method, Routing)), None)


def absent_of(recipe: Recipe) -> Absent:
    """Return the examples that the recipe leaves out; their content may be gone."""
    return next((method.absent for method in recipe.methods if isinstance(method, Routing)), Absent())


def credentials_of(recipe: Recipe, documents: Documents, data: Path | None) -> Credentials:
    """Return the documents, checked against the recipe's training examples; see `governance.credentials.check`.

    A sweep plans many runs on few policies, and a check reads every training example: results are kept for this
    process, by the content of the documents, the state of the files that they name, and the digest of the data.
    """
    files = (_stamp(documents.table), _stamp(documents.salts))
    return _checked(documents, files, recipe.dataset, data, recipe.dataset.digest(data), absent_of(recipe))


@lru_cache(maxsize=16)
def _checked(
    documents: Documents,
    files: tuple[object, ...],
    source: DataSource,
    data: Path | None,
    digest: str,
    absent: Absent,
) -> Credentials:
    return check(documents, load(source, data).train, absent=absent)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Return values that change when a file does; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None  # the reader of the file says why
    return status.st_ino, status.st_size, status.st_mtime_ns


def sealed_of(recipe: Recipe, documents: Documents, data: Path | None) -> tuple[SealedRegion, ...]:
    """Return the sealed regions that the policy asks for; none where nothing is routed."""
    policy = routing_policy(recipe, documents, data)
    return () if policy is None else policy.sealed


def routing_policy(recipe: Recipe, documents: Documents | None, data: Path | None) -> RoutingPolicy | None:
    """Return the policy that the recipe routes by, checked; None: it routes nothing."""
    routing = None if documents is None else credentials_of(recipe, documents, data).routing
    return None if routing is None else routing.policy


def session_of(credentials: Credentials) -> Session:
    """Return a new session for one loop."""
    return Session(
        classes=credentials.classes,
        codes=credentials.tags.codes,
        tags=credentials.tags,
        routing=credentials.routing,
        quarantine=credentials.quarantine,
        absent=credentials.absent.intersection(credentials.classes),
        gone=credentials.gone if credentials.gone.any() else None,
    )


def _refuse_mixing(recipe: Recipe, policy: RoutingPolicy) -> None:
    """Raise `RecipeError` where examples that the policy tells apart would be mixed with each other, or are not all in
    one lane.

    Batches are mixed within a class only, which is safe for rules about classes and not for rules about examples.
    """
    by_example = next((at for at, rule in enumerate(policy.rules) if rule.examples is not None), None)
    mixing = next((method.name for method in recipe.methods if method.mixes), None)
    if by_example is not None and recipe.numbers.lanes > 1:
        raise RecipeError(
            f"recipe {recipe.name!r}: rules[{by_example}] of policy {policy.name!r} tells examples of a class apart,"
            f" which needs the class as a whole: found lanes: {recipe.numbers.lanes}, expected 1"
        )
    if by_example is not None and mixing is not None:
        raise RecipeError(
            f"recipe {recipe.name!r}: {mixing!r} mixes examples of a class, and rules[{by_example}] of policy"
            f" {policy.name!r} tells them apart: expected one of the two"
        )


def given(recipe: Recipe, documents: Documents | None, data: Path | None) -> tuple[dict[type, Any], Typing | None]:
    """Return the resources that documents add to a loop, the session of its methods, and the classes of its
    examples."""
    if documents is None:
        return {}, None
    credentials = credentials_of(recipe, documents, data)
    if credentials.routing is not None:
        _refuse_mixing(recipe, credentials.routing.policy)
    session = session_of(credentials)
    return {Session: session}, Typing(codes=credentials.codes, names=credentials.names, gone=session.gone)


# --- the ledger ---

STRATEGY = "microbatch"  # how the engine takes the gradients of classes
QUARANTINE = "quarantine"  # blob of the genesis: the examples in quarantine, by reason


def is_recorded(recipe: Recipe) -> bool:
    """Return whether the recipe writes a ledger."""
    return any(isinstance(method, Recorder) for method in recipe.methods)


def signer_of(plan: Plan, documents: Documents, trust: Trust, *, now: int) -> Signer:
    """Return the signer of a run's ledger: the key that the trainer delegated for it, or else the trainer's own.

    `now` is in seconds since 1970. Raises `ProvenanceError` for a key that may not sign the ledger, and without its
    passphrase.
    """
    if documents.delegation is not None:
        return _delegated(plan, documents, documents.delegation, trust, now)
    trainer, key = open_trainer(documents.trainer, trust=trust, now=documents.judged)
    return Signer(name=f"{trainer}/{plan.run_id}", algorithm=Algorithm.ED25519, private_key=key)


def _delegated(plan: Plan, documents: Documents, delegation: bytes, trust: Trust, now: int) -> Signer:
    """Return the signer with the run's own key, after checking that the trainer delegated this run to it."""
    where = str(documents.where / DELEGATION_FILE)
    delegate = open_delegation(delegation, trust=trust, where=where)
    delegate.check_run(plan.run_id, plan=digest(plan.identity), where=where)
    delegate.check_now(now, where)
    key = read_private(documents.run_key, None, Ed25519PrivateKey)
    if public_bytes(key) != delegate.public_key:
        raise ProvenanceError(f"{documents.run_key}: not the key that {where} is about")
    return Signer(name=delegate.value.ledger, algorithm=Algorithm.ED25519, private_key=key)


def keep_environment(run: Path, *, recorded: bool, code: Iterable[str] = ()) -> None:
    """Write `environment.json`; a recorded run keeps the one that it began with, since its genesis has the digest.

    `code` are the top-level names of other packages' code that trains.

    Raises `RunError` where other code would continue a ledger.
    """
    path, now = run / rundir.ENVIRONMENT, machine.environment(code)
    if recorded and (run / rundir.LEDGER).exists():
        began = rundir.read_json(path)
        old = began.get("training_code") if isinstance(began, dict) else None
        if old != now["training_code"]:
            raise RunError(
                f"run {run.name}: its ledger was begun by other code; found {now['training_code']}, {path} says {old}:"
                " continue with that code, or delete the directory and start over"
            )
        return
    rundir.write_json(path, now)


def stand_in(run_id: str) -> Signer:
    """Return a signer for steps that are timed and thrown away. Its key is in no trust file, so that no trusted key
    signs two ledgers of one run."""
    return Signer(name=f"rehearsal/{run_id}", algorithm=Algorithm.ED25519, private_key=new_key())


@contextmanager
def recording(
    loop: Loop,
    record: RunRecord,
    recipe: Recipe,
    run: Path,
    documents: Documents | None,
    *,
    data: Path | None,
    rehearsal: bool = False,
) -> Iterator[None]:
    """Open the ledger of a recorded recipe in the run's directory, for this block. Rank 0 writes it; the others only
    compare their state with its own.

    Args:
        loop: the loop whose methods write it.
        record: the plan of the run.
        recipe: its recipe; one without a recorder gets no ledger.
        run: the run's directory.
        documents: govern the run; None: none do, and there is no ledger.
        data: the directory of data sets.
        rehearsal: sign with a throw-away key.

    Raises `ProvenanceError` for a key that may not sign it, and `LedgerError` for a ledger that is another run's.
    """
    if documents is None or not is_recorded(recipe):
        yield
        return
    credentials = credentials_of(recipe, documents, data)
    # A rehearsal does without the trainer's key, which the machine that times steps may not have.
    now = int(time.time())
    signer = stand_in(record.run_id) if rehearsal else signer_of(record, documents, credentials.trust, now=now)
    genesis = genesis_of(
        loop.state,
        run,
        record,
        credentials,
        methods=loop.methods,
        source=record.dataset,
        data=record.identity["data"],
        start=start_in(record),
        fitted=recipe.dataset.fitted_on(data),
        lanes=_lanes_of(recipe, record),
    )
    if not loop.ranks.leads:
        loop.state.resource(Session).journal = unwritten(genesis, run / rundir.LEDGER, credentials)
        yield
        return
    with begun(
        run,
        genesis=genesis,
        signer=signer,
        credentials=credentials,
        contents=beginning(loop.state),
        delegation=None if rehearsal else documents.delegation,  # a throw-away key is no delegate
        ranks=None if rehearsal else loop.ranks.size,
    ) as journal:
        loop.state.resource(Session).journal = journal
        yield


def _lanes_of(recipe: Recipe, record: RunRecord) -> Lanes | None:
    """Return the lanes of a run and who passes them, as it was planned; None: it has one."""
    count = recipe.numbers.lanes
    if count == 1:
        return None
    return Lanes(count=count, ranks=tuple(block.start for block in blocks(count, record.hardware.world_size)))


def begun(
    run: Path,
    *,
    genesis: Genesis,
    signer: Signer,
    credentials: Credentials,
    contents: Mapping[str, bytes],
    delegation: bytes | None,
    ranks: int | None = None,
) -> Journal:
    """Begin the ledger in a run's directory, or continue it with so many processes, by default those of the genesis.
    Raises `LedgerError` for the ledger of another run.

    The first entry has the `contents` as its blobs, the examples in quarantine with their reasons, and the `delegation`
    to the signer, if it is not the trainer.
    """
    if delegation is not None:
        payload = parse_envelope(delegation, where=DELEGATION_FILE).payload
        genesis = replace(genesis, delegation=_sha256(payload))
        contents = {**contents, DELEGATION: delegation}
    if credentials.quarantine:
        contents = {**contents, QUARANTINE: canonical(quarantine_json(credentials.quarantine))}
    blobs = {name: Blob(sha256=_sha256(content), size=len(content)) for name, content in contents.items()}
    journal = Journal.open(
        run,
        genesis=replace(genesis, blobs=blobs),
        signer=signer,
        leaves=credentials.leaves,
        confidential=confidential(credentials.routing, genesis.classes),
        ranks=ranks,
    )
    # After the entry that names them is appended, and before anything is committed: no durable entry lacks its blobs.
    try:
        for content in contents.values():
            write_blob(journal.directory, content)
    except BaseException:
        journal.close()
        raise
    return journal


class _Unwritten:
    """A book of which nothing is kept."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def begin(self, step: int) -> TrainingState | None:
        return None

    def write_blob(self, content: bytes) -> str:
        return _sha256(content)

    def put(self, leaf: bytes, *, step: int) -> None: ...

    def commit(self) -> None: ...

    def close(self) -> None: ...


def unwritten(genesis: Genesis, directory: Path, credentials: Credentials) -> Journal:
    """Return the journal of a rank that does not write: its secrets are made up, and nothing is kept."""
    return Journal(
        _Unwritten(directory),
        genesis=genesis,
        secrets=new_salts(len(genesis.classes) + 1),
        leaves=credentials.leaves,
        spool=None,
        confidential=frozenset(),
    )


def genesis_of(
    state: State,
    run: Path,
    record: Plan,
    credentials: Credentials,
    *,
    methods: Sequence[Method],
    source: str,
    data: str,
    start: Start | None = None,
    fitted: Fitted | None = None,
    lanes: Lanes | None = None,
) -> Genesis:
    """Return the first entry of a run's ledger, without its blobs.

    Args:
        state: of the loop, at step 0.
        run: the run's directory, which has its environment and, after a deletion, its origin.
        record: the plan of the run.
        credentials: the checked documents.
        methods: every method of the loop.
        source: the name of the data.
        data: the digest of the data's manifest.
        start: the model that the run begins with; None: drawn weights.
        fitted: what the dataset fits on its examples; None: not known.
        lanes: in which steps are added; None: one.
    """
    # The environment is the file in the directory, not this process's: a resumed run has to give the same first entry.
    environment: Any = rundir.read_json(run / rundir.ENVIRONMENT)
    session, origin = state.resource(Session), read_origin(run)
    return Genesis(
        run=record.run_id,
        recipe=digest(record.identity),
        code=environment["training_code"],
        environment=_sha256((run / rundir.ENVIRONMENT).read_bytes()),
        data=data,
        tags={source: Sources(root=credentials.tags.root, attestation=credentials.tags.attestation)},
        taxonomy=credentials.tags.table.taxonomy,
        policy=None if credentials.routing is None else credentials.routing.policy.digest,
        trust=credentials.trust.digest,
        judged=credentials.judged,
        strategy=STRATEGY,
        seed=state.seed,
        initial=training_state(state, step=0).parameters,
        classes=credentials.classes,
        layers=tuple(layer.name for layer in session.layers),
        shared=shared_names(session.layers),
        begins=0 if origin is None else origin.begins,
        start=None if origin is None else origin.state,
        parents=(*([] if start is None else [start.parent]), *([] if origin is None else [parent_of(origin)])),
        blobs={},
        methods={method.name: method.traits for method in methods},
        fitted=None if fitted is None else dict(fitted),
        lanes=lanes,
    )


def parent_of(origin: Origin) -> Parent:
    """Return the run that a deletion continues, as the new ledger names it."""
    return Parent(kind="deletion", ledger=origin.ledger, model=None, attestation=None, admitted={})


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
