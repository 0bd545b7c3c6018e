"""Parts of models that others wrote: residual blocks, attentions, feed-forwards, embeddings of positions.

Surgery never rewrites the forward pass of such a model. A description tells by the names of a module's children where a
residual branch ends, and behaviours are mixed into these children (`engine/modules.py`). Packages are not imported:
the same names are the same structure in all of them.

A description is strict: children are defined in the order of `parts`, and a child or a parameter that it does not name
rules a block out. An unknown variant is refused instead of changed in the wrong place. For an architecture of your own,
append its description to `BLOCKS`, `ATTENTIONS` or `FEED_FORWARDS`; the first match counts.

    BLOCKS.append(Block(as_in="mine", parts=("norm", "mix"), branches=(("mix",),)))

Shapes: B examples, C channels, T places, D width.
"""

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from explorer.engine.modules import mix_in
from explorer.errors import RecipeError
from explorer.models.residual import weighed
from explorer.models.transformer import Embedding, NoPositions

# --- residual blocks -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A residual block: a module that adds the output of branches to its input, or to a shortcut of it."""

    as_in: str  # whose modules it describes
    parts: tuple[str, ...]  # children, in the order of definition
    branches: tuple[tuple[str, ...], ...]  # paths in the order of use; the last output is added; some may be absent
    others: tuple[str, ...] = ()  # more children and parameters that it may have
    having: tuple[str, ...] = ()  # paths of attributes that it must have, whatever they are
    adds: str = ""  # path of an attribute that is true in a block with a shortcut; empty: all have one
    pairs: frozenset[str] = frozenset()  # paths of modules that return a pair, the output first
    tokens: bool = False  # outputs are B T D, and not B C and dimensions in space
    rows_first: str = ""  # path of an attribute that is true where rows are the first dimension; empty: they are


BLOCKS: list[Block] = [
    Block(
        as_in="torchvision, timm: Bottleneck",
        parts=("conv1", "bn1", "conv2", "bn2", "conv3", "bn3"),
        branches=(("conv1", "bn1", "conv2", "bn2", "aa", "conv3", "bn3", "se", "drop_path"),),
        others=("downsample", "shortcut", "aa", "se", "drop_path"),
        having=("downsample|shortcut",),
    ),
    Block(
        as_in="torchvision, timm: BasicBlock",
        parts=("conv1", "bn1", "conv2", "bn2"),
        branches=(("conv1", "bn1", "aa", "conv2", "bn2", "se", "drop_path"),),
        others=("downsample", "shortcut", "aa", "se", "drop_path"),
        having=("downsample|shortcut",),
    ),
    Block(
        as_in="torchvision: MBConv of EfficientNet",
        parts=("block", "stochastic_depth"),
        branches=(("block", "stochastic_depth"),),
        having=("use_res_connect",),
        adds="use_res_connect",
    ),
    Block(
        as_in="torchvision: InvertedResidual of MobileNetV2",
        parts=("conv",),
        branches=(("conv",),),
        having=("use_res_connect",),
        adds="use_res_connect",
    ),
    Block(
        as_in="torchvision: InvertedResidual of MobileNetV3",
        parts=("block",),
        branches=(("block",),),
        having=("use_res_connect",),
        adds="use_res_connect",
    ),
    Block(
        as_in="timm: InvertedResidual of EfficientNet",
        parts=("conv_pw", "bn1", "conv_dw", "bn2", "conv_pwl", "bn3"),
        branches=(("conv_pw", "bn1", "conv_dw", "bn2", "aa", "se", "conv_pwl", "bn3", "drop_path"),),
        others=("aa", "se", "drop_path"),
        having=("has_skip",),
        adds="has_skip",
    ),
    Block(
        as_in="torchvision: CNBlock of ConvNeXt",
        parts=("block", "stochastic_depth"),
        branches=(("block", "stochastic_depth"),),
        others=("layer_scale",),
        having=("layer_scale",),
    ),
    Block(
        as_in="timm: ConvNeXtBlock",
        parts=("conv_dw", "norm", "mlp", "drop_path"),
        branches=(("conv_dw", "norm", "mlp", "drop_path"),),
        others=("gamma", "shortcut"),
    ),
    Block(
        as_in="ConvNeXt's authors: Block",
        parts=("dwconv", "norm", "pwconv1", "pwconv2", "drop_path"),
        branches=(("dwconv", "norm", "pwconv1", "grn", "pwconv2", "drop_path"),),
        others=("gamma", "grn"),
    ),
    Block(
        as_in="timm: Block of VisionTransformer",
        parts=("norm1", "attn", "norm2", "mlp"),
        branches=(("attn", "ls1", "drop_path1"), ("mlp", "ls2", "drop_path2")),
        others=("ls1", "ls2", "drop_path1", "drop_path2"),
        having=("attn.qkv",),
        tokens=True,
    ),
    Block(
        as_in="torchvision: EncoderBlock of VisionTransformer",
        parts=("ln_1", "self_attention", "dropout", "ln_2", "mlp"),
        branches=(("self_attention", "dropout"), ("mlp",)),
        pairs=frozenset({"self_attention"}),
        tokens=True,
    ),
    Block(
        as_in="transformers: GPT2Block",
        parts=("ln_1", "attn", "ln_2", "mlp"),
        branches=(("attn",), ("mlp.c_fc", "mlp.c_proj", "mlp.dropout")),
        having=("attn.layer_idx", "mlp.dropout"),
        pairs=frozenset({"attn"}),
        tokens=True,
    ),
    Block(
        as_in="minGPT, nanoGPT: Block",
        parts=("ln_1", "attn", "ln_2", "mlp"),
        branches=(("attn",), ("mlp.c_fc", "mlp.c_proj", "mlp.dropout")),
        having=("attn.c_attn", "mlp.dropout"),
        tokens=True,
    ),
    Block(
        as_in="transformers: LlamaDecoderLayer, and Mistral's, Qwen's",
        parts=("self_attn", "mlp", "input_layernorm", "post_attention_layernorm"),
        branches=(("self_attn",), ("mlp",)),
        having=("mlp.down_proj",),
        pairs=frozenset({"self_attn"}),
        tokens=True,
    ),
    Block(
        as_in="transformers: BertLayer, and RoBERTa's",
        parts=("attention", "intermediate", "output"),
        branches=(
            ("attention.self", "attention.output.dense", "attention.output.dropout"),
            ("intermediate", "output.dense", "output.dropout"),
        ),
        having=("attention.self", "attention.output.dropout", "output.dropout"),
        pairs=frozenset({"attention.self"}),
        tokens=True,
    ),
    Block(
        as_in="torch.nn: TransformerEncoderLayer",
        parts=("self_attn", "linear1", "dropout", "linear2", "norm1", "norm2", "dropout1", "dropout2"),
        branches=(("self_attn", "dropout1"), ("linear1", "linear2", "dropout2")),
        pairs=frozenset({"self_attn"}),
        tokens=True,
        rows_first="self_attn.batch_first",
    ),
]


class Admission:
    """State of a branch in a pass: `kept` and `survival` as in `models.residual.Gate`."""

    def __init__(self) -> None:
        self.survival = 1.0
        self.kept: bool | Tensor | None = None


class Omittable(nn.Module if TYPE_CHECKING else object):
    """Behaviour of a module of a branch that is not computed in the passes that omit the branch."""

    admission: Admission
    makes_pair: bool

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not (self.training and self.admission.kept is False):
            return super().forward(*args, **kwargs)
        # Zeros without history: parameters that only this branch uses get no gradient, as if it were not there.
        zeros = hollow(self, next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)))
        return (zeros, None) if self.makes_pair else zeros


class Added(Omittable):
    """Behaviour of the last module of a branch, whose output is weighed as `Gate` does."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        kept, survival = self.admission.kept, self.admission.survival
        if self.makes_pair:
            inside, *rest = output
            return (weighed(inside, kept, survival, training=self.training), *rest)
        return weighed(output, kept, survival, training=self.training)


@dataclass(frozen=True, kw_only=True, slots=True)
class Branch:
    """A residual branch of a model."""

    block: Block
    name: str  # of the last module
    modules: tuple[nn.Module, ...]  # in the order of use; the last one's output is added
    pairs: tuple[bool, ...]  # of each module: whether it returns a pair
    rows_first: bool  # whether rows are the first dimension of its output


def branches_of(model: nn.Module) -> list[Branch]:
    """Return the branches of all blocks that a description fits, in the order of definition.

    Raises `RecipeError` for a module that ends two branches: it cannot tell which of them runs.
    """
    branches = []
    ends: dict[nn.Module, str] = {}
    for name, module in model.named_modules():
        block = next((block for block in BLOCKS if _fits(module, block)), None)
        if block is None or (block.adds and not _at(module, block.adds)):
            continue
        for paths in block.branches:
            present = [path for path in paths if isinstance(_at(module, path), nn.Module)]
            end = f"{name}.{present[-1]}".lstrip(".")
            modules = tuple(_at(module, path) for path in present)
            if modules[-1] in ends:
                raise RecipeError(f"found {ends[modules[-1]]} and {end}, one module: expected one for each branch")
            ends[modules[-1]] = end
            pairs = tuple(path in block.pairs for path in present)
            rows_first = not block.rows_first or bool(_at(module, block.rows_first))
            branches.append(Branch(block=block, name=end, modules=modules, pairs=pairs, rows_first=rows_first))
    return branches


def make_omittable(branches: list[Branch]) -> None:
    """Give the modules of these branches an `Admission`, in place; the last one holds it as `admission`."""
    for branch in branches:
        if isinstance(branch.modules[-1], Added):
            continue
        admission = Admission()
        for module, pair in zip(branch.modules, branch.pairs, strict=True):
            mix_in(Added if module is branch.modules[-1] else Omittable, module)
            module.admission, module.makes_pair = admission, pair  # pyright: ignore


def hollow(module: nn.Module, input: Tensor) -> Tensor:
    """Return zeros of the shape that the module's output has; only convolutions change shapes within a branch."""
    # What lies between two modules of a branch acts on each number by itself, so that a linear layer may keep its
    # input's width: the branch ends with the width that it began with, unless a convolution changes it.
    shape = tuple(input.shape)
    for layer in module.modules() if isinstance(module, nn.Sequential) else (module,):
        if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            shape = _convolved(layer, shape)
    return input.new_zeros(shape)


def _convolved(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a convolution's output, from that of its input."""
    if layer.padding == "same":
        return (shape[0], layer.out_channels, *shape[2:])
    padding = [0] * (len(shape) - 2) if isinstance(layer.padding, str) else layer.padding
    sides = zip(shape[2:], layer.kernel_size, layer.stride, padding, layer.dilation, strict=True)
    out = [(side + 2 * around - gap * (size - 1) - 1) // step + 1 for side, size, step, around, gap in sides]
    return (shape[0], layer.out_channels, *out)


def _fits(module: nn.Module, block: Block) -> bool:
    children = [name for name, child in module._modules.items() if child is not None]
    if tuple(name for name in children if name in block.parts) != block.parts:
        return False
    named = {*block.parts, *block.others}
    tensors = {name for name, tensor in module._parameters.items() if tensor is not None}
    trained = {name for name, child in module.named_children() if next(child.parameters(), None) is not None}
    having = (any(_has(module, path) for path in paths.split("|")) for paths in block.having)
    return trained | tensors <= named and all(having)


def _has(module: nn.Module, path: str) -> bool:
    try:
        operator.attrgetter(path)(module)
    except AttributeError:
        return False
    return True


def _at(module: nn.Module, path: str) -> Any:
    """Return what lies at a path of attributes; None if there is nothing."""
    return operator.attrgetter(path)(module) if _has(module, path) else None


# --- attentions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfAttention:
    """A module that relates the places of a row to each other, by a softmax of scores B H T T."""

    as_in: str  # whose modules it describes
    having: tuple[str, ...]  # attributes


ATTENTIONS: list[SelfAttention] = [
    SelfAttention(as_in="torch.nn: MultiheadAttention", having=("in_proj_weight", "out_proj")),
    SelfAttention(as_in="transformers: GPT2Attention; minGPT, nanoGPT", having=("c_attn", "c_proj")),
    SelfAttention(as_in="transformers: LlamaAttention", having=("q_proj", "k_proj", "v_proj", "o_proj")),
    SelfAttention(as_in="transformers: BertSelfAttention", having=("query", "key", "value")),
    SelfAttention(as_in="timm: Attention", having=("qkv", "proj")),
]


def attentions_of(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the names and modules of the attentions that a description fits, in the order of definition."""
    return [
        (name, module)
        for name, module in model.named_modules()
        if any(all(hasattr(module, part) for part in kind.having) for kind in ATTENTIONS)
        and not getattr(module, "is_cross_attention", False)  # its rows and columns are places of different rows
    ]


# --- embeddings of positions -----------------------------------------------------------------------------------------

# Names of embeddings, parameters and buffers that are added to the tokens' vectors.
POSITIONS: list[str] = [
    "wpe",
    "position_embeddings",
    "position_embedding",
    "pos_embedding",
    "pos_embed",
    "pos_emb",
    "positions",
    "pe",
]
ROTARIES: list[str] = ["rotary_emb"]  # names of modules that return cosines and sines


class NoPosition(nn.Module):
    """An embedding of positions that adds nothing, at rows of any length."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, positions: Tensor) -> Tensor:
        # One place, which is added to all: a table of positions would limit the length of rows.
        return torch.zeros(*[1] * positions.ndim, self.width, device=positions.device)


class Unturned(nn.Module if TYPE_CHECKING else object):
    """Behaviour of a rotary embedding that turns nothing: cosines 1 and sines 0."""

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        cosines, sines = super().forward(*args, **kwargs)
        return torch.ones_like(cosines), torch.zeros_like(sines)


def silence_positions(model: nn.Module) -> list[str]:
    """Make the embeddings of positions add nothing, in place; return their names. Parameters of positions become
    buffers of zeros, which are not saved."""
    names = []
    for name, module in model.named_modules():
        if isinstance(module, Embedding) and not isinstance(module.positions, NoPositions):
            module.positions = NoPositions()
            names.append(name)
    for parent_name, parent in list(model.named_modules()):
        for name, child in list(parent._modules.items()):
            full = f"{parent_name}.{name}".lstrip(".")
            if name in POSITIONS and isinstance(child, nn.Embedding):
                parent.add_module(name, NoPosition(child.embedding_dim).train(child.training))
                names.append(full)
            elif name in ROTARIES and child is not None and not isinstance(child, Unturned):
                mix_in(Unturned, child)
                names.append(full)
        tensors = {**parent._parameters, **parent._buffers}
        for name, tensor in tensors.items():
            if name in POSITIONS and tensor is not None and tensor.is_floating_point():
                delattr(parent, name)
                parent.register_buffer(name, torch.zeros_like(tensor, requires_grad=False), persistent=False)
                names.append(f"{parent_name}.{name}".lstrip("."))
    return names


# --- feed-forwards ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class FeedForward:
    """Two linear maps with an activation between, which act on each place by itself: paths in the module around
    them."""

    as_in: str  # whose modules it describes
    up: str
    act: str  # a module or a function
    down: str


FEED_FORWARDS: list[FeedForward] = [
    FeedForward(as_in="timm: Mlp", up="fc1", act="act", down="fc2"),
    FeedForward(as_in="transformers: GPT2MLP; minGPT", up="c_fc", act="act", down="c_proj"),
    FeedForward(as_in="nanoGPT: MLP", up="c_fc", act="gelu", down="c_proj"),
    FeedForward(
        as_in="transformers: BertLayer",
        up="intermediate.dense",
        act="intermediate.intermediate_act_fn",
        down="output.dense",
    ),
    FeedForward(as_in="torch.nn: TransformerEncoderLayer", up="linear1", act="activation", down="linear2"),
    FeedForward(as_in="ConvNeXt's authors: Block", up="pwconv1", act="act", down="pwconv2"),
    FeedForward(as_in="torchvision: MLPBlock", up="0", act="1", down="3"),
    FeedForward(as_in="torchvision: CNBlock of ConvNeXt", up="block.3", act="block.4", down="block.5"),
]
GATED: list[tuple[str, ...]] = [("gate_proj", "up_proj", "down_proj"), ("w1", "w2", "w3")]  # children of gated ones


@dataclass(frozen=True, kw_only=True, slots=True)
class Hidden:
    """A feed-forward of a model: the module around its parts, their description, and its sizes."""

    name: str
    module: nn.Module
    kind: FeedForward
    width: int
    hidden: int


def feed_forwards_of(model: nn.Module) -> list[Hidden]:
    """Return the feed-forwards that a description fits, in the order of definition. Their maps are linear, and their
    output is as wide as their input, which the head of a classifier's is not."""
    fitting = []
    for name, module in model.named_modules():
        for kind in FEED_FORWARDS:
            up, down = (affine_sizes(_at(module, path)) for path in (kind.up, kind.down))
            if up is not None and down == up[::-1] and callable(_at(module, kind.act)):
                fitting.append(Hidden(name=name, module=module, kind=kind, width=up[0], hidden=up[1]))
                break
    return fitting


def gated_of(model: nn.Module) -> list[str]:
    """Return the names of the feed-forwards that are gated already."""
    return [
        name
        for name, module in model.named_modules()
        if any(all(isinstance(_at(module, part), nn.Module) for part in parts) for parts in GATED)
    ]


def put(module: nn.Module, path: str, new: nn.Module) -> None:
    """Replace what lies at a path, a module or a function."""
    parent, _, name = path.rpartition(".")
    around = _at(module, parent) if parent else module
    new.train(around.training)
    setattr(around, name, new)


def affine_sizes(module: Any) -> tuple[int, int] | None:
    """Return the features in and out of a linear layer; None for any other module."""
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    if is_transposed(module):
        return module.weight.shape[0], module.weight.shape[1]
    return None


def is_transposed(module: Any) -> bool:
    """Return whether a module is the linear layer of transformers' GPT-2, `Conv1D`, whose weight is inputs x
    outputs."""
    return isinstance(module, nn.Module) and type(module).__name__ == "Conv1D" and hasattr(module, "nf")


# --- torch's fused inference -----------------------------------------------------------------------------------------


def leave_fast_paths(model: nn.Module) -> None:
    """Make torch's transformer layers call their modules in evaluation too.

    Otherwise a fused kernel reads the weights of their children and computes what the layer did before surgery.
    """
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0  # torch's own mark of a layer that the kernel does not fit
        elif isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False  # its layers would get nested tensors, which only the kernel takes
