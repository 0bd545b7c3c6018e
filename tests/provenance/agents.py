"""The real ssh-agent, for tests of keys that stay in one. Where OpenSSH's client is not installed they are skipped."""

import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

needs_agent = pytest.mark.skipif(
    not all(map(shutil.which, ("ssh-agent", "ssh-add", "ssh-keygen"))), reason="no OpenSSH client here"
)


class Agent:
    """The real ssh-agent, with what ssh-add does to it."""

    def __init__(self, place: Path) -> None:
        self.place, self.socket = place, str(place / "agent.sock")
        self.process = subprocess.Popen(["ssh-agent", "-D", "-a", self.socket], stdout=subprocess.DEVNULL)
        while not self._listens():
            assert self.process.poll() is None
            time.sleep(0.01)

    def _listens(self) -> bool:
        """Return whether the agent takes connections, which it does a moment after its socket is there."""
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(self.socket) == 0

    def run(self, *command: str) -> str:
        ask = self.place / "ask"
        ask.write_text("#!/bin/sh\necho a passphrase\n")
        ask.chmod(0o700)
        asked = {"SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force"}
        env = {"SSH_AUTH_SOCK": self.socket, "PATH": "/usr/bin:/bin", **asked}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    def add(self, key: Ed25519PrivateKey, comment: str) -> str:
        """Add a key and return the fingerprint that `ssh-add -l` prints."""
        path = self.place / comment
        path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
        path.chmod(0o600)
        self.run("ssh-keygen", "-q", "-c", "-C", comment, "-f", str(path))
        self.run("ssh-add", "-q", str(path))
        path.unlink()
        return next(line.split()[1] for line in self.run("ssh-add", "-l").splitlines() if comment in line)
