"""Keys in an SSH agent: the real one signs what we verify, and no answer of another is believed."""

import copy
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from explorer.errors import ProvenanceError
from explorer.note import Algorithm, Signer, sign, verify
from explorer.provenance import agent
from explorer.provenance.agent import agent_key
from explorer.provenance.envelope import sign_envelope, signers
from explorer.provenance.keys import agent_name, is_encrypted, public_bytes, read_any, read_key
from tests.provenance.agents import Agent, needs_agent
from tests.provenance.people import private

KEY = private("a key in an agent")


@needs_agent
def test_a_real_agent_signs_what_we_verify(real_agent: Agent) -> None:
    fingerprint = real_agent.add(KEY, "trainer@example.com")
    for name in ("ssh-agent:", "ssh-agent:trainer@example.com", f"ssh-agent:{fingerprint}", fingerprint):
        key = agent_key(name)
        assert public_bytes(key) == public_bytes(KEY)
        assert key.sign(b"what is signed") == KEY.sign(b"what is signed")  # Ed25519 repeats itself


@needs_agent
def test_checkpoints_cosignatures_and_envelopes(real_agent: Agent, tmp_path: Path) -> None:
    real_agent.add(KEY, "trainer")
    key = read_key(Path("ssh-agent:trainer"), None)
    text = "example.com/log\n1\nq83vEjRWeJASNFZ4kBI0VniQEjRWeJASNFZ4kBI0Vng=\n"
    plain = Signer(name="example.com/log", algorithm=Algorithm.ED25519, private_key=key)
    assert verify(sign(text, plain), [plain.verifier])[0].verifier.public_key == public_bytes(KEY)
    witness = Signer(name="example.com/w", algorithm=Algorithm.COSIGNATURE, private_key=key)
    assert witness.verifier.check(text, witness.sign(text, time=7).blob) == 7
    envelope = sign_envelope(b"{}", "application/example", [key])
    assert signers(envelope, [public_bytes(KEY)]) == {public_bytes(KEY)}


@needs_agent
def test_a_key_file_may_name_a_key_in_an_agent(real_agent: Agent, tmp_path: Path) -> None:
    fingerprint = real_agent.add(KEY, "trainer")
    path = tmp_path / "trainer.pem"
    path.write_text(f"ssh-agent:{fingerprint}\n")
    with pytest.raises(ProvenanceError, match="others can read or write it"):
        read_key(path, None)
    path.chmod(0o600)
    assert not is_encrypted(path) and agent_name(path) == f"ssh-agent:{fingerprint}"
    assert public_bytes(read_key(path, None)) == public_bytes(KEY)
    with pytest.raises(ProvenanceError, match="a key in an SSH agent signs, and does nothing else"):
        read_any(path, None)


@needs_agent
def test_what_a_real_agent_refuses(real_agent: Agent) -> None:
    with pytest.raises(ProvenanceError, match="the agent has no key, or is locked"):
        agent_key("ssh-agent:trainer")
    fingerprint = real_agent.add(KEY, "trainer")
    key = agent_key("ssh-agent:trainer")
    with pytest.raises(ProvenanceError, match=rf"the agent has no such key; it has {fingerprint} 'trainer'"):
        agent_key("ssh-agent:trainr")
    real_agent.run("ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-C", "other", "-f", str(real_agent.place / "ecdsa"))
    real_agent.run("ssh-add", "-q", str(real_agent.place / "ecdsa"))
    with pytest.raises(ProvenanceError, match="a key of kind ecdsa-sha2-nistp256; expected ssh-ed25519"):
        agent_key("ssh-agent:other")
    assert public_bytes(agent_key("ssh-agent:")) == public_bytes(KEY)  # the only one that can be meant
    real_agent.add(private("a second"), "second")
    with pytest.raises(ProvenanceError, match="2 keys of the agent fit"):
        agent_key("ssh-agent:")
    real_agent.run("ssh-add", "-x")
    for ask in (lambda: agent_key("ssh-agent:trainer"), lambda: key.sign(b"x")):
        with pytest.raises(ProvenanceError, match="locked"):
            ask()
    real_agent.run("ssh-add", "-X")
    assert key.sign(b"x") == KEY.sign(b"x")
    real_agent.run("ssh-add", "-q", "-D")
    with pytest.raises(ProvenanceError, match="the agent did not sign: it is locked, lost the key, or"):
        key.sign(b"x")


def test_no_agent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(ProvenanceError, match="no SSH agent: SSH_AUTH_SOCK is not set"):
        agent_key("ssh-agent:trainer")
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "nobody"))
    with pytest.raises(ProvenanceError, match=r"cannot ask the SSH agent at .*nobody: No such file"):
        agent_key("ssh-agent:trainer")


def string(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


BLOB = string(b"ssh-ed25519") + string(public_bytes(KEY))
LIST = b"\x0c" + struct.pack(">I", 1) + string(BLOB) + string(b"mine")


def signed(data: bytes, key: Ed25519PrivateKey = KEY) -> bytes:
    return b"\x0e" + string(string(b"ssh-ed25519") + string(key.sign(data)))


Speak = Callable[..., None]


@pytest.fixture
def speaking(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Speak]:
    """An agent that says what it is told to: the raw bytes of its answers, one to a connection."""
    path = str(tmp_path_factory.mktemp("s") / "s")
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    monkeypatch.setenv("SSH_AUTH_SOCK", path)
    threads = []

    def speak(*answers: bytes) -> None:
        def serve() -> None:
            for answer in answers:
                connection, _ = server.accept()
                with connection:
                    size = struct.unpack(">I", connection.recv(4, socket.MSG_WAITALL))[0]
                    connection.recv(size, socket.MSG_WAITALL)
                    connection.sendall(answer)

        threads.append(threading.Thread(target=serve, daemon=True))
        threads[-1].start()

    yield speak
    for thread in threads:
        thread.join(600)
    server.close()


def test_the_protocol_byte_by_byte(speaking: Speak) -> None:
    speaking(string(LIST), string(signed(b"data")))
    assert agent_key("ssh-agent:mine").sign(b"data") == KEY.sign(b"data")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (struct.pack(">I", 2**31), "2147483648 bytes of answer; at most 262144 are read"),
        (struct.pack(">I", 0), "0 bytes of answer"),
        (b"\0\0", "it ended in the middle of an answer"),
        (b"", "it ended in the middle of an answer"),
        (string(LIST)[:-3], "it ended in the middle of an answer"),
        (string(b"\x05"), "does not say which keys it has"),
        (string(LIST[:-3]), "cut short"),
        (string(b"\x0c" + struct.pack(">I", 2**32 - 1) + LIST[5:]), "cut short"),
        (string(b"\x0c" + struct.pack(">I", 1) + string(string(b"ssh-ed25519")) + string(b"mine")), "has 1 fields"),
        (string(b"\x0c" + struct.pack(">I", 1) + string(BLOB[:-1]) + string(b"mine")), "cut short"),
        (
            string(b"\x0c" + struct.pack(">I", 1) + string(string(b"ssh-ed25519") + string(b"x")) + string(b"mine")),
            "expected 32 bytes",
        ),
    ],
)
def test_an_agent_that_says_nonsense(speaking: Speak, answer: bytes, message: str) -> None:
    speaking(answer)
    with pytest.raises(ProvenanceError, match=message):
        agent_key("ssh-agent:mine")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (signed(b"other data"), "is no signature of it"),
        (signed(b"data", private("somebody else")), "is no signature of it"),
        (b"\x0e" + string(string(b"ssh-ed25519") + string(b"")), "is no signature of it"),
        (b"\x0e" + string(string(b"ssh-ed25519")), "has 1 fields, expected 2"),
        (b"\x05", "the agent did not sign"),
    ],
)
def test_an_agent_that_signs_something_else(speaking: Speak, answer: bytes, message: str) -> None:
    speaking(string(LIST), string(answer))
    key = agent_key("ssh-agent:mine")
    with pytest.raises(ProvenanceError, match=message):
        key.sign(b"data")


def test_the_key_stays_where_it_is(speaking: Speak) -> None:
    speaking(string(LIST))
    key = agent_key("ssh-agent:mine")
    assert copy.copy(key) is key and copy.deepcopy(key) is key
    with pytest.raises(ProvenanceError, match="the key is in the agent, and stays there"):
        key.private_bytes_raw()
    with pytest.raises(ProvenanceError, match="the key is in the agent, and stays there"):
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def test_two_slashes_of_a_fingerprint_survive_a_path() -> None:
    """A path makes one of them; one fingerprint in sixty has two that follow each other."""
    number = next(at for at in range(5_000) if "//" in agent.Identity(bytes([at >> 8, at & 255]), "").fingerprint)
    identity = agent.Identity(bytes([number >> 8, number & 255]), "")
    through = str(Path(f"ssh-agent:{identity.fingerprint}")).removeprefix("ssh-agent:")
    assert through != identity.fingerprint
    assert agent._plain(through) == agent._plain(identity.fingerprint)


def test_the_control_of_the_signature_check() -> None:
    with pytest.raises(InvalidSignature):
        Ed25519PublicKey.from_public_bytes(public_bytes(KEY)).verify(KEY.sign(b"other data"), b"data")
