"""What a governed run is given beside its recipe: signed documents, believed and held against its data."""

import logging
from functools import lru_cache
from pathlib import Path
from typing import Any

from explorer.data.batches import Typing
from explorer.data.dataset import DataSource
from explorer.data.sources import load
from explorer.errors import RecipeError
from explorer.governance.credentials import Credentials, check
from explorer.governance.documents import Documents, read_documents
from explorer.governance.routing import Routing
from explorer.governance.session import Session
from explorer.provenance.absent import Absent
from explorer.provenance.policy import RoutingPolicy
from explorer.provenance.sealed import SealedRegion
from explorer.recipes.methods import GOVERNED
from explorer.recipes.recipe import Recipe

log = logging.getLogger(__name__)


def documents_of(recipe: Recipe, directory: Path | None, *, now: int) -> Documents | None:
    """The documents of a recipe in their author's directory; None where neither asks for the other.

    Raises `RecipeError` for a method that acts on documents where there are none, and `ProvenanceError` for documents
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
                " 'governance: DIR' beside 'task'"
            )


def policy_of(recipe: Recipe) -> str | None:
    """The name of the policy that the recipe routes by."""
    return next((method.policy for method in recipe.methods if isinstance(method, Routing)), None)


def absent_of(recipe: Recipe) -> Absent:
    """What the recipe leaves out; its content may be gone."""
    return next((method.absent for method in recipe.methods if isinstance(method, Routing)), Absent())


def credentials(recipe: Recipe, documents: Documents, data: Path | None) -> Credentials:
    """The documents, checked against the recipe's training examples; see `governance.credentials.check`.

    A sweep plans many runs on few policies: what was checked in this process is not checked again, as long as it is the
    same documents and the same data.
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
    """What changes when a file does; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None  # whoever reads it says why
    return found.st_ino, found.st_size, found.st_mtime_ns


def sealed_of(recipe: Recipe, documents: Documents, data: Path | None) -> tuple[SealedRegion, ...]:
    """The sealed regions that the policy asks for; none where nothing is routed."""
    routing = credentials(recipe, documents, data).routing
    return () if routing is None else routing.policy.sealed


def session_of(found: Credentials) -> Session:
    """A new session for one loop."""
    return Session(
        classes=found.classes,
        codes=found.tags.codes,
        tags=found.tags,
        routing=found.routing,
        quarantine=found.quarantine,
        absent=found.absent.intersection(found.classes),
        gone=found.gone if found.gone.any() else None,
    )


def _refuse_mixing(recipe: Recipe, policy: RoutingPolicy) -> None:
    """Raise `RecipeError` where examples that the policy tells apart would be mixed with each other."""
    by_example = next((at for at, rule in enumerate(policy.rules) if rule.examples is not None), None)
    mixing = next((method.name for method in recipe.methods if method.mixes), None)
    if by_example is not None and mixing is not None:
        raise RecipeError(
            f"recipe {recipe.name!r}: {mixing!r} mixes examples of a class, and rules[{by_example}] of policy"
            f" {policy.name!r} tells them apart: expected one of the two"
        )


def given(recipe: Recipe, documents: Documents | None, data: Path | None) -> tuple[dict[type, Any], Typing | None]:
    """What the documents give to a loop: the session of its methods, and the classes of its examples."""
    if documents is None:
        return {}, None
    found = credentials(recipe, documents, data)
    if found.routing is not None:
        _refuse_mixing(recipe, found.routing.policy)
    for reason, numbers in found.quarantine.items():
        log.warning("quarantine: %d examples never train: %s", len(numbers), reason)
    session = session_of(found)
    return {Session: session}, Typing(codes=found.codes, names=found.names)
