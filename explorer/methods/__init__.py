"""The training methods. A new one is its file and a line in this table."""

from explorer.engine.method import Method
from explorer.methods.alibi import Alibi
from explorer.methods.augmix import AugMix
from explorer.methods.batch_size_warmup import BatchSizeWarmup
from explorer.methods.blurpool import BlurPool
from explorer.methods.channels_last import ChannelsLast
from explorer.methods.colout import ColOut
from explorer.methods.compile import Compile
from explorer.methods.cutmix import CutMix
from explorer.methods.cutout import Cutout
from explorer.methods.ema import EMA
from explorer.methods.factorize import Factorize
from explorer.methods.gated_linear_units import GatedLinearUnits
from explorer.methods.ghost_batchnorm import GhostBatchNorm
from explorer.methods.gradient_clipping import GradientClipping
from explorer.methods.gyro_dropout import GyroDropout
from explorer.methods.label_smoothing import LabelSmoothing
from explorer.methods.layer_freezing import LayerFreezing
from explorer.methods.low_precision_groupnorm import LowPrecisionGroupNorm
from explorer.methods.low_precision_layernorm import LowPrecisionLayerNorm
from explorer.methods.mixup import MixUp
from explorer.methods.muon import Muon
from explorer.methods.progressive_resizing import ProgressiveResizing
from explorer.methods.randaugment import RandAugment
from explorer.methods.random_subset import RandomSubset
from explorer.methods.rotary import Rotary
from explorer.methods.sam import SAM
from explorer.methods.schedule_free import ScheduleFree
from explorer.methods.selective_backprop import SelectiveBackprop
from explorer.methods.seq_length_warmup import SeqLengthWarmup
from explorer.methods.squeeze_excite import SqueezeExcite
from explorer.methods.stochastic_depth import StochasticDepth
from explorer.methods.swa import SWA
from explorer.methods.weight_standardization import WeightStandardization
from explorer.methods.whitening import Whitening

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        Alibi,
        AugMix,
        BatchSizeWarmup,
        BlurPool,
        ChannelsLast,
        ColOut,
        Compile,
        CutMix,
        Cutout,
        EMA,
        Factorize,
        GatedLinearUnits,
        GhostBatchNorm,
        GradientClipping,
        GyroDropout,
        LabelSmoothing,
        LayerFreezing,
        LowPrecisionGroupNorm,
        LowPrecisionLayerNorm,
        MixUp,
        Muon,
        ProgressiveResizing,
        RandAugment,
        RandomSubset,
        Rotary,
        SAM,
        ScheduleFree,
        SelectiveBackprop,
        SeqLengthWarmup,
        SqueezeExcite,
        StochasticDepth,
        SWA,
        WeightStandardization,
        Whitening,
    )
}
