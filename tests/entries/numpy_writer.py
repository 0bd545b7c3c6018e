"""A governed training run in numpy, recorded so that `explorer conform` accepts it: a second writer of the format.

It is made from the published schemas and the page next to them (explorer/entries/README.md) and imports nothing
of Explorer. It trains a perceptron of two layers by descent with momentum, class by class, under the signed policy in
the run's directory. Policies with conditions, sealed regions, confidential classes, or rules by example or layer name
are refused. Shapes: C classes of the run, k of them with numbers in a step, L layers.
"""

import base64
import hashlib
import hmac
import json
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

LAYERS, WIDE, RATE, MOMENTUM, SKETCH = ("up", "down"), 32, 0.05, 0.9, 64
Blobs = dict[str, bytes]


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def canonical(value: Any) -> bytes:
    """RFC 8785, of values without fractions whose keys are ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def u64(number: int) -> bytes:
    return int(number).to_bytes(8, "big")


def leaf_hash(content: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + content).digest()


def root_of(leaves: Sequence[bytes]) -> bytes:
    """RFC 6962, 2.1."""
    if len(leaves) < 2:
        return leaves[0] if leaves else hashlib.sha256(b"").digest()
    middle = 1 << ((len(leaves) - 1).bit_length() - 1)
    return hashlib.sha256(b"\x01" + root_of(leaves[:middle]) + root_of(leaves[middle:])).digest()


def expand(key: bytes, *parts: bytes) -> bytes:
    """HKDF-Expand to 32 bytes (RFC 5869)."""
    return hmac.digest(key, b"\x00".join(parts) + b"\x01", "sha256")


def payload(path: Path) -> bytes:
    """What a DSSE envelope holds."""
    return base64.b64decode(json.loads(path.read_bytes())["payload"])


def floats(*columns: np.ndarray) -> bytes:
    return np.column_stack(columns).astype("<f4").tobytes()


class Ledger:
    """Entries and blobs in a directory, as tiles under a signed checkpoint (C2SP tlog-tiles, tlog-checkpoint)."""

    def __init__(self, place: Path, origin: str, key: Ed25519PrivateKey) -> None:
        self.place, self.origin, self.key = place, origin, key
        self.entries: list[bytes] = []

    def append(self, kind: str, blobs: Blobs, **fields: Any) -> None:
        named = {}
        for name, content in blobs.items():
            digest = sha256(content)
            self.write(f"blobs/sha256/{digest[:2]}/{digest}", content)
            named[name] = {"sha256": digest, "size": len(content)}
        self.entries.append(canonical({"kind": kind, "version": 1, "blobs": named, **fields}))

    def commit(self) -> None:
        """Write every bundle and tile, then the checkpoint."""
        self.tiles("entries", [len(each).to_bytes(2, "big") + each for each in self.entries])
        hashes, level = [leaf_hash(each) for each in self.entries], 0
        root = root_of(hashes)
        while hashes:
            self.tiles(str(level), hashes)
            hashes = [root_of(hashes[at : at + 256]) for at in range(0, len(hashes) // 256 * 256, 256)]
            level += 1
        text = f"{self.origin}\n{len(self.entries)}\n{base64.b64encode(root).decode()}\n"
        public = self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        key_id = hashlib.sha256(self.origin.encode() + b"\n\x01" + public).digest()[:4]
        signature = base64.b64encode(key_id + self.key.sign(text.encode())).decode()
        self.write("checkpoint", f"{text}\n\u2014 {self.origin} {signature}\n".encode())

    def tiles(self, level: str, items: Sequence[bytes]) -> None:
        for first in range(0, len(items), 256):
            part = items[first : first + 256]
            width = f".p/{len(part)}" if len(part) < 256 else ""
            self.write(f"tile/{level}/{first // 256:03d}{width}", b"".join(part))  # below 1000 of them

    def write(self, name: str, content: bytes) -> None:
        (self.place / name).parent.mkdir(parents=True, exist_ok=True)
        (self.place / name).write_bytes(content)


class Writer:
    """One run. `place` has the signed documents in `governance/`; rows of the tag table are rows of the images."""

    def __init__(self, place: Path, images: np.ndarray, labels: np.ndarray, key: Ed25519PrivateKey, **plan: int):
        self.place, self.images, self.labels, self.plan = place, images.astype(np.float32), labels, plan
        self.steps, self.batch, self.every, self.seed = (plan[name] for name in ("steps", "batch", "every", "seed"))
        self.read_documents(place / "governance")
        self.secrets = [os.urandom(32) for _ in (*self.classes, "*")]
        self.ledger = Ledger(place / "ledger", f"example.com/{place.name}", key)
        self.chance = chance = np.random.default_rng(self.seed)
        shapes = {"up.weight": (WIDE, images.shape[1]), "up.bias": (WIDE,)}
        shapes |= {"down.weight": (10, WIDE), "down.bias": (10,)}
        self.tensors = {name: chance.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}
        self.momentum: dict[str, np.ndarray] = {}
        self.begin(0)

    def read_documents(self, place: Path) -> None:
        self.taxonomy, self.policy, self.tags = (payload(place / f"{n}.json") for n in ("taxonomy", "policy", "tags"))
        self.trust, source = (json.loads((place / f"{n}.json").read_bytes()) for n in ("trust", "source"))
        self.judged, policy = source["judged"], json.loads(self.policy)
        self.rules = policy["rules"]
        strange = {"layers", "condition", "examples"}
        if policy["sealed"] or policy["confidential"] or any(rule.get(key) for rule in self.rules for key in strange):
            raise ValueError("this writer routes by class, depth and progress alone")
        codes = ["quarantine", *sorted(each["path"] for each in json.loads(self.taxonomy)["classes"])]
        authorities = [each["authority"] for each in json.loads(self.tags)["predicate"]["vouchers"]]
        rows = pq.read_table(place / "tags.parquet").to_pylist()
        self.leaves = []
        for slot, row in enumerate(rows):
            numbers = codes.index(row["class"]) << 32 | authorities.index(row["authority"]) << 16
            self.leaves.append(leaf_hash(u64(slot) + u64(numbers) + row["commitment"] + row["source"].encode()))
        self.classes = sorted({row["class"] for row in rows} - {"quarantine"})
        self.class_of = np.array([[*self.classes, "quarantine"].index(row["class"]) for row in rows])

    # ---------------------------------------------------------------------------------------- what may train

    def admitted(self, progress: float) -> np.ndarray:
        """The policy's weights now, C L: the first rule that matches decides; without one the weight is 0."""

        def inside(interval: list[float] | None, value: float) -> bool:
            return interval is None or interval[0] <= value < interval[1] or value == 1 == interval[1]

        def weight(path: str, depth: float) -> float:
            for rule in self.rules:
                mine = any(branch == "*" or f"{path}/".startswith(f"{branch}/") for branch in rule["classes"])
                if mine and inside(rule["depth"], depth) and inside(rule["progress"], progress):
                    return float(rule["weight"])
            return 0.0

        return np.array([[weight(path, at / (len(LAYERS) - 1)) for at in range(len(LAYERS))] for path in self.classes])

    def trains(self, progress: float) -> np.ndarray:
        """The weights that gradients get."""
        return self.admitted(progress)

    def phase(self, progress: float) -> str:
        """The stretch of training in which no weight changes."""
        ends = sorted({0.0, 1.0, *(end for rule in self.rules for end in rule["progress"] or ())})
        low, high = next((a, b) for a, b in pairwise(ends) if a <= progress < b or b == 1)
        first, last = (repr(float(end)).removesuffix(".0") for end in (low, high))
        return f"progress [{first}, {last}{']' if high == 1 else ')'}"

    # ---------------------------------------------------------------------------------------------- training

    def outputs(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        hidden = np.maximum(inputs @ self.tensors["up.weight"].T + self.tensors["up.bias"], 0)
        return hidden, hidden @ self.tensors["down.weight"].T + self.tensors["down.bias"]

    def gradients(self, rows: np.ndarray) -> list[np.ndarray]:
        """Of these examples' losses over the size of the whole batch: one vector for each layer."""
        inputs = self.images[rows]
        hidden, logits = self.outputs(inputs)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        error = (odds / odds.sum(axis=1, keepdims=True) - np.eye(10)[self.labels[rows]]) / self.batch
        back = (error @ self.tensors["down.weight"]) * (hidden > 0)
        return [np.append(back.T @ inputs, back.sum(axis=0)), np.append(error.T @ hidden, error.sum(axis=0))]

    def update(self, layer: str, gradient: np.ndarray) -> np.ndarray:
        """Descent with momentum; the change of the layer as a vector."""
        names, changes = [f"{layer}.weight", f"{layer}.bias"], []
        for name, part in zip(names, np.split(gradient, [self.tensors[names[0]].size]), strict=True):
            old = self.tensors[name]
            self.momentum[name] = (MOMENTUM * self.momentum.get(name, 0) + part.reshape(old.shape)).astype(np.float32)
            self.tensors[name] = old - np.float32(RATE) * self.momentum[name]
            changes.append((self.tensors[name] - old).ravel())
        return np.concatenate(changes)

    def step(self, step: int, rows: np.ndarray) -> None:
        """One update, class by class. A layer that no class is admitted to keeps its tensors and its momentum."""
        weights, kinds = self.trains(step / self.steps), self.class_of[rows]
        mine = [index for index in range(len(self.classes)) if weights[index].any() and (kinds == index).any()]
        found = [self.gradients(rows[kinds == index]) for index in mine]
        above, updated, lines = np.triu_indices(len(mine), 1), "", []
        norms = np.zeros((len(mine), len(LAYERS)))
        for at, layer in enumerate(LAYERS):
            scales = [weights[index, at] for index in mine]
            weighted = np.array([w * each[at] for w, each in zip(scales, found, strict=True)] or np.zeros((0, 1)))
            taken = [place for place, index in enumerate(mine) if weights[index, at] > 0]
            updated += "1" if taken else "0"
            change = self.update(layer, weighted[taken].sum(axis=0)) if taken else np.zeros(1)
            dots = weighted @ change if taken else np.zeros(len(mine))
            lines.append(np.concatenate([[change @ change], (weighted @ weighted.T)[above], dots]))
            for place in taken:
                norms[place, at] = np.linalg.norm(found[place][at])
                total = self.sketches.setdefault(mine[place], np.zeros((len(LAYERS), SKETCH)))
                total[at] += self.sketch(at, weighted[place])
        contents = {index: floats(weights[index], norms[place]) for place, index in enumerate(mine)}
        self.record(step, rows, updated, contents, np.array(lines).astype("<f4").tobytes())

    def sketch(self, layer: int, gradient: np.ndarray) -> np.ndarray:
        """A linear projection onto 64 numbers that follows from the seed and the layer."""
        chance = np.random.default_rng((self.seed, layer))
        columns, signs = chance.integers(SKETCH, size=len(gradient)), chance.choice([-1, 1], size=len(gradient))
        return np.bincount(columns, weights=signs * gradient, minlength=SKETCH)

    # --------------------------------------------------------------------------------------------- recording

    def begin(self, step: int) -> None:
        """Begin a segment."""
        self.first, self.tables = step, set[str]()
        self.parts: dict[str, list[bytes]] = {}
        self.sketches: dict[int, np.ndarray] = {}

    def commit(self, path: str, step: int, content: bytes) -> str:
        """SHA-256(salt || content); the salt follows from the class's secret, the segment and the step."""
        secret = self.secrets[[*self.classes, "*"].index(path)]
        key = expand(secret, b"explorer/reading-key/v1", b"step", path.encode(), u64(self.first))
        return sha256(expand(key, b"explorer/salt/v1", u64(step)) + content)

    def slots(self, rows: np.ndarray) -> str:
        return root_of([leaf_hash(u64(slot) + self.leaves[row]) for slot, row in enumerate(rows)]).hex()

    def table(self, progress: float) -> bytes:
        rows = [[float(each).hex() for each in row] for row in self.admitted(progress)]
        head = {"format": "explorer/admission/v1", "classes": self.classes, "layers": LAYERS}
        return canonical({**head, "weights": rows})

    def record(self, step: int, rows: np.ndarray, updated: str, contents: dict[int, bytes], joint: bytes) -> None:
        table, counts = self.table(step / self.steps), np.bincount(self.class_of[rows], minlength=len(self.classes) + 1)
        digest, named = sha256(table), dict(enumerate(self.classes))
        self.ledger.append(
            "step",
            {} if digest in self.tables else {"weights": table},
            step=step,
            phase=self.phase(step / self.steps),
            slots=self.slots(rows),
            examples=counts[:-1].tolist(),
            quarantined=int(counts[-1]),
            numbers=[self.commit(named[at], step, contents[at]) if at in contents else None for at in named],
            joint=self.commit("*", step, joint),
            weights=digest,
            updated=updated,
        )
        self.tables.add(digest)
        parts = {f"numbers/{named[at]}": content for at, content in contents.items()}
        for name, content in (parts | {"joint": joint, "slots": np.array([len(rows), *rows], "<u4").tobytes()}).items():
            self.parts.setdefault(name, []).append(content)

    def state(self, step: int) -> tuple[dict[str, str], bytes]:
        """The state of training as roots, and the list of tensors that they are roots of."""

        def leaves(tensors: dict[str, np.ndarray]) -> dict[str, str]:
            heads = {name: f"{name}|torch.float32|{tensor.shape}\n".encode() for name, tensor in tensors.items()}
            return {name: leaf_hash(heads[name] + each.astype("<f4").tobytes()).hex() for name, each in tensors.items()}

        remembered = {f"optimizer/shared/0/{name}/momentum_buffer": each for name, each in self.momentum.items()}
        lists = {"parameters": leaves(self.tensors), "buffers": {}, "optimizer": leaves(remembered)}
        roots = {what: root_of([bytes.fromhex(of[name]) for name in sorted(of)]).hex() for what, of in lists.items()}
        return roots | {"random": sha256(canonical({"seed": self.seed, "step": step}))}, canonical(lists)

    def close(self, step: int) -> None:
        """Close the segment: the numbers of its steps, and the state that they led to."""
        state, tensors = self.state(step)
        sketches = {self.classes[at]: each.astype("<f4").tobytes() for at, each in self.sketches.items()}
        blobs = {name: b"".join(contents) for name, contents in self.parts.items()} | {"tensors": tensors}
        blobs |= {f"sketches/{path}": content for path, content in sketches.items()}
        committed = [self.commit(path, step, sketches[path]) if path in sketches else None for path in self.classes]
        self.ledger.append("state", blobs, step=step, state=state, sketches=committed)
        self.ledger.commit()
        self.begin(step)

    def run(self) -> Path:
        private = self.place / "private"
        private.mkdir(mode=0o700)
        (private / "secrets").touch(mode=0o600)
        content = b"explorer/salts/v1".ljust(24, b"\x00") + u64(len(self.secrets)) + b"".join(self.secrets)
        (private / "secrets").write_bytes(content)
        (self.place / "environment.json").write_bytes(self.environment())
        plan = {"format": "explorer/loop/v1", "run_id": self.place.name, "identity": self.identity()}
        (self.place / "loop.json").write_bytes(canonical(plan))
        state, tensors = self.state(0)
        self.ledger.append("genesis", {"tensors": tensors}, initial=state["parameters"], **self.genesis())
        for step in range(self.steps):
            self.step(step, self.chance.permutation(len(self.class_of))[: self.batch])
            if (step + 1) % self.every == 0 or step + 1 == self.steps:
                self.close(step + 1)
        self.end()
        self.ledger.commit()
        return self.place

    def end(self) -> None:
        state, tensors = self.state(self.steps)
        accuracy = (self.outputs(self.images)[1].argmax(axis=1) == self.labels).mean()
        fields = {"outcome": "finished", "state": state, "metrics": {"accuracy": float(accuracy).hex()}}
        self.ledger.append("end", {"tensors": tensors}, step=self.steps, **fields)

    def identity(self) -> dict[str, Any]:
        """What the run is. Nothing else determines it but the code, the data and the documents."""
        return {"recipe": {"model": "perceptron", "methods": [], **self.plan}, "steps": self.steps, "seed": self.seed}

    def environment(self) -> bytes:
        return canonical({"training_code": sha256(Path(__file__).read_bytes()), "packages": {"numpy": np.__version__}})

    def genesis(self) -> dict[str, Any]:
        tags = {"root": root_of(self.leaves).hex(), "attestation": sha256(self.tags)}
        return {
            "run": self.place.name,
            "recipe": sha256(canonical(self.identity())),
            "code": sha256(Path(__file__).read_bytes()),
            "environment": sha256(self.environment()),
            "methods": {},
            "data": sha256(self.images.tobytes() + self.labels.astype("<i8").tobytes()),
            "tags": {"train": tags},
            "taxonomy": sha256(self.taxonomy),
            "policy": sha256(self.policy),
            "trust": sha256(canonical(self.trust)),
            "judged": self.judged,
            "strategy": "microbatch",
            "seed": self.seed,
            "begins": 0,
            "start": None,
            "classes": self.classes,
            "layers": LAYERS,
            "parents": [],
        }
