"""Models as others write them, small: what is not of this project, and trains in a loop that is not either.

Each is a structure that people publish: where tensors are held, how they are used, and what a forward pass leaves
behind. None draws random numbers, so that a plain loop and a governed one can be compared bit for bit. Those of the
`transformers` library are its own classes, made from small configurations with random weights.

Shapes: B examples, T tokens or patches, D width, C channels, K classes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from explorer.data.dataset import Split

EXAMPLES, TOKENS, WIDTH, KINDS = 12, 32, 16, 5
_DRAWS = np.random.default_rng(0)
_BLOCKS = torch.from_numpy(_DRAWS.integers(0, TOKENS, (EXAMPLES, 9), dtype=np.uint8))
TEXT = Split(inputs=_BLOCKS[:, :-1], labels=_BLOCKS[:, 1:])
IMAGES = Split(
    inputs=torch.from_numpy(_DRAWS.integers(0, 256, (EXAMPLES, 3, 8, 8), dtype=np.uint8)),
    labels=torch.from_numpy(_DRAWS.integers(0, KINDS, EXAMPLES)),
)

Losses = Callable[[nn.Module, Tensor, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class Foreign:
    """A model, and how it is trained: the loss of each example, B."""

    name: str
    says: str  # what is special about it
    build: Callable[[], nn.Module]
    examples: Split
    losses: Losses


def next_token(model: nn.Module, tokens: Tensor, following: Tensor) -> Tensor:
    """Of a model that takes tokens and gives logits B T K, or an object that has them."""
    found = model(tokens.long())
    logits = getattr(found, "logits", found)
    return F.cross_entropy(logits.mT, following.long(), reduction="none").mean(1)


def kind(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Of a model that takes images and gives logits B K; with a second head in training, both."""
    found = model(images.float() / 128 - 1)
    heads = found if isinstance(found, tuple) else (found,)
    return torch.stack([F.cross_entropy(each, labels, reduction="none") for each in heads]).sum(0)


def denoised(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """The noise that a diffusion model finds in an image. Noise and time follow from the example, and are not drawn."""
    clean, times = images.float() / 128 - 1, labels / KINDS
    noise, share = torch.sin(1000 * clean), times.view(-1, 1, 1, 1)
    return (model((1 - share) * clean + share * noise, times) - noise).square().mean((1, 2, 3))


# Transformers


class CausalAttention(nn.Module):
    """As in minGPT: q, k and v in one matrix, and the causal mask a buffer that is saved with the model."""

    bias: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("bias", torch.tril(torch.ones(8, 8)).view(1, 1, 8, 8))

    def forward(self, x: Tensor) -> Tensor:
        size = x.shape[1]
        q, k, v = (each.unflatten(2, (2, -1)).transpose(1, 2) for each in self.c_attn(x).split(WIDTH, 2))
        scores = (q @ k.mT / math.sqrt(WIDTH // 2)).masked_fill(self.bias[:, :, :size, :size] == 0, -math.inf)
        return self.c_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class MinBlock(nn.Module):
    def __init__(self, mlp: nn.Module | None = None) -> None:
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(WIDTH), CausalAttention(), nn.LayerNorm(WIDTH)
        self.mlp = mlp or nn.ModuleDict(
            {"c_fc": nn.Linear(WIDTH, 4 * WIDTH), "act": nn.GELU(), "c_proj": nn.Linear(4 * WIDTH, WIDTH)}
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        y = self.ln_2(x)
        if isinstance(self.mlp, nn.ModuleDict):
            for part in self.mlp.values():
                y = part(y)
            return x + y
        return x + self.mlp(y)


class MinGPT(nn.Module):
    """karpathy/minGPT: modules in a dictionary, a head of its own or tied to the embedding."""

    def __init__(self, *, tied: bool = False, mlp: Callable[[], nn.Module] | None = None) -> None:
        super().__init__()
        blocks = [MinBlock(None if mlp is None else mlp()) for _ in range(2)]
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(TOKENS, WIDTH),
                "wpe": nn.Embedding(8, WIDTH),
                "h": nn.ModuleList(blocks),
                "ln_f": nn.LayerNorm(WIDTH),
            }
        )
        self.lm_head = nn.Linear(WIDTH, TOKENS, bias=False)
        if tied:
            self.lm_head.weight = self.transformer["wte"].weight  # pyright: ignore

    def forward(self, tokens: Tensor) -> Tensor:
        parts: Any = self.transformer
        x = parts["wte"](tokens) + parts["wpe"](torch.arange(tokens.shape[1]))
        for block in parts["h"]:
            x = block(x)
        return self.lm_head(parts["ln_f"](x))


class Experts(nn.Module):
    """A mixture of experts: every token goes to one. Who is chosen by nobody takes no part in the pass."""

    def __init__(self, count: int = 6) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, count, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)) for _ in range(count)
        )

    def forward(self, x: Tensor) -> Tensor:
        shares = self.gate(x).softmax(-1)
        share, chosen = shares.max(-1)
        out = torch.zeros_like(x)
        for index in chosen.unique().tolist():
            here = chosen == index
            out[here] = share[here][:, None] * self.experts[index](x[here])
        return out


class EncoderText(nn.Module):
    """`nn.TransformerEncoder`, with a mask, over embeddings and positions of the model itself."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(0.02 * torch.randn(8, WIDTH))
        self.embed = nn.Embedding(TOKENS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.encoder(self.embed(tokens) + self.positions[: tokens.shape[1]], mask, is_causal=True))


class Translator(nn.Module):
    """`nn.Transformer`: an encoder, a decoder and cross attention, one embedding for both."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.body = nn.Transformer(WIDTH, 2, 1, 1, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        return self.head(self.body(x, x))


class Crossed(nn.Module):
    """Attention whose keys have another width, so that q, k and v have matrices of their own; with learned keys."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.keys = nn.Embedding(TOKENS, WIDTH), nn.Embedding(TOKENS, 6)
        self.attention = nn.MultiheadAttention(WIDTH, 2, kdim=6, vdim=6, add_bias_kv=True, batch_first=True)
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: Tensor) -> Tensor:
        found, _ = self.attention(self.embed(tokens), self.keys(tokens), self.keys(tokens))
        return self.head(found)


class ViT(nn.Module):
    """A vision transformer as torchvision writes it: class token in the model, positions in the encoder."""

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pos_embedding = nn.Parameter(0.02 * torch.randn(1, 17, WIDTH))
            self.layers = nn.Sequential(
                *(
                    nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
                    for _ in range(2)
                )
            )
            self.ln = nn.LayerNorm(WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            return self.ln(self.layers(x + self.pos_embedding))

    def __init__(self) -> None:
        super().__init__()
        self.conv_proj = nn.Conv2d(3, WIDTH, 2, stride=2)
        self.class_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.encoder = ViT.Encoder()
        self.heads = nn.Sequential(nn.Linear(WIDTH, KINDS))

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv_proj(x).flatten(2).mT
        return self.heads(self.encoder(torch.cat([self.class_token.expand(len(x), -1, -1), x], 1))[:, 0])


# Convolutions


class BasicBlock(nn.Module):
    """As torchvision writes it: the shortcut is a module only where the shape changes."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        changes = stride != 1 or inside != outside
        self.downsample = (
            nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))
            if changes
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        around = x if self.downsample is None else self.downsample(x)
        return self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))) + around)


class ResNet(nn.Module):
    """torchvision's residual network, and where asked a second head that runs in training only, as in GoogLeNet."""

    def __init__(self, *, second_head: bool = False) -> None:
        super().__init__()
        self.conv1, self.bn1, self.relu = nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(2)
        self.layer1 = nn.Sequential(BasicBlock(8, 8, 1))
        self.layer2 = nn.Sequential(BasicBlock(8, 16, 2))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(16, KINDS)
        self.aux = (
            nn.Sequential(nn.Conv2d(8, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64, KINDS)) if second_head else None
        )

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        x = self.layer1(self.maxpool(self.relu(self.bn1(self.conv1(x)))))
        logits = self.fc(self.avgpool(self.layer2(x)).flatten(1))
        return (logits, self.aux(x)) if self.aux is not None and self.training else logits


class Normed(nn.Module):
    """Weight and spectral normalisation as parametrisations, and statistics without gain and bias."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = parametrizations.weight_norm(nn.Conv2d(3, 8, 3, padding=1))
        self.norm = nn.BatchNorm2d(8, affine=False)
        self.next = parametrizations.spectral_norm(nn.Conv2d(8, 8, 3, padding=1))
        self.head = parametrizations.orthogonal(nn.Linear(8, KINDS))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.next(F.relu(self.norm(self.conv(x))))).mean((2, 3)))


class Denoiser(nn.Module):
    """One step of a diffusion model: a U-Net with skips that is told the time by a scale and a shift."""

    class Block(nn.Module):
        def __init__(self, inside: int, outside: int) -> None:
            super().__init__()
            self.norm, self.conv = nn.GroupNorm(1, inside), nn.Conv2d(inside, outside, 3, padding=1)
            self.time = nn.Linear(WIDTH, 2 * outside)

        def forward(self, x: Tensor, time: Tensor) -> Tensor:
            scale, shift = self.time(time)[:, :, None, None].chunk(2, 1)
            return F.silu(self.conv(self.norm(x)) * (1 + scale) + shift)

    frequencies: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.logspace(0, 2, WIDTH // 2), persistent=True)
        self.time = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU())
        self.down = nn.ModuleList([Denoiser.Block(3, 8), Denoiser.Block(8, 8)])
        self.mid_attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.up = nn.ModuleList([Denoiser.Block(16, 8), Denoiser.Block(16, 8)])
        self.out = nn.Conv2d(8, 3, 1)

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        angles = times[:, None] * self.frequencies
        time, skips = self.time(torch.cat([angles.sin(), angles.cos()], 1)), []
        for block in self.down:
            x = block(x, time)
            skips.append(x)
            x = F.avg_pool2d(x, 2)
        places = x.flatten(2).mT
        x = x + self.mid_attention(places, places, places)[0].mT.view_as(x)
        for block in self.up:
            x = block(torch.cat([F.interpolate(x, scale_factor=2), skips.pop()], 1), time)
        return self.out(x)


# Sequences


class Recurrent(nn.Module):
    """Two layers of `nn.LSTM` or `nn.GRU`, one of them in both directions: outputs are tuples."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.cells = kind(WIDTH, 8, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(16, TOKENS)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.cells(self.embed(tokens))[0])


class Mamba(nn.Module):
    """A selective state space: the block has tensors of its own (`A_log`, `D`) beside its modules."""

    class Block(nn.Module):
        def __init__(self, states: int = 4) -> None:
            super().__init__()
            self.in_proj = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
            self.conv1d = nn.Conv1d(WIDTH, WIDTH, 3, padding=2, groups=WIDTH)
            self.x_proj, self.dt_proj = nn.Linear(WIDTH, 2 * states + 1, bias=False), nn.Linear(1, WIDTH)
            self.A_log = nn.Parameter(torch.arange(1, states + 1).float().log().repeat(WIDTH, 1))
            self.D = nn.Parameter(torch.ones(WIDTH))
            self.out_proj = nn.Linear(WIDTH, WIDTH, bias=False)

        def forward(self, u: Tensor) -> Tensor:
            x, gate = self.in_proj(u).chunk(2, -1)
            x = F.silu(self.conv1d(x.mT)[..., : u.shape[1]].mT)
            step, b, c = self.x_proj(x).split([1, *[self.A_log.shape[1]] * 2], -1)
            step = F.softplus(self.dt_proj(step))
            state, out = x.new_zeros(len(x), WIDTH, self.A_log.shape[1]), []
            for t in range(x.shape[1]):
                decay = (step[:, t, :, None] * -self.A_log.exp()).exp()
                state = decay * state + (step[:, t] * x[:, t])[..., None] * b[:, t, None]
                out.append((state * c[:, t, None]).sum(-1))
            return self.out_proj((torch.stack(out, 1) + x * self.D) * F.silu(gate))

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.layers = nn.ModuleList(Mamba.Block() for _ in range(2))
        self.norm_f = nn.LayerNorm(WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return F.linear(self.norm_f(x), self.embedding.weight)


class Borrowed(nn.Module):
    """Functional code: a list of parameters, another module's weight, a module that is used as two, a gain."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))
        self.first = nn.Linear(WIDTH, WIDTH)
        self.body = self.first
        self.table = nn.Embedding(TOKENS, WIDTH)
        self.parts = nn.ParameterList([torch.randn(WIDTH, 4), torch.randn(4, WIDTH)])
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.body(self.first(F.embedding(tokens, self.table.weight)).tanh())
        x = x + 0.1 * x @ self.parts[0] @ self.parts[1]
        return F.linear(x, self.head.weight, self.head.bias) * self.gain


def _text(name: str, says: str, build: Callable[[], nn.Module]) -> Foreign:
    return Foreign(name=name, says=says, build=build, examples=TEXT, losses=next_token)


def _image(name: str, says: str, build: Callable[[], nn.Module]) -> Foreign:
    return Foreign(name=name, says=says, build=build, examples=IMAGES, losses=kind)


STRUCTURES = (
    _text("minGPT", "the causal mask is a buffer that is saved", MinGPT),
    _text("minGPT, tied", "the head is the embedding", lambda: MinGPT(tied=True)),
    _text("mixture of experts", "each token goes to one of six experts", lambda: MinGPT(mlp=Experts)),
    _text("TransformerEncoder", "`out_proj` is used and never called", EncoderText),
    _text("Transformer", "cross attention, one embedding for two ends", Translator),
    _text("MultiheadAttention", "q, k and v apart, learned extra keys", Crossed),
    _image("ViT", "class token of the model, positions of the encoder", ViT),
    _image("ResNet", "batch normalisation, shortcuts", ResNet),
    _image("GoogLeNet's second head", "a head that runs in training only", lambda: ResNet(second_head=True)),
    _image("parametrised", "weight, spectral and orthogonal norms, statistics without gain", Normed),
    Foreign(
        name="diffusion U-Net",
        says="two inputs, skips, attention, constant frequencies",
        build=Denoiser,
        examples=IMAGES,
        losses=denoised,
    ),
    _text("LSTM", "tuples, two layers in both directions", lambda: Recurrent(nn.LSTM)),
    _text("GRU", "tuples, two layers in both directions", lambda: Recurrent(nn.GRU)),
    _text("state space", "tensors of the block beside its modules, tied head", Mamba),
    _text("functional", "a parameter list, borrowed weights, a shared module, a gain", Borrowed),
)


def published() -> tuple[Foreign, ...]:
    """Models of the `transformers` library. Raises ImportError where it is not installed."""
    transformers = import_module("transformers")  # by name: the type checker runs where it is not installed
    small: dict[str, Any] = {"vocab_size": TOKENS, "hidden_size": WIDTH, "intermediate_size": 32}
    layers: dict[str, Any] = {"num_hidden_layers": 2, "num_attention_heads": 2}
    no_drop: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}

    def gpt2() -> nn.Module:
        drops = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0}
        return transformers.GPT2LMHeadModel(
            transformers.GPT2Config(n_layer=2, n_head=2, n_embd=WIDTH, vocab_size=TOKENS, n_positions=8, **drops)
        )

    def llama() -> nn.Module:
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**small, **layers, num_key_value_heads=1))

    def bert() -> nn.Module:
        return transformers.BertForMaskedLM(
            transformers.BertConfig(**small, **layers, **no_drop, max_position_embeddings=8)
        )

    def mixtral() -> nn.Module:
        config = transformers.MixtralConfig(
            **small, **layers, num_key_value_heads=1, num_local_experts=4, num_experts_per_tok=1
        )
        return transformers.MixtralForCausalLM(config)

    def vit() -> nn.Module:
        sizes = {"image_size": 8, "patch_size": 4, "num_labels": KINDS, "hidden_size": WIDTH, "intermediate_size": 32}
        return _Logits(transformers.ViTForImageClassification(transformers.ViTConfig(**sizes, **layers, **no_drop)))

    return (
        _text("transformers: GPT-2", "a head that is tied to the embedding", gpt2),
        _text("transformers: Llama", "rotary positions, grouped queries, gated perceptrons", llama),
        _text("transformers: BERT", "a decoder that is tied, a bias that is held twice", bert),
        _text("transformers: Mixtral", "stacked experts and a router", mixtral),
        _image("transformers: ViT", "class token and positions of a module inside", vit),
    )


class _Logits(nn.Module):
    """The logits alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).logits
