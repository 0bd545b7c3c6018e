"""Every byte of every file of a small ledger, flipped one at a time; and what else a forger might do to its files.

The bytes that nothing covers are those that `explorer.ledger` lists, and they are shown to be free.
"""

import hashlib
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import explorer.ledger
from explorer.errors import LedgerError
from explorer.ledger.log import Log
from explorer.ledger.signed_checkpoint import Checkpoint
from explorer.ledger.tiles import encode_bundle
from explorer.ledger.trust_anchor import Anchor
from explorer.ledger.verify import Verification
from explorer.merkle import leaf_hash, root_of
from explorer.note import Algorithm, parse, sign, with_signatures
from tests.ledger.ledgers import DG, LOG, MR, check, cosigned, grow, make, messages, note_of, policy
from tests.ledger.signers import ORIGIN, entry, signer

STRANGER = signer(9, name="stranger.example", algorithm=Algorithm.COSIGNATURE)


def small(tmp_path: Path) -> Path:
    """A few entries, committed three times, with blobs, a current cosignature and one of a smaller tree."""
    directory = tmp_path / "ledger"
    with Log.create(directory, origin=ORIGIN, signer=LOG) as log:
        log.append(entry(number) for number in range(1, 4))
        log.write_blob(b"numbers in bulk")
        log.commit()
        cosigned(directory, tmp_path / "state", MR)
        log.append(entry(number) for number in range(4, 6))
    return cosigned(directory, tmp_path / "state", DG)


def _tiny(directory: Path, size: int) -> Path:
    with Log.create(directory, origin=ORIGIN, signer=LOG) as log:
        for stop in (5, 257, size):
            log.append(bytes([number % 251]) for number in range(log.size, stop))
            log.commit()
    return directory


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file() and path.name != ".lock")


def outcome(directory: Path, anchor: Anchor) -> str | None:
    """What is said about the ledger; None where it verifies."""
    try:
        found = check(directory, anchor=anchor)
    except LedgerError as error:
        return str(error)
    return None if found.ok else "\n".join(messages(found))


def flips(file: Path, bits: tuple[int, ...] | None = None) -> Iterator[int]:
    """Flip these bits of each byte in turn, or one that differs from byte to byte; the file is as before in the end."""
    content = file.read_bytes()
    for at in range(len(content)):
        for bit in (at % 8,) if bits is None else bits:
            file.write_bytes(content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :])
            yield at
    file.write_bytes(content)


def detected(directory: Path, anchor: Anchor, *, whole: bool) -> set[str]:
    """Flip every byte of every file, with each of its bits where `whole`; return the names of the files."""
    assert outcome(directory, anchor) is None
    names = set()
    for file in files(directory):
        name = file.relative_to(directory).as_posix()
        for at in flips(file, tuple(range(8)) if whole or name == "checkpoint" else None):
            said = outcome(directory, anchor)
            assert said is not None, (name, at)
            assert name in said, (name, at, said)
        names.add(name)
    assert outcome(directory, anchor) is None
    return names


@pytest.mark.slow
def test_every_flipped_byte_of_a_small_ledger_is_detected_and_its_file_named(tmp_path: Path) -> None:
    names = detected(small(tmp_path), policy("dg.example"), whole=False)
    assert {name.split("/")[0] for name in names} == {"checkpoint", "tile", "blobs", "witness"}
    assert len(names) == 8


@pytest.mark.slow
def test_every_flipped_bit_of_a_small_ledger_is_detected(tmp_path: Path) -> None:
    detected(small(tmp_path), policy("dg.example"), whole=True)


@pytest.mark.slow
def test_every_flipped_byte_of_a_ledger_with_full_tiles_is_detected(tmp_path: Path) -> None:
    assert "tile/1/000.p/1" in detected(_tiny(tmp_path / "ledger", 258), policy(), whole=False)


def stranger_signs(directory: Path) -> None:
    add_lines(directory / "checkpoint", STRANGER.sign(note_of(directory).text, time=1).line)


def order_of_lines(directory: Path) -> None:
    stranger_signs(directory)
    head, *lines = (directory / "checkpoint").read_text().split("\u2014 ")
    (directory / "checkpoint").write_text("\u2014 ".join([head, *reversed(lines)]))


def line_twice(directory: Path) -> None:
    add_lines(directory / "checkpoint", note_of(directory).signatures[0].line)


def add_lines(file: Path, *lines: str) -> None:
    file.write_text(file.read_text() + "".join(f"{line}\n" for line in lines))


def unknown_witness(directory: Path) -> None:
    line = STRANGER.sign(note_of(directory).text, time=1).line
    (directory / "witness/stranger.note").write_text(f"{note_of(directory).text}\n{line}\n")


def witness_renamed(directory: Path) -> None:
    for file in (directory / "witness").iterdir():
        file.rename(file.with_name(f"{len(file.name)}{file.name}"))


def placed(path: str, content: bytes) -> Callable[[Path], None]:
    def place(directory: Path) -> None:
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    return place


def blob_missing(directory: Path) -> None:
    (file,) = (path for path in files(directory) if "blobs" in path.parts)
    file.unlink()


def blob_that_nothing_names(directory: Path) -> None:
    digest = hashlib.sha256(b"more").hexdigest()
    placed(f"blobs/sha256/{digest[:2]}/{digest}", b"more")(directory)


def other_times_and_modes(directory: Path) -> None:
    for file in files(directory):
        file.chmod(0o400)
        os.utime(file, (0, 0))


FREE: dict[str, list[Callable[[Path], None]]] = {
    "signature lines of keys that the verifier does not know": [stranger_signs, order_of_lines, line_twice],
    "a note below witness/ that no known key has signed": [unknown_witness, witness_renamed],
    "tiles and bundles beyond the size of the checkpoint": [
        placed("tile/0/000.p/9", b"x" * 288),
        placed("tile/entries/000", b"not a bundle"),
        placed("unsigned/1/tile/0/000.p/9", b"whatever"),
        placed(".checkpoint.1.tmp", b"whatever"),
        placed(".lock", b"whatever"),
    ],
    "policy.tlog-policy": [placed("policy.tlog-policy", b"quorum everybody\n")],
    "whether a blob that an entry names is there": [blob_missing, blob_that_nothing_names],
    "owner, mode and times of files": [
        other_times_and_modes,
        lambda directory: (directory / "tile/7/x001").mkdir(parents=True),
    ],
}
"""The beginning of each line of the list in the package docstring, and changes of that kind."""


def listed() -> list[str]:
    """What the package docstring lists as not covered."""
    _, _, rest = (explorer.ledger.__doc__ or "").partition("No signature and no hash covers:\n\n")
    return [line.strip().removeprefix("- ") for line in rest.partition("\n\n")[0].splitlines()]


def test_the_list_of_what_is_not_covered_is_the_one_in_the_package() -> None:
    assert len(listed()) == len(FREE)
    for line, beginning in zip(listed(), FREE, strict=True):
        assert line.startswith(beginning)


@pytest.mark.parametrize("change", [change for changes in FREE.values() for change in changes])
def test_what_nothing_covers_is_not_noticed(tmp_path: Path, change: Callable[[Path], None]) -> None:
    """The honest counter-list to the flips: each of these changes passes, and the ledger still verifies."""
    directory = small(tmp_path)
    before = {path: path.read_bytes() for path in files(directory)}
    change(directory)
    assert outcome(directory, policy("dg.example")) is None
    assert change is other_times_and_modes or list(directory.rglob("*")) != list(before)


def test_what_could_be_noticed_and_is_not_covered_is_named(tmp_path: Path) -> None:
    directory = small(tmp_path)
    for change in (change for changes in FREE.values() for change in changes[:1]):
        change(directory)
    placed("unsigned/1/tile/0/000.p/9", b"")(directory)
    placed(".checkpoint.1.tmp", b"")(directory)
    beginnings = [
        "signature lines of",
        "witness/stranger.note: not",
        "1 tiles and bundles",
        "unsigned/: ",
        "1 temporary",
    ]
    found = check(directory)
    assert found.ok, messages(found)
    assert [words[: len(start)] for words, start in zip(found.uncovered, beginnings, strict=True)] == beginnings


def test_flips_in_the_signature_of_a_stranger_are_the_only_ones_that_pass(tmp_path: Path) -> None:
    directory = small(tmp_path)
    signed = (directory / "checkpoint").read_bytes()
    stranger_signs(directory)
    free = {at for at in flips(directory / "checkpoint") if outcome(directory, policy()) is None}
    line = range(len(signed), len((directory / "checkpoint").read_bytes()))
    assert len(free) > 50
    assert free < set(line)


@pytest.mark.slow
def test_truncation_at_every_length_is_detected(tmp_path: Path) -> None:
    directory = small(tmp_path)
    anchor = policy("dg.example")
    for file in files(directory):
        content = file.read_bytes()
        for length in range(len(content)):
            file.write_bytes(content[:length])
            said = outcome(directory, anchor)
            assert said is not None and file.relative_to(directory).as_posix() in said, (file, length, said)
        file.write_bytes(content)


def test_bytes_behind_the_end_are_detected(tmp_path: Path) -> None:
    directory = small(tmp_path)
    for file in files(directory):
        content = file.read_bytes()
        for more in (b"\0", b"\n", b"\0\0"):
            file.write_bytes(content + more)
            said = outcome(directory, policy("dg.example"))
            assert said is not None and file.relative_to(directory).as_posix() in said, (file, more, said)
        file.write_bytes(content)


def test_a_missing_file_is_detected_and_named(tmp_path: Path) -> None:
    directory = _tiny(tmp_path / "ledger", 258)
    superseded = {"tile/0/001.p/1", "tile/entries/001.p/1"}
    for file in files(directory):
        name = file.relative_to(directory).as_posix()
        content = file.read_bytes()
        file.unlink()
        said = outcome(directory, policy())
        if name in superseded:
            assert said is None, "a partial that a wider one has replaced may go"
        else:
            assert said is not None and name in said, (name, said)
        file.write_bytes(content)
    assert outcome(directory, policy()) is None


def swapped(first: str, second: str) -> Callable[[Path], None]:
    def forge(directory: Path) -> None:
        one, two = directory / first, directory / second
        content = one.read_bytes()
        one.write_bytes(two.read_bytes())
        two.write_bytes(content)

    return forge


def reordered(directory: Path) -> None:
    """Two entries of the same length change places."""
    bundle = directory / "tile/entries/000"
    content = bytearray(bundle.read_bytes())
    content[2], content[5] = content[5], content[2]
    bundle.write_bytes(content)


def replaced_consistently(directory: Path) -> None:
    """An entry is replaced, and so is its hash in the tile; those above are not."""
    entries = [bytes([number % 251]) for number in range(256)]
    entries[7] = b"forged"
    (directory / "tile/entries/000").write_bytes(encode_bundle(entries))
    (directory / "tile/0/000").write_bytes(b"".join(map(leaf_hash, entries)))


def rebuilt_throughout(directory: Path) -> None:
    """The whole tree is made anew over other entries, under the old checkpoint."""
    signed = (directory / "checkpoint").read_bytes()
    shutil.rmtree(directory)
    with Log.create(directory, origin=ORIGIN, signer=LOG) as log:
        log.append(bytes([number % 251]) for number in range(257))
        log.append([b"forged"])
    (directory / "checkpoint").write_bytes(signed)


def signed_by_another_key(directory: Path) -> None:
    text = note_of(directory).text
    (directory / "checkpoint").write_bytes(sign(text, signer(8)).content)


def another_size(directory: Path) -> None:
    """A later checkpoint that the log did sign, over entries that are not there."""
    leaves = [leaf_hash(bytes([number % 251])) for number in range(300)]
    later = Checkpoint(origin=ORIGIN, size=300, root=root_of(leaves))
    (directory / "checkpoint").write_bytes(sign(later.text, LOG).content)


@pytest.mark.parametrize(
    ("forge", "expected"),
    [
        (swapped("tile/0/000", "tile/entries/000"), "tile/0/000"),
        (swapped("tile/1/000.p/1", "tile/0/001.p/1"), "tile/1/000.p/1: hash 0 was altered"),
        (swapped("tile/entries/001.p/1", "tile/entries/000"), "tile/entries/000: ends inside entry 1"),
        (reordered, "tile/entries/000: entry 0 (and 1 more in this file) was altered"),
        (replaced_consistently, "tile/1/000.p/1: hash 0 is not what the entries below it give"),
        (rebuilt_throughout, "checkpoint: the 258 entries do not have the root that the checkpoint names"),
        (signed_by_another_key, "checkpoint: no trusted key has signed: signed by example.com/run"),
        (another_size, "tile/entries/001.p/44: missing"),
    ],
)
def test_a_forgery_is_detected(tmp_path: Path, forge: Callable[[Path], None], expected: str) -> None:
    directory = _tiny(tmp_path / "ledger", 258)
    assert outcome(directory, policy()) is None
    forge(directory)
    said = outcome(directory, policy())
    assert said is not None and expected in said, said


def test_an_altered_entry_and_an_altered_hash_are_told_apart(tmp_path: Path) -> None:
    directory = _tiny(tmp_path / "ledger", 258)
    for path, at, expected in (
        ("tile/entries/000", 3 * 7 + 2, "tile/entries/000: entry 7 was altered: its hash is not the one in the check"),
        ("tile/0/000", 32 * 7, "tile/0/000: hash 7 was altered: it is not what the entries give"),
    ):
        file = directory / path
        content = file.read_bytes()
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        found: Verification = check(directory)
        assert messages(found)[0].startswith(expected)
        assert found.findings[0].expected != found.findings[0].found
        file.write_bytes(content)


def _damage(generator: random.Random, file: Path, contents: list[bytes]) -> None:
    """Do something to a file: other bytes, another length, another file's content, or nothing left of it."""
    content = bytearray(file.read_bytes())
    match generator.randrange(6):
        case 0:
            file.unlink()
        case 1:
            file.write_bytes(generator.choice(contents))
        case 2:
            file.write_bytes(content[: generator.randrange(len(content) + 1)])
        case 3:
            file.write_bytes(content + generator.randbytes(generator.randint(1, 40)))
        case 4:
            file.write_bytes(generator.randbytes(len(content)))
        case _:
            for _ in range(generator.randint(1, 4)):
                content[generator.randrange(len(content))] = generator.randrange(256)
            file.write_bytes(content)


def test_random_damage_is_noticed_exactly_where_it_is_covered(tmp_path: Path) -> None:
    directory = small(tmp_path)
    before = {path: path.read_bytes() for path in files(directory)}
    may_go = {path for path in before if path.name == "3" or path.name.startswith("mr.") or "blobs" in path.parts}
    assert len(may_go) == 4
    swaps = [was for path, was in before.items() if "tile" in path.parts]  # a note may stand for another of its text
    generator = random.Random(20260101)
    verdicts = set()
    for _ in range(300):
        for file in generator.sample(list(before), generator.randint(1, 3)):
            _damage(generator, file, swaps)
        changed = {path for path, was in before.items() if path.exists() and path.read_bytes() != was}
        missing = {path for path in before if not path.exists()}
        said = outcome(directory, policy("dg.example"))
        assert (said is None) is (not changed and missing <= may_go), (changed, missing, said)
        verdicts.add(said is None)
        for path, was in before.items():
            path.write_bytes(was)
    assert verdicts == {True, False}


def test_a_rolled_back_ledger_is_seen_only_by_who_knows_more(tmp_path: Path) -> None:
    directory = make(tmp_path / "ledger", 5)
    earlier = tmp_path / "earlier"
    shutil.copytree(directory, earlier)
    grow(directory, [entry(5)])
    cosigned(directory, tmp_path / "state", DG)
    assert outcome(earlier, policy()) is None, "nothing in the directory tells"
    found = check(earlier, held=note_of(directory))
    assert messages(found) == ["checkpoint: rolled back: the checkpoint you hold is of size 6, this one of 5"]
    shutil.copytree(directory / "witness", earlier / "witness")
    (message,) = messages(check(earlier))
    assert message.startswith("witness/dg.example+") and "is of size 6, this one of 5" in message


def test_a_cosignature_cannot_be_moved_to_another_tree(tmp_path: Path) -> None:
    directory = cosigned(make(tmp_path / "ledger", 5), tmp_path / "state", DG)
    other = make(tmp_path / "other", 6)
    (other / "witness").mkdir()
    (witness,) = (directory / "witness").iterdir()
    moved = with_signatures(note_of(other), parse(witness.read_bytes()).signatures[1:])
    (other / "witness" / witness.name).write_bytes(moved.content)
    said = outcome(other, policy("dg.example"))
    assert said is not None and f"witness/{witness.name}: the signature of dg.example" in said
