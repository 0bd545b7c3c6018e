"""A language model of the `transformers` library under a signed policy: small, with random weights."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import explorer
from explorer.audit.contents import examine_contents
from explorer.data.dataset import Split
from explorer.ledger.storage import LedgerDirectory
from tests.governance import desk

transformers = pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[hub]'")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

BLOCKS = torch.from_numpy(np.random.default_rng(0).integers(0, 64, (12, 9), dtype=np.uint8))
TEXT = Split(inputs=BLOCKS[:, :-1], labels=BLOCKS[:, 1:])


def gpt2() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=16, vocab_size=64, n_positions=8, bos_token_id=0, eos_token_id=0,
        resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def losses(model: nn.Module, tokens: Tensor, following: Tensor) -> Tensor:
    logits = model(input_ids=tokens.long()).logits
    return F.cross_entropy(logits.transpose(1, 2), following.long(), reduction="none").mean(1)


def trained(papers: Path, run: Path) -> dict[str, Tensor]:
    """The weights after some steps."""
    model = gpt2().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with explorer.govern(
        model, optimizer, examples=TEXT, documents=papers, policy="usual", ledger=run, steps=4, every=2
    ) as governed:
        for _ in range(4):
            governed.step(np.arange(12), losses)
    return model.state_dict()


@pytest.fixture
def papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("explorer.training.govern.time.time", lambda: desk.NOW)
    return desk.make(tmp_path / "papers", split=TEXT)


def test_a_transformer_is_governed_and_recorded(papers: Path, tmp_path: Path) -> None:
    """Twice the same bits, dropout included; every layer is in the ledger, the tied head with the embedding."""
    first, again = (trained(papers, tmp_path / name) for name in ("one", "two"))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["transformer.wte.weight"], gpt2().state_dict()["transformer.wte.weight"])
    ledger = LedgerDirectory(tmp_path / "one" / "ledger")
    found = examine_contents(ledger)
    assert found.fault is None and found.order is not None and found.order.finished
    genesis = next(ledger.entries(0, 1)).decode()
    assert '"transformer.wte","transformer.wpe","transformer.h.0.ln_1","transformer.h.0.attn.c_attn"' in genesis
