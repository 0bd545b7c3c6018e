"""Make the frozen project: what version 0.1.0 of Explorer wrote, for every later one to read and to verify.

    python tests/frozen/make.py /path/to/an/empty/directory

The files were made by version 0.1.0 before its modules moved to where they are now. They are not made again when the
code changes, for their use is that they stay: `tests/test_frozen.py` reads them with the code of today. A change of a
format adds files of the new version next to these.

Everything comes from the project's own verbs on the handwritten digits: a sweep of two recipes, a governed run of
seven steps with a sealed region and a confidential class, two deletions from it (G2 and G3), a pack with a grant, the
attested model before a gate, a statement of use, and the reports, exports and a token of all that. Keys come from
fixed seeds and are not among the files. `verdicts.json` is what the verbs in `VERBS` answered.
"""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from fnmatch import fnmatch
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

HERE = Path(__file__).parent
POLICIES = HERE.parents[1] / "notebooks" / "policies"
ARCHIVE, MANIFEST, VERDICTS = "project.tar.xz", "manifest.json", "verdicts.json"
BEGINS, ENDS = "2026-01-01T00:00:00Z", "2100-01-01T00:00:00Z"
KEYS = {  # the part of a name after the slash, the role, and branches of the taxonomy
    "data-governance": ("data-governance", ["simulated"]),
    "model-risk": ("model-risk", []),
    "trainer": ("trainer", []),
    "evaluator": ("evaluator", []),
}
COSIGNERS = ("data-governance", "model-risk")
TRUST = ("--trust", "trust.json")
LATE, SEALED = "simulated/class-01", "simulated/class-02"
RUN, WITHOUT_SEALED, WITHOUT_LATE = "runs/single/*", "deleted-G2/*", "deleted-G3/*"  # each fits one directory
VERBS: dict[str, tuple[str, ...]] = {  # what the project is asked, with patterns for its directories
    "ledger": ("ledger", "verify", f"{RUN}/ledger", *TRUST),
    "project ledger": ("ledger", "verify", "runs/_audit", *TRUST),
    "entries": ("ledger", "show", f"{RUN}/ledger"),
    "conform": ("conform", RUN, *TRUST),
    "conform without sealed": ("conform", WITHOUT_SEALED, *TRUST),
    "conform without late": ("conform", WITHOUT_LATE, *TRUST),
    "trace": ("trace", RUN, "--class", "simulated/class-00"),
    # By structure, since a replay asks for the training code of then. The trainer's key is no longer where it was.
    "delete plan": ("delete", "plan", RUN, SEALED, "--governance", "governed"),
    "certificate by structure": (
        *("delete", "verify", f"{WITHOUT_SEALED}/certificate.json"),
        *("--old", RUN, "--new", WITHOUT_SEALED, *TRUST),
    ),
    "certificate by replay": (
        *("delete", "verify", f"{WITHOUT_LATE}/certificate.json"),
        *("--old", RUN, "--new", WITHOUT_LATE, *TRUST),
    ),
    "gate": ("verify", f"{RUN}/model", "--gate", "gate.yaml", *TRUST, "--ledger", RUN),
    "usage": ("usage", "verify", "usage/whole.json", *TRUST, "--runs", RUN),
    "grants": ("grant", "list", RUN, *TRUST),
    "results": ("results", "frozen"),
    "ask": ("ask", "frozen", "--quality", "20%"),
}
QUESTION: dict[str, object] = {"dataset": "digits", "sweep": "frozen", "recipes": ("baseline", "smooth"), "target": 0.2}
NOT_KEPT = ("*.pem", "*.cosigned", "*.duckdb", "_store", ".lock")  # keys and their memories, databases, locks
POLICY = f"""\
format: explorer/policy/v1
name: frozen
version: 1
issued: {BEGINS}
expires: {ENDS}
taxonomy: {{name: simulated, version: 1, digest: "%s"}}
quarantine: refuse
sealed:
  - {{name: customer, branch: {SEALED}, layers: ["stages.2.*"], rank: 1}}
confidential: [{LATE}]  # its numbers are encrypted
rules:
  - {{classes: [{SEALED}], weight: 0}}
  - {{classes: [{LATE}], depth: [0, 0.5], weight: 0}}
  - {{classes: [{LATE}], progress: [0, 0.5], weight: 0}}
  - {{classes: [simulated], weight: 1}}
"""
GOVERNED = """\
task: {dataset: {digits: {simulated_classes: 3}}, model: {resnet8: {width: 0.5, norm: group}}}
train: {epochs: 0.499, batch_size: 64, optimizer: {sgd: {lr: 0.1, momentum: 0.9}}}
governance: governed
methods:
  - routing: {policy: frozen}
  - contributions
  - entropy: {probes: 16, profiles: 2, permutations: 9}
  - recorder: {every: 3}
"""
SWEEP = """\
name: frozen
task: {dataset: digits, model: {resnet8: {width: 0.5}}}
train: {epochs: 0.4, batch_size: 64, optimizer: {sgd: {lr: 0.1}}}
baseline: baseline
tuning: not tuned; of a test
recipes:
  baseline: []
  smooth: [label_smoothing, channels_last]
budgets: [0.5, 1.0]
seeds: [0, 1]
"""
GATE = f"""\
format: explorer/gate/v1
name: frozen
ledger: full
observers:
  - {{name: example.com/evaluator, weight: 1}}
rules:
  - {{conforms: true}}
  - {{deny: {{branch: {LATE}, depth: [0, 0.5]}}}}
  - {{deletable: {{branch: {SEALED}, at_least: G2}}}}
  - {{evaluated: {{by: example.com/evaluator, metric: accuracy, at_least: 0.9}}}}
"""
GRANT = f"""\
format: explorer/grant/v1
id: audit-1
owner: example.com/data-governance
grantee: {{name: example.com/auditor, public_key: %s}}
runs: [%s]
classes: [{LATE}]
entries: [step]
issued: 2026-01-02T00:00:00Z
expires: {ENDS}
"""


def private(name: str) -> Ed25519PrivateKey:
    """Return the key of this name, always the same."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"frozen {name}".encode()).digest())


def write_private(path: Path, name: str) -> Path:
    """Write the key of this name as an unencrypted key file."""
    content = private(name).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def explorer(*arguments: object) -> str:
    """Run a verb in the project and return what it printed."""
    return run_python("from explorer.__main__ import main; main()", *arguments)


def run_python(program: str, *arguments: object) -> str:
    done = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, f"{program} {arguments}\n{done.stdout}{done.stderr}"
    return done.stdout


def make() -> None:
    """Make the whole project in the current directory."""
    write_documents()
    run = governed_run()
    deletions(run)
    disclose(run)
    release(run)
    sweep()
    report(run)


def write_documents() -> None:
    """Write keys, trust, taxonomy, policy, tags: what a governed run trains under."""
    Path("governed/policies").mkdir(parents=True)
    authorities = []
    for name, (role, branches) in KEYS.items():
        key = write_private(Path(f"{name}.pem"), name).name.removesuffix(".pem")
        raw = private(key).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        known = {"not_before": BEGINS, "not_after": ENDS, "public_key": base64.b64encode(raw).decode()}
        authorities.append({"name": f"example.com/{name}", "role": role, "branches": branches, "keys": [known]})
    quorum = {
        "documents": {"data-governance": 1, "model-risk": 1, "trainer": 1, "evaluator": 1},
        "checkpoints": {"data-governance": 1, "trainer": 1},
    }
    trust = {"format": "explorer/trust/v1", "name": "frozen", "authorities": authorities, "quorum": quorum}
    Path("trust.json").write_text(json.dumps(trust, indent=1))
    taxonomy = (POLICIES / "simulated.taxonomy.yaml").read_text()
    Path("simulated.taxonomy.yaml").write_text(re.sub("expires: .*", f"expires: {ENDS}", taxonomy))
    signing = ("--key", "data-governance.pem", *TRUST, "--out", "governed/taxonomy.json", "--json")
    signed = json.loads(explorer("taxonomy", "sign", "simulated.taxonomy.yaml", *signing))
    Path("frozen.policy.yaml").write_text(POLICY % signed["digest"])
    signing = ("--taxonomy", "governed/taxonomy.json", "--key", "model-risk.pem", *TRUST)
    explorer("policy", "sign", "frozen.policy.yaml", *signing, "--out", "governed/policies/frozen.json")
    Path("governed.yaml").write_text(GOVERNED)
    tags = ("--out", "governed/tags.parquet", "--salts", "governed/salts")
    explorer("tags", "dataset", "governed.yaml", "--authority", "example.com/data-governance", *tags)
    vouching = ("--taxonomy", "governed/taxonomy.json", "--key", "data-governance.pem", *TRUST)
    described = (
        "--description",
        POLICIES / "source.description.yaml",
        "--out",
        "governed/tags.json",
        "--expires",
        ENDS,
    )
    explorer("tags", "sign", "governed/tags.parquet", *described, *vouching)
    shutil.copy("trust.json", "governed")
    shutil.copy("trainer.pem", "governed")


def governed_run() -> Path:
    """Train the governed run, and have its ledger cosigned."""
    explorer("run", "governed.yaml")
    (run,) = Path("runs/single").iterdir()
    cosign(run / "ledger")
    return run


def cosign(ledger: Path) -> None:
    for name in COSIGNERS:
        first = () if Path(f"{name}.pem.cosigned").exists() else ("--first",)
        explorer("ledger", "cosign", ledger, "--key", f"{name}.pem", *TRUST, *first)


def deletions(run: Path) -> None:
    """Delete one class by structure and one by replay, with certificates."""
    for path, level in ((SEALED, "G2"), (LATE, "G3")):
        out = f"deleted-{level}"
        explorer(
            "delete", "run", run, path, "--level", level, "--request", "request 17", "--out", out, "--expires", ENDS
        )
        new = only(Path(out))
        cosign(new / "ledger")
        explorer("delete", "certify", new, "--old", run, *TRUST, "--expires", ENDS)


def disclose(run: Path) -> None:
    """Let an auditor read the confidential class: a grant, wrapped keys, and a pack."""
    write_private(Path("reader.pem"), "reader")
    Path("grant.yaml").write_text(GRANT % (reader_public(), run.name))
    explorer("grant", "sign", "grant.yaml", "--key", "data-governance.pem", *TRUST, "--out", "grant.json")
    explorer("grant", "wrap", run, "grant.json", *TRUST)
    explorer("pack", run, "--grant", "audit-1", *TRUST, "--out", "audit.pack.zip")
    cosign(Path("runs/_audit"))


def reader_public() -> str:
    """Return the public key of the reader as a grant names it: the X25519 key of the same seed."""
    scalar = hashlib.sha512(private("reader").private_bytes_raw()).digest()[:32]
    raw = X25519PrivateKey.from_private_bytes(scalar).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return base64.b64encode(raw).decode()


def release(run: Path) -> None:
    """Attest the model, observe it, bring it to a gate, and state what was used."""
    Path("gate.yaml").write_text(GATE)
    explorer("attest", run, *TRUST, "--expires", ENDS)
    evaluated = ("--role", "evaluator", "--metric", "accuracy=0.93", "--key", "evaluator.pem")
    explorer("observe", run / "model", *evaluated, *TRUST)
    explorer("verify", run / "model", "--gate", "gate.yaml", *TRUST, "--ledger", run)
    explorer("usage", "state", run, "--by", "class", *TRUST, "--out", "usage")


def sweep() -> None:
    Path("sweep.yaml").write_text(SWEEP)
    explorer("sweep", "run", "sweep.yaml", "--engine", "inline", "--workers", "1")


def report(run: Path) -> None:
    """Write what others read: exports, reports, a token."""
    for kind in ("csv", "parquet", "md"):
        explorer("store", "export", f"results.{kind}")
    for kind in ("json", "html", "md"):
        explorer("report", "frozen", "--format", kind, "--out", f"sweep_report.{kind}")
        explorer("report", run, "--format", kind, *TRUST, "--out", f"run_report.{kind}")

    Path("token").write_text(token(**QUESTION))


def token(**question: object) -> str:
    """Return the token of a view of the explorer."""
    asking = "from explorer.views.question import Question; from explorer.views.token import to_token"
    return run_python(f"{asking}; print(to_token(Question(**{question!r})))").strip()


def keep() -> None:
    """Write the archive, the digests of its files, and what the verbs answer."""
    kept = sorted(path for path in Path().rglob("*") if path.is_file() and not ignored(path))
    with tarfile.open(HERE / ARCHIVE, "w:xz", preset=9) as archive:
        for path in kept:
            archive.add(path, filter=without_owner)
    digests = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}
    verdicts = {
        name: values(explorer(*(resolve(Path(), argument) for argument in arguments), "--json"))
        for name, arguments in VERBS.items()
    }
    for name, value in ((MANIFEST, digests), (VERDICTS, verdicts)):
        (HERE / name).write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


def resolve(project: Path, argument: str) -> str:
    """Return an argument with the one path in the project that its pattern fits."""
    if "*" not in argument:
        return argument
    (path,) = project.glob(argument)
    return str(path.relative_to(project))


def values(text: str) -> list[object]:
    """Return the JSON values that a verb printed, one after another."""
    decoder, there = json.JSONDecoder(), []
    while text := text.strip():
        value, end = decoder.raw_decode(text)
        there.append(value)
        text = text[end:]
    return there


def ignored(path: Path) -> bool:
    return any(fnmatch(part, pattern) for part in path.parts for pattern in NOT_KEPT)


def without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def only(directory: Path) -> Path:
    (path,) = (path for path in directory.iterdir() if path.is_dir())
    return path


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    make()
    keep()
