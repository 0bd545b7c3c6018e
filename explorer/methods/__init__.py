"""The training methods. A new one is its file and a line in this table."""

from explorer.engine.method import Method
from explorer.methods.blurpool import BlurPool
from explorer.methods.channels_last import ChannelsLast
from explorer.methods.ema import EMA
from explorer.methods.gradient_clipping import GradientClipping
from explorer.methods.label_smoothing import LabelSmoothing
from explorer.methods.layer_freezing import LayerFreezing
from explorer.methods.mixup import MixUp
from explorer.methods.progressive_resizing import ProgressiveResizing
from explorer.methods.sam import SAM

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        BlurPool,
        ChannelsLast,
        EMA,
        GradientClipping,
        LabelSmoothing,
        LayerFreezing,
        MixUp,
        ProgressiveResizing,
        SAM,
    )
}
