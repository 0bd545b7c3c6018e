"""Kills an appending process again and again and checks what is left: `python killing.py DIRECTORY ROUNDS SEED`.

A process of its own, without threads, so that it can fork the processes that it kills.
"""

import os
import random
import signal
import sys
import time
from itertools import count
from pathlib import Path
from typing import NamedTuple

from explorer import merkle, note
from explorer.ledger.log import Log
from explorer.ledger.storage import LedgerDirectory
from tests.ledger.signers import ORIGIN, entry, signer

RESTART = 25  # rounds in one ledger


class Seen(NamedTuple):
    """A checkpoint that a commit returned."""

    size: int
    root: bytes


def append_for_ever(directory: Path, pipe: int, pick: random.Random) -> None:
    """Open, then append and commit in steps of all sizes; tell of every commit that has returned."""
    with Log.open(directory, signer=signer()) as log:
        for _ in count():
            step = pick.choice((1, 2, 30, 255, 256, 257, 700))
            log.append(entry(number) for number in range(log.size, log.size + step))
            done = log.commit()
            os.write(pipe, done.size.to_bytes(8, "big") + done.root)


def killed(directory: Path, pick: random.Random) -> list[Seen]:
    """Let a process append, kill it some time after some of its commits, and return those that it told of."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        append_for_ever(directory, writing, pick)
        os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        told = file.read(40 * pick.choice((0, 0, 1, 2, 5)))
        time.sleep(pick.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL, "it was still appending"
        told += file.read()
    return [Seen(int.from_bytes(told[at : at + 8], "big"), told[at + 8 : at + 40]) for at in range(0, len(told), 40)]


def check(directory: Path, acknowledged: list[Seen], before: Seen) -> Seen:
    """What is on the disk before anybody repairs it: signed, whole, and extending all that was acknowledged."""
    found = LedgerDirectory(directory)
    note.verify(found.note(), [signer().verifier])
    now = Seen(found.checkpoint().size, found.checkpoint().root)
    assert merkle.root(now.size, found.read_hashes) == now.root
    for old in (before, *acknowledged):
        assert old.size <= now.size, f"{old.size} entries were acknowledged, {now.size} are there"
        assert merkle.root(old.size, found.read_hashes) == old.root
        proof = merkle.prove_consistency(old.size, now.size, found.read_hashes)
        merkle.check_consistency(proof, old_size=old.size, old_root=old.root, new_size=now.size, new_root=now.root)
    for number, content in enumerate(found.entries(before.size), before.size):
        assert content == entry(number)
    return now


def check_all(directory: Path, now: Seen) -> None:
    """Every entry, and the root over them."""
    leaves = [merkle.leaf_hash(content) for content in LedgerDirectory(directory).entries()]
    assert leaves == [merkle.leaf_hash(entry(number)) for number in range(now.size)]
    assert merkle.root_of(leaves) == now.root


def main(root: Path, rounds: int, seed: int) -> None:
    pick = random.Random(seed)
    commits, aside, directory = 0, 0, root
    now = Seen(0, merkle.EMPTY_ROOT)
    for number in range(rounds):
        if number % RESTART == 0:
            directory, now = root / str(number), Seen(0, merkle.EMPTY_ROOT)
            Log.create(directory, origin=ORIGIN, signer=signer()).close()
        acknowledged = killed(directory, pick)
        commits += len(acknowledged)
        now = check(directory, acknowledged, now)
        if number % RESTART == RESTART - 1 or number == rounds - 1:
            with Log.open(directory, signer=signer()) as log:  # the last one goes on in peace
                log.append(entry(number) for number in range(log.size, log.size + 10))
            now = check(directory, [], now)
            check_all(directory, now)
            aside += len(list((directory / "unsigned").glob("*")))
    print(f"{rounds} kills, {commits} commits acknowledged, {aside} times something was set aside")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
