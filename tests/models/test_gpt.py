"""The transformers: the published size, a reference written out, causality, the tie, and how they start."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.engine.leaves import leaves
from explorer.engine.modules import initialise
from explorer.errors import RecipeError
from explorer.models.gpt import FAMILY, GPT, AnySpec, Size, SmallSpec, TinySpec
from explorer.models.specification import ModelSpec
from explorer.models.table import MODELS
from explorer.models.transformer import STD, AlibiBias, GatedPerceptron
from explorer.recipes.choice import choose

SIZE = Size(depth=2, width=12, heads=3)
TOKENS = 17
CONTEXT = 8


def built(size: Size = SIZE, *, dropout: float = 0.0, seed: int = 0) -> GPT:
    model = GPT(size, dropout=dropout, context=CONTEXT, tokens=TOKENS)
    initialise(model, seed=seed)
    return model


def some_tokens(batch: int = 3, places: int = CONTEXT) -> Tensor:
    return torch.randint(0, TOKENS, (batch, places), generator=torch.Generator().manual_seed(0))


def count(spec: ModelSpec, *, context: int, tokens: int) -> int:
    with torch.device("meta"):
        model = spec.build(example_shape=(context,), classes=tokens)
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_sizes() -> None:
    assert count(TinySpec(), context=128, tokens=256) == 410_256
    assert count(SmallSpec(), context=128, tokens=256) == 10_795_008
    assert count(AnySpec(depth=12, width=768, heads=12), context=1024, tokens=50257) == 124_439_808  # the least GPT-2
    assert [MODELS[spec.name] for spec in FAMILY] == list(FAMILY)


def test_the_tokens_are_the_classes_and_the_context_is_the_length_of_an_example() -> None:
    for spec in (TinySpec(), AnySpec(depth=1, width=16, heads=2)):
        model = spec.build(example_shape=(CONTEXT,), classes=TOKENS)
        assert model(some_tokens()).shape == (3, CONTEXT, TOKENS)
        assert model(some_tokens(places=5)).shape == (3, 5, TOKENS)


def test_heads_that_do_not_divide_the_width_are_refused_by_name() -> None:
    with pytest.raises(RecipeError, match=r"here\.gpt: found width 90 and heads 4: expected heads that divide"):
        choose(MODELS, {"gpt": {"width": 90}}, kind="model", where="here")


def reference(model: GPT, tokens_BT: Tensor) -> Tensor:
    """GPT-2 from its definition: masks, softmax and projections in the open, one head at a time."""
    state = model.state_dict()

    def norm(name: str, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return scaled * state[f"{name}.weight"] + state[f"{name}.bias"]

    def linear(name: str, x: Tensor) -> Tensor:
        return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]

    places = tokens_BT.shape[1]
    future = torch.ones(places, places, dtype=torch.bool).triu(1)
    x = state["embed.tokens.weight"][tokens_BT] + state["embed.positions.weight"][:places]
    for block in range(SIZE.depth):
        at = f"blocks.{block}"
        q, k, v = linear(f"{at}.attention.qkv", norm(f"{at}.norm1", x)).chunk(3, dim=-1)
        heads = []
        for head in range(SIZE.heads):
            own = slice(head * SIZE.width // SIZE.heads, (head + 1) * SIZE.width // SIZE.heads)
            scores = q[..., own] @ k[..., own].transpose(1, 2) / math.sqrt(SIZE.width / SIZE.heads)
            heads.append(scores.masked_fill(future, -math.inf).softmax(-1) @ v[..., own])
        x = x + linear(f"{at}.attention.out", torch.cat(heads, dim=-1))
        hidden = linear(f"{at}.mlp.up", norm(f"{at}.norm2", x))
        x = x + linear(f"{at}.mlp.down", hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2)
    return norm("norm", x) @ state["embed.tokens.weight"].T


def test_it_computes_what_gpt2_is_defined_as() -> None:
    model = built().double()
    for parameter in model.parameters():  # away from where norms are one and shifts are zero
        nn.init.normal_(parameter, generator=torch.Generator().manual_seed(parameter.numel()))
    tokens = some_tokens(places=6)
    assert torch.allclose(model(tokens), reference(model, tokens), rtol=1e-10, atol=1e-10)


def test_a_place_sees_what_stands_before_it_and_nothing_behind() -> None:
    model, tokens = built(), some_tokens(batch=1)
    before = model(tokens)
    for place in range(CONTEXT):
        changed = tokens.clone()
        changed[0, place] = (changed[0, place] + 1) % TOKENS
        differs = (model(changed) - before).abs().amax(-1)[0] > 1e-7
        assert differs.tolist() == [False] * place + [True] * (CONTEXT - place)


def test_the_examples_of_a_batch_do_not_touch_each_other() -> None:
    model, tokens = built().train(), some_tokens()
    assert torch.allclose(model(tokens), torch.cat([model(row[None]) for row in tokens]), atol=1e-6)


def test_layers_come_in_the_order_of_execution_and_the_tied_tensor_belongs_to_the_first() -> None:
    found = leaves(built(), some_tokens(batch=1))
    block = ("norm1", "attention.qkv", "attention.out", "norm2", "mlp.up", "mlp.down")
    assert [leaf.name for leaf in found] == [
        "embed.tokens",
        "embed.positions",
        *(f"blocks.{index}.{name}" for index in range(SIZE.depth) for name in block),
        "norm",
    ]
    held = [name for leaf in found for name in leaf.parameters]
    assert sorted(held) == sorted(name for name, _ in built().named_parameters())
    assert found[0].parameters == ("embed.tokens.weight",)


def test_the_tied_tensor_learns_from_both_of_its_uses() -> None:
    """A token that was never read is moved through the head alone, and a cut of the head leaves it where it is."""
    model = built()
    tokens = torch.zeros(2, CONTEXT, dtype=torch.int64)
    for cut, moved in ((False, True), (True, False)):
        x = model.norm(model.blocks(model.embed(tokens)))
        logits = F.linear(x, model.embed.tokens.weight.detach()) if cut else model.embed.tokens.unembed(x)
        (gradient,) = torch.autograd.grad(logits.logsumexp(-1).sum(), [model.embed.tokens.weight])
        assert bool(gradient[5].any()) == moved
        assert gradient[0].any()


def test_weights_start_as_in_gpt2() -> None:
    wide = built(Size(depth=8, width=192, heads=4))
    for name, parameter in wide.named_parameters():
        if "norm" in name or name.endswith("bias"):
            assert (parameter == (1 if name.endswith("weight") else 0)).all()
        else:
            into_the_sum = name.endswith(("attention.out.weight", "mlp.down.weight"))
            expected = STD / math.sqrt(16) if into_the_sum else STD
            assert parameter.std().item() == pytest.approx(expected, rel=0.1), name


def test_a_block_more_leaves_the_other_draws_as_they_were() -> None:
    short, long = built(), built(Size(depth=3, width=12, heads=3))
    for name, parameter in short.state_dict().items():
        scaled = name.endswith(("attention.out.weight", "mlp.down.weight"))  # one sum of more terms
        same = long.state_dict()[name] * (math.sqrt(6 / 4) if scaled else 1)
        assert torch.allclose(parameter, same, rtol=1e-6, atol=0), name
    assert not torch.equal(built(seed=1).embed.tokens.weight, short.embed.tokens.weight)


def test_dropout_acts_in_training_alone_and_not_unless_asked_for() -> None:
    tokens = some_tokens()
    for dropout, changes in ((0.0, False), (0.5, True)):
        model = built(dropout=dropout)
        assert torch.equal(model.train()(tokens), model.eval()(tokens)) != changes


CHOICES: list[dict[str, Any]] = [
    {"positions": positions, "glu": glu} for positions in ("learned", "alibi", "none") for glu in (False, True)
]


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_every_choice_is_causal_and_a_document_reads_the_same_wherever_it_stands(choice: dict[str, Any]) -> None:
    """Without the mask it does not: what stands before it is seen."""
    document, before = torch.tensor([[4, 9, 2, 0]]), torch.tensor([[7, 7, 0]])
    row = torch.cat((before, document), 1)
    for masked in (True, False):
        spec = AnySpec(depth=2, width=12, heads=3, document_mask=masked, **choice)
        model = spec.build(example_shape=(7,), classes=TOKENS)
        initialise(model, seed=0)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(5)  # away from the start, where attention is even
        assert torch.allclose(model(row)[:, :3], model(before), atol=1e-5)  # nothing behind is seen
        assert torch.allclose(model(row)[:, 3:], model(document), atol=1e-5) == masked


def test_a_compiled_pass_hides_other_documents_too() -> None:
    """By a mask: documents apart have shapes of their own, which cannot be captured."""
    spec = AnySpec(depth=1, width=12, heads=3, document_mask=True)
    model, rows = spec.build(example_shape=(7,), classes=TOKENS), torch.tensor([[7, 7, 0, 4, 9, 2, 0]])
    initialise(model, seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=False)
    torch.testing.assert_close(compiled(rows), model(rows), rtol=1e-5, atol=1e-5)
    assert torch.allclose(compiled(rows)[:, 3:], model(rows[:, 3:]), atol=1e-5)


def test_positions_and_perceptrons_are_what_was_chosen() -> None:
    for choice in CHOICES:
        model = AnySpec(depth=1, width=12, heads=3, **choice).build(example_shape=(7,), classes=TOKENS)
        assert ("embed.positions.weight" in model.state_dict()) == (choice["positions"] == "learned")
        assert any(isinstance(module, AlibiBias) for module in model.modules()) == (choice["positions"] == "alibi")
        assert any(isinstance(module, GatedPerceptron) for module in model.modules()) == choice["glu"]
        held = {name for leaf in leaves(model, some_tokens(batch=1, places=7)) for name in leaf.parameters}
        assert held == {name for name, _ in model.named_parameters()}


def test_gated_gpt2_is_as_large() -> None:
    """But for the biases: 12 x (4 x 768 + 768) fewer."""
    sizes = [
        count(AnySpec(depth=12, width=768, heads=12, glu=glu), context=1024, tokens=50257) for glu in (False, True)
    ]
    assert sizes[0] - sizes[1] == 12 * (4 * 768 + 768)
    assert count(AnySpec(depth=12, width=768, heads=12), context=1024, tokens=256) == 86_039_040


def test_a_separator_that_is_no_token_is_refused_where_it_is_used() -> None:
    with pytest.raises(RecipeError, match=r"gpt-tiny: found separator 200: expected one of the tokens, 0 to 16"):
        TinySpec(document_mask=True, separator=200).build(example_shape=(8,), classes=TOKENS)
    TinySpec(separator=200).build(example_shape=(8,), classes=TOKENS)


@pytest.mark.parametrize("choice", [CHOICES[0], CHOICES[3] | {"document_mask": True}], ids=str)
def test_a_small_one_learns_a_row(choice: dict[str, Any]) -> None:
    model = AnySpec(depth=1, width=16, heads=2, **choice).build(example_shape=(12,), classes=TOKENS)
    initialise(model, seed=0)
    row = some_tokens(batch=2, places=13)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    losses = []
    for _ in range(12):
        loss = F.cross_entropy(model(row[:, :-1]).flatten(0, 1), row[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(TOKENS), rel=0.05)
    assert losses[-1] < losses[0] / 2
