"""One entry of every kind, and what is wrong with it after a change."""

from typing import Any

from explorer.entries.fields import Blob, LedgerState, write_float
from explorer.entries.kinds import (
    Access,
    Decision,
    Deletion,
    End,
    Entry,
    Erasure,
    Genesis,
    GrantUse,
    Observation,
    Parent,
    Profile,
    Sources,
    State,
    Step,
    TrainingState,
    Trunk,
)

A, B, C = "a" * 64, "b" * 64, "c" * 64
LEDGER = LedgerState(origin="example.com/runs/1", size=42, root=A)
STATE = TrainingState(parameters=A, buffers=B, optimizer=C, random=A)
NUMBERS = {"numbers/open/mit": Blob(sha256=B, size=1536)}

EXAMPLES: tuple[Entry, ...] = (
    Genesis(
        run="resnet8-digits-fast-ssr0.5-s1-3f9c2a7d",
        recipe=A,
        code=B,
        environment=C,
        data=A,
        tags={"train": Sources(root=A, attestation=B)},
        taxonomy=A,
        policy=B,
        trust=C,
        judged=1_780_000_000,
        strategy="microbatch",
        seed=1,
        initial=A,
        classes=("open/mit", "personal/customer"),
        layers=("conv1", "block1.conv1"),
        begins=0,
        start=None,
        parents=(Parent(kind="model", ledger=LEDGER, model=A, attestation=B, admitted={"open/mit": write_float(0.5)}),),
        blobs={"recipe": Blob(sha256=A, size=812)},
    ),
    Step(
        step=0,
        phase="warm-up",
        slots=A,
        examples=(60, 0),
        numbers=(B, None),
        joint=C,
        quarantined=4,
        weights=C,
        updated="10",
        blobs={"weights": Blob(sha256=C, size=340)},
    ),
    Profile(step=1, probes=A, classes={"open/mit": B}, joint=C, blobs=dict(NUMBERS)),
    State(step=1, state=STATE, blobs=dict(NUMBERS), sketches=(A, None)),
    Decision(
        step=1,
        action="freeze",
        rule="entropy-settled",
        parameters={"tolerance": write_float(0.01), "window": write_float(5)},
        condition=None,
        subjects=("open/mit",),
        layers=("conv1",),
        evidence={"open/mit": A},
        blobs={},
    ),
    Trunk(step=1, run="resnet8-digits-fast-ssr0.25-s1-5f9c2a7d", ledger=LEDGER, state=STATE, blobs={}),
    End(step=1, outcome="finished", state=STATE, metrics={"accuracy": write_float(0.9)}, blobs={}),
    Access(ledger=LEDGER, grant=A, query=B, blobs={}),
    Deletion(
        ledger=LEDGER,
        result=LEDGER,
        request=A,
        classes=("personal/customer",),
        authorities=("example.com/data-governance",),
        records=3,
        level="G2",
        evidence={"certificate": B},
        blobs={},
    ),
    GrantUse(action="wrapped", owner="example.com/data-governance", id="2026-0007", grant=A, ledger=LEDGER, blobs={}),
    Erasure(ledger=LEDGER, classes=("personal/customer",), records=0, blobs={}),
    Observation(
        ledger=LEDGER,
        model=A,
        role="fine-tuner",
        admitted={"open/mit": write_float(1), "personal/customer": write_float(0)},
        statement=C,
        blobs={"statement": Blob(sha256=C, size=900)},
    ),
)


def mutants(value: Any, path: str = "") -> "list[tuple[str, Any]]":
    """Copies of a JSON value with one thing wrong in each, and what that is."""
    if isinstance(value, dict):
        found = [(f"{path}: an unknown key", {**value, "Unknown key!": 1})]
        for key, inner in value.items():
            found += [(name, {**value, key: made}) for name, made in mutants(inner, f"{path}.{key}")]
        return found
    if isinstance(value, list):
        return [
            (name, [*value[:index], made, *value[index + 1 :]])
            for index, inner in enumerate(value)
            for name, made in mutants(inner, f"{path}[{index}]")
        ]
    if isinstance(value, int):
        return [(f"{path}: {wrong!r}", wrong) for wrong in (-1, 2**53, str(value), True, [value])]
    wrongs = [7, "", "\u20ac" * 3, [value], *([] if value is None else [None])]
    if value and len(value) == 64:
        wrongs += [value[:-1], value + "0", value.upper()]
    return [(f"{path}: {wrong!r}", wrong) for wrong in wrongs]
