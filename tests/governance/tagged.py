"""Loops over tiny noise whose examples have verified tags."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from explorer.data.batches import Typing
from explorer.engine.loop import Loop
from explorer.engine.method import Method
from explorer.governance.shared_state import Session
from explorer.provenance.policy import Rule
from explorer.provenance.routing_weights import Routing, bind
from explorer.provenance.tag_attestation import VerifiedTags
from tests.data_for_tests import noise
from tests.governance.desk import policy
from tests.loop_for_tests import noise_loop, small_net
from tests.provenance.tables import TAXONOMY, TRUST, row, signed, table, verified

CLASSES = ("licensed/news", "open/mit")


@lru_cache
def tags(examples: int, paths: tuple[str, ...] = CLASSES) -> VerifiedTags:
    """Tags of so many examples, the classes in turn."""
    with TemporaryDirectory() as directory:
        path = table(Path(directory), *(row(number, paths[number % len(paths)]) for number in range(examples)))
        return verified(path, signed(path), trust=TRUST)


def tagged_loop(
    methods: Sequence[Method], *, examples: int = 40, absent: frozenset[str] = frozenset(), **setting: Any
) -> Loop:
    """A loop with a session, in which every class may train everything."""
    found = tags(examples)
    session = Session(classes=CLASSES, codes=found.codes, tags=found, absent=absent, **setting.pop("session", {}))
    names = {code: path for path, code in found.codes.items()}
    chosen: dict[str, Any] = {
        "dataset": noise(train=examples),
        "model": small_net("group"),
        "typing": Typing(codes=found.tags.classes.astype(np.int64), names=names),
        "resources": {Session: session},
    }
    return noise_loop(methods, **(chosen | setting))


def routing(*rules: Rule, **changes: Any) -> Routing:
    """A policy of these rules."""
    return bind(policy(rules=rules, **changes), TAXONOMY, where="test.json")


def session_of(loop: Loop) -> Session:
    return loop.state.resource(Session)
