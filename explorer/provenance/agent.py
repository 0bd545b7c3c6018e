"""Keys in an SSH agent: this process asks the agent to sign, over the socket in SSH_AUTH_SOCK, and never sees a key.

The protocol is draft-ietf-sshm-ssh-agent: a message is its length as u32, a type, and fields; a string in it is its
length as u32 and its bytes, all big-endian. Two requests are enough,

    11  request identities            12  u32 number, then for each: string key blob, string comment
    13  sign: string key blob,        14  string signature: string "ssh-ed25519", string of 64 bytes
        string data, u32 flags         5  failure

and the answer holds RFC 8032's signature over the data (RFC 8709), so that verifiers see no difference. A key is named
by its fingerprint as `ssh-add -l` prints it, by its comment, or not at all if the agent has only one:

    ssh-agent:SHA256:cyrQ8tUwqEUlxkJ6fyONeGKdJ3TdyIu3Ux5bkSLNOkw    ssh-agent:trainer@example.com    ssh-agent:

In names, repeated slashes count as one, since a path may have lost some. Replies are bounded, and a signature is
checked before it is used.
"""

import base64
import hashlib
import os
import re
import socket
import struct
from typing import NamedTuple, NoReturn, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from explorer.errors import ProvenanceError

PREFIX = "ssh-agent:"
SOCKET = "SSH_AUTH_SOCK"
MAX_REPLY = 2**18  # as OpenSSH bounds its own messages
PATIENCE = 120.0  # seconds: an agent may ask its user to confirm, or to touch a token
_ED25519 = b"ssh-ed25519"


class Identity(NamedTuple):
    """A key that an agent has."""

    blob: bytes  # as the protocol names it
    comment: str

    @property
    def fingerprint(self) -> str:
        """The fingerprint as `ssh-add -l` prints it."""
        return f"SHA256:{base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip('=')}"

    @property
    def kind(self) -> str:
        """The algorithm's name, such as ssh-ed25519."""
        return b"".join(_strings(self.blob)[:1]).decode(errors="replace")


class AgentKey(Ed25519PrivateKey):
    """A private key that signs like others but cannot leave its agent."""

    def __init__(self, identity: Identity, path: str) -> None:
        self._identity, self._path = identity, path
        self._public = Ed25519PublicKey.from_public_bytes(_strings(identity.blob)[1])

    def public_key(self) -> Ed25519PublicKey:
        return self._public

    def sign(self, data: object) -> bytes:
        """Sign. Raises `ProvenanceError` if the agent refuses, or answers with anything but a signature by the key."""
        content = bytes(memoryview(data))  # pyright: ignore[reportArgumentType]
        question = b"\x0d" + _string(self._identity.blob) + _string(content) + bytes(4)
        kind, body = _asked(self._path, question)
        if kind != 14:
            raise ProvenanceError(f"{self}: the agent did not sign: it is locked, lost the key, or its user refused")
        algorithm, signature = _strings(_strings(body, 1)[0], 2)
        # An agent is another program, perhaps on another machine: what it returns is verified like any signature.
        try:
            self._public.verify(signature, content)
        except InvalidSignature as error:
            raise ProvenanceError(f"{self}: the agent's answer, {algorithm!r:.40}, is no signature of it") from error
        return signature

    def __str__(self) -> str:
        return f"{PREFIX}{self._identity.fingerprint}"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self

    def private_bytes_raw(self) -> NoReturn:
        raise ProvenanceError(f"{self}: the key is in the agent, and stays there")

    def private_bytes(self, encoding: object, format: object, encryption_algorithm: object) -> NoReturn:
        self.private_bytes_raw()


def agent_key(name: str) -> AgentKey:
    """Return the agent's key of this name, with or without `PREFIX`.

    Raises `ProvenanceError` that lists the agent's keys if not exactly one fits.
    """
    path, wanted = _socket(), _plain(name.removeprefix(PREFIX))
    identities = _identities(path)
    if not identities:
        raise ProvenanceError(f"{PREFIX}{wanted}: the agent has no key, or is locked: `ssh-add FILE`, or `ssh-add -X`")
    # By fingerprint or comment; without a name, the only key that can sign here.
    fitting = [
        identity
        for identity in identities
        if not wanted or wanted in (_plain(identity.fingerprint), _plain(identity.comment))
    ]
    if not wanted:
        fitting = [identity for identity in fitting if identity.kind == _ED25519.decode()] or fitting
    there = ", ".join(
        f"{identity.fingerprint} {identity.comment!r:.40} ({identity.kind})" for identity in identities[:5]
    )
    if len(fitting) != 1:
        what = f"{len(fitting)} keys of the agent fit" if fitting else "the agent has no such key"
        raise ProvenanceError(f"{PREFIX}{wanted}: {what}; it has {there}")
    if fitting[0].kind != _ED25519.decode():
        raise ProvenanceError(f"{PREFIX}{wanted}: a key of kind {fitting[0].kind}; expected {_ED25519.decode()}")
    if len(_strings(fitting[0].blob, 2)[1]) != 32:
        raise ProvenanceError(f"{PREFIX}{wanted}: not a key: expected 32 bytes")
    return AgentKey(fitting[0], path)


def agent_public_keys() -> list[bytes]:
    """Return the public keys, 32 bytes each, of the Ed25519 keys in the agent; none if no agent is configured.

    Raises `ProvenanceError` for an agent whose answer does not follow the protocol.
    """
    if not os.environ.get(SOCKET):
        return []
    signing = [identity for identity in _identities(_socket()) if identity.kind == _ED25519.decode()]
    return [_strings(identity.blob, 2)[1] for identity in signing]


def _identities(path: str) -> list[Identity]:
    kind, body = _asked(path, b"\x0b")
    if kind != 12 or len(body) < 4:
        raise ProvenanceError(f"the SSH agent at {path} does not say which keys it has (message {kind})")
    fields = _strings(body[4:])
    if len(fields) != 2 * struct.unpack(">I", body[:4])[0]:
        raise ProvenanceError(f"the SSH agent at {path}: a list of keys that is cut short")
    pairs = zip(fields[::2], fields[1::2], strict=True)
    return [Identity(blob, re.sub(r"[^\x20-\x7e]", "?", comment.decode(errors="replace"))) for blob, comment in pairs]


def _asked(path: str, question: bytes) -> tuple[int, bytes]:
    """Return the type and the fields of the answer to one request."""
    try:
        with socket.socket(socket.AF_UNIX) as agent:
            agent.settimeout(PATIENCE)
            agent.connect(path)
            agent.sendall(_string(question))
            size = struct.unpack(">I", _received(agent, 4))[0]
            if not 1 <= size <= MAX_REPLY:
                raise ProvenanceError(f"the SSH agent at {path}: {size} bytes of answer; at most {MAX_REPLY} are read")
            answer = _received(agent, size)
    except OSError as error:
        raise ProvenanceError(f"cannot ask the SSH agent at {path}: {error.strerror or error}") from error
    return answer[0], answer[1:]


def _received(agent: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = agent.recv(size - len(content))
        if not part:
            raise ConnectionError("it ended in the middle of an answer")
        content += part
    return content


def _socket() -> str:
    path = os.environ.get(SOCKET)
    if not path:
        raise ProvenanceError(f"no SSH agent: {SOCKET} is not set; `eval $(ssh-agent)` starts one, `ssh-add` fills it")
    return path


def _strings(content: bytes, number: int | None = None) -> list[bytes]:
    """Return the strings of a message, in order. Raises `ProvenanceError` for a truncated message or another number."""
    strings, at = [], 0
    while at < len(content):
        # A length that does not fit, or is not there, ends behind the message, and so is refused.
        end = at + 4 + (struct.unpack_from(">I", content, at)[0] if at + 4 <= len(content) else len(content))
        if end > len(content):
            raise ProvenanceError("the SSH agent's answer is cut short")
        strings.append(content[at + 4 : end])
        at = end
    if number is not None and len(strings) != number:
        raise ProvenanceError(f"the SSH agent's answer has {len(strings)} fields, expected {number}")
    return strings


def _string(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def _plain(name: str) -> str:
    """Return a name with single slashes, as it comes out of a path."""
    return re.sub("/+", "/", name.strip())
