"""Keys whose private half everybody knows."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer.note import Algorithm, Signer

ORIGIN = "example.com/run"


def signer(seed: int = 1, *, name: str = ORIGIN, algorithm: Algorithm = Algorithm.ED25519) -> Signer:
    """The key whose seed is 32 times this byte."""
    key = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
    return Signer(name=name, algorithm=algorithm, private_key=key)


def entry(number: int) -> bytes:
    """An entry whose length changes with its number, from none to 299 bytes."""
    return b"%d:" % number + b"x" * (number * 7 % 300) if number % 17 else b""
