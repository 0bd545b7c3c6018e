"""Proof files that are refused, by the name of their fault, and what is said about each.

All are of entry 2 of the eight leaves of RFC 6962's test vectors, under the known answer of the log and witness keys
32 x 0x01 and 32 x 0x02. `python -m tests.ledger.bad_proofs` writes them to tests/ledger/bad/.
"""

import base64
from pathlib import Path

from explorer.merkle import leaf_hash, node_hash

DIRECTORY = Path(__file__).parent / "bad"

LEAVES = [
    bytes.fromhex(leaf)
    for leaf in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
LOG = "example.com/explorer-kat+8ba8fc7d+AYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c"
WITNESS = "witness.example/dg+675b1778+BIE5dw6ofRdfVqNUZsNMfszLjYqRtO43ol32D1uPybOU"
NOTE = """\
example.com/explorer-kat
8
XcnaeacGWamtVZy3Ad7ZoqudgjqtL0lgz+Nw7/RgQyg=

\u2014 example.com/explorer-kat i6j8fcDauy4nLkfRrC6RwUpn7FI9oInPlr7PU7+rkYA+2CjBuUgEMJTJvJ+1IGNQFHSjU69Q/AvcsAihH6nrK5iB8AA=
\u2014 witness.example/dg Z1sXeAAAAABlU/EAgcJ54weaGCLQp5iB78A154BDyiIzypFL17vUXCVa3mrXgZ/Nj8lbIRXzZPZ/VYFR1rG8LGsinbJdSShXhrVsAw==
"""  # noqa: E501


def _pair(left: int) -> bytes:
    return node_hash(leaf_hash(LEAVES[left]), leaf_hash(LEAVES[left + 1]))


HASHES = [leaf_hash(LEAVES[3]), _pair(0), node_hash(_pair(4), _pair(6))]
LINES = [base64.b64encode(hash_).decode() for hash_ in HASHES]
HEADER = "c2sp.org/tlog-proof@v1"
EXTRA = f"extra {base64.b64encode(LEAVES[2]).decode()}"
GOOD = "\n".join([HEADER, EXTRA, "index 2", *LINES, "", NOTE])


def _with(*lines: str, note: str = NOTE) -> str:
    return "\n".join([HEADER, *lines, "", note])


PROOFS: dict[str, tuple[bytes, str]] = {
    name: (text.encode(), message)
    for name, text, message in [
        ("empty", "", "not a proof: expected lines of ASCII, an empty line, and a checkpoint"),
        ("other_version", GOOD.replace("@v1", "@v2"), "the first line is 'c2sp.org/tlog-proof@v2', expected"),
        ("no_index", _with(EXTRA, *LINES), "expected a line 'index <decimal number>'"),
        ("index_before_extra", _with("index 2", EXTRA, *LINES), "hash 0 of the proof is not base64"),
        ("index_leading_zero", GOOD.replace("index 2", "index 02"), "expected a line 'index <decimal number>'"),
        ("index_negative", GOOD.replace("index 2", "index -2"), "expected a line 'index <decimal number>'"),
        ("index_beyond_the_tree", GOOD.replace("index 2", "index 8"), "entry 8 of 8: there is no such entry"),
        ("index_of_another_entry", GOOD.replace("index 2", "index 3"), "the inclusion proof of entry 3 fails"),
        ("hash_missing", _with(EXTRA, "index 2", *LINES[:2]), "the inclusion proof of entry 2 is too short: 2 hashes"),
        ("hash_too_many", _with(EXTRA, "index 2", *LINES, LINES[0]), "entry 2 is too long: 4 hashes for size 8"),
        ("hashes_in_another_order", _with(EXTRA, "index 2", *LINES[::-1]), "the inclusion proof of entry 2 fails"),
        ("hash_too_short", _with(EXTRA, "index 2", "AAAA", *LINES[1:]), "hash 0 of the proof has 3 bytes, expected 32"),
        ("hash_not_base64", _with(EXTRA, "index 2", "*" * 44, *LINES[1:]), "hash 0 of the proof is not base64"),
        (
            "hash_not_canonical",
            _with(EXTRA, "index 2", LINES[0][:-2] + chr(ord(LINES[0][-2]) + 1) + "=", *LINES[1:]),
            "hash 0 of the proof is not canonical base64",
        ),
        ("hashes_without_end", _with(EXTRA, "index 2", *(LINES[:1] * 64)), "a proof of 64 hashes; at most 63 are"),
        ("extra_not_base64", GOOD.replace(EXTRA, "extra ?"), "extra of the proof is not base64"),
        ("entry_altered", GOOD.replace(EXTRA, "extra EQ=="), "the inclusion proof of entry 2 fails"),
        ("entry_left_out", _with("index 2", *LINES), "the proof does not contain its entry: give the entry too"),
        ("no_checkpoint", _with(EXTRA, "index 2", *LINES, note=""), "not a signed note"),
        ("checkpoint_altered", GOOD.replace("kat\n8\n", "kat\n9\n"), "does not match the text"),
        ("checkpoint_unsigned", GOOD[: GOOD.index("\u2014")], "not a signed note"),
        ("not_ascii", GOOD.replace("index 2", "index \u0662"), "expected lines of ASCII"),
        ("windows_newlines", GOOD.replace("\n", "\r\n"), "expected lines of ASCII"),
        ("a_checkpoint_alone", NOTE, "the first line is 'example.com/explorer-kat', expected"),
    ]
}


def main() -> None:
    for name, (content, _) in PROOFS.items():
        (DIRECTORY / f"proof_{name}.tlog-proof").write_bytes(content)


if __name__ == "__main__":
    main()
