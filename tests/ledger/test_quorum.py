"""Whom to believe: policy files, their evaluation, validity of keys, and that nothing said means nobody believed."""

import base64
import hashlib
import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.errors import ExplorerError, LedgerError
from explorer.ledger.signed_checkpoint import Checkpoint
from explorer.ledger.trust_anchor import (
    MAX_POLICY,
    SKEW,
    Anchor,
    Judgement,
    TrustedKey,
    anchor_of,
    judge,
    parse_policy,
    utc,
)
from explorer.merkle import root_of
from explorer.note import Algorithm, Note, Signature, Signer, sign, with_signatures
from tests.ledger.bad_policies import DIRECTORY, LOG, POLICIES, W1, W2, W3
from tests.ledger.ledgers import DG, MR, NOW, both, policy
from tests.ledger.ledgers import LOG as LOG_KEY
from tests.ledger.signers import ORIGIN, signer

TEXT = Checkpoint(origin=ORIGIN, size=3, root=root_of([b"a" * 32])).text

# The example of the specification, with keys: two of three here and one of three there.
NESTED = """\
# Two organisations, three witnesses each.
log {log} https://log.example/

witness X1 {0}
witness\tX2\t{1}   https://x2.example/
  witness X3 {2}
group X-witnesses 2 X1 X2 X3

witness Y1 {3}
witness Y2 {4}
witness Y3 {5}
group Y-witnesses any Y1 Y2 Y3

group X-and-Y all X-witnesses Y-witnesses
quorum X-and-Y
"""


def witness(seed: int) -> Signer:
    return signer(seed, name=f"w{seed}.example", algorithm=Algorithm.COSIGNATURE)


def signed(*cosigners: tuple[Signer, int], key: Signer = LOG_KEY, text: str = TEXT) -> Note:
    """The checkpoint, signed by the log and cosigned at these times."""
    return with_signatures(sign(text, key), [each.sign(text, time=time) for each, time in cosigners])


def believed(found: Note, anchor: Anchor, now: int = NOW) -> Judgement | None:
    try:
        return judge(found, anchor=anchor, now=now)
    except LedgerError:
        return None


def refusal(found: Note, anchor: Anchor, now: int = NOW) -> str:
    with pytest.raises(LedgerError) as caught:
        judge(found, anchor=anchor, now=now)
    return str(caught.value)


def limited(anchor: Anchor, *, log: TrustedKey | None = None, **spans: tuple[int | None, int | None]) -> Anchor:
    """The anchor with another span for some of its witnesses, by the beginning of their names."""
    witnesses = []
    for each in anchor.witnesses:
        since, until = spans.get(each.name.partition(".")[0], (None, None))
        witnesses.append(replace(each, key=replace(each.key, valid_from=since, valid_until=until)))
    return replace(anchor, witnesses=tuple(witnesses), logs=(log,) if log else anchor.logs)


def log_key(since: int | None = None, until: int | None = None) -> TrustedKey:
    return TrustedKey(verifier=LOG_KEY.verifier, valid_from=since, valid_until=until)


@pytest.mark.parametrize("name", POLICIES)
def test_a_bad_policy_is_refused_with_its_own_message(name: str) -> None:
    content, message = POLICIES[name]
    file = DIRECTORY / f"policy_{name}.tlog-policy"
    assert file.read_bytes() == content, "run python -m tests.ledger.bad_policies"
    with pytest.raises(LedgerError) as caught:
        parse_policy(file.read_bytes(), where=file.name)
    assert str(caught.value).startswith(file.name)
    assert message in str(caught.value)


def test_the_bad_policies_are_all_there_is() -> None:
    assert {path.name for path in DIRECTORY.glob("policy_*")} == {f"policy_{name}.tlog-policy" for name in POLICIES}


def test_the_example_of_the_specification_is_read() -> None:
    keys = [witness(seed).verifier.vkey for seed in range(11, 17)]
    anchor = parse_policy(NESTED.format(*keys, log=LOG).encode(), where="policy")
    assert [each.name for each in anchor.witnesses] == ["X1", "X2", "X3", "Y1", "Y2", "Y3"]
    assert [(each.name, each.threshold) for each in anchor.groups] == [
        ("X-witnesses", 2),
        ("Y-witnesses", 1),
        ("X-and-Y", 2),
    ]
    assert anchor.quorum == "X-and-Y"
    assert anchor.asked == "all of (2 of X1, X2, X3), (1 of Y1, Y2, Y3)"


def test_every_set_of_witnesses_is_judged_as_the_specification_says() -> None:
    keys = [witness(seed) for seed in range(11, 17)]
    text = NESTED.format(*(key.verifier.vkey for key in keys), log=LOG)
    anchor = parse_policy(text.encode(), where="policy")
    for chosen in itertools.product([False, True], repeat=6):
        cosigners = [(key, NOW) for key, taken in zip(keys, chosen, strict=True) if taken]
        expected = sum(chosen[:3]) >= 2 and any(chosen[3:])
        assert (believed(signed(*cosigners), anchor) is not None) is expected, chosen


def test_names_are_opaque_bytes() -> None:
    text = f"log {LOG}\nwitness K {W1}\nwitness \u212a {W2}\nwitness X {W3}\n".encode().replace(b" X ", b" \xff ")
    anchor = parse_policy(text + b"group g all K \xe2\x84\xaa \xff\nquorum g\n", where="policy")
    assert len({each.name for each in anchor.witnesses}) == 3


def test_a_policy_is_bounded_before_it_is_read() -> None:
    with pytest.raises(LedgerError, match="policy: too large: "):
        parse_policy(b"#" * MAX_POLICY + b"\n", where="policy")
    groups = b"".join(b"group g%d 1 x\n" % number for number in range(2000))
    with pytest.raises(LedgerError, match="line 3: group 'g1': 'x' is a member"):
        parse_policy(b"witness x %s\n" % W1.encode() + groups, where="policy")
    chain = b"".join(b"group g%d 1 g%d\n" % (number + 1, number) for number in range(1, 2000))
    with pytest.raises(LedgerError, match="more than 1000 groups"):
        parse_policy(b"witness x %s\ngroup g1 1 x\n" % W1.encode() + chain, where="policy")


@given(st.binary(max_size=200) | st.text("logwitnesgrupqm \t\n#123anyl+=/AB", max_size=200).map(str.encode))
def test_no_other_exception_comes_out_of_a_policy(content: bytes) -> None:
    try:
        parse_policy(content, where="policy")
    except ExplorerError as error:
        assert str(error).startswith("policy")


def test_nobody_is_believed_where_nothing_was_said() -> None:
    everybody = signed((DG, NOW), (MR, NOW))
    assert "no key is trusted" in refusal(everybody, Anchor())
    assert "no key is trusted" in refusal(everybody, Anchor().with_log(log_key()))
    witnesses_only = Anchor().with_witness("dg", TrustedKey(verifier=DG.verifier)).with_quorum("dg")
    assert "no key is trusted" in refusal(everybody, witnesses_only)
    assert believed(everybody, Anchor().with_log(log_key()).with_quorum("none"))


def test_keys_alone_make_an_anchor_that_asks_for_all_of_them() -> None:
    log, dg, mr = (each.verifier.vkey for each in (LOG_KEY, DG, MR))
    assert believed(signed(), anchor_of([log]))
    anchor = anchor_of([dg, log, mr])
    assert believed(signed((DG, NOW), (MR, NOW)), anchor)
    assert "all of dg.example, mr.example; cosigned: dg.example" in refusal(signed((DG, NOW)), anchor)
    with pytest.raises(LedgerError, match="none of the keys given is a log's"):
        anchor_of([dg])


def test_a_judgement_says_who_and_when() -> None:
    stranger = signer(9, name="stranger.example", algorithm=Algorithm.COSIGNATURE)
    found = judge(signed((DG, NOW - 5), (MR, NOW), (stranger, 1)), anchor=both(), now=NOW)
    assert found.checkpoint.size == 3
    assert [each.name for each in found.signed_by] == [ORIGIN]
    assert [(each.verifier.name, each.time, each.fault) for each in found.cosignatures] == [
        ("dg.example", NOW - 5, None),
        ("mr.example", NOW, None),
    ]
    assert found.ignored == (f"stranger.example ({stranger.verifier.key_id.hex()})",)


def test_the_log_itself_has_to_sign() -> None:
    cosignatures = [each.sign(TEXT, time=NOW) for each in (DG, MR)]
    assert "only witnesses have" in refusal(Note(text=TEXT, signatures=tuple(cosignatures)), both())
    assert "no trusted key has signed" in refusal(sign(TEXT, signer(8)), both())


def test_a_log_cannot_sign_for_another_log() -> None:
    other = TEXT.replace(ORIGIN, "example.com/other")
    assert "it is the key of another log, this one is 'example.com/other'" in refusal(signed(text=other), policy())


def test_one_bad_signature_of_a_known_key_spoils_the_note() -> None:
    good = signed((DG, NOW), (MR, NOW))
    for at in range(3):
        blob = bytearray(good.signatures[at].blob)
        blob[-1] ^= 1
        spoiled = replace(good.signatures[at], blob=bytes(blob))
        lines = (*good.signatures[:at], spoiled, *good.signatures[at + 1 :])
        assert "does not match the text" in refusal(replace(good, signatures=lines), policy())


def test_a_cosignature_counts_only_while_its_key_is_valid() -> None:
    anchor = policy("dg.example")
    for time, counts in ((99, False), (100, True), (199, True), (200, False)):
        assert bool(believed(signed((DG, time)), limited(anchor, dg=(100, 200)))) is counts, time
    message = refusal(signed((DG, 200)), limited(anchor, dg=(100, 200)))
    assert f"its key was valid until {utc(200)}, not at {utc(200)}" in message


def test_a_cosignature_from_the_future_does_not_count() -> None:
    anchor = policy("dg.example")
    assert believed(signed((DG, NOW + SKEW)), anchor)
    message = f"its time is {SKEW + 1} seconds ahead of this machine's clock"
    assert message in refusal(signed((DG, NOW + SKEW + 1)), anchor)


@pytest.mark.parametrize(
    "times", [(NOW - 5, NOW + 10**6), (NOW - 5, 2**63), (NOW - 5, NOW - 2), (1, NOW - 5, 2**64 - 1)]
)
def test_of_several_cosignatures_of_one_key_the_earliest_that_counts_counts(times: tuple[int, ...]) -> None:
    """Whatever their order. A time beyond 2**63 - 1 is what only a broken cosigner signs."""
    anchor = limited(policy("dg.example"), dg=(100, None))
    for order in itertools.permutations(times):
        found = Note(text=TEXT, signatures=(*signed().signatures, *(cosigned_at(time) for time in order)))
        judged = judge(found, anchor=anchor, now=NOW)
        assert [(each.time, each.fault) for each in judged.cosignatures] == [(NOW - 5, None)]


def test_a_cosignature_at_an_impossible_time_does_not_count() -> None:
    found = Note(text=TEXT, signatures=(*signed().signatures, cosigned_at(2**63)))
    assert "it carries an impossible time, 9223372036854775808" in refusal(found, policy("dg.example"))
    assert believed(found, policy("none")), "and it refuses nothing where it is not needed"


def cosigned_at(time: int) -> Signature:
    """What a cosigner signs that knows no bounds."""
    message = f"cosignature/v1\ntime {time}\n{TEXT}".encode()
    blob = time.to_bytes(8, "big") + DG.private_key.sign(message)
    return Signature(name=DG.name, key_id=DG.verifier.key_id, blob=blob)


@pytest.mark.parametrize("origin", ["go.sum database tree", "example.com/a+b"])
def test_a_log_whose_origin_cannot_name_a_key_has_a_key_of_another_name(origin: str) -> None:
    """As sum.golang.org has: "Key name should equal origin" cannot be asked for there."""
    found = signed((DG, NOW), text=TEXT.replace(ORIGIN, origin))
    judged = judge(found, anchor=policy("dg.example"), now=NOW)
    assert judged.checkpoint.origin == origin and [each.name for each in judged.signed_by] == [ORIGIN]


def strange_vkey(name: str, type_: int = 6, size: int = 1312) -> str:
    """A key of a type that is not known here, such as an ML-DSA-44 cosigner's."""
    material = bytes([type_]) + bytes(size)
    key_id = hashlib.sha256(f"{name}\n".encode() + material).digest()[:4].hex()
    return f"{name}+{key_id}+{base64.b64encode(material).decode()}"


def test_a_witness_of_an_unknown_type_is_skipped_where_the_quorum_does_not_need_it() -> None:
    strange = f"witness pq {strange_vkey('pq.example')}\nwitness ec {strange_vkey('ec.example', 2, 91)}"
    lines = f"log {LOG}\nlog {strange_vkey('other.example/log', 5, 32)}\nwitness dg {DG.verifier.vkey}\n{strange}\n"
    anchor = parse_policy(f"{lines}group any 1 dg pq ec\nquorum any\n".encode(), where="policy")
    assert [key.verifier.name for key in anchor.logs] == [ORIGIN]
    assert believed(signed((DG, NOW)), anchor) and not believed(signed(), anchor)
    note_with = Note(text=TEXT, signatures=(*signed((DG, NOW)).signatures, strange_signature()))
    assert judge(note_with, anchor=anchor, now=NOW).ignored == ("pq.example (00000000)",)
    for quorum in ("group all all dg pq\nquorum all\n", "quorum pq\n", "group two 2 dg pq ec\nquorum two\n"):
        with pytest.raises(LedgerError, match="the quorum needs witnesses whose keys are of a type not known here: pq"):
            parse_policy(f"{lines}{quorum}".encode(), where="policy")
    with pytest.raises(LedgerError, match="names no log"):
        parse_policy(f"log {strange_vkey('x')}\nquorum none\n".encode(), where="policy")
    with pytest.raises(LedgerError, match="the name 'pq' is taken"):
        parse_policy(f"{lines}group pq any dg\nquorum pq\n".encode(), where="policy")


def strange_signature() -> Signature:
    return Signature(name="pq.example", key_id=bytes(4), blob=bytes(2428))


def test_a_weak_key_is_no_policys() -> None:
    material = b"\x01\x01" + bytes(31)
    key_id = hashlib.sha256(b"a\n" + material).digest()[:4].hex()
    text = f"log a+{key_id}+{base64.b64encode(material).decode()}\nquorum none\n"
    with pytest.raises(LedgerError, match="policy, line 1: the public key of 'a' is weak"):
        parse_policy(text.encode(), where="policy")


def test_a_log_key_needs_no_witness_while_it_is_valid() -> None:
    for now, counts in ((99, False), (100, True), (199, True), (200, False)):
        assert bool(believed(signed(), limited(policy(), log=log_key(100, 200)), now)) is counts, now


@pytest.mark.parametrize("quorum", ["none", "dg.example"])
def test_what_was_cosigned_before_a_revocation_stays_valid(quorum: str) -> None:
    revoked = limited(policy(quorum), log=log_key(until=150))
    assert believed(signed((DG, 149)), revoked)
    message = refusal(signed((DG, 150)), revoked)
    assert f"its key was valid until {utc(150)}" in message


def test_a_witness_whose_key_was_not_valid_shows_nothing_about_the_log() -> None:
    revoked = limited(policy("none"), log=log_key(until=150), dg=(None, 100))
    assert believed(signed((DG, 99)), revoked)
    assert not believed(signed((DG, 120)), revoked)


def test_the_time_of_a_log_is_the_time_of_the_quorum_not_of_one_witness() -> None:
    """One witness that dates back must not be enough to make a stolen log key look honest."""
    revoked = limited(both(), log=log_key(until=150))
    assert believed(signed((DG, 100), (MR, 149)), revoked)
    assert not believed(signed((DG, 1), (MR, 150)), revoked)
    either = limited(policy("any", "group any any dg.example mr.example"), log=log_key(until=150))
    assert believed(signed((DG, 1), (MR, 150)), either)


def test_the_clock_of_whoever_checks_bounds_the_time() -> None:
    soon = limited(policy("dg.example"), log=log_key(since=NOW + 10))
    assert not believed(signed((DG, NOW + 20)), soon, NOW)
    assert believed(signed((DG, NOW + 20)), soon, NOW + 20)


def test_random_policies_agree_with_their_definition() -> None:
    generator = random.Random(20260101)
    for _ in range(300):
        anchor = Anchor().with_log(log_key())
        names = [f"w{seed}" for seed in range(20, 26)]
        for seed, name in enumerate(names, 20):
            anchor = anchor.with_witness(name, TrustedKey(verifier=witness(seed).verifier))
        free, rules = list(names), {}
        while len(free) > 1:
            members = generator.sample(free, generator.randint(2, len(free)))
            name, threshold = f"g{len(rules)}", generator.randint(1, len(members))
            anchor = anchor.with_group(name, threshold, members)
            rules[name] = (threshold, members)
            free = [each for each in free if each not in members] + [name]
        anchor = anchor.with_quorum(free[0])
        chosen = {name for name in names if generator.random() < 0.6}

        def holds(name: str, rules: dict[str, tuple[int, list[str]]] = rules, chosen: set[str] = chosen) -> bool:
            if name in chosen or name not in rules:
                return name in chosen
            return sum(holds(member) for member in rules[name][1]) >= rules[name][0]

        assert anchor.met(chosen) is holds(free[0])


def test_times_are_words() -> None:
    assert utc(1_700_000_000) == "2023-11-14T22:13:20Z"
    assert utc(2**63 - 1) == f"{2**63 - 1} seconds after 1970"
