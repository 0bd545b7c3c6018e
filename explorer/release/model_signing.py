"""The signature of a shipped model in the format of OpenSSF model signing 1.0, for readers who verify with that tool.

    model_signing verify key MODEL --signature MODEL/model.sig --public_key KEY.pub

`model.sig` is a Sigstore bundle (application/vnd.dev.sigstore.bundle.v0.3+json) with a DSSE envelope over an in-toto
statement of type https://model_signing/signature/v1.0: the SHA-256 of every file of the directory, the attestation
among them, and as its subject the SHA-256 over these digests in the order of the file names. The format has no Ed25519:
the key is ECDSA on P-256, P-384 or P-521, and no trust file names its owner. So this signature counts for nothing at
Explorer's own gate, which reads the attestation; it ties the same files to a key that other tools know.
"""

import base64
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from explorer import rundir
from explorer.canonical import canonical
from explorer.errors import ProvenanceError
from explorer.provenance.envelope import Envelope
from explorer.provenance.keys import open_private
from explorer.provenance.statement import PAYLOAD_TYPE
from explorer.release.attest import OBSERVATIONS

SIGNATURE = "model.sig"
PREDICATE_TYPE = "https://model_signing/signature/v1.0"
MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
PASSPHRASE = "EXPLORER_MODEL_SIGNING_PASSPHRASE"
IGNORED = (SIGNATURE, OBSERVATIONS)  # observations arrive later, each with a signature of its own
MAX_FILES = 10_000
MAX_KEY = 10_000

# The hash of each curve in Sigstore's specification of keys.
_HASHES: dict[str, type[hashes.HashAlgorithm]] = {
    "secp256r1": hashes.SHA256,
    "secp384r1": hashes.SHA384,
    "secp521r1": hashes.SHA512,
}


def read_signing_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Read an ECDSA key in PEM; its passphrase, if any, is in `EXPLORER_MODEL_SIGNING_PASSPHRASE`.

    Raises `ProvenanceError` for a file that others can read, a wrong or missing passphrase, and any other key or curve.
    """
    with open_private(path, max_bytes=MAX_KEY) as file:
        content = file.read(MAX_KEY)
    passphrase = os.environ.get(PASSPHRASE) or None
    if b"ENCRYPTED" not in content:
        passphrase = None  # cryptography refuses a passphrase for a key that needs none
    elif passphrase is None:
        raise ProvenanceError(f"{path}: the key is encrypted: its passphrase is needed in {PASSPHRASE}")
    try:
        key = load_pem_private_key(content, None if passphrase is None else passphrase.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        fault = "no private key in PEM" if passphrase is None else "wrong passphrase, or a damaged file"
        raise ProvenanceError(f"{path}: {fault}; expected an ECDSA key") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name not in _HASHES:
        kind = getattr(getattr(key, "curve", None), "name", type(key).__name__.removesuffix("PrivateKey").lstrip("_"))
        raise ProvenanceError(
            f"{path}: found a key of {kind}; OpenSSF model signing takes ECDSA on {', '.join(_HASHES)}. Make one with"
            " `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256`"
        )
    return key


def public_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the public key in the form that `model_signing verify key --public_key` reads."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def sign_directory(directory: Path, key: ec.EllipticCurvePrivateKey) -> Path:
    """Write `model.sig` over all files of a shipped model; return its path.

    Raises `ProvenanceError` for a directory without files, with a link or a special file, or with more than 10,000
    files.
    """
    # The statement: every file with its digest, and one digest over these as the subject.
    resources = [
        {"name": name, "algorithm": "sha256", "digest": _digest(directory / name)} for name in sorted(_files(directory))
    ]
    if not resources:
        raise ProvenanceError(f"{directory}: no file to sign")
    subject = hashlib.sha256(b"".join(bytes.fromhex(resource["digest"]) for resource in resources)).hexdigest()
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": directory.resolve().name, "digest": {"sha256": subject}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "serialization": {
                "method": "files",
                "hash_type": "sha256",
                "allow_symlinks": False,
                "ignore_paths": list(IGNORED),
            },
            "resources": resources,
        },
    }
    # The signature, in a Sigstore bundle: no transparency log, and a key id that only names the public key.
    envelope = Envelope(payload=canonical(statement), payload_type=PAYLOAD_TYPE, signatures=())
    signature = key.sign(envelope.signed, ec.ECDSA(_HASHES[key.curve.name]()))
    bundle = {
        "mediaType": MEDIA_TYPE,
        "verificationMaterial": {
            "publicKey": {"hint": hashlib.sha256(public_pem(key)).hexdigest()},
            "tlogEntries": [],
        },
        "dsseEnvelope": {
            "payload": base64.b64encode(envelope.payload).decode(),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [{"sig": base64.b64encode(signature).decode(), "keyid": ""}],
        },
    }
    rundir.write_bytes(directory / SIGNATURE, json.dumps(bundle, indent=2).encode() + b"\n")
    return directory / SIGNATURE


def _files(directory: Path) -> Iterator[str]:
    """Yield the names of the files below a directory, with '/' between the parts."""
    count = 0
    for path in directory.rglob("*"):
        name = path.relative_to(directory).as_posix()
        if name.split("/")[0] in IGNORED:
            continue
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise ProvenanceError(f"{path}: found a link or a special file, expected files and directories")
        if path.is_file():
            count += 1
            if count > MAX_FILES:
                raise ProvenanceError(f"{directory}: found more than {MAX_FILES:,} files")
            yield name


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
