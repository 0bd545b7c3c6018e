"""The container: one pack has one spelling, and no program can be made to see another pack in the same file.

Every case is a zip that some tool opens. The sound one beside it differs in nothing but what the case is about.
"""

import io
import struct
import time
import zipfile
import zlib
from collections.abc import Callable

import pytest

from explorer.disclosure import verifier
from explorer.disclosure.pack import MAX_FILES, container
from explorer.errors import LedgerError

NAMES = ("README.txt", "ledger/checkpoint", "pack.json")


def zipped(
    names: tuple[str, ...] = NAMES,
    *,
    method: int = zipfile.ZIP_STORED,
    change: Callable[[zipfile.ZipInfo], object] = lambda _: None,
    comment: bytes = b"",
    content: bytes = b"x",
) -> bytes:
    """A zip as a pack is made, with one thing about it changed."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", method) as archive:
        for name in names:
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system, entry.external_attr, entry.compress_type = 3, 0o100644 << 16, method
            change(entry)
            archive.writestr(entry, content)
        archive.comment = comment
    return written.getvalue()


def mode(value: int) -> Callable[[zipfile.ZipInfo], object]:
    return lambda entry: setattr(entry, "external_attr", value << 16)


def flagged(bit: int) -> bytes:
    """The flag set in the local header and in the directory of a sound zip, which then agree."""
    made = bytearray(zipped(NAMES[:1]))
    directory = made.index(b"PK\x01\x02")
    for at in (6, directory + 8):
        struct.pack_into("<H", made, at, 1 << bit)
    return bytes(made)


def renamed(old: bytes, new: bytes, *, only: str = "both") -> bytes:
    """A name of the same length in the local header, in the directory, or in both."""
    made = zipped()
    first, last = made.index(old), made.rindex(old)
    for at, where in ((first, "local"), (last, "directory")):
        if only in (where, "both"):
            made = made[:at] + new + made[at + len(old) :]
    return made


def overlapping() -> bytes:
    """Two entries of the directory over one local header: what unfolds is larger than the file."""
    made = zipped(NAMES[:1])
    directory = made.index(b"PK\x01\x02")
    end = made.index(b"PK\x05\x06")
    central = made[directory:end]
    number, size = struct.pack("<HH", 2, 2), struct.pack("<I", 2 * len(central))
    return made[:end] + central + made[end : end + 8] + number + size + made[end + 16 :]


def oversized() -> bytes:
    """A local header that claims more bytes than there are."""
    made = bytearray(zipped(NAMES[:1]))
    struct.pack_into("<II", made, 18, 2**31, 2**31)
    return bytes(made)


HOSTILE: dict[str, Callable[[], bytes]] = {
    "a bomb": lambda: zipped(method=zipfile.ZIP_DEFLATED, content=bytes(10**7)),
    "another compression": lambda: zipped(method=zipfile.ZIP_LZMA),
    "the same name twice": lambda: zipped(("README.txt", "README.txu", "pack.json")).replace(
        b"README.txu", b"README.txt"
    ),
    "names in another order": lambda: zipped(NAMES[::-1]),
    "names that differ in case": lambda: zipped(("grants/A.json", "grants/a.json", "pack.json")),
    "a symbolic link": lambda: zipped(change=mode(0o120777), content=b"/etc/passwd"),
    "a directory": lambda: zipped(("README.txt", "grants/", "pack.json"), change=mode(0o040755)),
    "a device": lambda: zipped(change=mode(0o020666)),
    "a set-uid bit": lambda: zipped(change=mode(0o104755)),
    "an absolute name": lambda: zipped(("/etc/passwd", *NAMES)),
    "a drive": lambda: zipped(("C:\\pack.json", *NAMES)),
    "a name that climbs": lambda: zipped(("../pack.json", *NAMES)),
    "a name that climbs later": lambda: zipped(("README.txt", "grants/../../x.json", "pack.json")),
    "a stream behind a name": lambda: zipped(("README.txt", "pack.json", "pack.json:x")),
    "a name of a device": lambda: zipped(("README.txt", "grants/NUL", "pack.json")),
    "a name with a dot at its end": lambda: zipped(("README.txt", "pack.json", "pack.json.")),
    "letters that look alike": lambda: zipped(("README.txt", "pack.json", "p\u0430ck.json")),
    "a comment": lambda: zipped(comment=b"x"),
    "a field of the system": lambda: zipped(change=lambda entry: setattr(entry, "extra", b"\x01\x00\x00\x00")),
    "a comment of a file": lambda: zipped(change=lambda entry: setattr(entry, "comment", b"x")),
    "an encrypted file": lambda: flagged(0),
    "sizes behind the content": lambda: flagged(3),
    "names in UTF-8": lambda: flagged(11),
    "another name in the directory": lambda: renamed(b"README.txt", b"SECRET.txt", only="directory"),
    "another name in the header": lambda: renamed(b"README.txt", b"report.html"[:10], only="local"),
    "two entries over one file": overlapping,
    "more bytes than there are": oversized,
    "something before it": lambda: b"#!/bin/sh\n" + zipped(),
    "something behind it": lambda: zipped() + b"\n",
    "a second zip behind it": lambda: zipped() + zipped(),
    "no file": lambda: zipped(()),
    "a directory of a zip alone": lambda: zipped()[zipped().index(b"PK\x01\x02") :],
}


def test_what_the_cases_differ_from_is_read() -> None:
    assert list(verifier.open_container(zipped())) == list(NAMES)
    assert zipped() == container({name: b"x" for name in NAMES})


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_not_a_pack_is_refused_in_words(case: str) -> None:
    with pytest.raises(verifier.Refused) as refused:
        verifier.open_container(HOSTILE[case]())
    assert str(refused.value)


def test_the_bytes_follow_from_names_and_contents_alone() -> None:
    contents = {name: name.encode() for name in NAMES}
    made = container(contents)
    assert container(dict(reversed(contents.items()))) == made
    opened = verifier.open_container(made)
    assert opened == contents and container(opened) == made


def test_many_files_are_read_and_more_are_refused() -> None:
    blobs = {f"ledger/blobs/sha256/{at % 256:02x}/{at:064x}": b"" for at in range(MAX_FILES - 1)}
    began = time.process_time()
    assert len(verifier.open_container(container({**blobs, "pack.json": b""}))) == MAX_FILES
    assert time.process_time() - began < 60  # linear: 1 s on a quiet machine
    with pytest.raises(LedgerError, match="a pack holds"):
        container({**blobs, "pack.json": b"", "README.txt": b""})


def test_a_name_of_any_length_costs_nothing() -> None:
    name = b"ledger/tile/entries/" + b"x000/" * 13_000
    header = verifier.LOCAL.pack(
        b"PK\x03\x04", verifier.VERSION, 0, 0, 0, verifier.DAY, zlib.crc32(b""), 0, 0, len(name), 0
    )
    began = time.process_time()
    with pytest.raises(verifier.Refused, match="no such file belongs to a pack"):
        verifier.open_container(header + name)
    assert time.process_time() - began < 10
