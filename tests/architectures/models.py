"""Architectures as the field writes them, small: what the adapters of `engine/architectures.py` describe.

torchvision and timm cannot be installed everywhere, so their blocks are written here in the structure that they
publish: the same children under the same names, defined in the same order and used in the same way. Those of
`transformers` are its own classes, made from small configurations with random weights.

Shapes: B examples, C channels, H x W, T places, D width, K classes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module, util
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIDE, CLASSES, TOKENS, PLACES, WIDTH = 16, 5, 32, 12, 32
Norm = Callable[[int], nn.Module]

# --- torchvision: ResNet ---


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(
        self, inplanes: int, planes: int, stride: int, downsample: nn.Module | None, norm_layer: Norm = nn.BatchNorm2d
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
        self.bn1 = norm_layer(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = norm_layer(planes)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(
        self, inplanes: int, planes: int, stride: int, downsample: nn.Module | None, norm_layer: Norm = nn.BatchNorm2d
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 1, bias=False)
        self.bn1 = norm_layer(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False)
        self.bn2 = norm_layer(planes)
        self.conv3 = nn.Conv2d(planes, planes * self.expansion, 1, bias=False)
        self.bn3 = norm_layer(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, block: type[BasicBlock] | type[Bottleneck], norm_layer: Norm = nn.BatchNorm2d) -> None:
        super().__init__()
        self.inplanes, self._norm_layer = 16, norm_layer
        self.conv1 = nn.Conv2d(3, 16, 7, 2, 3, bias=False)
        self.bn1, self.relu = norm_layer(16), nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = self._make_layer(block, 16, 1)
        self.layer2 = self._make_layer(block, 32, 2)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(32 * block.expansion, CLASSES)

    def _make_layer(self, block: type[BasicBlock] | type[Bottleneck], planes: int, stride: int) -> nn.Sequential:
        out, norm_layer = planes * block.expansion, self._norm_layer
        downsample = None
        if stride != 1 or self.inplanes != out:
            downsample = nn.Sequential(nn.Conv2d(self.inplanes, out, 1, stride, bias=False), norm_layer(out))
        layers = [block(self.inplanes, planes, stride, downsample, norm_layer), block(out, planes, 1, None, norm_layer)]
        self.inplanes = out
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.avgpool(self.layer2(self.layer1(x))), 1))


def group_norm(channels: int) -> nn.Module:
    """What is given to torchvision's ResNet for training with few examples a device."""
    return nn.GroupNorm(4, channels)


# --- torchvision: MobileNetV2, EfficientNet ---


class Conv2dNormActivation(nn.Sequential):
    def __init__(
        self, inside: int, outside: int, size: int = 3, stride: int = 1, groups: int = 1, act: Any = nn.ReLU6
    ) -> None:
        layers = [
            nn.Conv2d(inside, outside, size, stride, (size - 1) // 2, groups=groups, bias=False),
            nn.BatchNorm2d(outside),
        ]
        super().__init__(*layers, *([act(inplace=True)] if act else []))


class InvertedResidual(nn.Module):
    def __init__(self, inp: int, oup: int, stride: int, expand_ratio: int) -> None:
        super().__init__()
        hidden_dim = inp * expand_ratio
        self.use_res_connect = stride == 1 and inp == oup
        self.conv = nn.Sequential(
            Conv2dNormActivation(inp, hidden_dim, 1),
            Conv2dNormActivation(hidden_dim, hidden_dim, 3, stride, hidden_dim),
            nn.Conv2d(hidden_dim, oup, 1, bias=False),
            nn.BatchNorm2d(oup),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            Conv2dNormActivation(3, 16, 3, 2),
            InvertedResidual(16, 16, 1, 2),
            InvertedResidual(16, 24, 2, 2),
            InvertedResidual(24, 24, 1, 2),
            Conv2dNormActivation(24, 48, 1),
        )
        self.classifier = nn.Sequential(nn.Dropout(0.0), nn.Linear(48, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.adaptive_avg_pool2d(self.features(x), (1, 1)).flatten(1))


class SqueezeExcitation(nn.Module):
    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1, self.fc2 = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)
        self.activation, self.scale_activation = nn.SiLU(inplace=True), nn.Sigmoid()

    def forward(self, input: Tensor) -> Tensor:
        return input * self.scale_activation(self.fc2(self.activation(self.fc1(self.avgpool(input)))))


class StochasticDepth(nn.Module):
    """torchvision's, of probability 0: the identity."""

    def __init__(self, p: float, mode: str) -> None:
        super().__init__()
        self.p, self.mode = p, mode

    def forward(self, input: Tensor) -> Tensor:
        return input


class MBConv(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.use_res_connect = stride == 1 and inside == outside
        wide = 2 * inside
        self.block = nn.Sequential(
            Conv2dNormActivation(inside, wide, 1, act=nn.SiLU),
            Conv2dNormActivation(wide, wide, 3, stride, wide, act=nn.SiLU),
            SqueezeExcitation(wide, 4),
            Conv2dNormActivation(wide, outside, 1, act=None),
        )
        self.stochastic_depth = StochasticDepth(0.0, "row")

    def forward(self, input: Tensor) -> Tensor:
        result = self.block(input)
        if self.use_res_connect:
            result = self.stochastic_depth(result)
            result += input
        return result


class EfficientNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            Conv2dNormActivation(3, 16, 3, 2, act=nn.SiLU), MBConv(16, 16, 1), MBConv(16, 24, 2), MBConv(24, 24, 1)
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(0.0, inplace=True), nn.Linear(24, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


# --- torchvision: ConvNeXt ---


class LayerNorm2d(nn.LayerNorm):
    def forward(self, input: Tensor) -> Tensor:
        x = input.permute(0, 2, 3, 1)
        x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class Permute(nn.Module):
    def __init__(self, dims: list[int]) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        return torch.permute(x, self.dims)


class CNBlock(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(dim, dim, 7, padding=3, groups=dim),
            Permute([0, 2, 3, 1]),
            nn.LayerNorm(dim),
            nn.Linear(dim, 4 * dim),
            nn.GELU(),
            nn.Linear(4 * dim, dim),
            Permute([0, 3, 1, 2]),
        )
        self.layer_scale = nn.Parameter(torch.ones(dim, 1, 1))
        self.stochastic_depth = StochasticDepth(0.0, "row")

    def forward(self, input: Tensor) -> Tensor:
        result = self.layer_scale * self.block(input)
        result = self.stochastic_depth(result)
        result += input
        return result


class ConvNeXt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Sequential(nn.Conv2d(3, 16, 2, 2), LayerNorm2d(16)),
            nn.Sequential(CNBlock(16), CNBlock(16)),
            nn.Sequential(LayerNorm2d(16), nn.Conv2d(16, 32, 2, 2)),
            nn.Sequential(CNBlock(32)),
        )
        self.classifier = nn.Sequential(LayerNorm2d(32), nn.Flatten(1), nn.Linear(32, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.adaptive_avg_pool2d(self.features(x), 1))


# --- timm: VisionTransformer ---


class TimmAttention(nn.Module):
    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.q_norm, self.k_norm = nn.Identity(), nn.Identity()
        self.attn_drop, self.proj, self.proj_drop = nn.Dropout(0.0), nn.Linear(dim, dim), nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.num_heads, c // self.num_heads).permute(2, 0, 3, 1, 4).unbind(0)
        x = F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v)
        return self.proj_drop(self.proj(x.transpose(1, 2).reshape(b, n, c)))


class TimmMlp(nn.Module):
    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1, self.act, self.drop1 = nn.Linear(dim, hidden), nn.GELU(), nn.Dropout(0.0)
        self.norm, self.fc2, self.drop2 = nn.Identity(), nn.Linear(hidden, dim), nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop2(self.fc2(self.norm(self.drop1(self.act(self.fc1(x))))))


class LayerScale(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((dim,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class TimmBlock(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(dim), TimmAttention(dim, 4)
        self.ls1, self.drop_path1 = LayerScale(dim), nn.Identity()
        self.norm2, self.mlp = nn.LayerNorm(dim), TimmMlp(dim, 2 * dim)
        self.ls2, self.drop_path2 = LayerScale(dim), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path1(self.ls1(self.attn(self.norm1(x))))
        return x + self.drop_path2(self.ls2(self.mlp(self.norm2(x))))


class TimmViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, 17, WIDTH))
        self.patch_embed = nn.Conv2d(3, WIDTH, 4, 4)
        self.blocks = nn.Sequential(TimmBlock(WIDTH), TimmBlock(WIDTH))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(len(x), -1, -1), x), 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


# --- torch.nn ---


class Encoder(nn.Module):
    """`nn.TransformerEncoder` over learned positions, causal."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.wpe = nn.Embedding(TOKENS, WIDTH), nn.Embedding(PLACES, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.encoder(self.embed(tokens) + self.wpe(places), mask, is_causal=True))


# --- minGPT and nanoGPT ---


class NanoAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.resid_dropout, self.n_head = nn.Dropout(0.0), 4

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.size()
        q, k, v = (part.view(b, t, self.n_head, -1).transpose(1, 2) for part in self.c_attn(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0, is_causal=True)
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c)))


class NanoMLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c_fc, self.gelu = nn.Linear(WIDTH, 4 * WIDTH), nn.GELU()
        self.c_proj, self.dropout = nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.c_proj(self.gelu(self.c_fc(x))))


class NanoBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(WIDTH), NanoAttention()
        self.ln_2, self.mlp = nn.LayerNorm(WIDTH), NanoMLP()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class NanoGPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        blocks = nn.ModuleList([NanoBlock(), NanoBlock()])
        parts = {"wte": nn.Embedding(TOKENS, WIDTH), "wpe": nn.Embedding(PLACES, WIDTH), "h": blocks}
        self.transformer = nn.ModuleDict({**parts, "ln_f": nn.LayerNorm(WIDTH)})
        self.lm_head = nn.Linear(WIDTH, TOKENS, bias=False)
        self.transformer["wte"].weight = self.lm_head.weight

    def forward(self, idx: Tensor) -> Tensor:
        x = self.transformer["wte"](idx) + self.transformer["wpe"](torch.arange(idx.shape[1], device=idx.device))
        for block in self.transformer["h"]:  # pyright: ignore[reportGeneralTypeIssues]
            x = block(x)
        return self.lm_head(self.transformer["ln_f"](x))


# --- transformers ---


class Logits(nn.Module):
    """A model of `transformers`, giving its logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(input_ids=tokens).logits


def _transformers(name: str, **sizes: Any) -> nn.Module:
    library = import_module("transformers")  # by name: the type checker runs where it is not installed
    kind = "MaskedLM" if name == "Bert" else "LMHeadModel" if name == "GPT2" else "CausalLM"
    config = getattr(library, f"{name}Config")(vocab_size=TOKENS, bos_token_id=0, eos_token_id=0, **sizes)
    return Logits(getattr(library, f"{name}{'' if name == 'GPT2' else 'For'}{kind}")(config))


def gpt2(**more: Any) -> nn.Module:
    drops = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return _transformers("GPT2", n_layer=2, n_head=4, n_embd=WIDTH, n_positions=PLACES, **drops, **more)


def _decoder(name: str, **more: Any) -> nn.Module:
    sizes = {"hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4}
    return _transformers(name, **sizes, **more)


def llama(**more: Any) -> nn.Module:
    return _decoder("Llama", num_key_value_heads=2, max_position_embeddings=64, **more)


def bert(**more: Any) -> nn.Module:
    drops = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return _decoder("Bert", max_position_embeddings=PLACES, **drops, **more)


# --- the list ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """A model as the field writes it."""

    name: str
    build: Callable[[], nn.Module]
    text: bool = False
    library: str = ""  # the package that it needs
    like: str = ""  # another one of nearly the same structure, which the default tests have in its place

    @property
    def is_here(self) -> bool:
        return not self.library or util.find_spec(self.library) is not None

    def made(self) -> nn.Module:
        """The model with the same weights in every call."""
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return self.build()

    def inputs(self, rows: int = 4) -> Tensor:
        draws = torch.Generator().manual_seed(1)
        if self.text:
            return torch.randint(0, TOKENS, (rows, PLACES), generator=draws)
        return torch.randn(rows, 3, SIDE, SIDE, generator=draws)


ARCHITECTURES = (
    Architecture(name="ResNet, BasicBlock (torchvision)", build=lambda: ResNet(BasicBlock)),
    Architecture(name="ResNet, Bottleneck (torchvision)", build=lambda: ResNet(Bottleneck), like="BasicBlock"),
    Architecture(
        name="ResNet, norm_layer=GroupNorm (torchvision)",
        build=lambda: ResNet(BasicBlock, group_norm),
        like="BasicBlock",
    ),
    Architecture(name="MobileNetV2 (torchvision)", build=MobileNetV2, like="EfficientNet"),
    Architecture(name="EfficientNet (torchvision)", build=EfficientNet),
    Architecture(name="ConvNeXt (torchvision)", build=ConvNeXt),
    Architecture(name="ViT (timm)", build=TimmViT),
    Architecture(name="TransformerEncoder (torch.nn)", build=Encoder, text=True),
    Architecture(name="nanoGPT", build=NanoGPT, text=True),
    Architecture(name="GPT-2 (transformers)", build=gpt2, text=True, library="transformers"),
    Architecture(name="BERT (transformers)", build=bert, text=True, library="transformers"),
    Architecture(name="Llama (transformers)", build=llama, text=True, library="transformers"),
)
