"""A small ledger with every kind of entry, thousands of variations of it, each signed anew, and two readers of them.

The trainer is the forger: whatever stands in the entries, tree and checkpoint are right and signed. Explorer reads the
entries with `read_head`, `check_sequence` and `decode`, verify.py with `read_run`; both judge the signature first.
`DIFFERENCES` are the reasons for which their answers may differ, and no other may.
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from explorer import merkle, note
from explorer.disclosure import verifier
from explorer.entries.heads import MAX_BYTES, check_sequence, read_head
from explorer.entries.kinds import decode
from explorer.errors import ExplorerError, LedgerError
from explorer.ledger.signed_checkpoint import Checkpoint
from explorer.ledger.tiles import encode_bundle
from explorer.ledger.trust_anchor import judge
from explorer.note import Algorithm, Signer
from explorer.runlog.anchor import anchor_of_trust
from tests.audit import governed_run
from tests.audit.governed_run import TRAINER
from tests.disclosure.packs import trusted
from tests.provenance.people import NOW, private

ORIGIN = f"{TRAINER}/run"
SIGNER = Signer(name=ORIGIN, algorithm=Algorithm.ED25519, private_key=private(TRAINER))
ANCHOR = anchor_of_trust(governed_run.trust(), origin=ORIGIN)
TRUST = trusted()

DIFFERENCES = {
    r"expected a list of texts, each once": "verify.py alone: classes and layers of the genesis, each once; it reads "
    "numbers by their names. In Explorer `conform` refuses them",
    r"of other classes or layers than the genesis": "verify.py alone: a step has a number for each class and layer of "
    "the genesis. In Explorer `conform` refuses them",
}
"""Reasons for which one reader may refuse what the other reads, by what its message matches."""


def entries() -> list[dict[str, Any]]:
    """Every kind, every field with something in it, and a step that is executed again."""
    digest, state = "5" * 64, dict.fromkeys(("parameters", "buffers", "optimizer", "random"), "7" * 64)
    float_, ledger = "0x1.8000000000000p+1", {"origin": "example.com/old", "size": 9, "root": digest}
    blob = {"sha256": "b" * 64, "size": 24}
    parents: list[dict[str, Any]] = [
        {"kind": "model", "ledger": ledger, "model": digest, "attestation": digest, "admitted": {"open": float_}},
        {"kind": "deletion", "ledger": ledger, "model": None, "attestation": None, "admitted": {}},
    ]
    genesis = {
        **{"kind": "genesis", "version": 1, "run": "run", "strategy": "plain", "seed": 3, "judged": NOW, "begins": 0},
        **dict.fromkeys(("recipe", "code", "environment", "data", "taxonomy", "policy", "trust", "initial"), digest),
        **{"tags": {"train": {"root": digest, "attestation": digest}}, "start": state, "parents": parents},
        **{"classes": ["open", "licensed/news"], "layers": ["embed", "head"], "blobs": {"tensors": blob}},
        "shared": [{"layer": "head", "also": ["embed.weight"]}],
        "methods": {"ema": {"averages": True}, "recorder": {"probes": False, "remembers": "classes"}},
        "fitted": {"normalisation": "mean and deviation of the training images"},
    }

    def step(at: int) -> dict[str, Any]:
        return {
            **{"kind": "step", "version": 1, "step": at, "phase": "train", "slots": digest, "examples": [3, 0]},
            **{"numbers": [digest, None], "joint": digest, "quarantined": 1, "weights": digest, "updated": "10"},
            "blobs": {"weights": blob} if at == 0 else {},
        }

    def decision(at: int, action: str) -> dict[str, Any]:
        return {
            **{"kind": "decision", "version": 1, "step": at, "action": action, "rule": "entropy-settled"},
            **{"parameters": {"tolerance": float_}, "condition": "late", "subjects": ["open"], "layers": ["head"]},
            **{"evidence": {"open": digest}, "blobs": {"evidence/open": blob}},
        }

    profile = {"kind": "profile", "version": 1, "step": 2, "probes": digest, "classes": {"open": digest}}
    profile |= {"joint": digest, "blobs": {"numbers/open": blob, "joint": blob}}
    close = {"version": 1, "state": state, "blobs": {"numbers/open": blob, "tensors": blob}}
    return [
        genesis,
        step(0),
        step(1),
        profile,
        decision(2, "freeze"),
        {"kind": "state", "step": 2, "sketches": [digest, None], **close},
        step(2),
        decision(2, "re-execution"),
        step(2),
        {"kind": "state", "step": 3, **close},
        {"kind": "note-of-tomorrow", "version": 2, "blobs": {"x": blob}, "anything": {"at": [1, None, True]}},
        {"kind": "end", "step": 3, "outcome": "finished", "metrics": {"accuracy": float_}, **close},
    ]


def written(value: Any) -> bytes:
    """As an honest writer writes an entry."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 255, 256, 2**31 - 1, 2**31, 2**53 - 1, 2**53, -(2**53), 2**64, 1.5, 0.0, 1e300),
    *("", " ", "x", "Z z", "a" * 40, "a" * 41, "b" * 64, "B" * 64, "b" * 63, "b" * 65, "b" * 200, "b" * 201, "\u202e"),
    *("0", "01", "0" * 20_000, "0" * 20_001, "b" * 64 + "\n", "open\n", "a/", "/a", "a//b", "a/../b", "_a", "-a", "é"),
    *("\x7f", "\ud800", "\u0660", "0x0.0p+0", "-0x0.0p+0", "0x1p+1", "nan", "inf", "-inf", "-nan", "0x1.8p+1", "NaN"),
    *("0x1.0000000000000p+1024", "0x0.0000000000000p-1022", "0x0.0000000000001p-1022", "0x1.0000000000000p-1023"),
    *([], {}, [[]], [{}], [None], [1], ["open"], ["open", "open"], {"a": 1}, {"": 1}, {"é": 1}, {"\U0001f600": 1}),
    *("genesis", "step", "end", "access", "deletion", "re-execution", "freeze", "finished", "plain", "fused"),
)
CHARACTERS = '0aAfFgz_-./ \n\t\x00\x7f\u00e9\u0660\u202e\u2028\uff10\U0001f600:"\\'


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every object or list inside, with each of its keys."""
    for key in range(len(value)) if isinstance(value, list) else value if isinstance(value, dict) else ():
        yield value, key
        yield from places(value[key])


def field(draw: random.Random, entry: dict[str, Any]) -> bytes:
    """One field, or two: another value, left out, doubled, moved to another name."""
    changed = deepcopy(entry)
    for _ in range(draw.choice((1, 1, 1, 2))):
        place: Any
        place, key = draw.choice([*places(changed)] or [(changed, "kind")])
        match draw.randrange(8), isinstance(place, list):
            case 0, _:
                place.pop(key)
            case 1, True:
                place.append(deepcopy(place[key]))
            case 1, False:
                place[draw.choice(("more", "kind", "step", key + "x", key.upper(), ""))] = deepcopy(place[key])
            case 2, False:
                place[draw.choice((*VALUES[18:40], "a", "x/y"))] = place.pop(key)
            case _:
                place[key] = deepcopy(draw.choice(VALUES))
    return written(changed)


def letters(draw: random.Random, entry: dict[str, Any]) -> bytes:
    """One character of a text, or of a key."""
    changed = deepcopy(entry)
    place, key = draw.choice([(p, k) for p, k in places(changed) if isinstance(p[k], str) or isinstance(p, dict)])
    named = not isinstance(place[key], str) or (isinstance(place, dict) and draw.random() < 0.3)
    text = str(key) if named else place[key]
    at, char = draw.randrange(len(text) + 1), draw.choice(CHARACTERS)
    other = text[:at] + draw.choice((char, "", char * 2)) + text[at + draw.randrange(2) :]
    if named:
        place[other] = place.pop(key)
    else:
        place[key] = other
    return written(changed)


def nested(draw: random.Random, entry: dict[str, Any]) -> bytes:
    """A value wrapped in lists and objects, as deep as is allowed and deeper; many blobs; a large entry."""
    changed = deepcopy(entry)
    place, key = draw.choice([*places(changed)] or [(changed, "kind")])
    match draw.randrange(4):
        case 0:
            changed["blobs"] = {
                f"b{at}": {"sha256": "b" * 64, "size": at} for at in range(draw.choice((255, 256, 257)))
            }
        case 1:
            changed["more"] = "x" * draw.choice((1_000, MAX_BYTES - 2_500, MAX_BYTES))
        case _:
            for _ in range(draw.choice((1, 2, 3, 4, 5, 6, 7, 8, 9, 40, 300))):
                place[key] = [place[key]] if draw.random() < 0.5 else {draw.choice(("a", "open")): place[key]}
    return written(changed)


def spelled(draw: random.Random, entry: dict[str, Any]) -> bytes:
    """The same value in other bytes, and what one program takes for JSON and another does not."""
    honest = written(entry).decode()
    numbers = r"\1\2.0", r"\1-\2", r"\g<1>0\2", r"\1\2e0"
    ways: list[Callable[[], str]] = [
        lambda: json.dumps(entry),
        lambda: json.dumps(entry, separators=(",", ":")),
        lambda: json.dumps(dict(reversed(entry.items())), separators=(",", ":")),
        lambda: honest.replace("a", "\\u0061", 1),
        lambda: honest.replace("/", "\\/", 1),
        lambda: re.sub(r"([:,\[])(\d+)(?=[,}\]])", draw.choice(numbers), honest, count=1),
        lambda: honest[:-1] + f',"{draw.choice(("kind", "version", "zz"))}":{draw.choice(("1", "NaN", "null"))}}}',
        lambda: "{" + draw.choice(('"kind":"step",', '"Z":1,', '"\\u0041":1,', '"a":-0,', '"a":1e3,')) + honest[1:],
        lambda: draw.choice(("\ufeff", " ", "\n", "[", "null", "1")) + honest,
        lambda: honest + draw.choice((" ", "\n", "\x00", "}", ",", honest)),
        lambda: draw.choice(("", "null", "[]", "{}", "1", '"x"', honest[1:-1], "[" * 5_000, '{"a":' * 5_000)),
        lambda: honest.replace("1", draw.choice(("1" * 5_000, "\u0661", "1_0", "+1", "0x1")), 1),
        # UTF-16 puts a character beyond the first plane before U+FF61, code points do not
        lambda: honest[:-1] + ',"zz":{"\uff61":1,"\U0001f600":2}}',
        lambda: honest[:-1] + ',"zz":{"\U0001f600":2,"\uff61":1}}',
    ]
    return draw.choice(ways)().encode("utf-8", "surrogatepass")


def noisy(draw: random.Random, entry: dict[str, Any]) -> bytes:
    """Bytes flipped, put in, taken out or cut off."""
    content = bytearray(written(entry))
    for _ in range(draw.choice((1, 1, 2, 3))):
        at = draw.randrange(len(content) + 1)
        match draw.randrange(4):
            case 0:
                content[at : at + 1] = bytes([draw.randrange(256)])
            case 1:
                content[at:at] = draw.choice((b"0", b'"', b",", b"\\", b"\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"a"))
            case 2:
                del content[at : at + draw.choice((1, 1, 2, 30))]
            case _:
                other = draw.randrange(len(content) + 1)
                content[at:at] = content[other : other + draw.randrange(40)]
    return bytes(content)


OF_AN_ENTRY = {"field": field, "letters": letters, "nested": nested, "spelled": spelled, "bytes": noisy}


def structural(draw: random.Random, leaves: list[bytes]) -> list[bytes]:
    """Entries exchanged, left out, doubled, moved, or with another step, kind or version."""
    changed = list(leaves)
    at, other = draw.randrange(len(changed)), draw.randrange(len(changed))
    match draw.randrange(6):
        case 0:
            changed[at], changed[other] = changed[other], changed[at]
        case 1:
            del changed[at : at + draw.choice((1, 1, 3))]
        case 2:
            changed.insert(at, changed[other])
        case 3:
            changed = changed[:at] or changed
        case _:
            entry = json.loads(changed[at])
            name = draw.choice(("step", "step", "begins", "kind", "version", "action"))
            choices = {"kind": ("genesis", "step", "end", "access", "grant", "decision", "other"), "version": (1, 2, 0)}
            choices["action"] = ("re-execution", "freeze")
            entry[name] = draw.choice(choices.get(name, (0, 1, 2, 3, 4, -1, 2**53 - 1)))
            changed[at] = written(entry)
    return changed


def variations(count: int, seed: int) -> Iterator[tuple[str, list[bytes]]]:
    """So many ledgers, each with the family of what was changed; the same ones for the same seed."""
    draw, whole = random.Random(seed), entries()
    leaves = [written(entry) for entry in whole]
    families = [*OF_AN_ENTRY, "field", "field", "letters", "entries"]
    for number in range(count):
        family = families[number % len(families)]
        if family == "entries":
            yield family, structural(draw, leaves)
        else:
            at = draw.randrange(len(leaves))
            yield family, [*leaves[:at], OF_AN_ENTRY[family](draw, whole[at]), *leaves[at + 1 :]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """What the two say against a ledger; empty: it is read."""

    explorer: str
    verify_py: str

    @property
    def reason(self) -> str | None:
        """Why they may differ; None: there is no reason. Empty: they agree."""
        if bool(self.explorer) == bool(self.verify_py):
            return ""
        said = self.explorer or self.verify_py
        return next((why for pattern, why in DIFFERENCES.items() if re.search(pattern, said)), None)


def ask(leaves: list[bytes]) -> Answers:
    """Sign a ledger of these entries and hand it to both."""
    root = merkle.root_of([merkle.leaf_hash(leaf) for leaf in leaves])
    signed = note.sign(Checkpoint(origin=ORIGIN, size=len(leaves), root=root).text, SIGNER)
    return Answers(explorer=_explorer(signed, leaves), verify_py=_verify_py(signed, leaves))


@lru_cache(maxsize=64)
def _decoded(leaf: bytes) -> object:
    return decode(leaf)


def _explorer(signed: note.Note, leaves: list[bytes]) -> str:
    try:
        judge(signed, anchor=ANCHOR, now=NOW)
        if not leaves:
            raise LedgerError("no entry")
        if not check_sequence(map(read_head, leaves)).entries or read_head(leaves[0]).kind != "genesis":
            raise LedgerError("not a run's ledger")
        if read_head(leaves[0]).version != 1:
            raise LedgerError("a genesis of an unknown version")
        for leaf in leaves:
            _decoded(leaf)
    except ExplorerError as error:
        return str(error)
    return ""


def _verify_py(signed: note.Note, leaves: list[bytes]) -> str:
    try:
        read = verifier.read_note(signed.content, "checkpoint")
        verifier.judge(read, [], TRUST, NOW)
        if any(len(leaf) > MAX_BYTES for leaf in leaves):  # no bundle holds it
            for leaf in leaves:
                verifier.read_entry(leaf, 0)
        tiles = verifier.Tree([verifier.leaf_hash(leaf) for leaf in leaves]).tiles()
        verifier.read_run({**tiles, verifier.spell("entries", 0, len(leaves)): encode_bundle(leaves)}, read)
    except verifier.Refused as error:
        return str(error)
    return ""
