"""Attacks on documents: one change in a file that is signed or sent, and the verb that refuses it.

Taxonomy, policy, trust file, tags: put in the place of the author's own and asked of the start of a run, which believes
nothing. Attestations, grants, certificates and observations: asked of the verb that reads them. Gates, prices and
specifications are unsigned files of strangers.
"""

import base64
import json
import shutil
import struct
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from attack_world import (
    DENIED,
    GATE,
    METHODS,
    OPEN,
    OUTSIDER,
    READER,
    TASK,
    TRAIN,
    World,
    attack,
    command,
    refusal,
    said,
)

from explorer import costing
from explorer.canonical import canonical
from explorer.errors import ProvenanceError
from explorer.provenance.envelope import parse_envelope, sign_envelope
from explorer.provenance.keys import new_key, new_reader_key, public_text, reader_key, reader_public_text
from explorer.provenance.spellings import format_time
from explorer.recipes.recipe import build_recipe
from explorer.release.gate import read_gate
from explorer.runlog.attested import ATTESTATION
from explorer.runlog.documents import read_documents
from explorer.sweep.spec import read_spec
from explorer.training.demonstration import GOVERNANCE, NAME_OF_TRAINER, RISK
from explorer.training.ledgered import credentials_of
from explorer.training.run import build_loop
from explorer.training.run_plan import plan_run
from explorer.yaml_document import read_document

documents = partial(attack, "documents")
WEAK = "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="  # the neutral point: anybody can sign for it
DAY = 86_400
STRANGER = "example.com/stranger"
Payload = dict[str, Any]


class Desk:
    """A copy of the author's documents, to be changed and signed again."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.place = world.scratch()
        shutil.copytree(world.governance, self.place, dirs_exist_ok=True)
        self.now = world.now

    def path(self, name: str) -> Path:
        return self.place / ("policies/attacked.json" if name == "policy" else f"{name}.json")

    def payload(self, name: str) -> Payload:
        """Return the content of a document."""
        return json.loads(parse_envelope(self.path(name).read_bytes(), where=name).payload)

    def sign(self, name: str, payload: bytes, *by: str, kind: str | None = None) -> None:
        """Put a payload in a document's place, signed by these."""
        keys = [self.world.keys[each] if each in self.world.keys else new_key() for each in by]
        was = parse_envelope(self.path(name).read_bytes(), where=name).payload_type
        self.path(name).write_bytes(sign_envelope(payload, kind or was, keys).content)

    def trust(self, change: Callable[[Payload], Payload]) -> None:
        """Change the trust file, which is unsigned."""
        path = self.path("trust")
        path.write_text(json.dumps(change(json.loads(path.read_text()))))

    def start(self) -> dict[str, str]:
        """What the start of a run under these documents says; the desk is removed."""
        answer = refusal(self._start)
        shutil.rmtree(self.place)
        return {"start of a run": answer}

    def _start(self) -> None:
        found = read_documents(self.place, policy="attacked", now=self.now)
        methods = [{"routing": {"policy": "attacked"}}, *METHODS]
        recipe = build_recipe("started", task=TASK, train=TRAIN, methods=methods, where="attack")
        settings: dict[str, Any] = {"sweep": "attacked", "baseline": "started", "tuning": None, "ssr": 1.0, "seed": 0}
        record = plan_run(recipe, threads=1, data=None, documents=found, **settings)
        build_loop(record, data=None, documents=found)
        for reason, examples in credentials_of(recipe, found, None).quarantine.items():
            raise ProvenanceError(f"set aside, and never read: {len(examples)} examples, {reason}")


def changed(
    document: str,
    name: str,
    gains: str,
    change: Callable[[Payload], Payload | bytes],
    *,
    breaks: str = "a document says what its form allows",
    by: tuple[str, ...] = (),
    kind: str | None = None,
    **more: Any,
) -> None:
    """Put a change of a signed document into the table, signed again by its role unless by others."""
    usual = (RISK,) if document == "policy" else (GOVERNANCE,)

    @documents(f"{document}: {name}", breaks, gains, **more)
    def _(world: World) -> dict[str, str]:
        desk = Desk(world)
        made = change(desk.payload(document))
        desk.sign(document, made if isinstance(made, bytes) else canonical(made), *(by or usual), kind=kind)
        return desk.start()


def _rules(change: Callable[[Any], Any]) -> Callable[[Payload], Payload]:
    return lambda value: {**value, "rules": change(value["rules"])}


ROLE = "a document counts if its role has signed it"
SPAN = "a document counts from when until when it says"

# Taxonomy.

taxonomy = partial(changed, "taxonomy")
taxonomy("signed by model risk", "other classes", lambda v: v, breaks=ROLE, by=(RISK,), known=True)
taxonomy("signed by a stranger", "other classes", lambda v: v, breaks=ROLE, by=(STRANGER,), known=True)
taxonomy(
    "expired", "old classes", lambda v: {**v, "expires": format_time(int(time.time()) - DAY)}, breaks=SPAN, known=True
)
taxonomy(
    "a class less",
    "a class without a definition",
    lambda v: {**v, "classes": v["classes"][:-1]},
    breaks="a policy names the taxonomy by digest",
    known=True,
)
taxonomy(
    "another source for a class",
    "personal data as public",
    lambda v: {**v, "classes": [{**v["classes"][0], "personal_data": True}, *v["classes"][1:]]},
    breaks="a policy names the taxonomy by digest",
)
taxonomy(
    "quarantine is a class",
    "unvouched examples train",
    lambda v: {**v, "classes": [*v["classes"], {**v["classes"][0], "path": "quarantine"}]},
    known=True,
)
taxonomy("a class twice", "two definitions", lambda v: {**v, "classes": [*v["classes"], v["classes"][-1]]})
taxonomy(
    "a class without its parent",
    "a branch that covers nothing",
    lambda v: {**v, "classes": [*v["classes"], {**v["classes"][0], "path": "other/thing"}]},
)
taxonomy(
    "typed as a policy",
    "one document for another",
    lambda v: v,
    breaks="a signature is for one type",
    kind="application/vnd.explorer.policy.v1+json",
    known=True,
)
taxonomy(
    "not canonical",
    "two digests for one document",
    lambda v: json.dumps(v, indent=1).encode(),
    breaks="a document has one digest",
    known=True,
)
taxonomy(
    "a path that leaves the tree",
    "a directory outside",
    lambda v: {**v, "classes": [*v["classes"], {**v["classes"][0], "path": "../up"}]},
)

# Policy.

policy = partial(changed, "policy")
policy("signed by data governance", "another routing", lambda v: v, breaks=ROLE, by=(GOVERNANCE,), known=True)
policy("signed by the trainer", "another routing", lambda v: v, breaks=ROLE, by=(NAME_OF_TRAINER,))
policy(
    "expired",
    "an old routing",
    lambda v: {**v, "expires": format_time(int(time.time()) - DAY)},
    breaks=SPAN,
    known=True,
)
policy(
    "not yet valid",
    "a routing of tomorrow",
    lambda v: {**v, "issued": format_time(int(time.time()) + DAY)},
    breaks=SPAN,
    known=True,
)
policy("a negative weight", "a class is unlearned", _rules(lambda r: [{**r[0], "weight": -1}, *r[1:]]), known=True)
policy("a weight of 2", "a class trains twice as much", _rules(lambda r: [{**r[-1], "weight": 2}, *r[1:]]), known=True)
policy(
    "a weight that is no number",
    "an undecided weight",
    lambda v: canonical(v).replace(b'"weight":1', b'"weight":NaN'),
    known=True,
)
policy("a weight as text", "an undecided weight", _rules(lambda r: [{**r[0], "weight": "0"}, *r[1:]]))
policy("a weight that is true", "an undecided weight", _rules(lambda r: [{**r[0], "weight": True}, *r[1:]]))
policy(
    "a key twice",
    "readers see two policies",
    lambda v: canonical(v).replace(b'"version":1', b'"version":1,"version":1'),
    known=True,
)
policy(
    "an interval that ends before it begins",
    "a rule for nothing",
    _rules(lambda r: [*r[:1], {**r[1], "depth": [0.5, 0.1]}, *r[2:]]),
)
policy(
    "a class that the taxonomy lacks",
    "a rule for nothing",
    _rules(lambda r: [{**r[0], "classes": ["simulated/class-99"]}, *r[1:]]),
)
policy(
    "a pattern that fits no layer",
    "a denial of nothing",
    _rules(lambda r: [{**r[0], "layers": ["stem.*"]}, *r[1:]]),
    breaks="every rule fits a layer",
    known=True,
)
policy(
    "a region that fits no layer",
    "a seal of nothing",
    lambda v: {**v, "sealed": [{**v["sealed"][0], "layers": ["phantom.*"]}]},
    known=True,
)
policy("a region of rank 0", "a seal of nothing", lambda v: {**v, "sealed": [{**v["sealed"][0], "rank": 0}]})
policy(
    "a region of a class that the taxonomy lacks",
    "a seal of no role",
    lambda v: {**v, "sealed": [{**v["sealed"][0], "branch": "simulated/class-99"}]},
)
policy("two regions of one name", "one region for two", lambda v: {**v, "sealed": [v["sealed"][0], v["sealed"][0]]})
policy(
    "another taxonomy's digest",
    "other classes",
    lambda v: {**v, "taxonomy": {**v["taxonomy"], "digest": "0" * 64}},
    breaks="a policy names the taxonomy by digest",
)
policy(
    "another version of the format", "rules that are read otherwise", lambda v: {**v, "format": "explorer/policy/v2"}
)
policy("an unknown key", "a rule that is not read", lambda v: {**v, "wieght": 1}, known=True)
policy(
    "typed as a taxonomy",
    "one document for another",
    lambda v: v,
    breaks="a signature is for one type",
    kind="application/vnd.explorer.taxonomy.v1+json",
    known=True,
)
policy("nested a thousand deep", "the reader gives up", lambda v: b"[" * 1000 + b"]" * 1000)


@documents("policy: stripped of its signature", ROLE, "another routing", known=True)
def _(world: World) -> dict[str, str]:
    desk = Desk(world)
    value = json.loads(desk.path("policy").read_text())
    desk.path("policy").write_text(json.dumps({**value, "signatures": []}))
    return desk.start()


@documents("policy: one key twice for two authorities", "a threshold counts keys, not signatures", "a quorum of one")
def _(world: World) -> dict[str, str]:
    desk = Desk(world)
    desk.trust(lambda v: {**v, "quorum": {**v["quorum"], "documents": {**v["quorum"]["documents"], "model-risk": 2}}})
    value = json.loads(desk.path("policy").read_text())
    (one,) = value["signatures"]
    desk.path("policy").write_text(json.dumps({**value, "signatures": [one, {**one, "keyid": "another"}]}))
    return desk.start()


@documents(
    "policy: a weight changed under the signature", "a signature covers what it signs", "a denial lifted", known=True
)
def _(world: World) -> dict[str, str]:
    desk = Desk(world)
    value = json.loads(desk.path("policy").read_text())
    payload = base64.b64decode(value["payload"]).replace(b'"weight":0', b'"weight":1')
    desk.path("policy").write_text(json.dumps({**value, "payload": base64.b64encode(payload).decode()}))
    return desk.start()


# Trust file.


def trusted(
    name: str, gains: str, change: Callable[[Payload], Payload], *, breaks: str = "a trust file is sound", **more: Any
) -> None:
    @documents(f"trust: {name}", breaks, gains, **more)
    def _(world: World) -> dict[str, str]:
        desk = Desk(world)
        desk.trust(change)
        return desk.start()


def _keys(value: Payload, number: int, **changes: Any) -> Payload:
    """Change the keys of an authority."""
    authorities = [*value["authorities"]]
    one = authorities[number]
    authorities[number] = {**one, "keys": [{**one["keys"][0], **changes}]}
    return {**value, "authorities": authorities}


def _authority(value: Payload, number: int, **changes: Any) -> Payload:
    authorities = [*value["authorities"]]
    authorities[number] = {**authorities[number], **changes}
    return {**value, "authorities": authorities}


trusted("a weak key", "anybody signs", lambda v: _keys(v, 0, public_key=WEAK), known=True)
trusted(
    "another's key",
    "one signs for two",
    lambda v: _keys(v, 0, public_key=v["authorities"][1]["keys"][0]["public_key"]),
    known=True,
)
trusted(
    "one name twice",
    "two parties of one name",
    lambda v: {**v, "authorities": [*v["authorities"], v["authorities"][0]]},
    known=True,
)
trusted(
    "a span of nothing",
    "a key that never holds",
    lambda v: _keys(v, 0, not_after=v["authorities"][0]["keys"][0]["not_before"]),
    known=True,
)
trusted("no quorum", "no signature needed", lambda v: {**v, "quorum": {"documents": {}, "checkpoints": {}}}, known=True)
trusted(
    "a quorum of none",
    "no signature needed",
    lambda v: {**v, "quorum": {**v["quorum"], "documents": {role: 0 for role in v["quorum"]["documents"]}}},
)
trusted(
    "a quorum of many",
    "no signature possible",
    lambda v: {**v, "quorum": {**v["quorum"], "documents": {role: 9 for role in v["quorum"]["documents"]}}},
)
trusted("an unknown role", "a role that is not asked", lambda v: _authority(v, 0, role="owner"))
trusted("governance without branches", "no vouching", lambda v: _authority(v, 0, branches=[]))
trusted(
    "governance of another branch",
    "no vouching",
    lambda v: _authority(v, 0, branches=["licensed"]),
    breaks="tags are of an authority's branches",
    known=True,
)
trusted(
    "a revoked key",
    "a stolen key signs",
    lambda v: _keys(v, 0, revoked={"at": "2026-02-01T00:00:00Z", "reason": "stolen"}),
    breaks="a key counts until it is revoked",
    known=True,
)
trusted(
    "an expired key",
    "an old key signs",
    lambda v: _keys(v, 0, not_before="2026-01-01T00:00:00Z", not_after="2026-01-02T00:00:00Z"),
    breaks="a key counts in its span",
    known=True,
)
trusted(
    "a key in another alphabet",
    "one key under two names",
    lambda v: _keys(
        v, 0, public_key=v["authorities"][0]["keys"][0]["public_key"].replace("+", "-").replace("/", "_").rstrip("=")
    ),
)
trusted(
    "a name that looks like another",
    "a stranger for an authority",
    lambda v: _authority(v, 0, name="example.com/data-gov\u0435rnance"),
)


@documents(
    "trust: all documents exchanged together",
    "whom to believe says the reader",
    "another party's run",
    accepted="own trust",
    known=True,
)
def _(world: World) -> dict[str, str]:
    """A stranger's trust file and documents agree with each other; only a reader with his own file sees it."""
    desk = Desk(world)
    keys = {name: new_key() for name in world.keys}
    value = json.loads(desk.path("trust").read_text())
    for number, one in enumerate(value["authorities"]):
        value = _keys(value, number, public_key=public_text(keys[one["name"]]))
    desk.path("trust").write_text(json.dumps(value))
    for name, by in (("taxonomy", GOVERNANCE), ("policy", RISK), ("tags", GOVERNANCE)):
        was = parse_envelope(desk.path(name).read_bytes(), where=name)
        desk.path(name).write_bytes(sign_envelope(was.payload, was.payload_type, [keys[by]]).content)
    return desk.start()


@documents(
    "trust: an expired key under a document dated back",
    "a key counts in its span",
    "an old key signs",
    accepted="dated back",
    known=True,
)
def _(world: World) -> dict[str, str]:
    desk = Desk(world)
    desk.trust(lambda v: _keys(v, 1, not_before="2026-01-01T00:00:00Z", not_after="2026-02-01T00:00:00Z"))
    desk.sign("policy", canonical({**desk.payload("policy"), "issued": "2026-01-15T00:00:00Z"}), RISK)
    return desk.start()


# Tags.


def tagged(
    name: str,
    gains: str,
    change: Callable[[Desk], None],
    *,
    breaks: str = "tags are those that were signed",
    **more: Any,
) -> None:
    @documents(f"tags: {name}", breaks, gains, **more)
    def _(world: World) -> dict[str, str]:
        desk = Desk(world)
        change(desk)
        return desk.start()


def _table(desk: Desk, change: Callable[[pa.Table], pa.Table]) -> None:
    path = desk.place / "tags.parquet"
    table = pq.read_table(path)
    pq.write_table(change(table), path)


def _rows(order: Callable[[list[int]], list[int]]) -> Callable[[Desk], None]:
    return lambda desk: _table(desk, lambda table: table.take(order(list(range(len(table))))))


def _predicate(**changes: Any) -> Callable[[Desk], None]:
    def change(desk: Desk) -> None:
        value = desk.payload("tags")
        desk.sign("tags", canonical({**value, "predicate": {**value["predicate"], **changes}}), GOVERNANCE)

    return change


def _salts(change: Callable[[bytearray], None]) -> Callable[[Desk], None]:
    def changes(desk: Desk) -> None:
        content = bytearray((desk.place / "salts").read_bytes())
        change(content)
        (desk.place / "salts").write_bytes(bytes(content))

    return changes


def _exchanged(content: bytearray) -> None:
    content[-32:], content[-64:-32] = content[-64:-32], content[-32:]


tagged("two rows exchanged", "one class for another", _rows(lambda rows: [1, 0, *rows[2:]]), known=True)
tagged("a row less", "an example without a tag", _rows(lambda rows: rows[:-1]), known=True)
tagged("a row twice", "an example more", _rows(lambda rows: [*rows, rows[-1]]))
tagged(
    "signed by the trainer",
    "tags of no role",
    lambda d: d.sign("tags", canonical(d.payload("tags")), NAME_OF_TRAINER),
    breaks=ROLE,
)
tagged("more records than there are", "a histogram of more", _predicate(records=10_000))
tagged("made for another taxonomy", "other classes", _predicate(taxonomy="0" * 64))
tagged(
    "expired",
    "old tags",
    _predicate(expires=format_time(1_767_225_601), issued=format_time(1_767_225_600)),
    breaks=SPAN,
    known=True,
)
tagged(
    "an example's salt of another",
    "one example's tag for another",
    _salts(_exchanged),
    breaks="an example is what its tag commits to",
    known=True,
)
tagged(
    "a salt of one bit more",
    "one example's tag for another",
    _salts(lambda c: c.__setitem__(-1, c[-1] ^ 1)),
    breaks="an example is what its tag commits to",
)
tagged(
    "salts that all can read",
    "tags can be guessed",
    lambda d: (d.place / "salts").chmod(0o644),
    breaks="only the owner has secrets",
    known=True,
)
tagged("a link for the salts", "another's secrets", lambda d: _linked(d), breaks="secrets are files of their own")
tagged("counts of two classes exchanged", "another histogram", lambda d: _counts(d))
tagged("not a Parquet file", "the reader gives up", lambda d: _noise(d))


def _linked(desk: Desk) -> None:
    (desk.place / "salts").rename(desk.place / "elsewhere")
    (desk.place / "salts").symlink_to(desk.place / "elsewhere")


def _counts(desk: Desk) -> None:
    value = desk.payload("tags")
    (voucher,) = value["predicate"]["vouchers"]
    counts = voucher["classes"]
    first, last = min(counts), max(counts)
    swapped = {**counts, first: counts[last], last: counts[first]}
    _predicate(vouchers=[{**voucher, "classes": swapped}])(desk)


def _noise(desk: Desk) -> None:
    (desk.place / "tags.parquet").write_bytes(b"PAR1" + bytes(1000) + b"PAR1")


# Attestations of a model, certificates, observations.


def _verify(world: World, run: Path, gate: str = GATE, *, ledger: bool = True) -> dict[str, str]:
    """The gate's answer to a model."""
    path = world.scratch() / "gate.yaml"
    path.write_text(gate)
    words = ["verify", run / "model", "--gate", path, "--trust", world.trust_file]
    status, text = command(*words, *(["--ledger", run] if ledger else []))
    fails = [line.strip() for line in text.splitlines() if "FAILS" in line or "rejected" in line]
    return {"gate": "" if not status else (fails or [said(status, text)])[0]}


def attested(
    name: str,
    gains: str,
    change: Callable[[Payload], Payload],
    *,
    breaks: str = "claims follow from the ledger",
    by: str = NAME_OF_TRAINER,
    gate: str = GATE,
    ledger: bool = True,
    **more: Any,
) -> None:
    """An attestation that says something else, signed by a key."""

    @documents(f"attestation: {name}", breaks, gains, **more)
    def _(world: World) -> dict[str, str]:
        run = world.copy("main")
        command("attest", run, "--trust", world.trust_file)
        path = run / "model" / ATTESTATION
        envelope = parse_envelope(path.read_bytes(), where="attestation")
        made = canonical(change(json.loads(envelope.payload)))
        path.write_bytes(sign_envelope(made, envelope.payload_type, [world.keys.get(by) or new_key()]).content)
        answers = _verify(world, run, gate, ledger=ledger)
        world.discard(run)
        return answers


def _claims(**changes: Any) -> Callable[[Payload], Payload]:
    return lambda value: {**value, "predicate": {**value["predicate"], **changes}}


def _first_class(**changes: Any) -> Callable[[Payload], Payload]:
    def change(value: Payload) -> Payload:
        classes = value["predicate"]["classes"]
        return _claims(classes=[{**classes[0], **changes}, *classes[1:]])(value)

    return change


def _subject(number: int) -> Callable[[Payload], Payload]:
    def change(value: Payload) -> Payload:
        subjects = [*value["subject"]]
        subjects[number] = {**subjects[number], "digest": {"sha256": "0" * 64}}
        return {**value, "subject": subjects}

    return change


CHECKPOINT = GATE.replace("ledger: full", "ledger: checkpoint").replace("  - {conforms: true}\n", "")
attested("fewer examples", "a class that hardly was there", _first_class(examples=1))
attested("a class that trained nothing", "a class that did not train", _first_class(trained=[]), known=True)
attested(
    "a class that trained nothing, by its checkpoint",
    "a class that did not train",
    _first_class(trained=[]),
    gate=CHECKPOINT,
    ledger=False,
    accepted="checkpoint",
    known=True,
)
attested("deletable at no cost", "a deletion that is none", _first_class(deletable={"level": "G2", "steps": 0}))
attested("steps", "another budget", _claims(steps=1))
attested("another run", "another run's model", _claims(run="another"))
attested(
    "an invented deletion",
    "a class that is gone",
    _claims(
        deletions=[
            {
                "certificate": "0" * 64,
                "level": "G2",
                "classes": [DENIED],
                "authorities": [],
                "records": 0,
                "ledger": {"origin": "x", "size": 1, "root": "0" * 64},
            }
        ]
    ),
)
attested("another model", "another file passes", _subject(0), breaks="it is about the file next to it", known=True)
attested("another card", "another model is built", _subject(1), breaks="it is about the file next to it")
attested("signed by model risk", "the wrong party's word", lambda v: v, breaks=ROLE, by=RISK, known=True)
attested("signed by a stranger", "a stranger's word", lambda v: v, breaks=ROLE, by=STRANGER, known=True)
attested(
    "expired",
    "an old word",
    _claims(issued=format_time(1_767_225_600), expires=format_time(1_767_225_601)),
    breaks=SPAN,
    known=True,
)
attested("a class that the taxonomy lacks", "a class of no owner", _first_class(path="simulated/class-99"))
attested(
    "another type of predicate",
    "one statement for another",
    lambda v: {**v, "predicateType": "https://slsa.dev/provenance/v1"},
    breaks="a signature is for one type",
)


def certified(
    name: str, gains: str, change: Callable[[Payload], Payload], *, breaks: str, by: str = NAME_OF_TRAINER, **more: Any
) -> None:
    """A certificate of a deletion that says something else."""

    @documents(f"certificate: {name}", breaks, gains, **more)
    def _(world: World) -> dict[str, str]:
        old, new = world.deleted()
        place = world.scratch() / "certificate.json"
        envelope = parse_envelope((new / "certificate.json").read_bytes(), where="certificate")
        made = canonical(change(json.loads(envelope.payload)))
        place.write_bytes(sign_envelope(made, envelope.payload_type, [world.keys.get(by) or new_key()]).content)
        status, text = command("delete", "verify", place, "--old", old, "--new", new, "--trust", world.trust_file)
        failed = [line.strip() for line in text.splitlines() if "FAILED" in line]
        return {"delete verify": "" if not status else (failed or [said(status, text)])[0]}


HELD = "every claim is derived again from both ledgers"
certified(
    "another class",
    "a deletion that was another",
    lambda v: _claims(target={**v["predicate"]["target"], "classes": [OPEN]})(v),
    breaks=HELD,
)
certified("another level", "a replay that was none", lambda v: _claims(level="G3")(v), breaks=HELD)
certified(
    "nothing dropped",
    "a region that is still there",
    lambda v: _claims(structure={**v["predicate"]["structure"], "dropped": []})(v),
    breaks=HELD,
)
certified(
    "one tensor less dropped",
    "a tensor that is still there",
    lambda v: _claims(structure={**v["predicate"]["structure"], "dropped": v["predicate"]["structure"]["dropped"][1:]})(
        v
    ),
    breaks=HELD,
)
certified("another model", "another file", _subject(0), breaks=HELD)
certified(
    "another old ledger",
    "another run's deletion",
    lambda v: _claims(old={**v["predicate"]["old"], "ledger": {**v["predicate"]["old"]["ledger"], "root": "0" * 64}})(
        v
    ),
    breaks=HELD,
)
certified("nothing left unreached", "a deletion of everything", _claims(not_reached=[]), breaks=HELD)
certified("nothing to destroy", "numbers that stay", _claims(to_destroy=[]), breaks=HELD)
certified(
    "other words for what it means",
    "a wider claim",
    _claims(means="The class was never here."),
    breaks="a level has one sentence",
)
certified("signed by model risk", "the wrong party's word", lambda v: v, breaks=ROLE, by=RISK)
certified(
    "expired",
    "an old word",
    _claims(issued=format_time(1_767_225_600), expires=format_time(1_767_225_601)),
    breaks=SPAN,
)


def observed(
    name: str, gains: str, change: Callable[[Payload], Payload], *, breaks: str, by: str = RISK, **more: Any
) -> None:
    """An observation of a deployer, changed; a gate that counts on it."""

    @documents(f"observation: {name}", breaks, gains, **more)
    def _(world: World) -> dict[str, str]:
        run = world.copy("main")
        command("attest", run, "--trust", world.trust_file)
        words = ["observe", run / "model", "--role", "deployer", "--key", world.governance / "model-risk.pem"]
        command(*words, "--trust", world.trust_file, "--metric", "accuracy=0.93")
        (path,) = (run / "model" / "observations").iterdir()
        envelope = parse_envelope(path.read_bytes(), where="observation")
        payload = canonical(change(json.loads(envelope.payload)))
        made = sign_envelope(payload, envelope.payload_type, [world.keys.get(by) or new_key()])
        path.unlink()
        from hashlib import sha256

        path.with_name(f"{sha256(payload).hexdigest()}.json").write_bytes(made.content)
        status, text = command(
            "verify", run / "model", "--gate", world.gate(), "--trust", world.trust_file, "--ledger", run
        )
        rejected = [line.strip() for line in text.splitlines() if " rejected: " in line]
        world.discard(run)
        return {"gate": rejected[0] if rejected else "" if not status else said(status, text)}


observed("of another model", "another model's numbers", _subject(0), breaks="an observation is of one model")
observed(
    "of another attestation",
    "numbers of another record",
    _claims(attestation="0" * 64),
    breaks="an observation is of one attestation",
)
observed("signed by a stranger", "a stranger's numbers", lambda v: v, breaks=ROLE, by=STRANGER)
observed("an evaluator's, signed by model risk", "the wrong party's numbers", _claims(role="evaluator"), breaks=ROLE)
observed(
    "expired",
    "old numbers",
    _claims(issued=format_time(1_767_225_600), expires=format_time(1_767_225_601)),
    breaks=SPAN,
)
observed("a weight of 2", "more than a class", _claims(admitted={OPEN: 2}), breaks="weights lie between 0 and 1")


# Grants.


def granted(
    name: str, gains: str, change: Callable[[Payload], Payload], *, breaks: str, by: str = GOVERNANCE, **more: Any
) -> None:
    """A grant to read that says something else."""

    @documents(f"grant: {name}", breaks, gains, who=READER, **more)
    def _(world: World) -> dict[str, str]:
        run, place = world.run("main"), world.scratch()
        value: Payload = {
            "format": "explorer/grant/v1",
            "id": "2026-0001",
            "owner": GOVERNANCE,
            "grantee": {
                "name": "example.com/auditor",
                "public_key": reader_public_text(reader_key(new_reader_key()).opens),
            },
            "runs": [run.name],
            "classes": [OPEN],
            "entries": ["step"],
            "issued": format_time(world.now),
            "expires": format_time(world.now + 30 * DAY),
        }
        kind = "application/vnd.explorer.grant.v1+json"
        signing = world.keys.get(by) or new_key()
        path = place / "grant.json"
        path.write_bytes(sign_envelope(canonical(change(value)), kind, [signing]).content)
        status, text = command("grant", "check", path, "--trust", world.trust_file, "--run", run)
        return {"grant check": said(status, text)}


granted("signed by the trainer", "a grant of no owner", lambda v: v, breaks=ROLE, by=NAME_OF_TRAINER)
granted("signed by a stranger", "a grant of no owner", lambda v: v, breaks=ROLE, by=STRANGER, known=True)
granted(
    "expired",
    "reading for ever",
    lambda v: {**v, "issued": "2026-01-01T00:00:00Z", "expires": "2026-01-02T00:00:00Z"},
    breaks=SPAN,
    known=True,
)
granted(
    "of another run", "another run's numbers", lambda v: {**v, "runs": ["another"]}, breaks="a grant names its runs"
)
granted("of all classes", "everybody's numbers", lambda v: {**v, "classes": ["*"]}, breaks="a grant names its classes")
granted("of no class", "an empty grant opens all", lambda v: {**v, "classes": []}, breaks="a grant names its classes")
granted(
    "to a weak key",
    "everybody reads",
    lambda v: {**v, "grantee": {**v["grantee"], "public_key": "A" * 43 + "="}},
    breaks="a reader's key is a secret's",
    known=True,
)
granted("of another owner", "another owner's grant", lambda v: {**v, "owner": RISK}, breaks="its owner signs a grant")


# Files without a signature.


def file(
    name: str,
    gains: str,
    content: str | bytes,
    read: Callable[[Path], object],
    *,
    suffix: str = "yaml",
    breaks: str = "a file says what its form allows",
    **more: Any,
) -> None:
    @documents(name, breaks, gains, who=OUTSIDER, **more)
    def _(world: World) -> dict[str, str]:
        path = world.scratch() / f"file.{suffix}"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return {"reader": refusal(lambda: read(path))}


BOMB = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{after}: &{after} [{','.join([f'*{before}'] * 9)}]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)
gate = partial(file, read=read_gate)
gate("gate: a class of Python", "code runs", GATE + "extra: !!python/object/apply:os.system ['id']\n", known=True)
gate("gate: a bomb of aliases", "the reader's memory", GATE + BOMB)
gate("gate: a key twice", "two gates in one", GATE + "ledger: checkpoint\n")
gate("gate: a rule that is not known", "a rule that is not asked", GATE + "  - {safe: true}\n")
gate(
    "gate: two rules in one",
    "a rule that is not asked",
    GATE.replace("{conforms: true}", "{conforms: true, absent: {branch: simulated}}"),
)
gate("gate: conforms is false", "a rule that asks for nothing", GATE.replace("conforms: true", "conforms: false"))
gate(
    "gate: conforms without a ledger", "a rule that cannot be asked", GATE.replace("ledger: full", "ledger: checkpoint")
)
gate("gate: no rules", "everything passes", GATE.partition("rules:")[0] + "rules: []\n")
gate("gate: at least G1", "an ablation as a deletion", GATE + f"  - {{deletable: {{branch: {OPEN}, at_least: G1}}}}\n")
gate(
    "gate: a limit in words",
    "a limit that is none",
    GATE + f"  - {{deletable: {{branch: {OPEN}, at_least: G2, at_most: little}}}}\n",
)


@documents("gate: a branch of no run", "what the model does not know fails", "a rule about nothing holds", who=OUTSIDER)
def _(world: World) -> dict[str, str]:
    run = world.copy("main")
    command("attest", run, "--trust", world.trust_file)
    answers = _verify(world, run, GATE.replace(DENIED, "personal"))
    world.discard(run)
    return answers


prices = partial(file, read=lambda path: costing.load_prices(path), suffix="csv")
HEADER = "provider,instance,region,tenancy,accelerator,count,usd_per_hour,effective,retrieved,source,currency\n"
prices(
    "prices: below zero",
    "training for less than nothing",
    HEADER + "own,box,,on demand,CPU,2,-1,2026-11-01,2026-11-01,me,USD\n",
)
prices(
    "prices: no number",
    "a cost that is no number",
    HEADER + "own,box,,on demand,CPU,2,nan,2026-11-01,2026-11-01,me,USD\n",
)
prices(
    "prices: infinite", "a cost without end", HEADER + "own,box,,on demand,CPU,2,1e400,2026-11-01,2026-11-01,me,USD\n"
)
prices(
    "prices: no accelerators",
    "a division by zero",
    HEADER + "own,box,,on demand,CPU,0,1,2026-11-01,2026-11-01,me,USD\n",
)
prices(
    "prices: a day that is none",
    "a price of no day",
    HEADER + "own,box,,on demand,CPU,1,1,2026-02-30,2026-11-01,me,USD\n",
)
prices(
    "prices: a column more",
    "a row that is read otherwise",
    HEADER + "own,box,,on demand,CPU,1,1,2026-02-28,2026-11-01,me,USD,more\n",
)

SPEC = """\
name: attacked
task: {dataset: {digits: {}}, model: resnet8}
train: {epochs: 1, batch_size: 32, optimizer: {sgd: {lr: 0.1}}}
baseline: baseline
recipes: {baseline: [], fast: [{label_smoothing: {smoothing: 0.1}}]}
budgets: [1.0]
seeds: [0]
"""
specs = partial(file, read=lambda path: read_spec(read_document(path)))
specs("specification: a class of Python", "code runs", SPEC + "extra: !!python/name:os.system\n", known=True)
specs("specification: a bomb of aliases", "the reader's memory", SPEC + BOMB)
specs("specification: a name that climbs", "files outside", SPEC.replace("name: attacked", "name: ../../up"))
specs("specification: a recipe's name that climbs", "files outside", SPEC.replace("fast:", '"../fast":'))
specs(
    "specification: a path of data that climbs",
    "another run's files",
    SPEC.replace("{digits: {}}", "{text: {path: ../../etc/passwd, context: 8}}"),
)
specs("specification: a key twice", "two sweeps in one", SPEC + "seeds: [1]\n")
specs(
    "specification: a method that is not known",
    "a recipe without it",
    SPEC.replace("label_smoothing", "label_smoothign"),
)
specs("specification: no baseline", "nothing to compare with", SPEC.replace("baseline: baseline", "baseline: other"))
specs("specification: a negative seed", "another stream", SPEC.replace("seeds: [0]", "seeds: [-1]"))
specs("specification: a seed twice", "one run counted twice", SPEC.replace("seeds: [0]", "seeds: [0, 0]"))
specs("specification: a budget of nothing", "a division by zero", SPEC.replace("[1.0]", "[0]"))
specs("specification: a budget that is no number", "an order of nothing", SPEC.replace("[1.0]", "[.nan]"))
specs("specification: not text", "the reader gives up", struct.pack("<Q", 2**63) + SPEC.encode())
