"""A second writer, in numpy and from the published specification alone: what it records conforms, and what breaks a
rule of the format does not."""

import ast
import json
import re
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from sklearn.datasets import load_digits

from explorer import rundir
from explorer.audit.conform import Conformance, conform
from explorer.audit.trace import trace, with_examples
from explorer.disclosure.pack import make_pack
from explorer.entries.entry_schemas import DIRECTORY, PAGE, page
from explorer.errors import LedgerError
from explorer.ledger.storage import LedgerDirectory
from explorer.ledger.verify import verify
from explorer.provenance.envelope import write_envelope
from explorer.provenance.policy import FORMAT, POLICY, Quarantine, RoutingPolicy, Rule, TaxonomyReference
from explorer.provenance.signing import sign_document
from explorer.provenance.tag_attestation import attest
from explorer.provenance.tags_file import Row, write_table
from explorer.provenance.taxonomy import FORMAT as TAXONOMY_FORMAT
from explorer.provenance.taxonomy import TAXONOMY, Source, Taxonomy, TaxonomyClass
from explorer.provenance.trust import Role, Trust, write_trust
from explorer.provenance.usage import By
from explorer.release.usage_statement import survey
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.run_ledger import RunLedger
from tests.audit.governed_run import TRAINER, trust
from tests.disclosure.packs import findings
from tests.entries import numpy_writer
from tests.entries.numpy_writer import Writer, expand, floats, leaf_hash, root_of, sha256, u64
from tests.provenance import people
from tests.provenance.people import EXPIRES, GOVERNANCE, ISSUED, NOW, RISK, YEAR_BEGINS, YEAR_ENDS, private
from tests.provenance.tables import DESCRIPTION, commitment

EARLY, LATE, DENIED = "simulated/early", "simulated/late", "simulated/withheld"
PLAN = {"steps": 40, "batch": 64, "every": 16, "seed": 7}


def believed() -> Trust:
    """Data governance vouches for the simulated branch."""
    made = trust()
    branches = people.authority(GOVERNANCE, Role.DATA_GOVERNANCE, branches=("simulated",))
    authorities = tuple(branches if one.name == GOVERNANCE else one for one in made.authorities)
    return type(made)(format=made.format, name=made.name, authorities=authorities, quorum=made.quorum)


def write_documents(run: Path, labels: np.ndarray) -> None:
    """What the authorities sign, with their own tools: digits of one class are denied, those of another come late."""
    place = run / rundir.GOVERNANCE
    place.mkdir(parents=True)
    write_trust(place / "trust.json", believed())
    taxonomy = Taxonomy(
        format=TAXONOMY_FORMAT,
        name="digits",
        version=1,
        issued=YEAR_BEGINS,
        expires=YEAR_ENDS,
        classes=tuple(
            TaxonomyClass(path=path, definition=f"Cut for a test: {path}.", personal_data=False, source=Source.OTHER)
            for path in ("simulated", EARLY, LATE, DENIED)
        ),
    )
    policy = RoutingPolicy(
        format=FORMAT,
        name="numpy",
        version=1,
        issued=ISSUED,
        expires=EXPIRES,
        taxonomy=TaxonomyReference(name=taxonomy.name, version=taxonomy.version, digest=taxonomy.digest),
        quarantine=Quarantine.WEIGHT_ZERO,
        rules=(
            Rule(classes=(DENIED,), weight=0.0),
            Rule(classes=(LATE,), depth=(0.5, 1.0), progress=(0.5, 1.0), weight=0.5),
            Rule(classes=(EARLY,), weight=1.0),
        ),
    )
    signing: dict[str, Any] = {"trust": believed(), "now": NOW}
    signed = sign_document(taxonomy, TAXONOMY, [private(GOVERNANCE)], where="taxonomy", **signing)
    write_envelope(place / "taxonomy.json", signed)
    write_envelope(place / "policy.json", sign_document(policy, POLICY, [private(RISK)], where="policy", **signing))
    paths = [EARLY, LATE, DENIED, EARLY, "quarantine"]
    rows = [
        Row(commitment(at), paths[at % 5], f"digit {label}", GOVERNANCE) for at, label in enumerate(labels.tolist())
    ]
    write_table(place / "tags.parquet", rows)
    about: dict[str, Any] = {"description": DESCRIPTION, "issued": ISSUED, "expires": EXPIRES, "taxonomy": taxonomy}
    write_envelope(place / "tags.json", attest(place / "tags.parquet", keys=[private(GOVERNANCE)], **about, **signing))
    rundir.write_json(place / "source.json", {"private": str(run), "judged": NOW})


def recorded(runs: Path, writer: type[Writer] = Writer, *, by: str = TRAINER) -> Path:
    """A run of real digits."""
    digits: Any = load_digits()
    images, labels = digits.data, digits.target
    run = runs / "perceptron"
    write_documents(run, labels)
    return writer(run, images / 16, labels, private(by), **PLAN).run()


def judged(run: Path) -> Conformance:
    return conform(RunLedger(run), trust=believed(), now=NOW)


def faults(run: Path) -> list[str]:
    found = judged(run)
    return [*found.badge.findings, *(each.message for part in found.conditions for each in part.contradictions)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("numpy"))


def test_it_knows_nothing_of_explorer() -> None:
    source = Path(numpy_writer.__file__).read_text()
    named = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {alias.name for node in named for alias in node.names if isinstance(node, ast.Import)}
    modules |= {node.module or "" for node in named if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in modules} == {
        *("base64", "collections", "cryptography", "hashlib", "hmac", "json", "numpy", "os", "pathlib", "pyarrow"),
        *("itertools", "typing"),
    }


def test_the_page_says_what_the_code_says() -> None:
    """After a change: `python -m explorer.entries.entry_schemas`."""
    text = PAGE.read_text()
    assert page(text) == text
    assert page(text.replace("| 1 | run |", "| 2 | run |")) == text  # what is between the marks is made


def test_the_known_answers_of_the_page_are_the_writers_own(run: Path) -> None:
    """What the page gives as bytes, by the functions of the writer that was made from it."""
    (block,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.S)
    said = iter(json.loads(block).values())
    writer = Writer(run, np.zeros((6, 2)), np.zeros(6, int), private(TRAINER), **PLAN)
    writer.classes, writer.secrets, writer.first, writer.seed = ["open/mit"], [bytes([1]) * 32] * 2, 8, 7
    entry = {"kind": "end", "version": 1, "blobs": {}, "metrics": {"accuracy": (0.75).hex()}}
    writer.ledger.append(**{key: value for key, value in entry.items() if key != "version"})
    assert [writer.ledger.entries[-1].hex(), leaf_hash(writer.ledger.entries[-1]).hex()] == [next(said), next(said)]
    assert root_of([]).hex() == next(said)
    key = expand(bytes([1]) * 32, b"explorer/reading-key/v1", b"step", b"open/mit", u64(8))
    assert [key.hex(), expand(key, b"explorer/salt/v1", u64(9)).hex()] == [next(said), next(said)]
    content = floats(np.array([1, 0.5]), np.array([2, 4]))
    assert [content.hex(), writer.commit("open/mit", 9, content)] == [next(said), next(said)]
    assert floats(np.array([1, 2]), np.array([0, 0.25]), np.array([[-1, -2], [-3, -4]])).hex() == next(said)
    rows = [leaf_hash(u64(r) + u64(1 << 32) + bytes([r]) * 32 + f"source {r}".encode()) for r in range(6)]
    writer.leaves = rows
    assert [rows[5].hex(), writer.slots(np.array([5, 3]))] == [next(said), next(said)]
    assert np.array([2, 5, 3], "<u4").tobytes().hex() == next(said)
    writer.tensors = {"w": np.array([1, 2], np.float32)}
    state, tensors = writer.state(40)
    assert [json.loads(tensors)["parameters"]["w"], state["random"]] == [next(said), next(said)]
    assert next(said, None) is None


def test_its_ledger_verifies_and_the_run_conforms(run: Path) -> None:
    origin = RunLedger(run).ledger.checkpoint().origin
    assert verify(run / rundir.LEDGER, anchor=anchor_of_trust(believed(), origin=origin), now=NOW).ok
    found = judged(run)
    assert faults(run) == []
    assert found.conforms, found
    checked = {condition.name: condition.checked for condition in found.conditions}
    assert [checked[name]["steps"] for name in ("routable", "typed", "reconstructible")] == [PLAN["steps"]] * 3
    assert checked["reconstructible"]["commitments"] > 2 * PLAN["steps"]


def test_every_entry_fits_its_published_schema(run: Path) -> None:
    for leaf in LedgerDirectory(run / rundir.LEDGER).entries():
        entry = json.loads(leaf)
        schema = json.loads((DIRECTORY / f"{entry['kind']}.v{entry['version']}.json").read_bytes())
        jsonschema.Draft202012Validator(schema).validate(entry)


def test_it_learns_what_it_may(run: Path) -> None:
    end = json.loads([*LedgerDirectory(run / rundir.LEDGER).entries()][-1])
    assert float.fromhex(end["metrics"]["accuracy"]) > 0.6


class DeniedTrains(Writer):
    def trains(self, progress: float) -> np.ndarray:
        return np.maximum(self.admitted(progress), [[0, 0], [0, 0], [0.25, 0]])


class LateTrainsEarly(Writer):
    """A class that is admitted, in a layer and at a time where it is not."""

    def trains(self, progress: float) -> np.ndarray:
        return np.maximum(self.admitted(progress), [[0, 0], [0.5, 0.5], [0, 0]])


class TableOfAnotherPolicy(Writer):
    def table(self, progress: float) -> bytes:
        return super().table(progress).replace(b"0x0.0p+0", b"0x1.0000000000000p-1")


class AnotherPhase(Writer):
    def phase(self, progress: float) -> str:
        return super().phase(0.0)


class CommitmentsOfAnotherStep(Writer):
    def commit(self, path: str, step: int, content: bytes) -> str:
        return super().commit(path, step + 1, content)


class SketchesChangedLater(Writer):
    def close(self, step: int) -> None:
        append = self.ledger.append

        def changed(kind: str, blobs: dict[str, bytes], **fields: Any) -> None:
            append(kind, blobs | {f"sketches/{EARLY}": bytes(len(blobs[f"sketches/{EARLY}"]))}, **fields)

        self.ledger.append = changed  # pyright: ignore[reportAttributeAccessIssue]
        super().close(step)
        self.ledger.append = append  # pyright: ignore[reportAttributeAccessIssue]


class NumbersChangedLater(Writer):
    def close(self, step: int) -> None:
        mine = self.parts[f"numbers/{EARLY}"]
        mine[0] = (np.frombuffer(mine[0], "<f4") * np.array([1, 0.5, 1, 1], "<f4")).tobytes()
        super().close(step)


class UpdateTooSmall(Writer):
    """The square of the update does not fit its inner products with the gradients that made it."""

    def record(self, step: int, rows: np.ndarray, updated: str, contents: dict[int, bytes], joint: bytes) -> None:
        numbers = np.frombuffer(joint, "<f4").reshape(2, -1).copy()
        numbers[:, 0] *= 1e-6
        super().record(step, rows, updated, contents, numbers.tobytes())


class SlotsInAnotherOrder(Writer):
    def slots(self, rows: np.ndarray) -> str:
        return super().slots(rows[::-1])


class ExampleOfAnotherClass(Writer):
    def record(self, step: int, rows: np.ndarray, updated: str, contents: dict[int, bytes], joint: bytes) -> None:
        kinds = self.class_of.copy()
        if step == 3:
            self.class_of[rows[kinds[rows] == 2][0]] = 0
        super().record(step, rows, updated, contents, joint)
        self.class_of = kinds


class NothingWasUpdated(Writer):
    def record(self, step: int, rows: np.ndarray, updated: str, contents: dict[int, bytes], joint: bytes) -> None:
        super().record(step, rows, "00", contents, joint)


class StepMissing(Writer):
    def record(self, step: int, rows: np.ndarray, updated: str, contents: dict[int, bytes], joint: bytes) -> None:
        if step != 5:
            super().record(step, rows, updated, contents, joint)


class AnotherState(Writer):
    def state(self, step: int) -> tuple[dict[str, str], bytes]:
        state, tensors = super().state(step)
        return (state | {"optimizer": "0" * 64} if step else state), tensors


class NoLastState(Writer):
    def close(self, step: int) -> None:
        if step < self.steps:
            super().close(step)


class NoEnd(Writer):
    def end(self) -> None:
        pass


class AnotherPolicy(Writer):
    def genesis(self) -> dict[str, Any]:
        return super().genesis() | {"policy": "0" * 64}


class AnotherTagTable(Writer):
    def genesis(self) -> dict[str, Any]:
        found = super().genesis()
        return found | {"tags": {"train": found["tags"]["train"] | {"root": "0" * 64}}}


class NotCanonical(Writer):
    def end(self) -> None:
        super().end()
        self.ledger.entries[-1] = self.ledger.entries[-1].replace(b":", b": ", 1)


class FractionInAnEntry(Writer):
    def end(self) -> None:
        super().end()
        self.ledger.entries[-1] = self.ledger.entries[-1].replace(b'"step":40', b'"step":40.0')


class BlobMissing(Writer):
    def end(self) -> None:
        super().end()
        blob = json.loads(self.ledger.entries[1])["blobs"]["weights"]["sha256"]
        (self.ledger.place / f"blobs/sha256/{blob[:2]}/{blob}").unlink()


class AnotherStream(Writer):
    def state(self, step: int) -> tuple[dict[str, str], bytes]:
        state, tensors = super().state(step)
        return state | {"random": "0" * 64}, tensors


class EndOfAnotherState(Writer):
    def end(self) -> None:
        self.tensors = {name: tensor + 1 for name, tensor in self.tensors.items()}
        super().end()


class TableNotNamed(Writer):
    def begin(self, step: int) -> None:
        super().begin(step)
        self.tables = {sha256(self.table(0.0))}


class BlobOfNothing(Writer):
    def close(self, step: int) -> None:
        self.parts[f"numbers/{DENIED}"] = [bytes(16)]
        super().close(step)


class NotItsName(Writer):
    def genesis(self) -> dict[str, Any]:
        return super().genesis() | {"run": "another"}


class NotItsRecipe(Writer):
    def genesis(self) -> dict[str, Any]:
        return super().genesis() | {"recipe": "0" * 64}


class NotItsMachine(Writer):
    def genesis(self) -> dict[str, Any]:
        return super().genesis() | {"environment": "0" * 64}


class LayerThatIsNotThere(Writer):
    def genesis(self) -> dict[str, Any]:
        return super().genesis() | {"layers": ["up", "elsewhere"]}


BROKEN: dict[type[Writer], str] = {
    AnotherStream: "random: not what seed 7 and",
    EndOfAnotherState: "not the last state, and no method of the run averages weights",
    TableNotNamed: "the table of weights in force is not",
    BlobOfNothing: "a blob of numbers that nothing commits to",
    NotItsName: "the ledger is not named after its run",
    NotItsRecipe: "loop.json: not the recipe that the genesis names",
    NotItsMachine: "environment.json: not the one that the genesis names",
    LayerThatIsNotThere: "layer elsewhere: no tensor is of it",
    DeniedTrains: "simulated/withheld trained up with more weight than the policy gives it",
    LateTrainsEarly: "simulated/late trained up with more weight than the policy gives it",
    TableOfAnotherPolicy: "the weights in force are not those of the signed policy",
    AnotherPhase: "another phase",
    CommitmentsOfAnotherStep: "its numbers are not those that the entry committed to",
    SketchesChangedLater: "simulated/early: its numbers are not those that the entry committed to",
    NumbersChangedLater: "simulated/early: its numbers are not those that the entry committed to",
    UpdateTooSmall: "no gradients and no update have the numbers of",
    SlotsInAnotherOrder: "the tags of its examples do not lead to the root in its entry",
    ExampleOfAnotherClass: "the count of examples differs from their tags",
    NothingWasUpdated: "took a gradient, and says that it was not updated",
    StepMissing: "step 6, and 5 were done",
    AnotherState: "the optimizer lead to the root",
    NoLastState: "no state after 40 steps",
    NoEnd: "the ledger has no end",
    AnotherPolicy: "the genesis names 0000",
    AnotherTagTable: "not one of the 1 tag tables",
    NotCanonical: "not in canonical form",
    FractionInAnEntry: "40.0 is not a whole number",
    BlobMissing: "weights: ",
}


@pytest.mark.parametrize("writer", BROKEN, ids=lambda writer: writer.__name__)
@pytest.mark.slow
def test_a_writer_that_breaks_one_rule_does_not_conform(tmp_path: Path, writer: type[Writer]) -> None:
    try:
        run = recorded(tmp_path, writer)
        assert not judged(run).conforms
        found = faults(run)
    except LedgerError as error:  # a ledger that cannot be read at all
        found = [str(error)]
    assert any(BROKEN[writer] in fault for fault in found), found


@pytest.mark.parametrize("name", ["loop.json", "environment.json", "private/secrets"])
def test_without_a_plan_it_cannot_be_told(run: Path, tmp_path: Path, name: str) -> None:
    copy = Path(shutil.copytree(run, tmp_path / run.name))
    (copy / name).unlink()
    assert faults(copy) == []
    assert judged(copy).conforms == (name == "private/secrets")  # whose commitments others may open with grants


@pytest.mark.parametrize("by", ["nobody", RISK])
def test_a_ledger_that_no_trainer_signed_does_not_conform(tmp_path: Path, by: str) -> None:
    found = judged(recorded(tmp_path, by=by))
    assert not found.conforms and not found.badge.verified
    assert "no trusted" in found.badge.findings[0]


def test_trace_and_usage_read_it(run: Path) -> None:
    ledger = RunLedger(run)
    answer = with_examples(ledger, trace(ledger, class_=LATE))
    assert answer.first_admitted == {LATE: PLAN["steps"] // 2}
    assert {row.layer: row.admitted for row in answer.rows} == {"up": False, "down": True}
    found = survey([ledger], by=By.CLASS, period=None, trust=believed(), now=NOW)
    uses = {line.party: line.uses[0] for line in found.lines}
    assert (uses[DENIED].examples, uses[DENIED].share) == (0, 0.0)
    assert answer.participants is not None
    assert uses[LATE].examples == answer.participants[0].slots and uses[LATE].layers == ("down",)
    assert sum(use.share or 0 for use in uses.values()) == pytest.approx(1)
    assert found.runs[0].simulated


def test_a_pack_of_it_passes_the_standalone_verifier(run: Path) -> None:
    made = make_pack(RunLedger(run), grants={}, report=None, key=private(TRAINER), trust=believed(), now=NOW)
    found = findings(made.content, trust=believed())
    assert found.failed == []
    assert found.checked["entries, in canonical form and in a possible order"] == len(
        [*LedgerDirectory(run / rundir.LEDGER).entries()]
    )
