"""A trust file as the anchor of a ledger: who signs, who cosigns, how many, and from when until when."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from explorer.errors import LedgerError, ProvenanceError
from explorer.ledger.log import Log
from explorer.ledger.signed_checkpoint import Checkpoint
from explorer.ledger.trust_anchor import Judgement, judge
from explorer.ledger.verify import verify
from explorer.merkle import root_of
from explorer.note import Algorithm, Note, Signer, sign, with_signatures
from explorer.provenance.spellings import parse_time
from explorer.provenance.trust import FORMAT, Authority, Quorum, Role, Trust
from explorer.runlog.anchor import anchor_of_trust
from tests.provenance.people import GOVERNANCE, NOW, RISK, TODAY, YEAR_BEGINS, YEAR_ENDS, authority, private, public

ORIGIN = "example.com/run"
TEXT = Checkpoint(origin=ORIGIN, size=1, root=root_of([bytes(32)])).text
LATER = parse_time(YEAR_ENDS)

TRAINER = authority("example.com/trainer", Role.TRAINER)
DG = authority(GOVERNANCE, Role.DATA_GOVERNANCE)
MR = authority(RISK, Role.MODEL_RISK)
ASKED = {Role.TRAINER: 1, Role.DATA_GOVERNANCE: 1, Role.MODEL_RISK: 1}


def trusting(*authorities: Authority, checkpoints: Mapping[Role, int] = ASKED) -> Trust:
    quorum = Quorum(documents={}, checkpoints=dict(checkpoints))
    return Trust(format=FORMAT, name="example.com/lab", authorities=authorities, quorum=quorum)


def log_key(seed: str = "example.com/trainer", *, name: str = ORIGIN) -> Signer:
    return Signer(name=name, algorithm=Algorithm.ED25519, private_key=private(seed))


def cosigner(name: str, seed: str | None = None) -> Signer:
    return Signer(name=name, algorithm=Algorithm.COSIGNATURE, private_key=private(seed or name))


def checkpoint(*cosigners: tuple[Signer, int], key: Signer | None = None) -> Note:
    return with_signatures(sign(TEXT, key or log_key()), [each.sign(TEXT, time=time) for each, time in cosigners])


def believed(trust: Trust, found: Note, now: int = NOW) -> Judgement:
    return judge(found, anchor=anchor_of_trust(trust, origin=ORIGIN), now=now)


def test_no_trainer_signs_under_another_ones_name() -> None:
    rival, below = authority("example.com/rival", Role.TRAINER), authority("example.com/trainer/b", Role.TRAINER)
    trust = trusting(TRAINER, rival, below, checkpoints={Role.TRAINER: 1})
    for origin, signs in (
        ("example.com/trainer/run", TRAINER.name),
        ("example.com/trainer/b/run", below.name),
        ("example.com/rival/run", rival.name),
    ):
        text, anchor = TEXT.replace(ORIGIN, origin), anchor_of_trust(trust, origin=origin)
        for name in (TRAINER.name, rival.name, below.name):
            found = sign(text, log_key(name, name=origin))
            if name == signs:
                assert judge(found, anchor=anchor, now=NOW).signed_by
            else:
                with pytest.raises(LedgerError, match="no trusted key has signed"):
                    judge(found, anchor=anchor, now=NOW)


def test_one_trust_file_covers_every_ledger_of_its_trainers() -> None:
    trust = trusting(TRAINER, checkpoints={Role.TRAINER: 1})
    for origin in (ORIGIN, "example.com/another-run"):
        text = TEXT.replace(ORIGIN, origin)
        found = judge(sign(text, log_key(name=origin)), anchor=anchor_of_trust(trust, origin=origin), now=NOW)
        assert [each.name for each in found.signed_by] == [origin]
    with pytest.raises(LedgerError, match="no trusted key has signed"):
        believed(trust, sign(TEXT, log_key("somebody else")))


def test_every_role_that_is_named_has_to_cosign() -> None:
    trust = trusting(TRAINER, DG, MR)
    found = believed(trust, checkpoint((cosigner(GOVERNANCE), NOW), (cosigner(RISK), NOW)))
    assert [each.verifier.name for each in found.cosignatures] == [GOVERNANCE, RISK]
    with pytest.raises(LedgerError, match=f"it asks for all of {GOVERNANCE}, {RISK}; cosigned: {GOVERNANCE}"):
        believed(trust, checkpoint((cosigner(GOVERNANCE), NOW)))


def test_who_signs_does_not_count_as_cosigner() -> None:
    trust = trusting(TRAINER, DG, checkpoints={Role.TRAINER: 1, Role.DATA_GOVERNANCE: 1})
    with pytest.raises(LedgerError, match="the quorum is not met"):
        believed(trust, checkpoint((cosigner("example.com/trainer"), NOW)))


def test_authorities_are_counted_and_not_their_keys() -> None:
    both = authority(GOVERNANCE, Role.DATA_GOVERNANCE, public("old"), public("new"))
    second = authority("example.com/second", Role.DATA_GOVERNANCE)
    one = {Role.TRAINER: 1, Role.DATA_GOVERNANCE: 1}
    two = {Role.TRAINER: 1, Role.DATA_GOVERNANCE: 2}
    old, new = cosigner(GOVERNANCE, "old"), cosigner(GOVERNANCE, "new")
    for key in (old, new):
        believed(trusting(TRAINER, both, second, checkpoints=one), checkpoint((key, NOW)))
    with pytest.raises(LedgerError, match="the quorum is not met"):
        believed(trusting(TRAINER, both, second, checkpoints=two), checkpoint((old, NOW), (new, NOW)))
    believed(
        trusting(TRAINER, both, second, checkpoints=two),
        checkpoint((old, NOW), (cosigner("example.com/second"), NOW)),
    )


def test_an_auditor_may_cosign_and_is_not_waited_for() -> None:
    trust = trusting(TRAINER, authority("example.com/auditor", Role.AUDITOR), checkpoints={Role.TRAINER: 1})
    believed(trust, checkpoint())
    found = believed(trust, checkpoint((cosigner("example.com/auditor"), NOW)))
    assert [each.verifier.name for each in found.cosignatures] == ["example.com/auditor"]


def test_spans_and_revocations_hold_for_cosigners() -> None:
    revoked = authority(GOVERNANCE, Role.DATA_GOVERNANCE, public(GOVERNANCE, revoked=TODAY))
    trust = trusting(TRAINER, revoked, checkpoints={Role.TRAINER: 1, Role.DATA_GOVERNANCE: 1})
    believed(trust, checkpoint((cosigner(GOVERNANCE), NOW - 1)))
    for time in (parse_time(YEAR_BEGINS) - 1, NOW):
        with pytest.raises(LedgerError, match="the quorum is not met"):
            believed(trust, checkpoint((cosigner(GOVERNANCE), time)))


def test_a_trainer_that_was_revoked_needs_a_cosignature_from_before() -> None:
    stolen = authority("example.com/trainer", Role.TRAINER, public("example.com/trainer", revoked=TODAY))
    trust = trusting(stolen, DG, checkpoints={Role.TRAINER: 1, Role.DATA_GOVERNANCE: 1})
    believed(trust, checkpoint((cosigner(GOVERNANCE), NOW - 1)), LATER)
    with pytest.raises(LedgerError, match=f"its key was valid until {TODAY}"):
        believed(trust, checkpoint((cosigner(GOVERNANCE), NOW)), LATER)


def test_a_trainer_can_rotate_its_key() -> None:
    trainer = authority("example.com/trainer", Role.TRAINER, public("old", not_after=TODAY), public("new"))
    trust = trusting(trainer, checkpoints={Role.TRAINER: 1})
    believed(trust, checkpoint(key=log_key("old")), NOW - 1)
    believed(trust, checkpoint(key=log_key("new")))
    with pytest.raises(LedgerError, match="its key was valid until"):
        believed(trust, checkpoint(key=log_key("old")))


@pytest.mark.parametrize(
    ("trust", "message"),
    [
        (trusting(checkpoints={}), "asks for 0 trainers to sign a checkpoint and so refuses every one"),
        (trusting(TRAINER, DG, checkpoints={Role.DATA_GOVERNANCE: 1}), "asks for 0 trainers"),
        (trusting(TRAINER, checkpoints={Role.TRAINER: 2}), "asks for 2 trainers"),
        (trusting(DG, checkpoints={Role.TRAINER: 1}), "lists no trainer and so refuses every checkpoint"),
        (
            trusting(TRAINER, DG, checkpoints={Role.TRAINER: 1, Role.DATA_GOVERNANCE: 2}),
            "refuses every checkpoint: group 'data-governance authorities': 2 of 1 members cannot be asked for",
        ),
        (
            trusting(TRAINER, checkpoints={Role.TRAINER: 1, Role.MODEL_RISK: 1}),
            "refuses every checkpoint: group 'model-risk authorities': 1 of 0 members cannot be asked for",
        ),
    ],
)
def test_a_trust_file_that_can_believe_nothing_says_why(trust: Trust, message: str) -> None:
    with pytest.raises(ProvenanceError) as caught:
        anchor_of_trust(trust, origin=ORIGIN)
    assert str(caught.value).startswith("the trust file 'example.com/lab' ")
    assert message in str(caught.value)


def test_a_whole_ledger_is_verified_against_a_trust_file(tmp_path: Path) -> None:
    with Log.create(tmp_path, origin=ORIGIN, signer=log_key()) as log:
        log.append([b"first", b"second"])
    for trust, ok in ((trusting(TRAINER, checkpoints={Role.TRAINER: 1}), True), (trusting(TRAINER, DG, MR), False)):
        assert verify(tmp_path, anchor=anchor_of_trust(trust, origin=ORIGIN), now=NOW).ok is ok


def test_a_trust_file_whose_names_do_not_fit_says_so() -> None:
    """With its second key an authority is known by name and key id, which is too long for a name of 200 characters."""
    name = "n" * 200
    one = trusting(TRAINER, authority(name, Role.MODEL_RISK, public("a")), checkpoints={Role.TRAINER: 1})
    assert anchor_of_trust(one, origin=ORIGIN).witnesses[0].name == name
    two = trusting(TRAINER, authority(name, Role.MODEL_RISK, public("a"), public("b")), checkpoints={Role.TRAINER: 1})
    with pytest.raises(ProvenanceError, match="refuses every checkpoint: not a name"):
        anchor_of_trust(two, origin=ORIGIN)
