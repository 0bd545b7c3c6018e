"""Hostile input: variations of good files, drawn from a seed, so that every failure can be had again."""

import random
from collections.abc import Iterator, Sequence

MAX_INPUT = 8192
TOKENS = (
    *(
        b"\n",
        b"\n\n",
        b"\0",
        b"\xff",
        b"\xc3\x28",
        b"\xed\xa0\x80",
        b"\r\n",
        b"\xef\xbb\xbf",
        b"\xe2\x80\x94 ",
        b"+",
        b"==",
    ),
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b":",
        b",",
        b"\\ud800",
        b"null",
        b"true",
        b"NaN",
        b"Infinity",
        b"1e999",
        b"-0",
        b"0x1p-1074",
    ),
    *(
        b"9007199254740993",
        b"18446744073709551616",
        b"-1",
        b"1" * 400,
        b"[" * 200,
        b'{"a":' * 200,
        b"&a",
        b"*a",
        b"!!python/object",
    ),
    *(
        b"../",
        b"/etc/passwd",
        b"%s",
        b"2026-02-30T00:00:00Z",
        b"9999-12-31T23:59:59Z",
        b"quarantine",
        b"\x00" * 32,
        b"\xff\xff",
    ),
)


def inputs(seeds: Sequence[bytes], *, count: int, seed: int) -> Iterator[bytes]:
    """`count` variations of the `seeds`: one to six changes each, at most a few kilobytes."""
    draw = random.Random(seed)
    for _ in range(count):
        content = bytearray(draw.choice(seeds))
        for _ in range(draw.choice((1, 1, 1, 2, 3, 6))):
            _change(content, draw, seeds)
        yield bytes(content[:MAX_INPUT])


def _change(content: bytearray, draw: random.Random, seeds: Sequence[bytes]) -> None:
    at = draw.randrange(len(content) + 1)
    to = min(len(content), at + draw.choice((1, 1, 2, 4, 8, 40)))
    match draw.randrange(8):
        case 0 if content:
            content[min(at, len(content) - 1)] ^= 1 << draw.randrange(8)
        case 1 if content:
            content[min(at, len(content) - 1)] = draw.randrange(256)
        case 2:
            del content[at:to]
        case 3:
            content[at:at] = content[at:to] * draw.choice((1, 2, 30))
        case 4:
            content[at:to] = draw.choice(TOKENS)
        case 5:
            content[at:at] = draw.choice(TOKENS)
        case 6:
            del content[at:]
        case _:
            other = draw.choice(seeds)
            start = draw.randrange(len(other) + 1)
            content[at:to] = other[start : start + draw.choice((1, 8, 64))]
