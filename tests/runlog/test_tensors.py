"""The tensors that a run ended with lead to its roots, and each has an owner by its name."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from explorer.entries.kinds import End, Traits
from explorer.errors import LedgerError
from explorer.ledger.storage import blob_path
from explorer.merkle import leaf_hash, root_of
from explorer.provenance.regions import SealedRegion
from explorer.runlog.model_file import MODEL, ModelFile
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.tensors import (
    Tensors,
    check_roots,
    owner_of,
    parse_tensors,
    read_ended,
    tensor_leaf,
    without_bookkeeping,
)
from tests.governed_sample import STEPS, write_governed_run
from tests.tensors_for_tests import state, tensors

REGIONS = (
    SealedRegion(name="customer", branch="personal/customer", layers=("head", "blocks.*"), rank=2),
    SealedRegion(name="news", branch="licensed/news", module="side"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_governed_run(tmp_path_factory.mktemp("runs"))


def test_the_end_names_the_tensors_of_the_model(run: Path) -> None:
    ended = read_ended(RunLedger(run))
    leaves = {**ended.tensors.parameters, **ended.tensors.buffers}
    assert ended.end.entry.step == STEPS and ModelFile(run / "model" / MODEL).leaves() == leaves


def test_tensors_that_do_not_lead_to_the_roots() -> None:
    layers = ["embed", "head", "head@customer"]
    found, reached = tensors(layers, 3), state(layers, 3)
    check_roots(found, reached, where="here")
    for part in ("parameters", "buffers", "optimizer"):
        names = getattr(found, part)
        first = next(iter(names))
        for other in (
            {**names, first: "0" * 64},
            {k: v for k, v in names.items() if k != first},
            {**names, "x": "1" * 64},
        ):
            with pytest.raises(LedgerError, match=f"here: the {part} lead to the root"):
                check_roots(replace(found, **{part: other}), reached, where="here")


def test_a_blob_that_is_gone_and_a_run_without_end(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    found = RunLedger(run)
    (end,) = found.read([found.outline.end or 0], End)
    (run / "ledger" / blob_path(end.entry.blobs["tensors"].sha256)).unlink()
    with pytest.raises(LedgerError, match="is missing: blob 'tensors'"):
        read_ended(RunLedger(run))
    with pytest.raises(LedgerError, match="unfinished: its ledger has no end"):
        read_ended(RunLedger(write_governed_run(tmp_path / "other", steps=5)))


def test_the_blob_has_one_form() -> None:
    found = Tensors(parameters={"a": "0" * 64}, buffers={}, optimizer={})
    assert parse_tensors(found.content, where="here") == found
    for wrong in (found.content + b" ", b"[]", b"{}", found.content.replace(b"0" * 64, b"0" * 63)):
        with pytest.raises(LedgerError, match="here"):
            parse_tensors(wrong, where="here")


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("head.weight", None),
        ("head.@customer.up.weight", "customer"),
        ("blocks.0.mlp.@customer.down.weight", "customer"),
        ("embed.@customer.up.weight", None),  # no region asks for an adapter there
        ("head.@other.up.weight", None),
        ("side.conv.weight", "news"),
        ("side.norm.running_mean", "news"),
        ("sidecar.weight", None),
        ("optimizer/shared/0/head.weight/exp_avg", None),
        ("optimizer/news/0/side.conv.weight/exp_avg", "news"),
        ("optimizer/customer/0/head.@customer.up.weight/step", "customer"),
        ("ema/average/side.conv.weight", "news"),
        ("ema/average/head.weight", None),
        ("ema/updates", None),
    ],
)
def test_whose_a_tensor_is(name: str, owner: str | None) -> None:
    assert owner_of(name, REGIONS) == owner


def test_what_methods_remember_about_classes_is_not_the_model(run: Path) -> None:
    genesis = replace(RunLedger(run).genesis, methods={"recorder": Traits(remembers="classes"), "ema": Traits()})
    training = ("ema/updates", "optimizer/shared/0/a/exp_avg", "recorder", "recorder.weight")
    found = Tensors(parameters={}, buffers={}, optimizer=dict.fromkeys((*training, "recorder/admitted"), "0" * 64))
    assert set(without_bookkeeping(found, genesis).optimizer) == set(training)


def test_a_ledger_that_does_not_state_what_its_methods_remember(run: Path) -> None:
    genesis = replace(RunLedger(run).genesis, methods=None)
    with pytest.raises(LedgerError, match="does not state the traits of its methods"):
        without_bookkeeping(read_ended(RunLedger(run)).tensors, genesis)


# --- chunks ---


def leaf(content: bytes, *, chunk: int | None, pieces: int = 7) -> str:
    values = [content[at : at + pieces] for at in range(0, len(content), pieces)]
    return tensor_leaf("a", dtype="torch.uint8", shape=(len(content),), values=values, chunk=chunk)


@pytest.mark.parametrize("pieces", [1, 3, 8, 100])
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 17, 40])
def test_a_leaf_hashes_chunks_where_a_tensor_has_several(size: int, pieces: int) -> None:
    content = bytes(range(size))
    found = leaf(content, chunk=8, pieces=pieces)
    if size <= 8:
        assert found == leaf(content, chunk=None)
        return
    # Each chunk by itself, as the process that holds it hashes it.
    chunks = [leaf_hash(content[at : at + 8]) for at in range(0, size, 8)]
    header = f"a|torch.uint8|({size},)\n".encode()
    assert found == hashlib.sha256(b"\x00" + header + root_of(chunks)).hexdigest()
    assert found != leaf(content, chunk=None)
    assert found != leaf(content, chunk=16)
    assert found != leaf(content[::-1], chunk=8)


def test_lists_without_chunks_have_the_bytes_of_before() -> None:
    before = Tensors(parameters={"a": "0" * 64}, buffers={}, optimizer={})
    assert b"chunk" not in before.content and parse_tensors(before.content, where="list") == before
    now = replace(before, chunk=2**22)
    assert parse_tensors(now.content, where="list") == now and now.content != before.content
    assert now.roots == before.roots
