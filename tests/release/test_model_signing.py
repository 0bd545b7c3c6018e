"""`model.sig`: the OpenSSF's format by hand, and by its own tool where that is installed."""

import base64
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from explorer.errors import ProvenanceError
from explorer.provenance.keys import write_private
from explorer.release.model_signing import PASSPHRASE, public_pem, read_signing_key, sign_directory
from tests.audit.governed_run import write_governed_run
from tests.release.released import release

KEY = ec.derive_private_key(7, ec.SECP256R1())
OTHER = ec.derive_private_key(8, ec.SECP256R1())


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = release(write_governed_run(tmp_path_factory.mktemp("runs")))
    sign_directory(model, KEY)
    return model


@pytest.fixture
def model(shipped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(shipped, tmp_path / "model"))


def check(model: Path, key: ec.EllipticCurvePrivateKey = KEY) -> dict[str, str]:
    """The digests that were signed, once the signature holds: written from the specifications, sharing no line."""
    bundle = json.loads((model / "model.sig").read_text())
    assert bundle["mediaType"] == "application/vnd.dev.sigstore.bundle.v0.3+json"
    envelope = bundle["dsseEnvelope"]
    payload, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"].encode()
    pae = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
    (signature,) = envelope["signatures"]
    key.public_key().verify(base64.b64decode(signature["sig"]), pae, ec.ECDSA(hashes.SHA256()))
    assert bundle["verificationMaterial"]["publicKey"]["hint"] == hashlib.sha256(public_pem(key)).hexdigest()
    statement = json.loads(payload)
    assert statement["predicateType"] == "https://model_signing/signature/v1.0"
    resources = {each["name"]: each["digest"] for each in statement["predicate"]["resources"]}
    assert list(resources) == sorted(resources)
    joined = b"".join(bytes.fromhex(digest) for digest in resources.values())
    assert statement["subject"][0]["digest"]["sha256"] == hashlib.sha256(joined).hexdigest()
    return resources


def test_it_signs_every_file_that_is_shipped(model: Path) -> None:
    names = {path.relative_to(model).as_posix() for path in model.rglob("*") if path.is_file()} - {"model.sig"}
    found = check(model)
    assert found.keys() == names and {"model.safetensors", "attestation.json"} <= names
    assert found == {name: hashlib.sha256((model / name).read_bytes()).hexdigest() for name in names}
    with pytest.raises(InvalidSignature):
        check(model, OTHER)


def test_a_link_and_an_empty_directory_are_not_signed(model: Path, tmp_path: Path) -> None:
    (model / "extra").symlink_to(model / "model.json")
    with pytest.raises(ProvenanceError, match="found a link or a special file"):
        sign_directory(model, KEY)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ProvenanceError, match="no file to sign"):
        sign_directory(tmp_path / "empty", KEY)


def write_pem(path: Path, key: object, passphrase: str | None = None) -> Path:
    how = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase.encode())
    assert isinstance(key, ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey)
    write_private(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))
    return path


def test_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, sealed = write_pem(tmp_path / "plain.pem", KEY), write_pem(tmp_path / "sealed.pem", KEY, "open sesame")
    assert public_pem(read_signing_key(plain)) == public_pem(KEY)
    with pytest.raises(ProvenanceError, match=f"its passphrase is needed in {PASSPHRASE}"):
        read_signing_key(sealed)
    monkeypatch.setenv(PASSPHRASE, "open sesame")
    assert public_pem(read_signing_key(sealed)) == public_pem(read_signing_key(plain)) == public_pem(KEY)
    monkeypatch.setenv(PASSPHRASE, "wrong")
    with pytest.raises(ProvenanceError, match="wrong passphrase"):
        read_signing_key(sealed)
    plain.chmod(0o644)
    with pytest.raises(ProvenanceError, match="chmod 600"):
        read_signing_key(plain)


@pytest.mark.parametrize(
    ("key", "kind"),
    [(ec.derive_private_key(7, ec.SECP256K1()), "secp256k1"), (ed25519.Ed25519PrivateKey.generate(), "Ed25519")],
)
def test_a_key_that_the_format_does_not_have(tmp_path: Path, key: object, kind: str) -> None:
    with pytest.raises(ProvenanceError, match=f"found a key of {kind}; OpenSSF model signing takes ECDSA on secp256r1"):
        read_signing_key(write_pem(tmp_path / "key.pem", key))


def change(model: Path) -> None:
    content = bytearray((model / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (model / "model.safetensors").write_bytes(content)


def without_attestation(model: Path) -> None:
    (model / "attestation.json").unlink()


def with_code(model: Path) -> None:
    (model / "load.py").write_text("print('hello')\n")


def with_observation(model: Path) -> None:
    (model / "observations").mkdir()
    (model / "observations" / "one.json").write_text("{}\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "signer", "accepted"),
    [
        (None, KEY, True),
        (with_observation, KEY, True),
        (change, KEY, False),
        (without_attestation, KEY, False),
        (with_code, KEY, False),
        (None, OTHER, False),
    ],
)
def test_the_tool_of_the_openssf(
    model: Path,
    tmp_path: Path,
    act: Callable[[Path], None] | None,
    signer: ec.EllipticCurvePrivateKey,
    accepted: bool,
) -> None:
    pytest.importorskip("model_signing", reason="needs model-signing: pip install -e '.[peers]'")
    (tmp_path / "public.pem").write_bytes(public_pem(signer))
    if act is not None:
        act(model)
    public, signature = str(tmp_path / "public.pem"), str(model / "model.sig")
    verify = ["-m", "model_signing", "verify", "key", str(model), "--signature", signature, "--public_key", public]
    done = subprocess.run([sys.executable, *verify], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode == 0) == accepted, done.stdout + done.stderr
