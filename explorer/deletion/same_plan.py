"""What certificates of both levels say: whose documents, which parent, which plan, which model."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from explorer import rundir
from explorer.canonical import digest
from explorer.deletion.case import Case, name_of, state_of
from explorer.deletion.checks import Claim, differ
from explorer.deletion.records_list import FILE
from explorer.errors import LedgerError, ProvenanceError, RunError
from explorer.run_files import LoopRecord, Plan, read_plan
from explorer.runlog.documents import read_basis, read_rules, read_verified_tags
from explorer.runlog.forecast import learned_before, stopped_early
from explorer.runlog.influence import read_record
from explorer.runlog.model_file import MODEL, ModelFile, differences
from explorer.runlog.target import AUTHORITIES, CLASSES, RECORDS, ROUTING, Target, counterfactual, left_out

# What determines a run beside its recipe, and is the same in both.
SAME = (
    "code",
    "data",
    "tags",
    "taxonomy",
    "policy",
    "trust",
    "judged",
    "strategy",
    "seed",
    "initial",
    "classes",
    "layers",
)


def documents(case: Case) -> str | None:
    """The documents are those that both ledgers name, and believed."""
    genesis, certificate = case.old.genesis, case.certificate
    for name in ("taxonomy", "policy", "trust"):
        differ(ProvenanceError, name, found=getattr(certificate, name), expected=getattr(genesis, name))
    basis = read_basis(case.new.run, genesis, trust=case.trust)
    if read_rules(case.new.run, genesis, basis) is None:
        raise LedgerError("the old run had no policy")
    if not case.certificate.target.classes:
        read_verified_tags(case.new.run, genesis, basis)
    return None


def target(case: Case) -> str | None:
    """The target is one of the old run's, and no model before it had learned from it."""
    if case.certificate.target.records is not None and case.listed is None:
        return f"which records: the list that opens the commitment is not here; who deleted them has it in {FILE}"
    for path in case.target.classes:
        case.old.class_(path)
    if not case.reach.whole and not case.reach.partly:
        raise LedgerError(f"{case.target.words}: no example of the old run")
    if learned := learned_before(case.old, case.reach):
        raise LedgerError("; ".join(learned))
    return None


def parent(case: Case) -> str | None:
    """The new ledger begins with the old one as what it was made from by a deletion."""
    parents = case.new.genesis.parents
    made = [each for each in parents if each.kind == "deletion"]
    if len(made) != 1:
        raise LedgerError(f"the new ledger names {len(made)} runs that it was made from by a deletion; expected one")
    differ(LedgerError, "its parent", found=made[0].ledger, expected=state_of(name_of(case.old)))
    found, expected = ([each for each in of if each.kind == "model"] for of in (parents, case.old.genesis.parents))
    differ(LedgerError, "models that the new run begins with", found=found, expected=expected)
    return None


def plan(case: Case) -> str | None:
    """Both runs follow one plan, but that the new one leaves the target out."""
    for name in SAME:
        found, expected = getattr(case.new.genesis, name), getattr(case.old.genesis, name)
        differ(LedgerError, f"{name} in the new ledger's first entry", found=found, expected=expected)
    if stopped := stopped_early(case.old):
        raise LedgerError(stopped)
    if read_plan(case.new.run) is None:
        return f"the plan of the new run: there is no {rundir.RUN}, and no {rundir.LOOP} of a loop of one's own"
    if case.certificate.target.records is not None and case.listed is None:
        return "whether the plan leaves these records out: their list is not here"
    after = read_record(case.new)
    before = _before(case, after)
    if digest(before.identity) != case.old.genesis.recipe:
        raise LedgerError("the new plan with the target put back is not the one that the old ledger names")
    expected = counterfactual(before, case.target)
    differ(LedgerError, "the new run", found=case.new.genesis.run, expected=expected.run_id)
    if after.identity != expected.identity:
        raise LedgerError(f"the new plan is not the old one without {case.target.words}")
    return None


def model(case: Case) -> str | None:
    """The certified file holds the parameters and buffers that the new ledger ends with."""
    path = case.new.run / rundir.MODEL / MODEL
    if not path.exists():
        return f"the model: there is no {path}"
    file = ModelFile(path)
    differ(RunError, f"SHA-256 of {path}", found=file.sha256, expected=case.model)
    _, new = case.ended
    expected = {**new.tensors.parameters, **new.tensors.buffers}
    if fault := next(differences(file.leaves(), expected), None):
        raise RunError(f"{path}: not what the new ledger ends with: {fault}")
    return None


def still(case: Case) -> str | None:
    """By the old ledger no step changed a layer to which nobody in its batch was admitted: with a gradient of zeros in
    place of none, decay and momentum would have."""
    for step, layer in case.presence.strays:
        raise LedgerError(f"step {step} changed {layer}, and nobody in its batch was admitted to it")
    return None


CLAIMS = (
    Claim("documents", "taxonomy, policy and trust file are those of both runs, signed by whom you believe", documents),
    Claim("target", "the target is one of the old run's, and of no model that it began with", target),
    Claim("parent", "the new ledger was made from this old one by a deletion", parent),
    Claim("plan", "the same plan, but that the target is left out: every other number that decides is equal", plan),
    Claim("still", "by the old ledger no step changed a layer to which it admitted nobody", still),
    Claim("model", "the model's file holds what the new ledger ends with", model),
)


def _before(case: Case, after: Plan) -> Plan:
    """The old run's record; where it is not here, the new one's with the target put back."""
    found = read_plan(case.old_place)
    if found is not None:
        return found
    left_out(after)  # its methods are what a recipe's are
    methods = [_put_back(each, case.target) for each in after.identity["recipe"]["methods"]]
    identity = {**after.identity, "recipe": {**after.identity["recipe"], "methods": methods}}
    if isinstance(after, LoopRecord):  # its name does not follow from what it is
        return replace(after, run_id=case.old.genesis.run, identity=identity)
    return replace(after, identity=identity)


def _put_back(method: Mapping[str, Any], target: Target) -> Mapping[str, Any]:
    if ROUTING not in method:
        return method
    members = {CLASSES: target.classes, AUTHORITIES: target.authorities, RECORDS: target.records}
    values = method[ROUTING]
    return {ROUTING: {**values, **{n: [e for e in values.get(n, ()) if e not in m] for n, m in members.items()}}}
