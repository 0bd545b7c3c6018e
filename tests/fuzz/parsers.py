"""Every parser of the package that reads what others wrote, with good input to start from."""

import base64
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from explorer import costing, note, schema, yaml_document
from explorer.canonical import canonical
from explorer.cli.store import read_carried
from explorer.costing import parse_prices
from explorer.costing.prices import parse_catalogue
from explorer.data.labelled import decode
from explorer.data.local import parse_class_table
from explorer.entries import entropy_profile, fields, kinds, numbers, slots
from explorer.errors import ExplorerError
from explorer.ledger import proof, signed_checkpoint, tiles, trust_anchor
from explorer.ledger import witness as witness_http
from explorer.ledger.proof import Proof
from explorer.machine_class import read_machine
from explorer.note import Algorithm
from explorer.provenance import (
    commitments,
    delegation,
    deletion_certificate,
    description,
    encryption,
    envelope,
    grants,
    keys,
    levels,
    model_attestation,
    policy,
    regions,
    signing,
    spellings,
    statement,
    tag_attestation,
    tag_records,
    tags,
    tags_file,
    taxonomy,
    trust,
    usage,
)
from explorer.provenance.keys import public_text
from explorer.provenance.trust import Role
from explorer.recipes.machine import this_machine
from explorer.schema import to_json
from tests.data.photos import encoded, picture
from tests.entries.examples import EXAMPLES
from tests.ledger.signers import ORIGIN, signer
from tests.provenance import people, test_usage
from tests.test_run_files import PROFILE

ROOT = Path(__file__).parents[2]
POLICIES = ROOT / "notebooks" / "policies"
ROOT_HASH = bytes(range(32))


@dataclass(frozen=True, kw_only=True, slots=True)
class Parser:
    """Something that reads bytes from others, or a file of them."""

    read: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    reads: tuple[str, ...] = field(default=())  # the functions that this exercises, by their full names


def text(content: bytes) -> str:
    """Bytes as text, however hostile: what is not UTF-8 becomes lone surrogates."""
    return content.decode("utf-8", errors="surrogateescape")


def in_a_file(read: Callable[[Path], object], place: Path, mode: int = 0o600) -> Callable[[bytes], object]:
    """A reader of files as a reader of bytes."""

    def read_bytes(content: bytes) -> object:
        place.unlink(missing_ok=True)
        place.write_bytes(content)
        place.chmod(mode)
        return read(place)

    return read_bytes


def parsers(place: Path) -> dict[str, Parser]:
    """All of them, by name. Those that read files use a file at `place`."""
    return {**_plain(), **_bulk(), **_signed(), **_statements(), **_files(place), **_data(), **_costs(place)}


def _plain() -> dict[str, Parser]:
    log, witness = signer(1), signer(2, name="example.com/witness", algorithm=Algorithm.COSIGNATURE)
    body = signed_checkpoint.Checkpoint(origin=ORIGIN, size=3, root=ROOT_HASH).text
    note_ = note.with_signatures(note.sign(body, log), [witness.sign(body, time=1_700_000_000)])
    verifiers = (log.verifier, witness.verifier)
    entries = tuple(map(kinds.encode, EXAMPLES))
    policy_file = (
        f"log {log.verifier.vkey}\nwitness w {witness.verifier.vkey} https://w.example\n"
        "# both\ngroup all-of all w\nquorum all-of\n"
    )
    proof_ = Proof(index=1, hashes=(ROOT_HASH, bytes(32)), checkpoint=note_, extra=b"entry")
    bundle = tiles.encode_bundle([b"", b"a", b"{}" * 30])
    public = people.public("a").public_key.encode()
    floats = (b"0x1.8000000000000p+1", b"-0x0.0p+0", b"nan", b"-inf")
    return {
        "note": Parser(
            read=lambda raw: note.verify(note.parse(raw), verifiers), seeds=(note_.content,), reads=("note.parse",)
        ),
        "verifier key": Parser(
            read=lambda raw: note.Verifier.parse(text(raw)), seeds=tuple(v.vkey.encode() for v in verifiers)
        ),
        "checkpoint": Parser(
            read=lambda raw: signed_checkpoint.parse_checkpoint(text(raw)),
            seeds=(body.encode(),),
            reads=("ledger.signed_checkpoint.parse_checkpoint",),
        ),
        "tlog-policy": Parser(
            read=lambda raw: trust_anchor.parse_policy(raw, where="p"),
            seeds=(policy_file.encode(),),
            reads=("ledger.trust_anchor.parse_policy",),
        ),
        "tlog-proof": Parser(
            read=lambda raw: proof.parse_proof(raw, where="p"),
            seeds=(proof_.content,),
            reads=("ledger.proof.parse_proof",),
        ),
        "witness request": Parser(
            read=witness_http.parse_request,
            seeds=(b"old 0\n\n" + note_.content, b"old 3\n" + base64.b64encode(bytes(32)) + b"\n\n" + note_.content),
            reads=("ledger.witness.parse_request",),
        ),
        "entry bundle": Parser(
            read=lambda raw: tiles.decode_bundle(raw, width=3, where="b"),
            seeds=(bundle,),
            reads=("ledger.tiles.decode_bundle",),
        ),
        "tile path": Parser(
            read=lambda raw: tiles.parse_path(text(raw)),
            seeds=(b"tile/0/x001/x234/067.p/112", b"tile/entries/000"),
            reads=("ledger.tiles.parse_path",),
        ),
        "entry": Parser(read=kinds.decode, seeds=entries, reads=("entries.kinds.decode", "entries.heads.read_head")),
        "float": Parser(
            read=lambda raw: fields.read_float(text(raw)), seeds=floats, reads=("entries.fields.read_float",)
        ),
        "time": Parser(
            read=lambda raw: spellings.parse_time(text(raw)),
            seeds=(b"2026-01-31T00:00:00Z",),
            reads=("provenance.spellings.parse_time",),
        ),
        "cost of a deletion": Parser(
            read=lambda raw: levels.read_cost(text(raw), where="at_most"),
            seeds=(b"1% of training", b"0.5 % of training", b"200 steps"),
            reads=("provenance.levels.read_cost",),
        ),
        "public key": Parser(
            read=lambda raw: keys.parse_public(text(raw)), seeds=(public,), reads=("provenance.keys.parse_public",)
        ),
        "JSON": Parser(
            read=lambda raw: schema.parse_json(raw, where="j", error=ExplorerError, max_bytes=10_000),
            seeds=(*entries, b'{"a": [1, 2.5, null, {"b": "\\u00e9"}]}'),
            reads=("schema.parse_json",),
        ),
        "YAML": Parser(
            read=lambda raw: yaml_document.parse_document(text(raw), where="y"),
            seeds=tuple(path.read_bytes() for path in sorted(POLICIES.glob("*.yaml"))),
            reads=("yaml_document.parse_document",),
        ),
        "taxonomy draft": Parser(
            read=lambda raw: taxonomy.read_taxonomy(yaml_document.parse_document(text(raw), where="t")),
            seeds=((POLICIES / "licences.taxonomy.yaml").read_bytes(),),
            reads=("provenance.taxonomy.read_taxonomy", "provenance.signing.read_draft"),
        ),
        "policy draft": Parser(
            read=lambda raw: policy.read_policy(yaml_document.parse_document(text(raw), where="p")),
            seeds=tuple(path.read_bytes() for path in sorted(POLICIES.glob("*.policy.yaml"))),
            reads=("provenance.policy.read_policy",),
        ),
        "description": Parser(
            read=lambda raw: description.read_description(yaml_document.parse_document(text(raw), where="d")),
            seeds=((POLICIES / "news.description.yaml").read_bytes(),),
            reads=("provenance.description.read_description",),
        ),
        "layers": Parser(
            read=lambda raw: regions.parse_layers(raw, where="l"),
            seeds=(b"embed head\nblock.0\nnorm\n", b'["embed", "block.0"]'),
            reads=("provenance.regions.parse_layers",),
        ),
    }


def _bulk() -> dict[str, Parser]:
    """Numbers in bulk: the blobs of two layers, as little-endian words."""
    words = np.arange(1, 200, dtype="<f4").tobytes()
    profile = (9).to_bytes(4, "little") + np.arange(12, dtype="<f8").tobytes()
    found = np.tile([*range(9), 0.5, 4, 1, 0, 4], 2)  # two layers, and what a probe took 5 and 4 examples for
    probed = (9).to_bytes(4, "little") + found.astype("<f8").tobytes()
    steps = [(0, 2), (2,)]

    def segment(raw: bytes) -> object:
        """A class with one step, a class with two, and what they have in common."""
        contents = {0: raw[:16], 2: raw[16:48]}
        return list(numbers.decode_segment(contents, raw[48:], steps=steps, layers=2))

    return {
        "numbers of a segment": Parser(
            read=segment, seeds=(bytes(96), words[:96]), reads=("entries.numbers.decode_segment",)
        ),
        "numbers of a step": Parser(
            read=lambda raw: numbers.decode_step({1: raw[:16]}, raw[16:], layers=2),
            seeds=(bytes(40), words[:40]),
            reads=("entries.numbers.decode_step",),
        ),
        "numbers of a class": Parser(
            read=lambda raw: numbers.decode_class(raw, layers=2),
            seeds=(words[:48],),
            reads=("entries.numbers.decode_class",),
        ),
        "joint numbers of a step": Parser(
            read=lambda raw: numbers.decode_joint(raw, layers=2, classes=2),
            seeds=(words[:32], words[:48]),
            reads=("entries.numbers.decode_joint",),
        ),
        "sealed numbers": Parser(
            read=lambda raw: encryption.open_sealed(bytes(32), raw, kind="step", name="joint", first=0),
            seeds=(encryption.seal(bytes(32), words[:40], kind="step", name="joint", first=0),),
            reads=("provenance.encryption.open_sealed",),
        ),
        "sketches": Parser(
            read=lambda raw: numbers.decode_sketches(raw, layers=1),
            seeds=(words[:256],),
            reads=("entries.numbers.decode_sketches",),
        ),
        "profile of a class": Parser(
            read=lambda raw: entropy_profile.decode_class(raw, layers=2),
            seeds=(profile[:52],),
            reads=("entries.entropy_profile.decode_class",),
        ),
        "profile of all": Parser(
            read=lambda raw: entropy_profile.decode_joint(raw, layers=2),
            seeds=(profile, probed),
            reads=("entries.entropy_profile.decode_joint",),
        ),
        "choice among examples": Parser(
            read=lambda raw: slots.decode_chosen(raw, layers=2),
            seeds=(bytes.fromhex("02000000010000000000003f0000803f010000000100ff00"),),
            reads=("entries.slots.decode_chosen",),
        ),
        "slots": Parser(
            read=lambda raw: slots.decode_slots(raw, counts=[2, 1]),
            seeds=(np.array([2, 5, 3, 1, 4], "<u4").tobytes(),),
            reads=("entries.slots.decode_slots",),
        ),
    }


def _signed() -> dict[str, Parser]:
    """Documents in envelopes, and their payloads as a trusted key would have signed them, however damaged."""
    lab = people.trust(people.governance(), people.risk())
    claim = statement.make_statement(
        [statement.Subject(name="table", sha256="a" * 64)] * 2,
        predicate_type=tag_attestation.PREDICATE_TYPE,
        predicate={"records": 3},
    )
    policies = tuple(
        policy.read_policy(yaml_document.read_document(path)) for path in sorted(POLICIES.glob("*.policy.yaml"))
    )
    tree = taxonomy.read_taxonomy(yaml_document.read_document(POLICIES / "licences.taxonomy.yaml"))
    enveloped = envelope.sign_envelope(claim.payload, statement.PAYLOAD_TYPE, [people.private(people.GOVERNANCE)])

    def opened(kind: signing.Kind[Any], seed: str) -> Callable[[bytes], object]:
        def read(payload: bytes) -> object:
            made = envelope.sign_envelope(payload, kind.payload_type, [people.private(seed)])
            return signing.open_document(made.content, kind, trust=lab, now=people.NOW, where="d")

        return read

    return {
        "envelope": Parser(
            read=lambda raw: envelope.signers(envelope.parse_envelope(raw, where="e"), [people.public("a").raw]),
            seeds=(enveloped.content,),
            reads=("provenance.envelope.parse_envelope",),
        ),
        "trust file": Parser(
            read=lambda raw: trust.parse_trust(raw, where="t"),
            seeds=(canonical(schema.to_json(lab)),),
            reads=("provenance.trust.parse_trust",),
        ),
        "grant": Parser(
            read=lambda raw: grants.open_grant(
                envelope.sign_envelope(raw, grants.GRANT.payload_type, [people.private(people.GOVERNANCE)]).content,
                trust=lab,
                now=people.NOW,
                where="g",
            ),
            seeds=(grant_json(),),
            reads=("provenance.grants.open_grant",),
        ),
        "statement": Parser(
            read=lambda raw: statement.parse_statement(raw, predicate_type=tag_attestation.PREDICATE_TYPE, where="s"),
            seeds=(claim.payload,),
            reads=("provenance.statement.parse_statement",),
        ),
        "signed taxonomy": Parser(
            read=opened(taxonomy.TAXONOMY, people.GOVERNANCE),
            seeds=(canonical(schema.to_json(tree)),),
            reads=("provenance.signing.open_document",),
        ),
        "signed policy": Parser(
            read=opened(policy.POLICY, people.RISK), seeds=tuple(canonical(schema.to_json(p)) for p in policies)
        ),
    }


def _statements() -> dict[str, Parser]:
    """Statements about models and deletions, as who may make them would have signed them, however damaged."""
    trainer, evaluator = people.authority("t", Role.TRAINER), people.authority("e", Role.EVALUATOR)
    lab, digest, ledger = people.trust(trainer, evaluator), "a" * 64, {"origin": "o", "size": 1, "root": "b" * 64}
    span = {"issued": people.ISSUED, "expires": people.EXPIRES}
    facts = dict.fromkeys(("recipe", "code", "environment", "data", "taxonomy", "policy", "trust"), digest)
    trained = [{"layer": "stem", "steps": 2, "examples": 9, "share": 0.5}]
    claim = {"path": "open/mit", "confidential": False, "examples": 9, "trained": trained}
    done = {"certificate": digest, "level": "G3", "ledger": ledger, "classes": ["open"], "authorities": ["t"]}
    parent = {"kind": "model", "ledger": ledger, "model": digest, "attestation": digest, "admitted": {"open": 0.5}}
    model = {
        **{"run": "r", "ledger": ledger, "checkpoint": "o\n1\n", "steps": 2, **span},
        "facts": {**facts, "tags": {"train": digest}, "judged": 5},
        "layers": [{"name": "stem", "depth": 0.0}],
        "classes": [{**claim, "deletable": {"level": "G2", "steps": 0}}],
        "deletions": [{**done, "records": 0}],
        "parents": [parent],
    }
    said = {
        **{"role": "evaluator", "run": "r", "ledger": ledger, "attestation": digest, **span},
        **{"metrics": {"accuracy": 0.5}, "note": "a note", "admitted": {"open": 0.5}},
    }
    certified = {
        **{"format": deletion_certificate.FORMAT, "level": "G3", "means": deletion_certificate.MEANS["G3"], **span},
        **{"old": {"run": "r", "ledger": ledger}, "new": {"run": "s", "ledger": ledger}},
        **{"target": {"classes": ["open"], "authorities": [], "records": None}, "request": digest, "structure": None},
        "replay": {"begins": 0, "start": None, "steps": 2, "influence": 0},
        "not_reached": [{"what": what, "detail": "d"} for what in deletion_certificate.ALWAYS],
        "to_destroy": [{"what": "model", "path": "model/m", "sha256": digest, "part": None}],
        **dict.fromkeys(("taxonomy", "policy", "trust"), digest),
    }

    tree = {"count": 3, "root": digest}
    used = {"by": "class", "period": None, "runs": tree, "lines": tree, **span}

    def opened(
        read: Callable[..., object], about: tuple[str, ...], kind: str, predicate: dict[str, Any], *, seed: str
    ) -> tuple[Callable[[bytes], object], tuple[bytes]]:
        subjects = [statement.Subject(name=name, sha256=digest) for name in about]
        made = statement.make_statement(subjects, predicate_type=kind, predicate=predicate)

        def signing(payload: bytes) -> object:
            content = envelope.sign_envelope(payload, statement.PAYLOAD_TYPE, [people.private(seed)]).content
            return read(content, trust=lab, now=people.NOW, where="s")

        return signing, (made.payload,)

    both, one = (model_attestation.MODEL, model_attestation.CARD), (model_attestation.MODEL,)
    observation_type = model_attestation.OBSERVATION.predicate_type
    rows = {
        "model attestation": (
            opened(model_attestation.open_model, both, model_attestation.PREDICATE_TYPE, model, seed="t"),
            "provenance.model_attestation.open_model",
        ),
        "observation": (
            opened(model_attestation.open_observation, one, observation_type, said, seed="e"),
            "provenance.model_attestation.open_observation",
        ),
        "deletion certificate": (
            opened(
                deletion_certificate.open_certificate, one, deletion_certificate.PREDICATE_TYPE, certified, seed="t"
            ),
            "provenance.deletion_certificate.open_certificate",
        ),
        "delegation": (
            opened(
                lambda content, *, trust, now, where: delegation.open_delegation(content, trust=trust, where=where),
                delegation.DELEGATION.about,
                delegation.DELEGATION.predicate_type,
                {"ledger": f"{trainer.name}/r", "public_key": public_text(people.private("r")), **span},
                seed="t",
            ),
            "provenance.delegation.open_delegation",
        ),
        "statement of use": (
            opened(usage.open_usage, (usage.SUBJECT,), usage.PREDICATE_TYPE, used, seed="t"),
            "provenance.usage.open_usage",
        ),
    }
    return {name: Parser(read=read, seeds=seeds, reads=(of,)) for name, ((read, seeds), of) in rows.items()}


def _files(place: Path) -> dict[str, Parser]:
    key = people.private("a")
    pem = tuple(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how)
        for how in (NoEncryption(), BestAvailableEncryption(b"secret"))
    )
    codes = {"quarantine": 0, "open/mit": 1}
    records = b'{"text": "a", "class": "open/mit", "source": "s", "authority": "example.com/dg"}\n' * 3

    def table(path: Path) -> object:
        with tags_file.TagFile(path) as file:
            return tags.read_tags(file, codes=codes, authorities=tags.read_authorities(file))

    return {
        "key file": Parser(
            read=in_a_file(lambda path: keys.read_key(path, None), place),
            seeds=pem,
            reads=("provenance.keys.read_key", "provenance.keys.read_private"),
        ),
        "reader's key file": Parser(
            read=in_a_file(lambda path: keys.read_reader_key(path, None), place),
            seeds=(keys.new_reader_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),),
            reads=("provenance.keys.read_reader_key", "provenance.keys.read_any"),
        ),
        "records": Parser(
            read=in_a_file(lambda path: list(tag_records.read_records(path)), place),
            seeds=(records,),
            reads=("provenance.tag_records.read_records",),
        ),
        "salts": Parser(
            read=in_a_file(commitments.read_salts, place),
            seeds=(b"explorer/salts/v1".ljust(24, b"\0") + (2).to_bytes(8, "big") + bytes(range(64)),),
            reads=("provenance.commitments.read_salts", "provenance.keys.open_private"),
        ),
        "file of use": Parser(
            read=lambda raw: usage.read_file(raw, where="u"),
            seeds=tuple(json.dumps(to_json(each)).encode() for each in (test_usage.PARTY_FILE, test_usage.WHOLE_FILE)),
            reads=("provenance.usage.read_file",),
        ),
        "tag table": Parser(
            read=in_a_file(table, place),
            seeds=tag_tables(),
            reads=("provenance.tags.read_tags", "provenance.tags.read_authorities"),
        ),
    }


def _data() -> dict[str, Parser]:
    return {
        "class table": Parser(
            read=lambda raw: parse_class_table(raw, where="t"),
            seeds=(b"path,class\n.,open\na/b.txt,licensed/news\n",),
            reads=("data.local.parse_class_table",),
        ),
        "image": Parser(
            read=lambda raw: decode(raw, size=8, channels=3),  # a fault is no error
            seeds=tuple(encoded(picture(0), kind) for kind in ("PNG", "JPEG", "WEBP")),
        ),
    }


def _costs(place: Path) -> dict[str, Parser]:
    prices = Path(costing.__file__).parents[1] / "prices.csv"
    catalogue = (
        b"InstanceType,AcceleratorName,AcceleratorCount,Price,SpotPrice,Region,GpuInfo\n"
        b"p4d.24xlarge,A100,8.0,21.957642,3.1,us-east-1,\"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 40960}}]}\"\n"
        b",tpu-v4-8,1,12.88,3.864,us-central2,tpu-v4-8\nm5.large,,,0.096,nan,eu-west-1,\n"
    )
    return {
        "prices": Parser(
            read=lambda raw: parse_prices(raw, where="p", own=True),
            seeds=(b"".join(prices.read_bytes().splitlines(keepends=True)[:4]),),
            reads=("costing.prices.parse_prices", "costing.prices.load_prices"),
        ),
        "catalogue of prices": Parser(
            read=lambda raw: parse_catalogue(raw, name="c", provider="aws", retrieved="2026-11"),
            seeds=(catalogue,),
            reads=("costing.prices.parse_catalogue",),
        ),
        "profile": Parser(
            read=in_a_file(read_carried, place),
            seeds=(json.dumps(to_json(replace(PROFILE, effective="0" * 64))).encode(),),
        ),
        "probe": Parser(
            read=in_a_file(read_machine, place),
            seeds=(json.dumps(to_json(this_machine())).encode(),),
            reads=("machine_class.read_machine",),
        ),
    }


def tag_tables() -> tuple[bytes, ...]:
    """A table as we write it, and one with statistics and compression, which is refused."""
    rows = pa.table(
        [
            pa.array([bytes([n]) * 32 for n in range(5)], pa.binary(32)),
            *(pa.array([value] * 5, pa.string()) for value in ("open/mit", "source", "example.com/dg")),
        ],
        schema=tags_file.SCHEMA,
    )
    found = []
    for compression in ("none", "snappy"):
        sink = io.BytesIO()
        pq.write_table(rows, sink, compression=compression, store_schema=False)
        found.append(sink.getvalue())
    return tuple(found)


def grant_json() -> bytes:
    return canonical(
        {
            "format": "explorer/grant/v1",
            "id": "2026-0007",
            "owner": people.GOVERNANCE,
            "grantee": {"name": "example.com/auditor", "public_key": people.public("a").public_key},
            "runs": ["resnet8-digits-fast-ssr0.5-s1-3f9c2a7d"],
            "classes": ["licensed/news"],
            "entries": ["step"],
            "issued": people.ISSUED,
            "expires": people.EXPIRES,
        }
    )


NOT_PARSERS = frozenset(
    {
        "yaml_document.read_document",  # parse_document, after a bounded reading
        "ledger.storage.read_file",  # gives bytes as they are
        "ledger.storage.read_blob",  # gives bytes that have the digest asked for
        "ledger.log.load_edge",  # tiles and a bundle, checked against a signed root
        "ledger.storage.read_checkpoint",  # note and checkpoint
        "ledger.verify.read_witnesses",  # notes and checkpoints
        "provenance.regions.read_layers",  # parse_layers
        "provenance.trust.read_trust",  # parse_trust
        "provenance.signing.open_file",  # drafts and signed documents
        "provenance.tag_attestation.read_attestation",  # gives bytes as they are
        "entries.heads.read_head",
    }
)
"""What is named like a parser and has nothing to read by itself."""
