"""One bad credential for every fault, each refused with its own message; beside each what differs in nothing else and
is accepted. `make_bad.py` says how they were made."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from explorer.errors import ProvenanceError
from explorer.provenance.policy import POLICY, RoutingPolicy
from explorer.provenance.regions import Layer
from explorer.provenance.routing_weights import bind, weight
from explorer.provenance.signing import Signed, open_document
from explorer.provenance.tag_attestation import verify_tags
from explorer.provenance.taxonomy import TAXONOMY
from explorer.provenance.trust import read_trust
from tests.provenance.make_bad import HERE, TABLES, TREE, files
from tests.provenance.people import GOVERNANCE, NOW, RISK


def policy(name: str, trust: str) -> Signed[RoutingPolicy]:
    content = (HERE / f"{name}.json").read_bytes()
    return open_document(content, POLICY, trust=read_trust(HERE / f"{trust}.json"), now=NOW, where=name)


def taxonomy(name: str, trust: str) -> object:
    content = (HERE / f"{name}.json").read_bytes()
    return open_document(content, TAXONOMY, trust=read_trust(HERE / f"{trust}.json"), now=NOW, where=name)


def tags(name: str, trust: str) -> object:
    believed, content = read_trust(HERE / f"{trust}.json"), (HERE / f"{name}.json").read_bytes()
    return verify_tags(HERE / f"{name}.parquet", content, taxonomy=TREE, trust=believed, now=NOW, where=name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bad:
    """A file to read, whom to believe, what is said then; and what is accepted in its place."""

    file: str
    message: str
    read: Callable[[str, str], object] = policy
    trust: str = "trust"
    twin: str = "good_policy"
    twin_trust: str = "trust"


def trust_file(name: str, message: str) -> Bad:
    """A trust file that refuses what another one accepts."""
    return Bad(file="good_policy", trust=name, message=message)


OF_RISK = f"of {RISK}"
AT = "issued 2026-05-01T00:00:00Z"
BAD = (
    Bad(
        file="forged",
        message=f"forged: forged or changed: the signature that claims to be {OF_RISK} does not match the content",
    ),
    Bad(
        file="forged_kind",
        read=taxonomy,
        twin="good_taxonomy",
        message=f"forged_kind: forged or changed: the signature that claims to be {OF_RISK} does not match the content",
    ),
    Bad(
        file="good_policy",
        read=taxonomy,
        twin="good_taxonomy",
        message="good_policy: holds 'application/vnd.explorer.policy.v1+json', expected "
        "'application/vnd.explorer.taxonomy.v1+json'",
    ),
    Bad(
        file="unknown_key",
        message="unknown_key: signed by no key of the trust file 'example.com/lab': found key 'd9aca817bdf311ef'; "
        f"trusted are {GOVERNANCE}, {RISK}",
    ),
    Bad(file="expired", message="expired: expired 2026-05-15T00:00:00Z, and now it is 2026-06-01T00:00:00Z"),
    Bad(
        file="not_yet_valid",
        message="not_yet_valid: not yet valid: issued 2026-07-01T00:00:00Z, and now it is 2026-06-01T00:00:00Z",
    ),
    Bad(
        file="expired_before_issued",
        message="expired_before_issued: expires: 2026-05-01T00:00:00Z is not after issued, 2026-05-01T00:00:00Z",
    ),
    Bad(
        file="revoked",
        twin="good_policy_before_revocation",
        message=f"revoked: revoked: key bac91747430e7531 {OF_RISK} is revoked as of 2026-04-01T00:00:00Z "
        f"(the laptop was stolen), {AT}",
    ),
    Bad(
        file="key_not_yet_valid",
        message=f"key_not_yet_valid: key not yet valid: key aba5d944f9db24c9 {OF_RISK} may sign from "
        f"2026-05-15T00:00:00Z, {AT}",
    ),
    Bad(
        file="key_expired",
        message=f"key_expired: key expired: key 59de8661889e929b {OF_RISK} may sign until 2026-04-01T00:00:00Z, {AT}",
    ),
    Bad(
        file="wrong_role",
        message=f"wrong_role: wrong role: {GOVERNANCE} has the role data-governance; needed is model-risk",
    ),
    Bad(
        file="out_of_branch",
        read=tags,
        twin="good_tags",
        message=f"out_of_branch: the tag of slot 5 (personal, by {GOVERNANCE}): out of branch: {GOVERNANCE} may vouch "
        "for open, licensed/news, and not for personal",
    ),
    Bad(
        file="threshold_not_met",
        trust="trust_two",
        twin="good_policy_by_two",
        twin_trust="trust_two",
        message="threshold_not_met: threshold not met: 1 of 2 authorities with the role model-risk have signed: "
        f"{RISK}",
    ),
    Bad(
        file="one_key_twice",
        trust="trust_two",
        twin="good_policy_by_two",
        twin_trust="trust_two",
        message=f"one_key_twice: threshold not met: 1 of 2 authorities with the role model-risk have signed: {RISK}",
    ),
    Bad(
        file="not_canonical",
        message="not_canonical: not in canonical form (RFC 8785, every key written out), which its digest names",
    ),
    Bad(
        file="unknown_field",
        message="unknown_field: wieght: unknown key; known: conditions, confidential, expires, format, issued, "
        "name, quarantine, rules, sealed, taxonomy, version",
    ),
    Bad(
        file="quarantine_defined",
        read=taxonomy,
        twin="good_taxonomy",
        message="quarantine_defined: classes[5].path: 'quarantine' is built in and cannot be defined",
    ),
    Bad(file="unsigned", message="unsigned: signatures: expected 1 to 32, found 0"),
    Bad(file="draft", message="draft: payloadType is missing"),
    Bad(file="empty", message="empty: empty; expected a signed envelope"),
    trust_file("trust_empty", "trust_empty.json: empty; an empty trust file refuses everything"),
    trust_file(
        "trust_nobody",
        "good_policy: the trust file 'example.com/lab' lists no authority and so refuses everything",
    ),
    trust_file(
        "trust_without_quorum",
        "good_policy: the trust file 'example.com/lab' names no quorum for documents of the role model-risk and so "
        "refuses them; named: none",
    ),
    trust_file(
        "trust_same_key_twice",
        "trust_same_key_twice.json: authorities[1].keys[0]: the public key "
        f"RGCKLHUMFlDhP7YXStQLQs1HVw9ZZdsiGQuh1W+Wg8U= is that of '{GOVERNANCE}' already",
    ),
    trust_file(
        "trust_same_name_twice",
        f"trust_same_name_twice.json: authorities[1]: the name '{RISK}' is given twice; a further key goes into 'keys'",
    ),
    trust_file(
        "trust_weak_key",
        "trust_weak_key.json: authorities[0].keys[0]: the public key AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA= is "
        "weak: anybody can sign for it",
    ),
    trust_file(
        "trust_span_of_nothing",
        "trust_span_of_nothing.json: authorities[0].keys[0]: not_before 2026-01-01T00:00:00Z is not before not_after "
        "2026-01-01T00:00:00Z",
    ),
)


def fault_of(bad: Bad) -> str:
    return bad.trust if bad.file == "good_policy" else bad.file


@pytest.mark.parametrize("bad", BAD, ids=fault_of)
def test_each_is_refused_with_its_own_message(bad: Bad) -> None:
    with pytest.raises(ProvenanceError) as caught:
        bad.read(bad.file, bad.trust)
    assert str(caught.value).replace(f"{HERE}/", "") == bad.message


@pytest.mark.parametrize("bad", BAD, ids=fault_of)
def test_its_twin_is_accepted(bad: Bad) -> None:
    assert (bad.twin, bad.twin_trust) != (bad.file, bad.trust) or bad.read is taxonomy
    assert bad.read(bad.twin, bad.twin_trust)


def test_an_empty_policy_lets_nothing_train() -> None:
    """It is signed and believed, and refuses everything; the twin has one rule more."""
    for name, expected in (("policy_empty", 0.0), ("good_policy", 1.0)):
        believed = policy(name, "trust")
        routing = bind(believed.value, TREE, where=name)
        found = weight(routing, class_="open/mit", progress=0.5, layer=Layer("head", 1.0))
        assert found.weight == expected


def test_the_files_are_what_the_code_makes() -> None:
    """After a change: `python -m tests.provenance.make_bad`."""
    tables = {f"{name}.parquet" for name in TABLES}
    found = {path.name: path.read_bytes() for path in HERE.iterdir() if path.name not in tables}
    assert found == files()
    assert all((HERE / name).exists() for name in tables)


def test_every_file_has_its_place_in_the_table() -> None:
    used = {f"{name}.json" for bad in BAD for name in (bad.file, bad.trust, bad.twin, bad.twin_trust)}
    assert {path.name for path in HERE.glob("*.json")} == used | {"policy_empty.json"}


def test_no_two_faults_read_alike() -> None:
    """But for the two forgeries, and for one key under two ids, which is one signer too few."""
    without_name = [bad.message.partition(": ")[2] for bad in BAD]
    assert len(set(without_name)) == len(without_name) - 2
