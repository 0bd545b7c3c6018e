"""A witness over HTTP and the client that asks it: known answers, every status, races, crashes; over real sockets."""

import base64
import gzip
import http.client
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from explorer import merkle, note
from explorer.errors import LedgerError
from explorer.ledger import web
from explorer.ledger.cosign import Memory, checkpoint_name
from explorer.ledger.log import Log
from explorer.ledger.signed_checkpoint import Checkpoint, parse_checkpoint
from explorer.ledger.storage import note_name, read_checkpoint
from explorer.ledger.trust_anchor import Anchor, anchor_of
from explorer.ledger.web import Answer, Client
from explorer.ledger.witness import MAX_BODY, MAX_HASHES, TRIES, Request, Witness, parse_request, start, submit
from explorer.note import Algorithm, Note
from tests.ledger.ledgers import DG, LOG, NOW, both, check, grow, make, policy
from tests.ledger.signers import ORIGIN, entry, signer

PACKED = {"Content-Encoding": "gzip"}
LEAVES = [merkle.leaf_hash(entry(number)) for number in range(1_000)]
KAT_LEAVES = [b"", b"\x00", b"\x10", b"\x20\x21", b"\x30\x31", b"\x40\x41\x42\x43",
              b"\x50\x51\x52\x53\x54\x55\x56\x57", bytes.fromhex("606162636465666768696a6b6c6d6e6f")]  # fmt: skip


def root(size: int) -> bytes:
    return merkle.root_of(LEAVES[:size])


def proof(old: int, new: int) -> tuple[bytes, ...]:
    """A consistency proof out of the leaves, by RFC 6962, 2.1.2, written down anew."""

    def sub(low: int, high: int, m: int, whole: bool) -> list[bytes]:
        size = high - low
        if m == size:
            return [] if whole else [merkle.root_of(LEAVES[low:high])]
        split = 1 << (size - 1).bit_length() - 1
        if m <= split:
            return [*sub(low, low + split, m, whole), merkle.root_of(LEAVES[low + split : high])]
        return [*sub(low + split, high, m - split, False), merkle.root_of(LEAVES[low : low + split])]

    return tuple(sub(0, new, old, True)) if 0 < old < new else ()


def asked(old: int, size: int, *, key: note.Signer = LOG, origin: str = ORIGIN, root_: bytes | None = None) -> Request:
    """A request for a checkpoint over the first `size` leaves."""
    checkpoint = Checkpoint(origin=origin, size=size, root=root(size) if root_ is None else root_)
    return Request(old=old, hashes=proof(old, size), note=note.sign(checkpoint.text, key), checkpoint=checkpoint)


def witness(state: Path, *, clock: Callable[[], int] = lambda: NOW, anchor: Anchor | None = None) -> Witness:
    return Witness(Memory(state, DG), lambda origin: anchor or policy(), clock)


@contextmanager
def running(answering: Witness) -> Iterator[str]:
    """The witness as a server; its URL."""
    server = start(answering, 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_the_known_answer(tmp_path: Path) -> None:
    """The checkpoint and cosignature that the package specifies, byte for byte, through the protocol."""
    log = signer(1, name="example.com/explorer-kat")
    key = signer(2, name="witness.example/dg", algorithm=Algorithm.COSIGNATURE)
    text = Checkpoint(origin=log.name, size=8, root=merkle.root_of(map(merkle.leaf_hash, KAT_LEAVES))).text
    answering = Witness(Memory(tmp_path, key), lambda origin: anchor_of([log.verifier.vkey]), lambda: 1_700_000_000)
    answer = answering.respond("POST", "/add-checkpoint", b"old 0\n\n" + note.sign(text, log).content)
    assert answer.status == 200
    assert answer.body.decode() == (
        "\u2014 witness.example/dg Z1sXeAAAAABlU/EAgcJ54weaGCLQp5iB78A154BDyiIzypFL17vUXCVa3mrX"
        "gZ/Nj8lbIRXzZPZ/VYFR1rG8LGsinbJdSShXhrVsAw==\n"
    )
    place = f"/{checkpoint_name(log.name)}/checkpoint"
    assert (
        answering.respond("GET", place, b"").body.decode()
        == note.sign(text, log).content.decode() + answer.body.decode()
    )


def test_the_example_of_the_specification_is_read() -> None:
    body = """old 20852014
PlRNCrwHpqhGrupue0L7gxbjbMiKA9temvuZZDDpkaw=
jrJZDmY8Y7SyJE0MWLpLozkIVMSMZcD5kvuKxPC3swk=
5+pKlUdi2LeF/BcMHBn+Ku6yhPGNCswZZD1X/6QgPd8=
/6WVhPs2CwSsb5rYBH5cjHV/wSmA79abXAwhXw3Kj/0=

example.com/behind-the-sofa
20852163
CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

\u2014 example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=
\u2014 example.com/behind-the-sofa opLqBQsREYCgu6xQkYQwJr9fo45a62DN9EdmHXnZdXNqlcVGlCum2Wks+49/V6267UEjw6QUXTS5Rovnzv++qbSzm9Q=
""".encode()  # noqa: E501
    found = parse_request(body)
    assert (found.old, len(found.hashes), found.checkpoint.size, len(found.note.signatures)) == (
        20852014,
        4,
        20852163,
        2,
    )
    assert found.content == body


def test_every_step_from_size_to_size(tmp_path: Path) -> None:
    """The proofs are written down anew here; the control after each: the same with one hash changed."""
    sizes = (0, 1, 2, 3, 8, 255, 256, 300, 301, 301, 513)
    answering = witness(tmp_path)
    old = 0
    for size in sizes:
        right = asked(old, size)
        if right.hashes:
            wrong = replace(right, hashes=(*right.hashes[:-1], bytes(32)))
            assert answering.add(wrong.content).status == 422
        answer = answering.add(right.content)
        assert answer.status == 200, answer.body
        signed = note.parse(f"{right.note.text}\n".encode() + answer.body)
        assert [each.time for each in note.verify(signed, [DG.verifier])] == [NOW]
        old = size


BAD = {
    "nothing": (b"", 400),
    "no old size": (b"\n\n", 400),
    "a leading zero": (asked(0, 8).content.replace(b"old 0", b"old 00"), 400),
    "a sign": (asked(0, 8).content.replace(b"old 0", b"old +0"), 400),
    "old larger than new": (asked(9, 8).content, 400),
    "not base64": (asked(0, 8).content.replace(b"old 0\n", b"old 0\n!\n"), 400),
    "a short hash": (asked(0, 8).content.replace(b"old 0\n", b"old 0\nAAAA\n"), 400),
    "too many hashes": (
        asked(0, 8).content.replace(b"old 0\n", b"old 0\n" + (base64.b64encode(bytes(32)) + b"\n") * (MAX_HASHES + 1)),
        400,
    ),
    "no checkpoint": (b"old 0\n\n" + note.sign("hello\n", LOG).content, 400),
    "a damaged note": (asked(0, 8).content[:-3], 400),
    "another log": (asked(0, 8, origin="example.com/other").content, 404),
    "another log's origin with a space": (asked(0, 8, origin="go.sum database tree", key=signer(7)).content, 403),
    "an unknown key": (asked(0, 8, key=signer(7)).content, 403),
    "a bad signature of a known key": (
        replace(asked(0, 8), note=Note(text=asked(0, 8).note.text, signatures=asked(0, 9).note.signatures)).content,
        403,
    ),
    "a proof where none is needed": (asked(0, 8).content.replace(b"old 0\n", b"old 0\n" + b"A" * 43 + b"=\n"), 422),
    "another size": (asked(3, 8).content, 409),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_is_answered_with_its_status_and_remembered_by_nobody(tmp_path: Path, name: str) -> None:
    body, status = BAD[name]
    answering = witness(tmp_path)
    assert answering.add(body).status == status
    assert not list(tmp_path.rglob("*.note"))
    assert answering.add(asked(0, 8).content).status == 200


def test_what_contradicts_the_memory_is_refused(tmp_path: Path) -> None:
    answering = witness(tmp_path)
    assert answering.add(asked(0, 300).content).status == 200
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.note")}
    stale = answering.add(asked(0, 300).content)
    assert (stale.status, stale.body, stale.content_type) == (409, b"300\n", "text/x.tlog.size")
    assert answering.add(asked(300, 300, root_=bytes(32)).content).status == 422
    assert answering.add(asked(300, 513, root_=bytes(32)).content).status == 422
    assert answering.add(asked(8, 200).content).status == 409
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.note")} == before
    assert answering.add(asked(300, 300).content).status == 200


def test_lines_of_strangers_are_not_remembered(tmp_path: Path) -> None:
    """100 of them and the own line would be more than is read in a note: the memory would be of no use."""
    answering, request = witness(tmp_path), asked(0, 8)
    strangers = [signer(9, name=f"s{number}").sign(request.note.text) for number in range(99)]
    full = replace(request, note=note.with_signatures(request.note, strangers))
    assert answering.add(full.content).status == 200
    assert answering.add(asked(8, 9).content).status == 200
    for path in tmp_path.rglob("*.note"):
        assert [line.name for line in note.parse(path.read_bytes()).signatures] == [ORIGIN, DG.name]


def test_a_clock_that_was_set_back_signs_nothing(tmp_path: Path) -> None:
    times = iter([NOW, NOW - 1, NOW])
    answering = witness(tmp_path, clock=lambda: next(times))
    with running(answering) as url:
        client = Client(url)
        assert client.ask("POST", "add-checkpoint", asked(0, 8).content, max_bytes=999).status == 200
        answer = client.ask("POST", "add-checkpoint", asked(8, 9).content, max_bytes=999)
        assert answer.status == 500 and b"the clock was set back" in answer.body
        assert client.ask("POST", "add-checkpoint", asked(8, 9).content, max_bytes=999).status == 200
        client.close()


def test_requests_at_the_same_time_never_roll_back_and_never_fork(tmp_path: Path) -> None:
    """Many threads over real sockets: at each old size one checkpoint at most is cosigned."""
    with running(witness(tmp_path)) as url:

        def climb(number: int) -> list[tuple[int, int]]:
            client, old, done = Client(url), 0, []
            for step in range(12):
                size = min(999, old + 1 + (number * 7 + step * 3) % 40)
                answer = client.ask("POST", "add-checkpoint", asked(old, size).content, max_bytes=999)
                assert answer.status in (200, 409), answer
                if answer.status == 200:
                    done.append((old, size))
                    old = size
                else:
                    assert int(answer.body) > old
                    old = int(answer.body)
            client.close()
            return done

        with ThreadPoolExecutor(6) as pool:
            steps = [step for steps in pool.map(climb, range(6)) for step in steps]
    forward = {old: size for old, size in steps if size > old}
    assert len(forward) == len([step for step in steps if step[1] > step[0]]), "one next checkpoint after each"
    at = 0
    while at in forward:
        at = forward[at]
    (held,) = [path for path in tmp_path.rglob("*.note") if path.name != "latest.note"]
    assert parse_checkpoint(note.parse(held.read_bytes()).text).size == at == max(forward.values())


def test_without_the_lock_the_same_requests_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: two checkpoints of one size, both let through between looking and remembering."""
    answering, together = witness(tmp_path), threading.Barrier(2)
    look = Memory.last

    def slow(memory: Memory, origin: str) -> Note | None:
        found = look(memory, origin)
        together.wait()
        return found

    monkeypatch.setattr(Memory, "last", slow)

    class Open(Memory):
        @contextmanager
        def exclusive(self) -> Iterator[None]:
            yield

        def cosign(self, checkpoint_note: Note, now: int) -> Note:
            return note.with_signatures(checkpoint_note, [DG.sign(checkpoint_note.text, time=now)])

    answering = Witness(Open(tmp_path, DG), lambda origin: policy(), lambda: NOW)
    bodies = [asked(0, 8).content, asked(0, 8, root_=bytes(32)).content]
    with ThreadPoolExecutor(2) as pool:
        assert [answer.status for answer in pool.map(answering.add, bodies)] == [200, 200]


KILLED = """
import os, signal, sys
from pathlib import Path
from explorer.ledger import witness
from tests.ledger.test_witness_http import running, asked, DG, NOW, policy
from explorer.ledger.cosign import Memory
from explorer.ledger.witness import Witness, start
class Dying(Witness):
    def add(self, body):
        answer = super().add(body)
        if answer.status == 200 and sys.argv[2] == "die":
            os.kill(os.getpid(), signal.SIGKILL)  # remembered, and not yet answered
        return answer
server = start(Dying(Memory(Path(sys.argv[1]), DG), lambda origin: policy(), lambda: NOW), 0)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def killed(state: Path, how: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-c", KILLED, str(state), how]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    assert process.stdout is not None
    return process, f"http://127.0.0.1:{process.stdout.readline().strip()}"


def test_a_witness_that_is_killed_before_it_answers_remembers(tmp_path: Path) -> None:
    """kill -9 between persisting and answering: another history is refused afterwards, the same one gets its line."""
    process, url = killed(tmp_path / "state", "die")
    with process:
        client = Client(url)
        with pytest.raises(web.UnreachableError):
            client.ask("POST", "add-checkpoint", asked(0, 300).content, max_bytes=999)
        client.close()
        assert process.wait(600) == -signal.SIGKILL
    answering = witness(tmp_path / "state")
    assert answering.add(asked(0, 200).content).body == b"300\n"
    assert answering.add(asked(300, 300, root_=bytes(32)).content).status == 422
    assert answering.add(asked(300, 301).content).status == 200
    ledger = make(tmp_path / "ledger", 301)
    with running(answering) as url:
        client = Client(url)
        (done,) = submit(ledger, client, anchor=both(), sleep=lambda seconds: None)
        client.close()
    assert done.verified.verifier == DG.verifier


def test_what_is_answered_was_flushed_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: flushed.append(str(Path(f"/proc/self/fd/{number}").readlink())))
    assert witness(tmp_path).add(asked(0, 8).content).status == 200
    notes = [Path(path) for path in flushed if path.endswith(".tmp")]
    assert {path.name.split(".")[1] for path in notes} == {"latest", checkpoint_name(ORIGIN)}
    assert str(notes[0].parent) in flushed


def test_a_ledger_is_cosigned_over_http(tmp_path: Path) -> None:
    ledger = make(tmp_path / "ledger", 5, 300)
    with running(witness(tmp_path / "state")) as url:
        client = Client(f"{url}/")
        (done,) = submit(ledger, client, anchor=both())
        assert (done.verified.time, done.checkpoint.size) == (NOW, 300)
        found = check(ledger, anchor=policy("dg.example"))
        assert found.ok and found.judgement and [each.time for each in found.judgement.cosignatures] == [NOW]
        submit(ledger, client, anchor=both())
        grow(ledger, [entry(number) for number in range(300, 700)])
        assert submit(ledger, client, anchor=both())[0].checkpoint.size == 700
        done.path.unlink()
        assert submit(ledger, client, anchor=both())[0].checkpoint.size == 700, "it knows no old size and is told"
        place = f"{checkpoint_name(ORIGIN)}/checkpoint"
        held = note.parse(client.ask("GET", place, max_bytes=9_999).body)
        assert held.text == read_checkpoint(ledger)[0].text
        assert client.ask("GET", f"{'0' * 64}/checkpoint", max_bytes=999).status == 404
        assert client.ask("GET", "add-checkpoint", max_bytes=999).status == 405
        assert client.ask("GET", "etc/passwd", max_bytes=999).status == 404
        client.close()


def test_what_a_witnesss_note_here_says_is_only_a_guess(tmp_path: Path) -> None:
    """A note that is no checkpoint, or of another size than the witness has: it corrects the client."""
    ledger = make(tmp_path / "ledger", 300)
    (ledger / "witness").mkdir()
    place = ledger / "witness" / note_name(DG.verifier)
    with running(witness(tmp_path / "state")) as url, closing(Client(url)) as client:
        for text in ("hello\n", asked(0, 8).note.text, asked(0, 999).note.text):
            place.write_bytes(note.sign(text, DG_PLAIN).content)
            (done,) = submit(ledger, client, anchor=both())
            assert done.path == place and done.checkpoint.size == 300
    assert check(ledger, anchor=policy("dg.example")).ok


DG_PLAIN = signer(2, name="dg.example")


def test_a_fork_and_a_roll_back_are_told_to_the_client(tmp_path: Path) -> None:
    ledger, older = make(tmp_path / "ledger", 300), make(tmp_path / "older", 200)
    fork = tmp_path / "fork"
    with Log.create(fork, origin=ORIGIN, signer=LOG) as log:
        log.append(b"other %d" % number for number in range(400))
    with running(witness(tmp_path / "state")) as url:
        client = Client(url)
        submit(ledger, client, anchor=both())
        with pytest.raises(
            LedgerError, match=r"has cosigned 300 entries of example\.com/run, but 200 are here: .* rolled"
        ):
            submit(older, client, anchor=both())
        with pytest.raises(LedgerError, match="refused with status 422"):
            submit(fork, client, anchor=both())
        client.close()
    assert not (fork / "witness").exists() and not (older / "witness").exists()


@contextmanager
def answering(*answers: Answer) -> Iterator[tuple[Client, list[str]]]:
    """A server that gives these answers in turn, the last one for ever; and what was asked."""
    requests: list[str] = []

    def respond(method: str, path: str, body: bytes) -> Answer:
        requests.append(body.decode().partition("\n")[0])
        return answers[min(len(requests), len(answers)) - 1]

    server = web.serve(0, respond, max_body=MAX_BODY)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    client = Client(f"http://127.0.0.1:{server.server_address[1]}", timeout=20)
    try:
        yield client, requests
    finally:
        client.close()
        server.shutdown()
        server.server_close()
        thread.join()


def size_is(size: int) -> Answer:
    return Answer(status=409, body=f"{size}\n".encode(), content_type="text/x.tlog.size")


def test_what_may_pass_is_tried_again_with_longer_waits(tmp_path: Path) -> None:
    ledger, waits = make(tmp_path / "ledger", 300), list[float]()
    line = DG.sign(read_checkpoint(ledger)[0].text, time=NOW).line
    good = Answer(status=200, body=f"{line}\n".encode())
    with answering(Answer(status=503), size_is(5), size_is(7), Answer(status=500), good) as (client, requests):
        submit(ledger, client, anchor=both(), sleep=waits.append)
    assert requests == ["old 0", "old 0", "old 5", "old 7", "old 7"]
    assert len(waits) == 2 and waits[1] > waits[0]


def test_a_witness_that_never_agrees_is_given_up(tmp_path: Path) -> None:
    ledger, waits = make(tmp_path / "ledger", 300), list[float]()
    with answering(size_is(5), size_is(7), size_is(5)) as (client, requests):
        with pytest.raises(LedgerError, match=f"tried {TRIES} times"):
            submit(ledger, client, anchor=both(), sleep=waits.append)
        assert len(requests) == TRIES and waits
    with answering(Answer(status=503, body=b"come back \x1b[31mlater")) as (client, requests):
        with pytest.raises(LedgerError, match="refused with status 503: come back"):
            submit(ledger, client, anchor=both(), sleep=waits.append)
        assert len(requests) == TRIES


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(status=200), "not the cosignature of a known witness"),
        (Answer(status=200, body=b"\xff"), "not the cosignature of a known witness"),
        (
            Answer(status=200, body=f"{DG.sign('another' + chr(10), time=NOW).line}\n".encode()),
            "does not match the text",
        ),
        (Answer(status=200, body=f"{signer(9, name='x').sign('x' + chr(10)).line}\n".encode()), "no trusted key has"),
        (Answer(status=200, body=bytes(200_000)), "too long: expected at most 100000 bytes"),
        (Answer(status=200, body=b"x", headers={"Content-Encoding": "br"}), "in the encoding 'br'"),
        (Answer(status=200, body=b"not packed", headers=PACKED), "not gzip"),
        (Answer(status=200, body=gzip.compress(b"x")[:-2], headers=PACKED), "ends too early"),
        (
            Answer(status=200, body=gzip.compress(bytes(10**7)), headers=PACKED),
            "expected at most 100000",
        ),
        (Answer(status=302, body=b"", headers={"Location": "http://127.0.0.1/"}), "refused with status 302"),
        (Answer(status=403, body=b"no \x1b[31mtrusted key"), "refused with status 403: no"),
        (Answer(status=409, body=b"many\n"), "refused the size: found 'many'"),
        (Answer(status=409, body=b"9" * 30), "refused the size"),
        (size_is(301), "rolled back, or is an older copy"),
    ],
)
def test_a_bad_answer_is_one_clear_error_and_writes_nothing(tmp_path: Path, answer: Answer, said: str) -> None:
    ledger = make(tmp_path / "ledger", 300)
    with answering(answer) as (client, _), pytest.raises(LedgerError, match=said):
        submit(ledger, client, anchor=both(), sleep=lambda seconds: None)
    assert not (ledger / "witness").exists()


def test_nothing_is_sent_of_a_ledger_that_is_damaged_or_not_the_logs(tmp_path: Path) -> None:
    ledger = make(tmp_path / "ledger", 300)
    with answering(Answer(status=500)) as (client, requests):
        with pytest.raises(LedgerError, match="no trusted key has signed"):
            submit(ledger, client, anchor=anchor_of([signer(7).verifier.vkey, DG.verifier.vkey]))
        with pytest.raises(LedgerError, match="no witness is trusted"):
            submit(ledger, client, anchor=anchor_of([LOG.verifier.vkey]))
        (ledger / "tile/0/001.p/44").write_bytes(bytes(44 * 32))
        with pytest.raises(LedgerError, match="its tiles lead to root"):
            submit(ledger, client, anchor=both())
        assert requests == []


def test_a_server_that_says_nothing_is_left_after_the_time_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.2)
        with pytest.raises(web.UnreachableError, match="no answer"):
            client.ask("GET", "checkpoint", max_bytes=999)


def test_a_server_that_hangs_up_is_tried_again(tmp_path: Path) -> None:
    ledger, accepted = make(tmp_path / "ledger", 3), list[int]()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            for turn in range(TRIES):
                server.accept()[0].close()
                accepted.append(turn)

        thread = threading.Thread(target=hang_up)
        thread.start()
        client = Client(f"http://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(web.UnreachableError, match="no answer"):
            submit(ledger, client, anchor=both(), sleep=lambda seconds: None)
        thread.join()
    assert len(accepted) == TRIES


def test_an_answer_that_drips_is_left_when_the_time_is_over(tmp_path: Path) -> None:
    """Each byte comes in time, and the answer never ends."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while not stop.wait(0.02):
                    connection.sendall(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        client = Client(f"http://127.0.0.1:{server.getsockname()[1]}", timeout=1)
        with pytest.raises(web.UnreachableError, match="not finished after 1 seconds"):
            client.ask("GET", "checkpoint", max_bytes=10**6)
        stop.set()
        thread.join()


def self_signed(place: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that nobody vouches for, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    begins = datetime(2020, 1, 1, tzinfo=UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(datetime(2099, 1, 1, tzinfo=UTC))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    place.joinpath("cert.pem").write_bytes(made.public_bytes(Encoding.PEM))
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    place.joinpath("key.pem").write_bytes(plain)
    return place / "cert.pem", place / "key.pem"


def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the control: the same server is taken once the system vouches for it."""
    certificate, key = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = start(witness(tmp_path / "state"), 0)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        url = f"https://127.0.0.1:{server.server_address[1]}"
        with closing(Client(url)) as client, pytest.raises(web.UnreachableError, match="certificate verify failed"):
            client.ask("POST", "add-checkpoint", asked(0, 8).content, max_bytes=999)
        assert not list(tmp_path.rglob("*.note"))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with closing(Client(url)) as client:
            assert client.ask("POST", "add-checkpoint", asked(0, 8).content, max_bytes=999).status == 200
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    "url",
    ["", "witness.example", "ftp://witness.example", "https://", "https://a b/", "https://user@x/", "https://x/?q", "file:///x",
     "https://x:99999/", "https://x\n/", "http://witness.example/", "http://10.0.0.1/", "http://localhost.evil.example/"],
)  # fmt: skip
def test_a_url_that_cannot_be_used(url: str) -> None:
    with pytest.raises(LedgerError, match=r"not a URL|http to another machine"):
        Client(url)


def test_http_is_taken_for_this_machine_and_where_that_is_asked_for() -> None:
    for url in ("http://127.0.0.1:1", "http://localhost/x", "http://[::1]/", "https://witness.example/prefix/"):
        Client(url)
    Client("http://witness.example", plain=True)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /add-checkpoint HTTP/1.1\r\nHost: x\r\n\r\n", 411),
        (b"POST /add-checkpoint HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 411),
        (b"POST /add-checkpoint HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"POST /add-checkpoint HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"DELETE / HTTP/1.1\r\nHost: x\r\n\r\n", 501),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"nonsense\r\n\r\n", 400),
    ],
)
def test_a_strange_request_is_refused_by_the_server(tmp_path: Path, request_: bytes, status: int) -> None:
    with running(witness(tmp_path)) as url:
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=600) as connection:
            connection.sendall(request_)
            answer = http.client.HTTPResponse(connection)
            if request_.startswith(b"nonsense"):
                assert b"400" in connection.recv(1_000)
            else:
                answer.begin()
                assert answer.status == status
        client = Client(url)
        assert client.ask("POST", "add-checkpoint", asked(0, 8).content, max_bytes=999).status == 200, "it goes on"
        client.close()
