"""Beginning with a model that another run trained: its attestation is checked, and its classes are admitted by weight.

In a recipe file, next to `governance`:

    start:
      model: ../base/model         # model.safetensors, model.json, attestation.json
      admit: {open: 1, licensed/news: 0.5}

Every class that trained the model, or a model before it, needs a weight: that of the longest branch in `admit` that
covers it. A weight says how far the new trainer answers for the class; it is in the new run's first entry, and
consumers of the new model decide by it. It scales nothing, since a class cannot be half unlearned. 0 is for classes of
which nothing is taken over: they trained only sealed regions that this run does not have.

The run keeps the model, its card and its attestation below `governance/parents/`, named by the attestation's digest,
and the attestations of the models before it. So it can be resumed, repeated and audited when the original files are
gone.
"""

import logging
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from safetensors.torch import load_file
from torch import Tensor, nn

from explorer import rundir
from explorer.data.dataset import Dataset
from explorer.entries.fields import Digest, LedgerState, write_float
from explorer.entries.kinds import Parent
from explorer.errors import RecipeError, RunError, unknown
from explorer.provenance.envelope import MAX_BYTES
from explorer.provenance.model_attestation import Attested, ClassClaim
from explorer.provenance.regions import SealedRegion, Share, region_of
from explorer.provenance.spellings import ClassPath, covers
from explorer.provenance.trust import Trust, parse_trust
from explorer.recipes.choice import written
from explorer.recipes.recipe import Recipe
from explorer.run_files import RunRecord
from explorer.runlog.attested import PARENTS, ModelPlace, ancestors, kept_attestations, parents_directory, read_attested
from explorer.runlog.documents import Documents
from explorer.runlog.model_file import ModelCard, read_card
from explorer.runlog.tensors import owner_of
from explorer.schema import from_json, record, to_json

KEY = "start"  # in a run's identity

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class StartFrom:
    """Start as a recipe file gives it."""

    model: Annotated[str, Field(min_length=1, max_length=4000)]  # a directory, relative to the file
    admit: dict[ClassPath, Share]  # weights, by branch


@record
class Start:
    """Start in a run's identity: the model by digest, its ledger, and the weights of its classes."""

    model: Digest
    attestation: Digest
    ledger: LedgerState
    admitted: dict[ClassPath, Share]  # by class
    left_out: tuple[str, ...]  # sealed regions of the model that are not taken over

    @property
    def parent(self) -> Parent:
        """Return the start as the first entry of the ledger names it."""
        admitted = {path: write_float(weight) for path, weight in sorted(self.admitted.items())}
        return Parent(
            kind="model", ledger=self.ledger, model=self.model, attestation=self.attestation, admitted=admitted
        )


def start_of(
    place: ModelPlace, admit: Mapping[str, float], *, documents: Documents, regions: Collection[SealedRegion]
) -> Start:
    """Return the model in this place as a start, for a run with these sealed regions.

    Raises `ProvenanceError` for a model that the trust file of `documents` does not accept, and `RecipeError` for a
    class of the model without a weight, or a weight for a class that the model does not have.
    """
    attested, card = _verified(place, documents), read_card(place.card)
    # Every model before it has to be attested too, or an untrusted ancestor would be laundered by one trusted step.
    ancestors(attested.value, parents_directory(place.attestation), trust=_trust(documents))
    left_out = tuple(sorted(region.name for region in card.sealed if region not in regions))
    ledger = attested.value.ledger
    return Start(
        model=attested.model,
        attestation=attested.digest,
        ledger=LedgerState(origin=ledger.origin, size=ledger.size, root=ledger.root),
        admitted=_admitted(attested, admit, [region for region in card.sealed if region.name in left_out]),
        left_out=left_out,
    )


def start_in(run: RunRecord) -> Start | None:
    """Return the start that a run's identity names; None: it begins with drawn weights."""
    if KEY not in run.identity:
        return None
    return from_json(Start, run.identity[KEY], where=f"run {run.run_id}: {KEY}", error=RunError)


def identity_of(start: Start | None) -> dict[str, Any]:
    """Return the part of a run's identity for this start."""
    return {} if start is None else {KEY: to_json(start)}


def kept_in(documents: Documents, start: Start) -> ModelPlace:
    """Return the place of the run's own copy of the model that it begins with."""
    name = documents.where / PARENTS / start.attestation
    return ModelPlace(
        model=name.with_suffix(".safetensors"),
        card=name.with_suffix(".card.json"),
        attestation=name.with_suffix(".json"),
    )


def keep_start(place: ModelPlace, start: Start, run: Path) -> None:
    """Copy the model into the run's directory, with the attestations of the models before it.

    Its own attestation is the last file, so that a copy with one is whole. Raises `RunError` if the disk refuses.
    """
    to = run / rundir.GOVERNANCE / PARENTS / start.attestation
    if to.with_suffix(".json").exists():
        return
    for path in kept_attestations(place.attestation):
        content = rundir.read_bytes(path, max_bytes=MAX_BYTES, error=RunError)
        rundir.write_bytes(to.with_name(path.name), content)
    for source, suffix in ((place.model, ".safetensors"), (place.card, ".card.json"), (place.attestation, ".json")):
        target = to.with_suffix(suffix)
        temporary = target.with_name(f".{target.name}.tmp")
        try:
            # Copied in pieces, not through memory, and put in place whole or not at all.
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, temporary)
            temporary.replace(target)
            rundir.flush_directory(target.parent)
        except OSError as error:
            raise RunError(f"cannot copy {source} to {target}: {error.strerror or error}") from error


def initial_tensors(run: RunRecord, recipe: Recipe, documents: Documents | None, dataset: Dataset) -> dict[str, Tensor]:
    """Return the tensors that the run begins with in place of drawn ones, by name; none for a run without a start.

    The copy in the run's directory is checked again, as the model was. Raises `RunError` for another model than the run
    was planned with, and for one with another structure; `ProvenanceError` for one that the trust file does not accept.
    """
    start = start_in(run)
    if start is None:
        return {}
    if documents is None:
        raise RunError(f"run {run.run_id}: begins with a model, and nothing governs it")
    place = kept_in(documents, start)
    attested, card = _verified(place, documents), read_card(place.card)
    if (attested.model, attested.digest) != (start.model, start.attestation):
        raise RunError(f"{place.model}: not the model that run {run.run_id} was planned with")
    check_fit(card, recipe, dataset, where=str(place.card))
    for region in start.left_out:
        log.warning("sealed region %r of the model is not taken over", region)
    gone = [region for region in card.sealed if region.name in start.left_out]
    return {name: tensor for name, tensor in load_file(place.model).items() if owner_of(name, gone) is None}


def begin_with(model: nn.Module, tensors: Mapping[str, Tensor], regions: Sequence[SealedRegion]) -> None:
    """Copy these values into the model; only sealed regions keep their drawn values. Raises `RunError` unless the
    names, shapes and types fit."""
    mine = dict(model.named_parameters()) | dict(model.named_buffers())
    fresh = {name for name in mine if name not in tensors and owner_of(name, regions) is None}
    for name in sorted(fresh | (tensors.keys() - mine.keys())):
        where, there = ("the recipe's model", "the one that it begins with")[:: 1 if name in fresh else -1]
        raise RunError(f"{name}: {where} has it, {there} has not")
    for name, tensor in tensors.items():
        like = mine[name]
        if tensor.shape != like.shape or tensor.dtype != like.dtype:
            raise RunError(
                f"{name}: found {tensor.dtype} {tuple(tensor.shape)}, expected {like.dtype} {tuple(like.shape)}"
            )
        like.data.copy_(tensor)


def check_fit(card: ModelCard, recipe: Recipe, dataset: Dataset, *, where: str) -> None:
    """Raise `RunError` unless the recipe's model is built as this one was."""
    pairs: dict[str, tuple[Any, Any]] = {
        "model": (card.model, written(recipe.model)),
        "example_shape": (card.example_shape, dataset.example_shape),
        "classes": (card.classes, dataset.classes),
    }
    for name, (there, here) in pairs.items():
        if there != here:
            raise RunError(f"{where}: {name}: the model has {there!r:.200}, the recipe asks for {here!r:.200}")


def _verified(place: ModelPlace, documents: Documents) -> Attested:
    return read_attested(place, trust=_trust(documents), now=documents.judged)


def _trust(documents: Documents) -> Trust:
    return parse_trust(documents.trust, where=str(documents.where))


def _admitted(attested: Attested, admit: Mapping[str, float], gone: Sequence[SealedRegion]) -> dict[str, float]:
    """Return the weight of every class that the model or one before it was trained on."""
    inherited = {path for parent in attested.value.parents for path, weight in parent.admitted.items() if weight > 0}
    claims = {claim.path: claim for claim in attested.value.classes if claim.trained}
    paths = sorted(inherited | claims.keys())
    for branch in admit:
        if not any(covers(branch, path) for path in paths):
            raise RecipeError(f"start: admit: {unknown('class of the model', branch, paths)}")
    weights = {}
    for path in paths:
        # The longest branch that covers the class decides, as everywhere in policies.
        branch = max((branch_ for branch_ in admit if covers(branch_, path)), key=len, default=None)
        if branch is None:
            raise RecipeError(
                f"start: admit: the model was trained on {path}, which has no weight; expected one for it or its branch"
            )
        # The attestation does not say where an inherited class acted, so it counts as taken over.
        here = path in inherited or not _lies_in(claims[path], gone)
        if here and not admit[branch]:
            raise RecipeError(
                f"start: admit: {path}: found weight 0, and the model was trained on it: expected a weight above 0,"
                " or a model from which it was deleted"
            )
        weights[path] = admit[branch] if here else 0.0
    return weights


def _lies_in(claim: ClassClaim, regions: Sequence[SealedRegion]) -> bool:
    """Return whether a class trained these regions only."""
    return all(region_of(regions, interval.layer) is not None for interval in claim.trained)
