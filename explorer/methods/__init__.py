"""The training methods. A new one is its file and a line in this table."""

from explorer.engine.method import Method
from explorer.methods.augmix import AugMix
from explorer.methods.batch_size_warmup import BatchSizeWarmup
from explorer.methods.blurpool import BlurPool
from explorer.methods.channels_last import ChannelsLast
from explorer.methods.colout import ColOut
from explorer.methods.cutmix import CutMix
from explorer.methods.cutout import Cutout
from explorer.methods.ema import EMA
from explorer.methods.ghost_batchnorm import GhostBatchNorm
from explorer.methods.gradient_clipping import GradientClipping
from explorer.methods.label_smoothing import LabelSmoothing
from explorer.methods.layer_freezing import LayerFreezing
from explorer.methods.mixup import MixUp
from explorer.methods.muon import Muon
from explorer.methods.progressive_resizing import ProgressiveResizing
from explorer.methods.randaugment import RandAugment
from explorer.methods.random_subset import RandomSubset
from explorer.methods.sam import SAM
from explorer.methods.schedule_free import ScheduleFree
from explorer.methods.selective_backprop import SelectiveBackprop
from explorer.methods.seq_length_warmup import SeqLengthWarmup
from explorer.methods.swa import SWA
from explorer.methods.weight_standardization import WeightStandardization

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        AugMix,
        BatchSizeWarmup,
        BlurPool,
        ChannelsLast,
        ColOut,
        CutMix,
        Cutout,
        EMA,
        GhostBatchNorm,
        GradientClipping,
        LabelSmoothing,
        LayerFreezing,
        MixUp,
        Muon,
        ProgressiveResizing,
        RandAugment,
        RandomSubset,
        SAM,
        ScheduleFree,
        SelectiveBackprop,
        SeqLengthWarmup,
        SWA,
        WeightStandardization,
    )
}
