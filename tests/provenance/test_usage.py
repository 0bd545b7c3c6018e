"""The parts of a statement of use: leaves and trees by their definition, sums of a line, and files in their form.

Nothing that these files say is true; what is believed and counted, tests/release/test_usage.py is about.
"""

import hashlib
import json
from dataclasses import replace

import pytest

from explorer.errors import ProvenanceError
from explorer.provenance import usage

_DIGEST = "a" * 64
_RUN = usage.UsageRun(
    run="r",
    simulated=True,
    ledger=usage.LedgerName(origin="o", size=9, root=_DIGEST),
    checkpoint="o\n9\n",
    cosigned=(usage.Cosigned(note="n", consistency=(_DIGEST,)),),
    outcome="finished",
    steps=4,
    counted=4,
    shared=2,
    superseded=1,
    tokens=64,
    gaps=(usage.Gap(what="share", steps=2, why=usage.Untold.ERASED),),
)
_USE = usage.Use(
    run=_DIGEST,
    first=1,
    last=5,
    steps=2,
    examples=3,
    denied=1,
    unclear=0,
    tokens=192,
    layers=("stem",),
    share=0.25,
    apportioned=1,
    superseded=usage.Superseded(steps=1, examples=2),
)
_LINE = usage.Line(party="open/mit", uses=(_USE,))
_TOTAL = usage.RunTotal(run=_DIGEST, slots=4, quarantined=0, absent=0, unplaced=0)
_STATEMENT: dict[str, object] = {"payload": "", "payloadType": "t", "signatures": []}

PARTY_FILE = usage.PartyFile(
    format=usage.PARTY,
    statement=_STATEMENT,
    line=usage.ProvedLine(content=_LINE, salt=_DIGEST, index=0, proof=(_DIGEST,)),
    runs=(usage.ProvedRun(content=_RUN, index=0, proof=(), entries=(_DIGEST,)),),
)
WHOLE_FILE = usage.WholeFile(
    format=usage.WHOLE,
    statement=_STATEMENT,
    lines=(usage.SaltedLine(content=_LINE, salt=_DIGEST),),
    total=usage.SaltedTotal(content=usage.Total(total=(_TOTAL,)), salt=_DIGEST),
    runs=(_RUN,),
)


def sha256(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def test_leaves_and_trees_are_what_the_module_says() -> None:
    """By hashlib and json alone: these values have no numbers that canonical JSON writes another way."""
    salt, total = "0b" * 32, usage.Total(total=(_TOTAL,))
    numbers = {"run": _DIGEST, "slots": 4, "quarantined": 0, "absent": 0, "unplaced": 0}
    content = json.dumps({"total": [numbers]}, sort_keys=True, separators=(",", ":")).encode()
    leaf = sha256(b"\x00", sha256(bytes.fromhex(salt), content))
    assert usage.line_leaf(total, salt) == leaf
    assert usage.line_leaf(total, _DIGEST) != leaf
    tree = usage.tree_over([leaf, bytes(32)])
    assert (tree.count, tree.root) == (2, sha256(b"\x01", leaf, bytes(32)).hex())
    usage.check_place(tree, leaf, index=0, proof=[bytes(32).hex()], where="f")
    for index, proof in ((1, [bytes(32).hex()]), (0, []), (0, [_DIGEST]), (2, [bytes(32).hex()])):
        with pytest.raises(ProvenanceError, match="f: not what was signed: "):
            usage.check_place(tree, leaf, index=index, proof=proof, where="f")


def test_a_line_adds_up_its_runs() -> None:
    unknown = replace(_USE, examples=5, tokens=None)
    unused = replace(_USE, examples=0, denied=0, steps=0, tokens=None, superseded=None)
    both = usage.Line(party="p", uses=(_USE, _USE, unused))
    assert (both.examples, both.tokens, both.steps, both.idle) == (6, 384, 4, False)
    assert usage.Line(party="p", uses=(_USE, unknown)).tokens is None  # not the sum of those that are known
    assert usage.Line(party="p", uses=(unused,)).idle
    assert not usage.Line(party="p", uses=(replace(unused, superseded=_USE.superseded),)).idle


def test_a_period_holds_a_moment() -> None:
    day, next_day = "2026-06-01T00:00:00Z", "2026-06-02T00:00:00Z"
    usage.check_period(usage.Period(begins=day, ends=next_day), where="f")
    for begins in (next_day, "2026-06-03T00:00:00Z"):
        with pytest.raises(ProvenanceError, match="f: period: ends 2026-06-02T00:00:00Z, which is not after"):
            usage.check_period(usage.Period(begins=begins, ends=next_day), where="f")
