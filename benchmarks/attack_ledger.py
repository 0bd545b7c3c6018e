"""Attacks on the ledger of a run: one statement is changed, everything else stays or follows, and all of it is signed.

The trainer holds the keys of the whole quorum, the secrets of the classes and the files. Every attack breaks one thing
that a ledger states twice, or that it states and its directory holds.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from attack_world import (
    DENIED,
    EVERY,
    LATE,
    OPEN,
    SEALED,
    VERBS,
    Forged,
    World,
    ask,
    attack,
    command,
)
from safetensors.numpy import load_file, save_file

from explorer import rundir
from explorer.canonical import canonical, digest
from explorer.entries.fields import LedgerState, write_float
from explorer.entries.kinds import Decision, End, Erasure, Genesis, Parent, Profile, Shared, State, Step, Traits, encode
from explorer.entries.numbers import StepNumbers, diagonal
from explorer.entries.slots import decode_slots, encode_slots, slots_root
from explorer.ledger.storage import LedgerDirectory, blob_path
from explorer.project import AUDIT, Project, runs_of
from explorer.provenance.commitments import destroy_salt
from explorer.provenance.regions import recorded_layers
from explorer.provenance.routing_weights import Admissions, bind
from explorer.runlog.documents import read_policy, read_tag_rows
from explorer.runlog.segments import read_numbers
from explorer.training.demonstration import NAME_OF_TRAINER

SOME = "5" * 64
FROZEN = "conv"  # a layer that the denied class may not train


def ledger(
    name: str, breaks: str, gains: str, *, run: str = "main", by: tuple[str, ...] = ("conform",), **more: Any
) -> Callable[[Any], Any]:
    """Put a change of a run's copy into the table. It is signed afterwards, unless the change returns False."""

    def add(change: Callable[[Forged], Any]) -> Callable[[Forged], Any]:
        def act(world: World) -> dict[str, str]:
            copied = world.copy(run)
            forged = Forged(world, copied)
            if change(forged) is not False:
                forged.sign()
            answers = ask(world, copied, [verb for verb in VERBS if verb != "replay"])
            if not any(answers.values()):
                answers |= ask(world, copied, ["replay"])
            world.discard(copied)
            return answers

        attack("ledger", name, breaks, gains, by=by, **more)(act)
        return change

    return add


known = partial(ledger, known=True)


# What the end, the states and the genesis say of tensors.


@known("end of another model", "the end has the tensors of the last state", "another model passes as this run's")
def _(f: Forged) -> None:
    other = f.other("freed")
    f.change(End, lambda e: f.with_tensors(e, other.tensors(other.entries[-1])))


@known(
    "end and model of another run",
    "the end has the tensors of the last state",
    "a model that trained a denied class passes the gate",
)
def _(f: Forged) -> None:
    other = f.other("freed")
    f.change(End, lambda e: f.with_tensors(e, other.tensors(other.entries[-1])))
    shutil.copy(other.run / "model" / "model.safetensors", f.run / "model" / "model.safetensors")


@known("end's root is garbage", "the roots of the end follow from its list of tensors", "a record of no model at all")
def _(f: Forged) -> None:
    f.change(End, lambda e: replace(e, state=replace(e.state, parameters=SOME)))


@ledger("end's buffers are garbage", "the roots of the end follow from its list of tensors", "a record of no model")
def _(f: Forged) -> None:
    f.change(End, lambda e: replace(e, state=replace(e.state, buffers=SOME)))


@ledger("end's optimiser is garbage", "the roots of the end follow from its list of tensors", "a record of no model")
def _(f: Forged) -> None:
    f.change(End, lambda e: replace(e, state=replace(e.state, optimizer=SOME)))


@ledger("end without its list", "the end names its tensors", "what the model is cannot be seen")
def _(f: Forged) -> None:
    f.change(End, lambda e: f.without_blob(e, "tensors"))


@ledger("one optimiser tensor of the end", "the end has the tensors of the last state", "another optimiser continues")
def _(f: Forged) -> None:
    def other(end: End) -> End:
        listed = f.tensors(end)
        return f.with_tensors(end, replace(listed, optimizer={**listed.optimizer, min(listed.optimizer): SOME}))

    f.change(End, other)


@ledger("a tensor more in the end", "the end has the tensors of the last state", "a backdoor's parameters")
def _(f: Forged) -> None:
    def other(end: End) -> End:
        listed = f.tensors(end)
        return f.with_tensors(end, replace(listed, parameters={**listed.parameters, "head.trigger": SOME}))

    f.change(End, other)


@ledger("a tensor less in the end", "the end has the tensors of the last state", "a layer's training is forgotten")
def _(f: Forged) -> None:
    def other(end: End) -> End:
        listed = f.tensors(end)
        rest = {name: leaf for name, leaf in listed.parameters.items() if name != "head.bias"}
        return f.with_tensors(end, replace(listed, parameters=rest))

    f.change(End, other)


@ledger(
    "averaged: end is not the average",
    "where a method averages, the end has the averages that the last state remembers",
    "another model passes as this run's",
    run="averaged",
)
def _(f: Forged) -> None:
    other = f.other("freed")
    f.change(
        End,
        lambda e: f.with_tensors(e, replace(f.tensors(e), parameters=other.tensors(other.entries[-1]).parameters)),
    )


@ledger(
    "averaged: end and model of another run",
    "where a method averages, the end has the averages that the last state remembers",
    "a model that trained a denied class passes the gate",
    run="averaged",
)
def _(f: Forged) -> None:
    other = f.other("freed")
    f.change(
        End, lambda e: f.with_tensors(e, replace(f.tensors(e), parameters=other.tensors(other.entries[-1]).parameters))
    )
    shutil.copy(other.run / "model" / "model.safetensors", f.run / "model" / "model.safetensors")


@ledger(
    "averaged: end is the last state",
    "where a method averages, the end has the averages that the last state remembers",
    "a model that the method did not make",
    run="averaged",
)
def _(f: Forged) -> None:
    state = f.entries[f.places(State)[-1]]
    f.change(End, lambda e: f.with_tensors(e, replace(f.tensors(e), parameters=f.tensors(state).parameters)))


def _raw(f: Forged, names: Callable[[str], bool]) -> None:
    """The end and the model's file have the last state's values of these parameters, and the averages of the others.
    The run of the same seed without an average has them in its file."""
    state, raw = f.entries[f.places(State)[-1]], f.other("main").run / "model" / "model.safetensors"
    was = f.tensors(state).parameters
    taken = {name for name in was if names(name)}
    f.change(
        End,
        lambda e: f.with_tensors(
            e,
            replace(f.tensors(e), parameters={**f.tensors(e).parameters, **{name: was[name] for name in taken}}),
        ),
    )
    path = f.run / "model" / "model.safetensors"
    save_file({**load_file(path), **{name: each for name, each in load_file(raw).items() if name in taken}}, path)


@ledger(
    "averaged: a mixture of averages and last values",
    "where a method averages, the end has the averages that the last state remembers",
    "a model that the method did not make",
    run="averaged",
)
def _(f: Forged) -> None:
    _raw(f, lambda name: name.startswith("head."))


@ledger(
    "averaged: end and model of the last state",
    "where a method averages, the end has the averages that the last state remembers",
    "a model that was trained, and not averaged",
    run="averaged",
    accepted="host",
)
def _(f: Forged) -> None:
    _raw(f, lambda name: True)


@ledger("a state's root is garbage", "the roots of a state follow from its list of tensors", "a replay from anywhere")
def _(f: Forged) -> None:
    f.change(State, lambda e: replace(e, state=replace(e.state, optimizer=SOME)), at=0)


@ledger("two lists of tensors exchanged", "the roots of a state follow from its list of tensors", "hides what moved")
def _(f: Forged) -> None:
    first, second, *_ = f.places(State)
    a, b = f.entries[first], f.entries[second]
    f.entries[first] = replace(a, blobs={**a.blobs, "tensors": b.blobs["tensors"]})
    f.entries[second] = replace(b, blobs={**b.blobs, "tensors": a.blobs["tensors"]})


@ledger(
    "two states exchanged", "a layer that no step updated did not move", "hides when something moved", accepted="host"
)
def _(f: Forged) -> None:
    first, second, *_ = f.places(State)
    a, b = f.entries[first], f.entries[second]
    f.entries[first] = f.with_tensors(a, f.tensors(b))
    f.entries[second] = f.with_tensors(b, f.tensors(a))


@ledger("states of the twin, end of this run", "the end has the tensors of the last state", "training of another seed")
def _(f: Forged) -> None:
    other = f.other("twin")
    for mine, theirs in zip(f.places(State), other.places(State), strict=True):
        f.entries[mine] = f.with_tensors(f.entries[mine], other.tensors(other.entries[theirs]))


@ledger("start is another list", "the genesis' list leads to its digest of initial parameters", "another beginning")
def _(f: Forged) -> None:
    other = f.other("twin")
    f.change(Genesis, lambda e: replace(f.with_tensors(e, other.tensors(other.genesis)), initial=e.initial))


@ledger("initial is garbage", "the genesis' list leads to its digest of initial parameters", "another beginning")
def _(f: Forged) -> None:
    f.fields(Genesis, initial=SOME)


@ledger("no lists of tensors at all", "every state names its tensors", "that layers stayed cannot be seen")
def _(f: Forged) -> None:
    for kind in (Genesis, State):
        f.change(kind, lambda e: f.without_blob(e, "tensors"))


@ledger("one state without its list", "every state names its tensors", "what moved in a segment cannot be seen")
def _(f: Forged) -> None:
    f.change(State, lambda e: f.without_blob(e, "tensors"), at=1)


@ledger("a layer moved in secret", "a layer that no step updated did not move", "a denied layer was trained")
def _(f: Forged) -> None:
    def moved(e: Any) -> Any:
        listed = f.tensors(e)
        return f.with_tensors(e, replace(listed, parameters={**listed.parameters, "conv.weight": SOME}))

    f.change(Step, lambda e: replace(e, updated=_flag(f, e.updated, FROZEN, "0")))
    _mute(f, FROZEN)
    f.change(State, moved)
    f.change(End, moved)


@ledger("a tensor of no layer moved", "every tensor that moves is of a layer of the genesis", "parameters on the side")
def _(f: Forged) -> None:
    for number, index in enumerate(f.places(State)):
        listed = f.tensors(f.entries[index])
        more = {**listed.parameters, "side.weight": digest([number])}
        f.entries[index] = f.with_tensors(f.entries[index], replace(listed, parameters=more))
        if index == f.places(State)[-1]:
            f.change(End, lambda e, more=more: f.with_tensors(e, replace(f.tensors(e), parameters=more)))


@ledger("updated, and nothing moved", "a layer that says it was updated moved", "more training than there was")
def _(f: Forged) -> None:
    first = f.tensors(f.genesis)
    for index in [*f.places(State), *f.places(End)]:
        listed = f.tensors(f.entries[index])
        stuck = {**listed.parameters, **{n: v for n, v in first.parameters.items() if n.startswith("stages.1.0.conv1")}}
        f.entries[index] = f.with_tensors(f.entries[index], replace(listed, parameters=stuck))


# Layers.


@known("a layer renamed", "the names of tensors begin with those of layers", "the rule that denies it misses it")
def _(f: Forged) -> None:
    _layers(f, lambda name: name.replace("stages.0.0.conv1", "extra.conv1"))


@known("a layer left out", "the names of tensors begin with those of layers", "an unrecorded layer")
def _(f: Forged) -> None:
    _layers(f, lambda name: None if name == "stages.0.0.conv1" else name)


@ledger("two layers exchanged", "layers stand in the order of the model", "depths of another model", accepted="layers")
def _(f: Forged) -> None:
    names = {"conv": "head", "head": "conv"}
    _layers(f, lambda name: names.get(name, name))


@ledger("a layer that is not there", "every layer has a tensor", "denial of a layer that the model lacks")
def _(f: Forged) -> None:
    _layers(f, lambda name: name, more=("phantom",))


@ledger(
    "an invented second name",
    "other names of layers are the model's",
    "a rule for one layer denies another",
    accepted="layers",
)
def _(f: Forged) -> None:
    f.fields(Genesis, shared=(Shared(layer="head", also=("tied",)),))


@ledger("an invented owner", "tensors are of the layers that their names say", "what moved is another layer's")
def _(f: Forged) -> None:
    f.change(Genesis, lambda e: f.with_blob(e, "owners", canonical({"conv.weight": "head"})))


# What the genesis names by digest.


def _digest(field: str, gains: str, *, reported: bool = True) -> None:
    @ledger(
        f"genesis: {field} is random",
        f"the genesis' {field} is the digest of what lies in the directory",
        gains,
        known=reported,
    )
    def _(f: Forged) -> None:
        f.change(Genesis, lambda e: replace(e, **{field: SOME}))


_digest("recipe", "an unknown training")
_digest("environment", "another platform, other versions")
_digest("data", "another dataset")
_digest("code", "other code")
_digest("taxonomy", "other classes", reported=False)
_digest("policy", "another policy", reported=False)
_digest("trust", "other authorities", reported=False)


@known("another seed", "the random digest of a state follows from seed and step", "seeds chosen after the fact")
def _(f: Forged) -> None:
    f.fields(Genesis, seed=7)


@ledger("another seed, randoms too", "the seed is that of run.json", "seeds chosen after the fact")
def _(f: Forged) -> None:
    f.fields(Genesis, seed=7)
    for kind in (State, End):
        f.change(kind, lambda e: replace(e, state=replace(e.state, random=digest({"seed": 7, "step": e.step}))))


@ledger("one state's random", "the random digest of a state follows from seed and step", "streams of another seed")
def _(f: Forged) -> None:
    f.change(State, lambda e: replace(e, state=replace(e.state, random=SOME)), at=1)


@known("judged long after", "the moment of judging lies before the cosignatures", "documents that were signed later")
def _(f: Forged) -> None:
    later = (f.genesis.judged or 0) + 200 * 86_400
    f.fields(Genesis, judged=later)
    path = f.run / rundir.GOVERNANCE / "source.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "judged": later}))


@ledger("judged long before", "the moment of judging lies shortly before the first cosignature", "expired documents")
def _(f: Forged) -> None:
    earlier = (f.genesis.judged or 0) - 200 * 86_400
    f.fields(Genesis, judged=earlier)
    path = f.run / rundir.GOVERNANCE / "source.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "judged": earlier}))


@ledger(
    "judged two hours after", "the moment of judging lies before the cosignatures", "documents that were signed later"
)
def _(f: Forged) -> None:
    f.fields(Genesis, judged=f.world.now + 2 * 3600)


@ledger("another run's name", "the genesis names the run of run.json", "one run's record for another's")
def _(f: Forged) -> None:
    f.fields(Genesis, run="resnet8-digits-other-ssr1-s0-00000000")


@ledger("another strategy", "microbatches are what the engine does", "bits that no replay arrives at", accepted="host")
def _(f: Forged) -> None:
    f.fields(Genesis, strategy="fused")


@ledger("plain strategy under a policy", "a run with a policy is trained in microbatches", "nothing was routed")
def _(f: Forged) -> None:
    f.fields(Genesis, strategy="plain")


@ledger("no policy", "a governed run has a policy", "nothing was denied", known=True)
def _(f: Forged) -> None:
    f.fields(Genesis, policy=None)


@ledger("no trust file", "documents are believed by a trust file", "no vouching", known=True)
def _(f: Forged) -> None:
    f.fields(Genesis, trust=None)


@ledger("tags of another name", "the tags are those of the dataset", "an untagged shard")
def _(f: Forged) -> None:
    f.change(Genesis, lambda e: replace(e, tags={"other": next(iter(e.tags.values()))}))


@ledger("a second tag table", "every tag table that the genesis names is here", "an unchecked shard")
def _(f: Forged) -> None:
    (sources,) = f.genesis.tags.values()
    f.change(Genesis, lambda e: replace(e, tags={**e.tags, "more": replace(sources, root=SOME)}))


@ledger("another tag root", "the tags are those that the genesis names", "other classes", known=True)
def _(f: Forged) -> None:
    f.change(Genesis, lambda e: replace(e, tags={n: replace(s, root=SOME) for n, s in e.tags.items()}))


@ledger("another attestation", "the tags are those that the genesis names", "other vouchers", known=True)
def _(f: Forged) -> None:
    f.change(Genesis, lambda e: replace(e, tags={n: replace(s, attestation=SOME) for n, s in e.tags.items()}))


@ledger("classes exchanged in the genesis", "numbers are of the classes in the genesis' order", "one class for another")
def _(f: Forged) -> None:
    swap = {DENIED: OPEN, OPEN: DENIED}
    f.fields(Genesis, classes=tuple(swap.get(path, path) for path in f.genesis.classes))


@ledger("an invented parent", "a parent is what origin.json or the recipe's start names", "a lineage that is not")
def _(f: Forged) -> None:
    there = LedgerState(origin="example.com/trainer/another", size=12, root=SOME)
    parent = Parent(kind="model", ledger=there, model=SOME, attestation=SOME, admitted={OPEN: write_float(1.0)})
    f.fields(Genesis, parents=(parent,))


@ledger("an invented deletion", "a parent is what origin.json or the recipe's start names", "a deletion that was none")
def _(f: Forged) -> None:
    there = LedgerState(origin="example.com/trainer/another", size=12, root=SOME)
    f.fields(Genesis, parents=(Parent(kind="deletion", ledger=there, model=None, attestation=None, admitted={}),))


@ledger("a start state from nowhere", "a run begins at step 0, or continues a parent", "training before the record")
def _(f: Forged) -> None:
    f.fields(Genesis, start=f.entries[f.places(State)[0]].state)


@ledger("an invented quarantine", "what was set aside has no vouching", "examples out of the count")
def _(f: Forged) -> None:
    f.change(Genesis, lambda e: f.with_blob(e, "quarantine", canonical({"no-tag": [100_000]})))


# Erased, withheld, executed again.


def _trained(f: Forged, path: str, layer: str = FROZEN) -> None:
    """A class that is denied a layer trained it, and its numbers say so."""
    f.numbers(lambda step, numbers: violation(f, numbers, path, layer))


@known(
    "a denied class trained, then erased",
    "what was erased cannot be told, and has its entry on record",
    "a violation that cannot be seen",
)
def _(f: Forged) -> Any:
    _trained(f, DENIED)
    f.sign()
    _erase(f, DENIED)
    return False


@ledger(
    "a denied class trained, then erased by the verb",
    "what was erased cannot be told, though its entry is on record",
    "a violation that cannot be seen",
)
def _(f: Forged) -> Any:
    _trained(f, DENIED)
    f.sign()
    command("delete", "erase", f.run, DENIED, "--yes")
    return False


def _withheld(name: str, gains: str, gone: Callable[[str], bool], **more: Any) -> None:
    """Put the blobs of some names, missing without an erasure, into the table."""

    @ledger(name, "what an entry names is here", gains, **more)
    def _(f: Forged) -> Any:
        f.sign()
        _remove(f, gone)
        return False


_withheld(
    "numbers of a class withheld",
    "a violation that cannot be seen",
    lambda name: name == f"numbers/{DENIED}",
    known=True,
)
_withheld("all blobs withheld", "a record of nothing", lambda name: True, known=True)
_withheld("lists of tensors withheld", "what moved cannot be seen", lambda name: name == "tensors")
_withheld("weights withheld", "which weights were in force cannot be seen", lambda name: name == "weights")
_withheld("slots withheld", "which examples trained cannot be seen", lambda name: name == "slots")


@ledger("the joint secret destroyed", "what was erased cannot be told", "no inner product can be looked at")
def _(f: Forged) -> Any:
    f.sign()
    destroy_salt(f.run / rundir.SECRETS, len(f.genesis.classes))
    _remove(f, lambda name: name == "joint")
    return False


@ledger("only the secrets taken away", "commitments are opened where numbers are here", "unopened numbers")
def _(f: Forged) -> Any:
    f.numbers(lambda step, numbers: replace(numbers, dots=numbers.dots * 2))
    for index in f.places(Step):
        f.entries[index] = replace(f.entries[index], joint=SOME)
    f.sign()
    (f.run / rundir.SECRETS).unlink()
    return False


@known("a violation in superseded steps", "superseded steps are judged like all others", "a violation out of sight")
def _(f: Forged) -> None:
    _executed_again(f, lambda step, numbers: violation(f, numbers, DENIED, FROZEN))


@ledger("superseded: a layer that moved", "superseded steps are judged like all others", "a violation out of sight")
def _(f: Forged) -> None:
    def moved(state: State) -> State:
        listed = f.tensors(state)
        return f.with_tensors(state, replace(listed, parameters={**listed.parameters, "side.weight": SOME}))

    _executed_again(f, lambda step, numbers: numbers, moved)


@ledger("superseded: another table", "superseded steps are judged like all others", "other weights out of sight")
def _(f: Forged) -> None:
    _executed_again(f, lambda step, numbers: numbers, step=lambda step: replace(step, weights=SOME))


@ledger("superseded: counts", "superseded steps are judged like all others", "other examples out of sight")
def _(f: Forged) -> None:
    def other(step: Step) -> Step:
        return replace(step, examples=(step.examples[0] + 1, step.examples[1] - 1, *step.examples[2:]))

    _executed_again(f, lambda step, numbers: numbers, step=other)


@ledger("superseded: numbers without a commitment", "superseded steps are judged like all others", "other numbers")
def _(f: Forged) -> None:
    _executed_again(f, lambda step, numbers: numbers, step=lambda step: replace(step, joint=SOME))


@ledger("superseded: phase", "superseded steps are judged like all others", "a phase before its time")
def _(f: Forged) -> None:
    last = f.entries[f.places(Step)[-1]].phase
    _executed_again(f, lambda step, numbers: numbers, step=lambda step: replace(step, phase=last), first=0)


# Numbers.


@known("sketches are random", "sketches are committed to", "directions that were not")
def _(f: Forged) -> None:
    chance = np.random.default_rng(0)
    for index in f.places(State):
        for name in [name for name in f.entries[index].blobs if name.startswith("sketches/")]:
            size = f.entries[index].blobs[name].size
            f.entries[index] = f.with_blob(
                f.entries[index], name, chance.normal(size=size // 4).astype("<f4").tobytes()
            )


@known("sketches are absent", "no number is missing", "unseen directions")
def _(f: Forged) -> None:
    for index in f.places(State):
        for name in [name for name in f.entries[index].blobs if name.startswith("sketches/")]:
            f.entries[index] = f.without_blob(f.entries[index], name)


@ledger("sketches of one class in one segment absent", "no number is missing", "an unseen direction")
def _(f: Forged) -> None:
    f.change(State, lambda e: f.without_blob(e, f"sketches/{OPEN}"), at=1)


@ledger("sketches of two classes exchanged", "sketches are committed to", "directions of another class")
def _(f: Forged) -> None:
    a, b = f"sketches/{OPEN}", f"sketches/{DENIED}"
    f.change(State, lambda e: replace(e, blobs={**e.blobs, a: e.blobs[b], b: e.blobs[a]}))


@known("a denied class trained", "a class has no numbers where it is denied", "a violation")
def _(f: Forged) -> None:
    _trained(f, DENIED)


@known("more weight than the policy gives", "weights are those of the policy", "a class trains more than it may")
def _(f: Forged) -> None:
    f.numbers(lambda step, numbers: scaled(numbers, weight=2.0))


@ledger(
    "less weight than the policy gives",
    "weights are those of the policy",
    "less training than is claimed",
    accepted="host",
)
def _(f: Forged) -> None:
    f.numbers(lambda step, numbers: scaled(numbers, weight=0.5))


@ledger("a late class trained early", "a phase's weights are those of the policy", "a class trains before it may")
def _(f: Forged) -> None:
    f.numbers(lambda step, numbers: numbers if step.step else violation(f, numbers, LATE, "head", add=True))


@ledger("a sealed class trained a shared layer", "a sealed class trains only its region", "G2 that is none")
def _(f: Forged) -> None:
    f.numbers(lambda step, numbers: violation(f, numbers, SEALED, "head"))


@ledger("a class trained another's region", "only its class trains a region", "G2 that is none")
def _(f: Forged) -> None:
    f.numbers(lambda step, numbers: violation(f, numbers, OPEN, "stages.2.0.conv1@own"))


@known(
    "numbers do not belong to their commitment", "numbers are those that were committed to", "numbers after the fact"
)
def _(f: Forged) -> None:
    f.change(Step, lambda e: replace(e, joint=SOME), at=3)


@ledger("commitments by another secret", "commitments follow from the run's secrets", "numbers that do not open")
def _(f: Forged) -> None:
    other = f.other("twin")
    mine, f.ledger._keys = f.ledger.keys, other.ledger.keys
    f.numbers(lambda step, numbers: numbers)
    f.ledger._keys = mine


@ledger("numbers of two segments exchanged", "numbers are those that were committed to", "other steps' numbers")
def _(f: Forged) -> None:
    first, second = f.places(State)[:2]
    name = f"numbers/{OPEN}"
    a, b = f.entries[first], f.entries[second]
    f.entries[first] = replace(a, blobs={**a.blobs, name: b.blobs[name]})
    f.entries[second] = replace(b, blobs={**b.blobs, name: a.blobs[name]})


@ledger("numbers of two classes exchanged", "a class has no numbers where it is denied", "one class for another")
def _(f: Forged) -> None:
    one, other = (f.genesis.classes.index(path) for path in (DENIED, OPEN))

    def exchanged(step: Step, numbers: StepNumbers) -> StepNumbers:
        order = [numbers.classes.index({one: other, other: one}.get(index, index)) for index in numbers.classes]
        gram = numbers.gram[:, order][:, :, order]
        arrays = {name: getattr(numbers, name)[order] for name in ("weights", "norms", "dots")}
        return replace(numbers, **arrays, gram=gram)

    f.numbers(exchanged)


@ledger("a class without numbers", "a class that was there and admitted has numbers", "a class that trained unseen")
def _(f: Forged) -> None:
    index = f.genesis.classes.index(OPEN)
    f.numbers(lambda step, numbers: without(numbers, index))


@ledger("numbers of a class that is not there", "a class without examples trained nothing", "examples out of the count")
def _(f: Forged) -> None:
    index = f.genesis.classes.index(OPEN)

    def none(step: Step) -> Step:
        moved = step.examples[index]
        counts = [*step.examples]
        counts[index], counts[0] = 0, counts[0] + moved
        return replace(step, examples=tuple(counts))

    f.change(Step, none)


@ledger("nothing was measured", "every step has numbers", "a step without a record")
def _(f: Forged) -> None:
    def unmeasured(step: Step) -> Step:
        return replace(step, joint=None, numbers=(None,) * len(step.numbers))

    segment = list(f.ledger.segments())[-1]
    for step in segment.steps:
        f.entries[f.ledger.outline.steps[step]] = unmeasured(f.entries[f.ledger.outline.steps[step]])
    state = f.entries[segment.state.index]
    kept = {name: blob for name, blob in state.blobs.items() if name in ("slots", "tensors")}
    f.entries[segment.state.index] = replace(state, blobs=kept)


@ledger("updates of nothing", "inner products can be those of gradients and an update", "an update that was not")
def _(f: Forged) -> None:
    f.numbers(lambda step, numbers: replace(numbers, updates=np.zeros_like(numbers.updates)))


@ledger("inner products beyond the norms", "inner products can be those of gradients and an update", "other shares")
def _(f: Forged) -> None:
    def beyond(step: Step, numbers: StepNumbers) -> StepNumbers:
        k = len(numbers.classes)
        mask = ~np.eye(k, dtype=bool)
        return replace(numbers, gram=np.where(mask, numbers.gram * 50, numbers.gram).astype(np.float32))

    f.numbers(beyond)


@known("consistent other norms", "numbers are those of the gradients", "other shares", accepted="host")
def _(f: Forged) -> None:
    f.numbers(lambda step, numbers: replace(numbers, norms=numbers.norms * 2, gram=numbers.gram * 4))


@known("NaN in the norms", "numbers are those of the gradients", "shares that are no number", accepted="host")
def _(f: Forged) -> None:
    def nan(step: Step, numbers: StepNumbers) -> StepNumbers:
        norms = np.where(numbers.weights > 0, np.float32(np.nan), numbers.norms)
        gram = numbers.gram.copy()
        gram[:, range(len(norms)), range(len(norms))] = diagonal(numbers.weights, norms).T
        return replace(numbers, norms=norms, gram=gram)

    f.numbers(nan)


# Steps.


@ledger("a step omitted", "no step is missing", "a step out of sight", known=True)
def _(f: Forged) -> None:
    del f.entries[f.places(Step)[2]]


@ledger("two steps exchanged", "steps stand in their order", "another history", known=True)
def _(f: Forged) -> None:
    a, b = f.places(Step)[:2]
    f.entries[a], f.entries[b] = f.entries[b], f.entries[a]


@ledger("what two steps say exchanged", "slots and numbers are of their step", "another history")
def _(f: Forged) -> None:
    a, b = f.places(Step)[:2]
    one, other = f.entries[a], f.entries[b]
    f.entries[a], f.entries[b] = replace(other, step=one.step), replace(one, step=other.step)


@ledger("the end cut off", "a ledger has an end", "the last steps out of sight", known=True)
def _(f: Forged) -> None:
    del f.entries[f.places(End)[0]]


@ledger("the last segment cut off", "a run has as many steps as run.json plans", "the last steps out of sight")
def _(f: Forged) -> None:
    place, last = f.places(State)[-2], f.places(State)[-1]
    end = replace(f.entries[f.places(End)[0]], step=f.entries[place].step)
    end = f.with_tensors(end, f.tensors(f.entries[place]))
    end = replace(end, state=f.entries[place].state)
    del f.entries[place + 1 : last + 1]
    f.entries = [e for e in f.entries if not isinstance(e, End) and not (isinstance(e, Profile) and e.step)] + [end]


@ledger("another phase", "the phase is the policy's at that progress", "a phase before its time", known=True)
def _(f: Forged) -> None:
    f.change(Step, lambda e: replace(e, phase=f.entries[f.places(Step)[-1]].phase), at=0)


@ledger("counts moved to the quarantine", "counts are those of the tags", "examples that trained and do not count")
def _(f: Forged) -> None:
    f.change(
        Step, lambda e: replace(e, examples=(e.examples[0] - 1, *e.examples[1:]), quarantined=e.quarantined + 1), at=1
    )


@ledger("counts of two classes exchanged", "counts are those of the tags", "other counts", known=True)
def _(f: Forged) -> None:
    f.change(Step, lambda e: replace(e, examples=(e.examples[1] + 1, e.examples[0] - 1, *e.examples[2:])), at=1)


@ledger("slots of another step", "the slots lead to the root in the entry", "other examples", known=True)
def _(f: Forged) -> None:
    other = f.entries[f.places(Step)[2]].slots
    f.change(Step, lambda e: replace(e, slots=other), at=1)


@known("other examples of the same classes", "slots are the plan's", "examples that were not", accepted="host")
def _(f: Forged) -> None:
    _slots(f, lambda rows, same: np.array([same[row][(at * 7) % len(same[row])] for at, row in enumerate(rows)]))


@known("the same three examples all the time", "slots are the plan's", "a tiny training", accepted="host")
def _(f: Forged) -> None:
    _slots(f, lambda rows, same: np.array([same[row][0] for row in rows]))


@ledger("rows beyond the tag table", "slots are rows of the tag table", "examples without a tag", known=True)
def _(f: Forged) -> Any:
    segment = next(iter(f.ledger.segments()))
    content = np.frombuffer(f.content(f.entries[segment.state.index], "slots"), "<u4").copy()
    content[1] = 100_000
    f.entries[segment.state.index] = f.with_blob(f.entries[segment.state.index], "slots", content.tobytes())


@ledger("a smaller batch", "a batch has as many slots as the recipe says", "examples that trained unseen")
def _(f: Forged) -> None:
    _slots(f, lambda rows, same: rows[:-1], recount=True)


@ledger("no weights named", "a step under a policy names its weights", "unseen weights")
def _(f: Forged) -> None:
    f.change(Step, lambda e: replace(e, weights=None, blobs={}), at=0)


@ledger("weights of another table", "the weights in force are those of the policy", "other weights", known=True)
def _(f: Forged) -> None:
    other = f.other("freed")
    table = other.entries[other.places(Step)[0]]
    f.change(Step, lambda e: replace(f.take(other, replace(e, weights=table.weights, blobs=table.blobs))), at=0)


@ledger("a blob that is not the table", "the blob `weights` is the table that the step names", "readers see another")
def _(f: Forged) -> None:
    other = f.other("freed")
    table = other.content(other.entries[other.places(Step)[0]], "weights")
    f.change(Step, lambda e: f.with_blob(e, "weights", table), at=0)


@ledger("an update without a class", "an updated layer was open to a class of the step", "an update from nowhere")
def _(f: Forged) -> None:
    f.change(Step, lambda e: replace(e, updated=_flag(f, e.updated, FROZEN, "1")))
    f.numbers(lambda step, numbers: muted(f, numbers, FROZEN))


@ledger("a gradient that says it updated nothing", "a layer that took a gradient was updated", "hidden", known=True)
def _(f: Forged) -> None:
    f.change(Step, lambda e: replace(e, updated="0" * len(e.updated)), at=2)


@ledger("flags too few", "a step has a flag for every layer", "an unrecorded layer", known=True)
def _(f: Forged) -> None:
    f.change(Step, lambda e: replace(e, updated=e.updated[:-1]), at=2)


# Profiles and decisions.


@ledger("probes are others", "every profile has the same probes", "profiles of chosen examples")
def _(f: Forged) -> None:
    f.fields(Profile, at=0, probes=SOME)


@ledger("probes are others in all profiles", "the probes follow from tags and seed", "chosen probes", accepted="host")
def _(f: Forged) -> None:
    f.fields(Profile, probes=SOME)


@ledger("a profile left out", "profiles are where the recipe says", "an unseen moment", accepted="host")
def _(f: Forged) -> None:
    del f.entries[f.places(Profile)[-1]]


@ledger("a profile's commitment", "numbers are those that were committed to", "other entropies", known=True)
def _(f: Forged) -> None:
    f.fields(Profile, at=0, joint=SOME)


@ledger("a profile without a class", "a profile has every class that has probes", "an unseen class")
def _(f: Forged) -> None:
    def less(e: Profile) -> Profile:
        rest = {path: committed for path, committed in e.classes.items() if path != DENIED}
        return f.without_blob(replace(e, classes=rest), f"numbers/{DENIED}")

    f.change(Profile, less)


@ledger(
    "a profile's entropy beyond its probes",
    "entropies are such as the probes can have",
    "a class told apart",
    accepted="host",
)
def _(f: Forged) -> None:
    _profile(f, np.float64(1e6))


@ledger("consistent other entropies", "profiles are those of the model", "other entropies", accepted="host")
def _(f: Forged) -> None:
    _profile(f, None)


def _decision(f: Forged, **changes: Any) -> Decision:
    content = b"numbers"
    made = Decision(
        step=2,
        action="freeze",
        rule="entropy-settled",
        parameters={"tolerance": write_float(0.02)},
        condition=None,
        subjects=(OPEN,),
        layers=("head",),
        evidence={OPEN: f.commitment(OPEN, Decision.KIND, first=2, step=2, content=content)},
        blobs={},
    )
    return f.with_blob(replace(made, **changes), f"evidence/{OPEN}", content)


def _decided(name: str, gains: str, *, accepted: str | None = None, **changes: Any) -> None:
    @ledger(name, "a decision is one that the recipe's methods take, about what the run has", gains, accepted=accepted)
    def _(f: Forged) -> None:
        f.entries.insert(f.places(Step)[2], _decision(f, **changes))


_decided("an invented decision to freeze", "a layer that was not frozen")
_decided("a decision about a layer that is not there", "a freeze of nothing", layers=("phantom",))
_decided("a decision about a class that is not there", "a decision without a class", subjects=("simulated/class-07",))
_decided(
    "an activation of no condition",
    "a condition that was not",
    action="activation",
    condition="invented",
    accepted="host",
)
_decided(
    "a selection that no recipe makes",
    "examples that were not chosen",
    action="selection",
    rule="largest-losses",
    accepted="host",
)


# Kinds, versions and the end.


@known("an entry of an unknown kind", "entries are of kinds that are known", "unread words")
def _(f: Forged) -> None:
    f.entries.insert(-1, canonical({"blobs": {}, "kind": "note", "says": "all is well", "version": 1}))


@known("an entry of an unknown version", "entries are of versions that are known", "unread words")
def _(f: Forged) -> None:
    index = f.places(Profile)[-1]
    f.entries[index] = canonical({**json.loads(encode(f.entries[index])), "version": 2})


@ledger("an unknown blob in a state", "blobs of an entry are those that its kind has", "unread content")
def _(f: Forged) -> None:
    f.change(State, lambda e: f.with_blob(e, "payload", b"anything"), at=0)


@ledger("numbers of an unknown class", "blobs of an entry are those that its kind has", "unread content")
def _(f: Forged) -> None:
    f.change(State, lambda e: f.with_blob(e, "numbers/simulated/class-07", bytes(16)), at=0)


@known("other metrics at the end", "metrics are those of metrics.jsonl and result.json", "a better model on paper")
def _(f: Forged) -> None:
    f.change(End, lambda e: replace(e, metrics={**e.metrics, "accuracy": write_float(0.99)}))


@ledger("a metric more at the end", "metrics are those of metrics.jsonl and result.json", "a better model on paper")
def _(f: Forged) -> None:
    f.change(End, lambda e: replace(e, metrics={**e.metrics, "mean_iou": write_float(0.99)}))


@ledger("a metric less at the end", "metrics are those of metrics.jsonl and result.json", "a bad number out of sight")
def _(f: Forged) -> None:
    f.change(End, lambda e: replace(e, metrics={n: v for n, v in e.metrics.items() if n != "nll"}))


@ledger("stopped, not finished", "a finished run has as many steps as run.json plans", "an outcome that was not")
def _(f: Forged) -> None:
    f.fields(End, outcome="stopped")


# The run directory around the ledger.


def _file(name: str, relative: str, change: Callable[[Any], Any], gains: str, **more: Any) -> None:
    @ledger(name, f"{relative} is what the ledger names", gains, **more)
    def _(f: Forged) -> Any:
        path = f.run / relative
        path.write_text(json.dumps(change(json.loads(path.read_text())), indent=1))
        return False


_file("run.json: seed", "run.json", lambda v: {**v, "seed": 9}, "a table of results says another seed", known=True)
_file("run.json: methods", "run.json", lambda v: {**v, "methods": ["mixup"]}, "another method's result", known=True)
_file("run.json: recipe's name", "run.json", lambda v: {**v, "recipe": "best"}, "another recipe's result", known=True)
_file("run.json: steps", "run.json", lambda v: {**v, "steps": v["steps"] * 2}, "another budget")
_file("run.json: batch size", "run.json", lambda v: {**v, "batch_size": 8}, "another batch size")
_file("run.json: budget", "run.json", lambda v: {**v, "ssr": 0.5}, "a cheaper run")
_file("run.json: hardware", "run.json", lambda v: {**v, "hardware": {**v["hardware"], "name": "H100"}}, "other prices")
_file("run.json: dataset", "run.json", lambda v: {**v, "dataset": "cifar10"}, "another dataset's result")
_file("run.json: model", "run.json", lambda v: {**v, "model": "resnet50"}, "another model's result")
_file("run.json: precision", "run.json", lambda v: {**v, "precision": "bf16"}, "another precision")
_file("run.json: run id", "run.json", lambda v: {**v, "run_id": "other-run-00000000"}, "another run's result")
_file("run.json: phases", "run.json", lambda v: {**v, "phases": {"all steps": v["steps"]}}, "other step times")
_file(
    "run.json: identity",
    "run.json",
    lambda v: {**v, "identity": {**v["identity"], "seed": 3}},
    "another recipe",
)
_file(
    "environment.json: platform",
    "environment.json",
    lambda v: {**v, "platform": "another"},
    "another platform",
    known=True,
)
_file(
    "result.json: metrics",
    "result.json",
    lambda v: {**v, "metrics": {**v["metrics"], "accuracy": 0.99}},
    "a better model on paper",
)
_file("result.json: steps", "result.json", lambda v: {**v, "steps": 1}, "a cheaper run")
_file(
    "source.json: judged",
    "governance/source.json",
    lambda v: {**v, "judged": v["judged"] - 10**7},
    "documents of another day",
    by=("replay",),
)
_file(
    "model.json: methods", "model/model.json", lambda v: {**v, "methods": [{"ema": {}}]}, "another model", by=("gate",)
)
_file("model.json: run", "model/model.json", lambda v: {**v, "run": "another"}, "another run's model", by=("gate",))
_file(
    "model.json: shape",
    "model/model.json",
    lambda v: {**v, "example_shape": [3, 8, 8]},
    "another model",
    by=("gate",),
    accepted="card",
)
_file(
    "model.json: outputs",
    "model/model.json",
    lambda v: {**v, "classes": 11},
    "another model",
    by=("gate",),
    accepted="card",
)
_file("model.json: regions", "model/model.json", lambda v: {**v, "sealed": []}, "a region without owner", by=("gate",))


@ledger("metrics.jsonl: the last measurement", "metrics are those of metrics.jsonl", "a better curve")
def _(f: Forged) -> Any:
    path = f.run / rundir.METRICS
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line["metric"] == "accuracy":
            line["value"] = 0.99
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return False


@ledger("model file of another run", "the model is what the ledger ends with", "another model", by=("conform", "gate"))
def _(f: Forged) -> Any:
    shutil.copy(f.other("freed").run / "model" / "model.safetensors", f.run / "model" / "model.safetensors")
    return False


@ledger(
    "model file with words in its header",
    "the model's file is what was attested",
    "metadata of anybody's",
    accepted="metadata",
)
def _(f: Forged) -> Any:
    """Before it is attested: nothing states the metadata, and the digest of the file binds it afterwards."""
    path = f.run / "model" / "model.safetensors"
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"] = {"trained_on": "nothing but public data"}
    made = json.dumps(header, separators=(",", ":")).encode()
    made += b" " * (-len(made) % 8)
    path.write_bytes(len(made).to_bytes(8, "little") + made + content[8 + length :])
    return False


@ledger("origin.json from nowhere", "origin.json is the parent that the genesis names", "a deletion that was none")
def _(f: Forged) -> Any:
    origin = {
        "format": "explorer/origin/v1",
        "level": "G2",
        "run": f.genesis.run,
        "ledger": {"origin": "example.com/trainer/another", "size": 12, "root": SOME},
        "target": {"classes": [SEALED], "authorities": [], "records": []},
        "begins": 0,
        "state": None,
    }
    (f.run / rundir.ORIGIN).write_text(json.dumps(origin))
    return False


# Seams of the checks themselves: the optional fields that switch one off, the files that it reads.


@ledger("a trait of no method: an average", "traits are those of the recipe's methods", "any model as an average")
def _(f: Forged) -> None:
    """Claim that a method averages: then the end is not compared with the last state."""
    other = f.other("freed")
    f.change(Genesis, lambda e: replace(e, methods={**(e.methods or {}), "recorder": Traits(averages=True)}))
    f.change(End, lambda e: f.with_tensors(e, other.tensors(other.entries[-1])))
    shutil.copy(other.run / "model" / "model.safetensors", f.run / "model" / "model.safetensors")


@ledger("a method that the recipe lacks", "traits are those of the recipe's methods", "any model as an average")
def _(f: Forged) -> None:
    f.change(Genesis, lambda e: replace(e, methods={**(e.methods or {}), "ema": Traits(averages=True)}))


@ledger("no traits at all", "traits are those of the recipe's methods", "an unseen average", run="averaged")
def _(f: Forged) -> None:
    f.fields(Genesis, methods=None)
    state = f.entries[f.places(State)[-1]]
    f.change(End, lambda e: f.with_tensors(e, replace(f.tensors(e), parameters=f.tensors(state).parameters)))


@ledger(
    "what decides by probes does not",
    "traits are those of the recipe's methods",
    "a deletion that is too cheap",
    accepted="host",
)
def _(f: Forged) -> None:
    f.change(Genesis, lambda e: replace(e, methods={name: Traits() for name in e.methods or {}}))


@ledger(
    "a constant fitted to no example",
    "fitted constants are the dataset's",
    "a deletion that reaches too much",
    accepted="host",
)
def _(f: Forged) -> None:
    f.fields(Genesis, fitted={})


@ledger("a ledger as if before sketches were committed to", "sketches are committed to", "directions that were not")
def _(f: Forged) -> None:
    chance = np.random.default_rng(0)
    for index in f.places(State):
        state = f.entries[index]
        for name in [name for name in state.blobs if name.startswith("sketches/")]:
            state = f.with_blob(state, name, chance.normal(size=state.blobs[name].size // 4).astype("<f4").tobytes())
        f.entries[index] = replace(state, sketches=())


@ledger("neither sketches nor commitments in one segment", "no number is missing", "unseen directions")
def _(f: Forged) -> None:
    def less(state: State) -> State:
        kept = {name: blob for name, blob in state.blobs.items() if not name.startswith("sketches/")}
        return replace(state, blobs=kept, sketches=())

    f.change(State, less, at=1)


@ledger("sketches of another size, committed to", "sketches can be those of gradients", "directions that were not")
def _(f: Forged) -> None:
    for index in f.places(State):
        state = f.entries[index]
        for name in [name for name in state.blobs if name.startswith("sketches/")]:
            sketches = np.frombuffer(f.content(state, name), "<f4").reshape(len(f.genesis.layers), -1)
            state = f.sketched(state, name, sketches * 1e4)
        f.entries[index] = state


@ledger("sketches of the same size, committed to", "sketches are those of the gradients", "directions", accepted="host")
def _(f: Forged) -> None:
    for index in f.places(State):
        state = f.entries[index]
        for name in [name for name in state.blobs if name.startswith("sketches/")]:
            sketches = np.frombuffer(f.content(state, name), "<f4").reshape(len(f.genesis.layers), -1)
            state = f.sketched(state, name, -sketches)
        f.entries[index] = state


def _erasure(f: Forged, classes: tuple[str, ...], **ledger_of: Any) -> None:
    """An entry of the project's ledger that says that these classes were erased; everybody cosigns it."""
    head = LedgerDirectory(f.run / rundir.LEDGER).checkpoint()
    said = {"origin": head.origin, "size": head.size, "root": head.root.hex(), **ledger_of}
    entry = Erasure(ledger=LedgerState(**said), classes=classes, records=0, blobs={})
    runs = runs_of(f.run)
    with Project.open(runs, key=f.world.keys[NAME_OF_TRAINER], name=NAME_OF_TRAINER) as project:
        project.append(entry)
    f.world.cosign_at(runs / AUDIT)


@ledger("withheld under another class's erasure", "an erasure covers the class that it names", "numbers that convict")
def _(f: Forged) -> Any:
    _trained(f, DENIED)
    f.sign()
    _erasure(f, (OPEN,))
    _remove(f, lambda name: name == f"numbers/{DENIED}")
    return False


@ledger("withheld under another run's erasure", "an erasure names the ledger that it is about", "numbers that convict")
def _(f: Forged) -> Any:
    _trained(f, DENIED)
    f.sign()
    _erasure(f, (DENIED,), origin="example.com/trainer/another")
    _remove(f, lambda name: name == f"numbers/{DENIED}")
    return False


@ledger("tensors withheld under an erasure", "an erasure covers numbers, and no tensors", "what moved cannot be seen")
def _(f: Forged) -> Any:
    f.sign()
    _erasure(f, tuple(f.genesis.classes))
    _remove(f, lambda name: name in ("tensors", "slots"))
    return False


@ledger("secrets of another run", "commitments are opened where numbers are here", "numbers that do not open")
def _(f: Forged) -> Any:
    f.sign()
    shutil.copy(f.other("twin").run / rundir.SECRETS, f.run / rundir.SECRETS)
    return False


def _gone(name: str, relative: str, gains: str, **more: Any) -> None:
    @ledger(name, "what a statement is compared with is here", gains, **more)
    def _(f: Forged) -> Any:
        (f.run / relative).unlink()
        return False


_gone("run.json taken away", "run.json", "nothing to hold the recipe against")
_gone("environment.json taken away", "environment.json", "nothing to hold the environment against")
_gone("policy.json taken away", "governance/policy.json", "nothing to hold the weights against")
_gone("tags.parquet taken away", "governance/tags.parquet", "nothing to hold the counts against")
_gone("taxonomy.json taken away", "governance/taxonomy.json", "nothing to hold the classes against")
_gone("model.json taken away", "model/model.json", "nothing to hold the model against", by=("gate",))


@ledger(
    "executed again from the end",
    "a re-execution takes back what was recorded",
    "a crash that was none",
    accepted="host",
)
def _(f: Forged) -> None:
    """The decision comes after the last step and takes nothing back."""
    again = Decision(
        step=f.ledger.steps,
        action="re-execution",
        rule="other-bits",
        parameters={},
        condition=None,
        subjects=(),
        layers=(),
        evidence={},
        blobs={},
    )
    f.entries.insert(-1, again)


# Whole ledgers.


@ledger("the twin's ledger in this directory", "the ledger is of the run in the directory", "another run's record")
def _(f: Forged) -> Any:
    shutil.rmtree(f.run / rundir.LEDGER)
    shutil.copytree(f.other("twin").run / rundir.LEDGER, f.run / rundir.LEDGER)
    return False


@ledger("the twin under this run's name", "the ledger is of the run in the directory", "another seed's training")
def _(f: Forged) -> None:
    other = f.other("twin")
    f.entries = [f.take(other, entry) for entry in other.entries]
    f.fields(Genesis, run=f.genesis.run, recipe=f.genesis.recipe)


@ledger(
    "the twin as if it had this seed",
    "the host trained what the plan says",
    "another seed's training",
    accepted="host",
)
def _(f: Forged) -> None:
    """Seed, randomness, identity, secrets, model and measurements are exchanged together: no contradiction is left."""
    other = f.other("twin")
    mine = f.genesis
    f.entries = [f.take(other, entry) for entry in other.entries]
    f.fields(Genesis, run=mine.run, recipe=mine.recipe, environment=mine.environment, seed=mine.seed)
    for kind in (State, End):
        f.change(kind, lambda e: replace(e, state=replace(e.state, random=digest({"seed": mine.seed, "step": e.step}))))
    for name in ("private/secrets", "metrics.jsonl", "model/model.safetensors"):
        shutil.copy(other.run / name, f.run / name)
    result = json.loads((f.run / rundir.RESULT).read_text())
    result["metrics"] |= json.loads((other.run / rundir.RESULT).read_text())["metrics"]
    (f.run / rundir.RESULT).write_text(json.dumps(result))


@ledger("steps of the twin spliced in", "the states follow from the steps", "another history", accepted="host")
def _(f: Forged) -> None:
    """Whole steps with their numbers: nothing that they state is stated twice, but by a replay."""
    other = f.other("twin")
    theirs = {
        placed.entry.step: numbers
        for segment in other.ledger.segments()
        for placed, numbers in read_numbers(other.ledger, segment).by_step()
    }
    f.numbers(lambda step, numbers: theirs[step.step] if theirs[step.step].classes == numbers.classes else numbers)


@ledger(
    "signed by no member of the quorum",
    "a checkpoint has its quorum",
    "a record of one's own",
    known=True,
    by=("ledger verify",),
)
def _(f: Forged) -> Any:
    f.sign()
    shutil.rmtree(f.run / rundir.LEDGER / "witness")
    return False


@ledger(
    "signed by a stranger",
    "a trainer of the trust file signs",
    "a record of a stranger's",
    known=True,
    by=("ledger verify",),
)
def _(f: Forged) -> Any:
    f.sign()
    path = f.run / rundir.LEDGER / "checkpoint"
    text = path.read_text()
    path.write_text(text.replace(text.rsplit(" ", 1)[1][:12], "AAAAAAAAAAAA"))
    return False


@known("a ledger named after no one", "every trainer may name a ledger", "a name", accepted="name")
def _(f: Forged) -> Any:
    f.world.sign(f.run, [encode(entry) for entry in f.entries], origin="example.com/stranger/run")
    return False


@ledger("cosigned before it was judged", "cosignatures lie behind the moment of judging", "documents signed later")
def _(f: Forged) -> Any:
    f.sign(now=(f.genesis.judged or 0) - 86_400)
    return False


# What the attacks are made of.


def _flag(f: Forged, flags: str, layer: str, value: str) -> str:
    at = f.genesis.layers.index(layer)
    return flags[:at] + value + flags[at + 1 :]


def violation(f: Forged, numbers: StepNumbers, path: str, layer: str, *, add: bool = False) -> StepNumbers:
    """Numbers of a step in which a class trained a layer; nothing else contradicts them. `add`: where it has none."""
    index, at = f.genesis.classes.index(path), f.genesis.layers.index(layer)
    if index not in numbers.classes and add:
        numbers = _with_class(numbers, index)
    if index not in numbers.classes:
        return numbers
    place = numbers.classes.index(index)
    weights, norms, gram = numbers.weights.copy(), numbers.norms.copy(), numbers.gram.copy()
    weights[place, at] = norms[place, at] = 1.0
    gram[at, place, :] = gram[at, :, place] = 0
    gram[:, range(len(norms)), range(len(norms))] = diagonal(weights, norms).T
    return replace(numbers, weights=weights, norms=norms, gram=gram)


def scaled(numbers: StepNumbers, *, weight: float) -> StepNumbers:
    """The same gradients with other weights."""
    factor = np.float32(weight)
    gram = numbers.gram * factor * factor
    weights = numbers.weights * factor
    gram[:, range(len(weights)), range(len(weights))] = diagonal(weights, numbers.norms).T
    return replace(numbers, weights=weights, gram=gram, dots=numbers.dots * factor)


def without(numbers: StepNumbers, index: int) -> StepNumbers:
    """Numbers that lack a class."""
    if index not in numbers.classes:
        return numbers
    keep = [place for place, each in enumerate(numbers.classes) if each != index]
    arrays = {name: getattr(numbers, name)[keep] for name in ("weights", "norms", "dots")}
    classes = tuple(numbers.classes[place] for place in keep)
    return replace(numbers, classes=classes, **arrays, gram=numbers.gram[:, keep][:, :, keep])


def muted(f: Forged, numbers: StepNumbers, layer: str) -> StepNumbers:
    """Numbers that say no class trained a layer."""
    at = f.genesis.layers.index(layer)
    arrays = {name: getattr(numbers, name).copy() for name in ("weights", "norms", "dots", "gram", "updates")}
    for name in ("weights", "norms", "dots"):
        arrays[name][:, at] = 0
    arrays["gram"][at] = 0
    arrays["updates"][at] = 0
    return replace(numbers, **arrays)


def _mute(f: Forged, layer: str) -> None:
    f.numbers(lambda step, numbers: muted(f, numbers, layer))


def _with_class(numbers: StepNumbers, index: int) -> StepNumbers:
    """Numbers with a class more, which did nothing."""
    place = sum(each < index for each in numbers.classes)
    arrays = {name: np.insert(getattr(numbers, name), place, 0, axis=0) for name in ("weights", "norms", "dots")}
    gram = np.insert(np.insert(numbers.gram, place, 0, axis=1), place, 0, axis=2)
    classes = (*numbers.classes[:place], index, *numbers.classes[place:])
    return replace(numbers, classes=classes, **arrays, gram=gram)


def _remove(f: Forged, which: Callable[[str], bool]) -> None:
    """Remove blobs, by the names that entries give them."""
    for entry in f.entries:
        for name, blob in {} if isinstance(entry, bytes) else entry.blobs.items():
            if which(name):
                (f.run / rundir.LEDGER / blob_path(blob.sha256)).unlink(missing_ok=True)


def _erase(f: Forged, path: str) -> None:
    """Destroy the secret and the numbers of a class, and those over several, without an entry."""
    for slot in (f.genesis.classes.index(path), len(f.genesis.classes)):
        destroy_salt(f.run / rundir.SECRETS, slot)
    _remove(f, lambda name: name in (f"numbers/{path}", f"sketches/{path}", "joint"))


def _executed_again(
    f: Forged,
    change: Callable[[Step, StepNumbers], StepNumbers],
    state: Callable[[State], State] = lambda state: state,
    *,
    step: Callable[[Step], Step] = lambda step: step,
    first: int = EVERY,
) -> None:
    """A segment was recorded, taken back and executed again; what was taken back is changed."""
    segment = next(each for each in f.ledger.segments() if each.first == first)
    contents: dict[str, list[bytes]] = {}
    taken_back: list[Any] = []
    for placed, numbers in read_numbers(f.ledger, segment).by_step():
        entry = f.entries[placed.index]
        taken_back.append(step(f.committed(entry, change(entry, numbers), first, contents)))
    taken_back.append(state(f.closed(f.entries[segment.state.index], contents)))
    again = Decision(
        step=first,
        action="re-execution",
        rule="other-bits",
        parameters={},
        condition=None,
        subjects=(),
        layers=(),
        evidence={},
        blobs={},
    )
    at = f.ledger.outline.steps[first]
    begun = [entry for entry in f.entries[:at] if isinstance(entry, State) and entry.step == first]
    begun += [entry for entry in f.entries[:at] if isinstance(entry, Profile) and entry.step == first]
    f.entries[at:at] = [*taken_back, again, *begun]


def _layers(f: Forged, name: Callable[[str], str | None], more: Sequence[str] = ()) -> None:
    """Other layers in the genesis, and in everything that follows: tables, flags, numbers, profiles."""
    old = f.genesis.layers
    keep = [at for at, each in enumerate(old) if name(each) is not None]
    plain = [at for at, each in enumerate(old) if "@" not in each]
    kept_plain = [place for place, at in enumerate(plain) if at in keep]
    names = [str(name(old[at])) for at in keep]
    front = [each for each in names if "@" not in each]
    adapters = [each for each in names if "@" in each]
    names = [*front, *more, *adapters]
    where = [*range(len(front)), *range(len(front) + len(more), len(names))]

    def wide(array: np.ndarray, axis: int) -> np.ndarray:
        kept = np.take(array, keep, axis)
        shape = list(kept.shape)
        shape[axis] = len(names)
        made = np.zeros(shape, array.dtype)
        made[(slice(None),) * axis + (where,)] = kept
        return made

    f.numbers(
        lambda step, n: replace(
            n,
            weights=wide(n.weights, 1),
            norms=wide(n.norms, 1),
            dots=wide(n.dots, 1),
            gram=wide(n.gram, 0),
            updates=wide(n.updates, 0),
        )
    )
    for index in f.places(State):
        for blob in [each for each in f.entries[index].blobs if each.startswith("sketches/")]:
            rows = np.frombuffer(f.content(f.entries[index], blob), "<f4").reshape(len(old), -1)
            f.entries[index] = f.sketched(f.entries[index], blob, wide(rows, 0).astype("<f4"))
    f.fields(Genesis, layers=tuple(names))
    policy = read_policy(f.ledger)
    assert policy is not None
    routing = bind(policy, f.world.taxonomy, where="policy")
    tables = Admissions(routing, classes=f.genesis.classes, layers=recorded_layers(names, {}))
    seen: set[str] = set()
    for index in [*f.places(Step), *f.places(State)]:
        seen = set() if isinstance(f.entries[index], State) else seen
    first: set[tuple[int, str]] = set()
    for index in f.places(Step):
        step = f.entries[index]
        table = tables.at(step.step / f.ledger.steps, ())
        flags = ["0"] * len(names)
        for place, at in zip(where, keep, strict=True):
            flags[place] = step.updated[at]
        step = replace(step, weights=table.digest, updated="".join(flags), blobs={})
        if (mark := (step.step // EVERY, table.digest)) not in first:
            first.add(mark)
            step = f.with_blob(step, "weights", table.content)
        f.entries[index] = step
    _profiles(f, kept_plain, len(front) + len(more))


def _profiles(f: Forged, keep: Sequence[int], layers: int) -> None:
    """Profiles of other layers, committed to."""
    was = sum("@" not in each for each in f.genesis.layers)
    for index in f.places(Profile):
        entry = f.entries[index]
        committed = dict(entry.classes)
        for path in (*entry.classes, "*"):
            name = "joint" if path == "*" else f"numbers/{path}"
            content = f.content(entry, name)
            rows = np.frombuffer(content[4:], "<f8").reshape(was, -1)
            made = np.concatenate([rows[list(keep)], np.repeat(rows[-1:], layers - len(keep), 0)])
            content = content[:4] + made.astype("<f8").tobytes()
            entry = f.with_blob(entry, name, content)
            said = f.commitment(path, Profile.KIND, first=entry.step, step=entry.step, content=content)
            if path == "*":
                entry = replace(entry, joint=said)
            else:
                committed[path] = said
        f.entries[index] = replace(entry, classes=committed)


def _profile(f: Forged, value: np.float64 | None) -> None:
    """Other entropies of a class in a profile, committed to; None: a tenth less, as they could be."""
    index = f.places(Profile)[0]
    entry = f.entries[index]
    name = f"numbers/{OPEN}"
    content = f.content(entry, name)
    numbers = np.frombuffer(content[4:], "<f8").copy()
    if value is None:
        numbers *= 0.9
        numbers[1::3] = np.maximum(numbers[1::3], 1.0)
    else:
        numbers[0] = value
    content = content[:4] + numbers.tobytes()
    entry = f.with_blob(entry, name, content)
    said = f.commitment(OPEN, Profile.KIND, first=entry.step, step=entry.step, content=content)
    f.entries[index] = replace(entry, classes={**entry.classes, OPEN: said})


def _slots(
    f: Forged, change: Callable[[np.ndarray, dict[int, np.ndarray]], np.ndarray], *, recount: bool = False
) -> None:
    """Other rows in the slots, with their roots; as many of each class unless they are counted again."""
    tags = read_tag_rows(f.ledger)
    same = {row: np.flatnonzero(tags.classes == tags.classes[row]) for row in range(len(tags.classes))}
    for segment in f.ledger.segments():
        places = [f.ledger.outline.steps[step] for step in segment.steps]
        counts = [sum(f.entries[place].examples) + f.entries[place].quarantined for place in places]
        rows = decode_slots(f.content(f.entries[segment.state.index], "slots"), counts=counts)
        made = [change(each, same) for each in rows]
        for place, each in zip(places, made, strict=True):
            step = replace(f.entries[place], slots=slots_root(each, tags.tags.leaves).hex())
            if recount:
                kinds = np.bincount(tags.classes[each], minlength=len(f.genesis.classes) + 1).tolist()
                step = replace(step, examples=tuple(kinds[:-1]), quarantined=kinds[-1])
            f.entries[place] = step
        state = f.entries[segment.state.index]
        f.entries[segment.state.index] = f.with_blob(state, "slots", encode_slots(made))
