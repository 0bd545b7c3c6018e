"""Signed notes: known answers of C2SP and of RFC 8032, and every kind of damage with its message."""

import base64
import hashlib
import struct

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer import note
from explorer.errors import NoteError
from explorer.note import Algorithm, Note, Signature, Signer, Verifier

FOO = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
MESSAGE = "This is an example message.\n"
FOO_LINE = (
    "\u2014 example.com/foo "
    "Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM="
)
KAT_TEXT = "example.com/explorer-kat\n8\nXcnaeacGWamtVZy3Ad7ZoqudgjqtL0lgz+Nw7/RgQyg=\n"
KAT_LOG = (
    "\u2014 example.com/explorer-kat "
    "i6j8fcDauy4nLkfRrC6RwUpn7FI9oInPlr7PU7+rkYA+2CjBuUgEMJTJvJ+1IGNQFHSjU69Q/AvcsAihH6nrK5iB8AA="
)
KAT_WITNESS = (
    "\u2014 witness.example/dg "
    "Z1sXeAAAAABlU/EAgcJ54weaGCLQp5iB78A154BDyiIzypFL17vUXCVa3mrXgZ/Nj8lbIRXzZPZ/VYFR1rG8LGsinbJdSShXhrVsAw=="
)
LOG_VKEY = "example.com/explorer-kat+8ba8fc7d+AYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c"
WITNESS_VKEY = "witness.example/dg+675b1778+BIE5dw6ofRdfVqNUZsNMfszLjYqRtO43ol32D1uPybOU"
TIME = 1_700_000_000

RFC_8032 = {  # section 7.1: seed, public key, message, signature
    "TEST 1": (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    "TEST 2": (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    "TEST 3": (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
        "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
}


def signer(seed: int, name: str, algorithm: Algorithm = Algorithm.ED25519) -> Signer:
    key = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
    return Signer(name=name, algorithm=algorithm, private_key=key)


LOG = signer(1, "example.com/explorer-kat")
WITNESS = signer(2, "witness.example/dg", Algorithm.COSIGNATURE)


def kat() -> Note:
    return note.with_signatures(note.sign(KAT_TEXT, LOG), [WITNESS.sign(KAT_TEXT, time=TIME)])


def test_the_known_answer_of_c2sp() -> None:
    found = note.parse(f"{MESSAGE}\n{FOO_LINE}\n".encode())
    verifier = Verifier.parse(FOO)
    assert found.text == MESSAGE and verifier.vkey == FOO
    (verified,) = note.verify(found, [verifier])
    assert verified.verifier == verifier and verified.time is None


def test_our_own_known_answer() -> None:
    made = kat()
    assert LOG.verifier.vkey == LOG_VKEY and WITNESS.verifier.vkey == WITNESS_VKEY
    assert made.content.decode() == f"{KAT_TEXT}\n{KAT_LOG}\n{KAT_WITNESS}\n"
    found = note.parse(made.content)
    assert found == made
    verified = note.verify(found, [Verifier.parse(WITNESS_VKEY), Verifier.parse(LOG_VKEY)])
    assert [(one.verifier.vkey, one.time) for one in verified] == [(LOG_VKEY, None), (WITNESS_VKEY, TIME)]


def test_the_known_answers_stand_in_the_docstring() -> None:
    assert FOO in (note.__doc__ or "") and FOO_LINE.split(" ")[2] in (note.__doc__ or "")


@pytest.mark.parametrize("name", RFC_8032)
def test_the_known_answers_of_rfc_8032(name: str) -> None:
    """The key arithmetic is that of `cryptography`; this is what shows that ours is wired to it as the RFC says."""
    seed, public, message, signature = (bytes.fromhex(text) for text in RFC_8032[name])
    key = Ed25519PrivateKey.from_private_bytes(seed)
    made = Signer(name="rfc8032.example", algorithm=Algorithm.ED25519, private_key=key)
    assert made.verifier.public_key == public
    assert key.sign(message) == signature
    verifier = Verifier(name="rfc8032.example", algorithm=Algorithm.ED25519, public_key=public)
    if name == "TEST 2":  # the one message that is text
        assert verifier.check("r", signature) is None
        with pytest.raises(NoteError, match="does not match the text"):
            verifier.check("s", signature)


def test_a_signature_that_is_not_reduced_is_refused() -> None:
    """S + L verifies the same equation; RFC 8032 wants S below L, so that nobody makes two signatures of one."""
    order = 2**252 + 27742317777372353535851937790883648493
    blob = note.sign(MESSAGE, LOG).signatures[0].blob
    malleable = blob[:32] + (int.from_bytes(blob[32:], "little") + order).to_bytes(32, "little")
    with pytest.raises(NoteError, match="does not match the text"):
        LOG.verifier.check(MESSAGE, malleable)


def test_every_flipped_bit_of_a_note_is_noticed() -> None:
    """Text, names, key ids and signatures: the note is refused, or the line is of a key that nobody knows."""
    content, known = kat().content, [LOG.verifier, WITNESS.verifier]
    noticed = 0
    for at in range(len(content)):
        for bit in range(8):
            damaged = content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
            try:
                verified = note.verify(note.parse(damaged), known)
            except NoteError:
                noticed += 1
            else:
                assert len(verified) == 1, f"bit {bit} of byte {at}"
                assert at >= len(KAT_TEXT) + 1, "the text is covered by both"
    assert noticed > 8 * len(content) * 3 // 4


def test_unknown_keys_are_carried_along_and_prove_nothing() -> None:
    foreign = signer(3, "other.example")
    found = note.parse(note.with_signatures(kat(), [foreign.sign(KAT_TEXT)]).content)
    assert len(found.signatures) == 3
    assert [one.verifier.name for one in note.verify(found, [WITNESS.verifier])] == [WITNESS.name]
    nonsense = Signature(name="other.example", key_id=b"none", blob=b"x")
    assert len(note.verify(note.with_signatures(kat(), [nonsense]), [LOG.verifier])) == 1
    with pytest.raises(
        NoteError, match=r"no trusted key has signed: signed by .*\(8ba8fc7d\).*, trusted are x\.example"
    ):
        note.verify(found, [signer(4, "x.example").verifier])
    with pytest.raises(NoteError, match="trusted are none"):
        note.verify(found, [])
    with pytest.raises(
        NoteError, match=r"trusted are 1\.example \([0-9a-f]{8}\), .*, 5\.example \([0-9a-f]{8}\) and 3 more"
    ):
        note.verify(found, [signer(seed, f"{seed}.example").verifier for seed in range(1, 9)])


def test_a_known_key_whose_signature_fails_spoils_the_note() -> None:
    good = kat()
    bad = Signature(name=WITNESS.name, key_id=WITNESS.verifier.key_id, blob=bytes(72))
    for signatures in ((good.signatures[0], bad), (*good.signatures, bad), (bad, *good.signatures)):
        with pytest.raises(NoteError, match=r"the signature of witness\.example/dg \(675b1778\) does not match"):
            note.verify(Note(text=good.text, signatures=signatures), [LOG.verifier, WITNESS.verifier])
        note.verify(Note(text=good.text, signatures=signatures), [LOG.verifier])


def test_the_same_name_with_another_key_is_another_key() -> None:
    impostor = signer(9, LOG.name)
    assert impostor.verifier.key_id != LOG.verifier.key_id
    with pytest.raises(NoteError, match="no trusted key has signed"):
        note.verify(note.sign(KAT_TEXT, impostor), [LOG.verifier])


def test_two_known_keys_with_one_id_are_refused() -> None:
    class Colliding(Verifier):
        key_id = b"same"  # pyright: ignore

    pair = [Colliding(name="a", algorithm=Algorithm.ED25519, public_key=bytes([n]) * 32) for n in (1, 2)]
    with pytest.raises(NoteError, match="two keys share the name 'a' and the key id 73616d65"):
        note.verify(kat(), pair)


def test_every_line_of_a_key_is_checked_whatever_their_order() -> None:
    twice = note.with_signatures(kat(), [WITNESS.sign(KAT_TEXT, time=TIME + 1)])
    assert [one.time for one in note.verify(twice, [WITNESS.verifier])] == [TIME, TIME + 1]
    bad = Signature(name=WITNESS.name, key_id=WITNESS.verifier.key_id, blob=bytes(72))
    for lines in ((*twice.signatures, bad), (bad, *twice.signatures)):
        with pytest.raises(NoteError, match="does not match the text"):
            note.verify(Note(text=KAT_TEXT, signatures=lines), [WITNESS.verifier])
    same_line_again = Note(text=KAT_TEXT, signatures=kat().signatures * 2)
    assert len(note.verify(same_line_again, [LOG.verifier, WITNESS.verifier])) == 2
    assert note.with_signatures(twice, twice.signatures) == twice, "a line that is there is not repeated"


def test_a_cosignature_binds_its_time() -> None:
    blob = WITNESS.sign(KAT_TEXT, time=TIME).blob
    assert WITNESS.verifier.check(KAT_TEXT, blob) == TIME
    with pytest.raises(NoteError, match="does not match the text"):
        WITNESS.verifier.check(KAT_TEXT, struct.pack(">Q", TIME + 1) + blob[8:])
    with pytest.raises(NoteError, match="has 64 bytes, expected 72"):
        WITNESS.verifier.check(KAT_TEXT, blob[8:])


def test_a_plain_signature_is_no_cosignature_and_the_other_way_round() -> None:
    """One key of both types has two ids, and what it signs as one does not verify as the other."""
    plain = signer(2, WITNESS.name)
    assert plain.verifier.key_id != WITNESS.verifier.key_id
    with pytest.raises(NoteError):
        plain.verifier.check(KAT_TEXT, WITNESS.sign(KAT_TEXT, time=TIME).blob[8:])
    with pytest.raises(NoteError):
        WITNESS.verifier.check(KAT_TEXT, struct.pack(">Q", TIME) + plain.sign(KAT_TEXT).blob)
    for key, time in ((plain, TIME), (WITNESS, None)):
        with pytest.raises(NoteError, match=f"a plain signature none, found time={time}"):
            key.sign(KAT_TEXT, time=time)
    for time in (-1, 2**63):
        with pytest.raises(NoteError, match=f"{time} is no time"):
            WITNESS.sign(KAT_TEXT, time=time)


B64 = base64.b64encode(bytes(68)).decode()
BAD_NOTES = {
    "nothing": (b"", "not a signed note"),
    "no signatures": (b"text\n", "not a signed note"),
    "no signatures behind the gap": (b"text\n\n", "not a signed note"),
    "no newline at the end": (f"text\n\n\u2014 a {B64}".encode(), "not a signed note"),
    "an empty line at the end": (f"text\n\n\u2014 a {B64}\n\n".encode(), "not a signed note"),
    "not UTF-8": (b"text\xff\n\n", "a note is UTF-8; byte 4 is not"),
    "a tab": (f"te\txt\n\n\u2014 a {B64}\n".encode(), r"no control characters but newlines, found '\\t'"),
    "a return": (f"text\r\n\n\u2014 a {B64}\n".encode(), r"found '\\r'"),
    "a zero": (f"text\x00\n\n\u2014 a {B64}\n".encode(), r"found '\\x00'"),
    "too large": (b"x" * 1_000_001, "a note of 1000001 bytes; at most 1000000 are read"),
    "a hyphen for the dash": (f"text\n\n- a {B64}\n".encode(), "signature line 1 is damaged: '- a"),
    "no name": (f"text\n\n\u2014  {B64}\n".encode(), "signature line 1 is damaged"),
    "a name with a plus": (f"text\n\n\u2014 a+b {B64}\n".encode(), "signature line 1 is damaged"),
    "a name with a wide space": (f"text\n\n\u2014 a\u3000b {B64}\n".encode(), "signature line 1 is damaged"),
    "no base64": ("text\n\n\u2014 a $$$$\n".encode(), "signature line 1 is damaged"),
    "base64 of a wrong length": ("text\n\n\u2014 a AAAAA\n".encode(), "signature line 1 is not base64"),
    "base64 with loose bits": (f"text\n\n\u2014 a {B64[:-2]}B=\n".encode(), "signature line 1 is not canonical base64"),
    "a key id alone": ("text\n\n\u2014 a AAAAAA==\n".encode(), "4 bytes, expected a key id and a signature"),
    "the second line": (f"text\n\n\u2014 a {B64}\nmore\n".encode(), "signature line 2 is damaged: 'more'"),
}


@pytest.mark.parametrize("name", BAD_NOTES)
def test_what_is_no_note(name: str) -> None:
    content, message = BAD_NOTES[name]
    with pytest.raises(NoteError, match=message):
        note.parse(content)


@pytest.mark.parametrize("name", ["a\u200bb", "a" * 5_000, "\u202eb", "\u4f8b/\u044f"])
def test_a_line_of_an_unknown_key_may_have_any_name_without_space_and_plus(name: str) -> None:
    """C2SP signed-note forbids Unicode spaces and '+' and nothing else; golang.org/x/mod reads these too."""
    found = note.parse(f"{KAT_TEXT}\n\u2014 {name} {B64}\n{KAT_LOG}\n{KAT_WITNESS}\n".encode())
    assert found.signatures[0].name == name
    assert len(note.verify(found, [LOG.verifier, WITNESS.verifier])) == 2
    assert note.parse(found.content) == found


def test_a_key_may_have_a_name_that_does_not_print() -> None:
    key = signer(5, "a\u200bb")
    assert Verifier.parse(key.verifier.vkey) == key.verifier
    for name in ("a b", "a\u3000b", "a+b", "", "a\x01b", "a\nb", "\ud800", "a" * 201):
        with pytest.raises(NoteError, match="not a key name"):
            signer(5, name).verifier  # noqa: B018


SMALL_ORDER = (
    "0100000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000080",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "f1ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
)


@pytest.mark.parametrize("point", SMALL_ORDER)
@pytest.mark.parametrize("algorithm", Algorithm)
def test_a_weak_key_is_refused(point: str, algorithm: Algorithm) -> None:
    """Low order, or an encoding that is not canonical: as an object, and as the text that policies and --vkey take."""
    raw = bytes.fromhex(point)
    with pytest.raises(NoteError, match="is weak: anyone can sign for it"):
        Verifier(name="a", algorithm=algorithm, public_key=raw)
    material = bytes([algorithm]) + raw
    key_id = hashlib.sha256(b"a\n" + material).digest()[:4].hex()
    with pytest.raises(NoteError, match="is weak"):
        Verifier.parse(f"a+{key_id}+{base64.b64encode(material).decode()}")


def test_a_signature_with_a_point_of_small_order_is_refused() -> None:
    """One that the key's holder can make: R the neutral point, S = k a. OpenSSL takes it; many verifiers do not."""
    order = 2**252 + 27742317777372353535851937790883648493
    seed = bytes([1]) * 32
    scalar = int.from_bytes(hashlib.sha512(seed).digest()[:32], "little") & (2**254 - 8) | 2**254
    neutral = (1).to_bytes(32, "little")
    hashed = hashlib.sha512(neutral + LOG.verifier.public_key + KAT_TEXT.encode()).digest()
    blob = neutral + (int.from_bytes(hashed, "little") * scalar % order).to_bytes(32, "little")
    Ed25519PrivateKey.from_private_bytes(seed).public_key().verify(blob, KAT_TEXT.encode())
    with pytest.raises(NoteError, match="does not match the text"):
        LOG.verifier.check(KAT_TEXT, blob)


def test_a_hundred_signatures_are_read_and_no_more() -> None:
    line = f"\u2014 a {B64}\n"
    assert len(note.parse(f"t\n\n{line * 100}".encode()).signatures) == 100
    with pytest.raises(NoteError, match="a note with 101 signatures; at most 100 are read"):
        note.parse(f"t\n\n{line * 101}".encode())


def test_the_text_ends_at_the_last_empty_line() -> None:
    text = f"one\n\n\u2014 a {B64}\n\ntwo\n"
    found = note.parse(note.sign(text, LOG).content)
    assert found.text == text and len(found.signatures) == 1


BAD_KEYS = {
    "empty": ("", "not a verifier key"),
    "two parts": ("a+530d903a", "not a verifier key"),
    "long": ("a" * 2_000 + FOO, "not a verifier key"),
    "a long name": ("a" * 401 + FOO, "key id 530d903a is not|not a key name"),
    "capital digits": (FOO.replace("530d903a", "530D903A"), "not a verifier key"),
    "a wrong id": (
        FOO.replace("530d903a", "530d903b"),
        "key id 530d903b is not of this name and key, expected 530d903a",
    ),
    "another name": (FOO.replace("foo", "bar"), "key id 530d903a is not of this name"),
    "no name": (FOO.replace("example.com/foo", ""), "not a key name"),
    "not base64": (FOO[:-1], "not base64"),
    "not canonical": ("a+530d903a+AB==", "not canonical base64"),
    "another type": ("a+530d903a+Ag==", r"unknown key type 02; known: 01 \(Ed25519\), 04"),
    "another type without a name": ("+530d903a+Ag==", "not a key name"),
    "no key": ("a+530d903a+AQ==", "32 bytes, found 0"),
    "a newline": (FOO + "\n", "not a verifier key"),
}


@pytest.mark.parametrize("name", BAD_KEYS)
def test_what_is_no_key(name: str) -> None:
    vkey, message = BAD_KEYS[name]
    with pytest.raises(NoteError, match=message):
        Verifier.parse(vkey)


@pytest.mark.parametrize("text", ("", "no newline", "tab\t\n", "lone \ud800\n"))
def test_what_cannot_be_signed(text: str) -> None:
    with pytest.raises(NoteError):
        LOG.sign(text)


def test_a_private_key_is_not_printed() -> None:
    assert "private" not in repr(LOG) and "01" * 16 not in repr(LOG)
