"""The verifier and Explorer's own code, which share no line, asked the same: they give one answer."""

import base64
import random
import time
from dataclasses import replace
from typing import Any

import pytest

from explorer import merkle, note
from explorer.disclosure import verifier
from explorer.entries.heads import check_sequence, read_head, write_entry
from explorer.errors import ExplorerError, LedgerError
from explorer.ledger.signed_checkpoint import Checkpoint
from explorer.ledger.tiles import Tile, tiles
from explorer.ledger.trust_anchor import judge
from explorer.note import Algorithm, Signer
from explorer.provenance.envelope import parse_envelope, sign_envelope
from explorer.provenance.signing import require
from explorer.provenance.spellings import format_time
from explorer.provenance.trust import Quorum, Role, Trust
from explorer.runlog.anchor import anchor_of_trust
from tests.disclosure.packs import trusted
from tests.provenance import people
from tests.provenance.people import NOW, private

ORIGIN, DAY = "example.com/trainer/run", 86_400
COSIGNERS = (Role.DATA_GOVERNANCE, Role.MODEL_RISK, Role.AUDITOR, Role.EVALUATOR)


def moment(draw: random.Random) -> int:
    return NOW + draw.choice((-40, -20, -10, -1, 0, 1, 10)) * DAY + draw.choice((0, 0, 100, 301))


def some_trust(draw: random.Random) -> Trust:
    """Three to six authorities, some with two keys, some of which are revoked or not yet valid, and some quorum."""

    def key(seed: str) -> Any:
        spans = [(-100, 100), (-30, 100), (-100, -15), (5, 100)]
        begins, ends = draw.choice(spans[:1] * 4 + spans)
        revoked = format_time(NOW + draw.choice((-25, -5, 5)) * DAY) if draw.random() < 0.15 else None
        span = {"not_before": format_time(NOW + begins * DAY), "not_after": format_time(NOW + ends * DAY)}
        return people.public(seed, **span, revoked=revoked)

    found = []
    for at in range(draw.randint(3, 6)):
        role = Role.TRAINER if at == 0 or draw.random() < 0.1 else draw.choice(COSIGNERS)
        mine = at == 0 and draw.random() < 0.3  # the log has this trainer's name
        name, branches = (
            "example.com/trainer" if mine else f"example.com/{at}",
            draw.choice((("open",), ("open", "licensed"), ("licensed/news",), ())),
        )
        keys = [key(name)] + ([key(f"{name} again")] if draw.random() < 0.3 else [])
        found.append(people.authority(name, role, *keys, branches=branches))
    asked = {role: draw.randint(1, 2) for role in COSIGNERS if draw.random() < 0.35}
    checkpoints = {**({} if draw.random() < 0.03 else {Role.TRAINER: 1}), **asked}
    documents = {role: draw.choice((1, 1, 1, 2)) for role in Role if draw.random() < 0.9}
    quorum = Quorum(documents=documents, checkpoints=checkpoints)
    return replace(people.trust(*found), quorum=quorum)


def seeds(trust: Trust) -> list[tuple[str, Role, str]]:
    """Name, role and seed of every key."""
    return [
        (each.name, each.role, f"{each.name}{' again' * at}")
        for each in trust.authorities
        for at in range(len(each.keys))
    ]


def some_checkpoint(draw: random.Random, trust: Trust) -> note.Note:
    text = Checkpoint(origin=ORIGIN, size=0, root=merkle.EMPTY_ROOT).text
    signatures = []
    for name, role, seed in [*seeds(trust), ("example.com/stranger", Role.AUDITOR, "stranger")]:
        if draw.random() < 0.75 and role is Role.TRAINER:
            signatures.append(Signer(name=ORIGIN, algorithm=Algorithm.ED25519, private_key=private(seed)).sign(text))
        elif draw.random() < 0.75:
            signer = Signer(name=name, algorithm=Algorithm.COSIGNATURE, private_key=private(seed))
            signatures.append(signer.sign(text, time=moment(draw)))
    draw.shuffle(signatures)
    return note.Note(text=text, signatures=tuple(signatures))


def test_whether_a_checkpoint_is_believed() -> None:
    draw, counted = random.Random(7), {True: 0, False: 0}
    for _ in range(250):
        trust = some_trust(draw)
        found, now = some_checkpoint(draw, trust), moment(draw)
        if not found.signatures:
            continue
        try:
            judged = judge(found, anchor=anchor_of_trust(trust, origin=ORIGIN), now=now)
            own = sorted(verifier_name(each.public_key, trust) for each in judged.signed_by)
        except ExplorerError:
            own = None
        try:
            names, _ = verifier.judge(verifier.read_note(found.content, "checkpoint"), [], trusted(trust), now)
        except verifier.Refused:
            names = None
        assert names == (None if own is None else sorted({*own})), (trust, found.content)
        counted[names is not None] += 1
    assert min(counted.values()) > 40, counted


def verifier_name(public: bytes, trust: Trust) -> str:
    owner = trust.owner(public)
    assert owner is not None
    return owner[0].name


@pytest.mark.slow
def test_whether_a_document_is_believed() -> None:
    draw, counted = random.Random(11), {True: 0, False: 0}
    for _ in range(250):
        trust, now = some_trust(draw), NOW + draw.choice((0, 0, 0, 70)) * DAY
        role = draw.choice([each.role for each in trust.authorities])
        branches = draw.choice(((), (), (), ("open",), ("open/mit", "licensed/news"), ("licensed/news",)))
        issued = NOW - draw.choice((-1, 0, 1, 2, 12, 50)) * DAY
        expires = issued + draw.choice((0, 60, 60, 60)) * DAY
        value = {"issued": format_time(issued), "expires": format_time(expires)}
        keys = [private(seed) for _, _, seed in seeds(trust) if draw.random() < 0.8]
        if not keys:
            continue
        content = sign_envelope(verifier.canonical(value, ""), "application/x", keys).content
        try:
            envelope = parse_envelope(content, where="x")
            own = require(envelope, trust=trust, role=role, now=now, branches=branches, where="x", **value)
            expected = tuple(each.name for each in own)
        except ExplorerError:
            expected = None
        try:
            envelope = verifier.open_envelope(verifier.parse_json(content, "x"), "x", "application/x")
            names = envelope.require(trusted(trust), role, value, now, branches)
        except verifier.Refused:
            names = None
        assert names == expected, (trust, value)
        counted[names is not None] += 1
    assert min(counted.values()) > 30, counted


@pytest.mark.parametrize("size", [1, 255, 256, 257, 700])
def test_tiles_stand_where_they_stand(size: int) -> None:
    leaves = [merkle.leaf_hash(b"%d" % at) for at in range(size)]
    tree = verifier.Tree(leaves)
    made = tree.tiles()
    assert sorted(made) == sorted(f"ledger/{tile.path}" for tile in tiles(size))
    for part in {0, 1, size // 3, size - 1, size}:
        assert tree.root(part) == merkle.root_of(leaves[:part])
    for number in (0, 5, 999, 1000, 1_234_067):
        for width in (1, 255, 256):
            assert verifier.spell("3", number, width) == f"ledger/{Tile(3, number, width).path}"


def test_inclusion_proofs_and_every_hash_of_them() -> None:
    for size in range(1, 40):
        leaves = [merkle.leaf_hash(b"%d" % at) for at in range(size)]
        root = merkle.root_of(leaves)

        def read(places: Any, leaves: Any = leaves) -> list[bytes]:
            return [merkle.root_of(leaves[at << level : (at + 1) << level]) for level, at in places]

        for index in range(size):
            proof = merkle.prove_inclusion(size, index, read)
            verifier.check_inclusion(proof, index, size, leaves[index], root)
            bad = [(*proof[:at], bytes(32), *proof[at + 1 :]) for at in range(len(proof))]
            for wrong in [*bad, (*proof, bytes(32)), proof[:-1]] if proof else [(bytes(32),)]:
                with pytest.raises(verifier.Refused):
                    verifier.check_inclusion(wrong, index, size, leaves[index], root)


def test_a_key_with_two_names_is_one() -> None:
    """Base64 in either alphabet, key ids that lie: the public key counts."""
    trust = people.trust(people.governance(), people.risk())
    made = sign_envelope(b"{}", "application/x", [private(people.GOVERNANCE)])
    url = base64.urlsafe_b64encode(made.signatures[0].sig).decode()
    value = {
        "payload": "e30=",
        "payloadType": "application/x",
        "signatures": [{"sig": url}, {"sig": url, "keyid": "x"}],
    }
    envelope = verifier.open_envelope(value, "x", "application/x")
    assert [key.owner for key in envelope.signers(trusted(trust))] == [people.GOVERNANCE]
    twice = replace(trust, quorum=replace(trust.quorum, documents={Role.DATA_GOVERNANCE: 2}))
    with pytest.raises(verifier.Refused, match="takes 2"):
        span = {"issued": people.ISSUED, "expires": people.EXPIRES}
        envelope.require(trusted(twice), Role.DATA_GOVERNANCE, span, NOW)


def test_the_order_of_entries() -> None:
    """Random histories, most of them almost right."""
    draw, counted = random.Random(3), {True: 0, False: 0}
    genesis = {"begins": 0, "classes": ["a"], "layers": ["b"], "kind": "genesis", "version": 1, "blobs": {}}
    for _ in range(400):
        begins = draw.choice((0, 0, 4))
        entries, clock = [{**genesis, "begins": begins}], begins
        for _ in range(draw.randint(1, 12)):
            entry = history(draw, clock)
            entries.append(entry)
            clock = entry["step"] + (entry["kind"] == "step") if "step" in entry else clock
        try:
            check_sequence(read_head(write_entry(each)) for each in entries)
            own = True
        except LedgerError:
            own = False
        try:
            verifier._in_order(entries, verifier.Tree([]))
            sound = True
        except verifier.Refused:
            sound = False
        assert sound == own, entries
        counted[sound] += 1
    assert min(counted.values()) > 50, counted


def test_a_state_after_steps_that_nobody_can_count() -> None:
    """Behind an entry that is not known here any step may stand; what was not done is not looked for one by one."""
    genesis = {"begins": 0, "classes": ["a"], "layers": ["b"], "kind": "genesis", "version": 1, "blobs": {}}
    strange = {"kind": "step", "version": 2, "blobs": {}}
    state = {"kind": "state", "version": 1, "blobs": {}, "step": 2**52}
    assert verifier._in_order([genesis, strange, state], verifier.Tree([])).segments == []


def forward(entries: list[dict[str, Any]]) -> tuple[dict[int, int], list[tuple[int, int]]]:
    """What was executed last, told step by step."""
    steps: dict[int, int] = {}
    states: list[tuple[int, int]] = []
    for index, entry in enumerate(entries[1:], 1):
        if entry["version"] != 1 or "step" not in entry:
            continue
        if entry["kind"] == "step":
            steps[entry["step"]] = index
        elif entry["kind"] == "state":
            states.append((entry["step"], index))
        elif entry["kind"] == "decision" and entry["action"] == "re-execution":
            steps = {step: where for step, where in steps.items() if step < entry["step"]}
            states = [(done, where) for done, where in states if done <= entry["step"]]
    return steps, states


def test_what_was_executed_last() -> None:
    draw, again = random.Random(9), 0
    for _ in range(300):
        entries: list[dict[str, Any]] = [{"kind": "genesis", "version": 1}]
        for _ in range(draw.randint(1, 40)):
            entries.append(history(draw, draw.randint(0, 12)))
        steps, states, superseded = verifier._latest(entries)
        assert (steps, states) == forward(entries)
        again += superseded
    assert again > 300


def test_a_history_of_many_re_executions_costs_what_it_is_long() -> None:
    """A trainer who takes back one step after another, to keep the auditor waiting."""
    step = {"kind": "step", "version": 1}
    back = {"kind": "decision", "version": 1, "action": "re-execution"}
    first = [{**step, "step": at} for at in range(30_000)]
    rest = [{**each, "step": 30_000} for _ in range(30_000) for each in (step, back)]
    began = time.process_time()
    steps, _, superseded = verifier._latest([{"kind": "genesis", "version": 1}, *first, *rest])
    assert len(steps) == 30_000 == superseded
    assert time.process_time() - began < 20  # 0.1 s on a quiet machine; step by step it was minutes


def history(draw: random.Random, clock: int) -> dict[str, Any]:
    """The next entry of a history after so many steps; now and then one that cannot stand there."""
    rare = ["end", "genesis", "access"] if draw.random() < 0.2 else []
    kind = draw.choice(["step"] * 9 + ["state", "profile", "decision", "decision", "other", *rare])
    if kind in ("other", "access"):
        return {"kind": kind, "version": 1, "blobs": {}}
    again = kind == "decision" and draw.random() < 0.4
    step = draw.randint(0, clock) if again else clock + (draw.random() < 0.02) - (draw.random() < 0.02 and clock > 0)
    fields = {"action": "re-execution" if again else "freeze", "examples": [1], "numbers": [None], "begins": 0}
    return {
        "kind": kind,
        "version": 1 if draw.random() < 0.97 else 2,
        "blobs": {},
        "step": step,
        "updated": "1",
        **fields,
    }
