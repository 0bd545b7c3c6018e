"""The functions, for type checkers and editors: the module itself loads each on first use."""

from explorer.methods.alibi import apply_alibi as _alibi
from explorer.methods.augmix import augmix as augmix
from explorer.methods.batch_size_warmup import batch_size_warmup as batch_size_warmup
from explorer.methods.blurpool import apply_blurpool as _blurpool
from explorer.methods.channels_last import channels_last as channels_last
from explorer.methods.colout import colout as colout
from explorer.methods.cutmix import cutmix as cutmix
from explorer.methods.cutout import cutout as cutout
from explorer.methods.ema import ema as ema
from explorer.methods.factorize import apply_factorize as _factorize
from explorer.methods.gated_linear_units import apply_gated_linear_units as _gated_linear_units
from explorer.methods.ghost_batchnorm import apply_ghost_batchnorm as _ghost_batchnorm
from explorer.methods.gradient_clipping import gradient_clipping as gradient_clipping
from explorer.methods.gyro_dropout import gyro_dropout as gyro_dropout
from explorer.methods.label_smoothing import smooth_labels as _label_smoothing
from explorer.methods.layer_freezing import layer_freezing as layer_freezing
from explorer.methods.low_precision_groupnorm import apply_low_precision_groupnorm as _low_precision_groupnorm
from explorer.methods.low_precision_layernorm import apply_low_precision_layernorm as _low_precision_layernorm
from explorer.methods.mixup import mixup as mixup
from explorer.methods.muon import muon as muon
from explorer.methods.progressive_resizing import progressive_resizing as progressive_resizing
from explorer.methods.randaugment import randaugment as randaugment
from explorer.methods.random_subset import random_subset as random_subset
from explorer.methods.rotary import apply_rotary as _rotary
from explorer.methods.sam import sam as sam
from explorer.methods.schedule_free import schedule_free as schedule_free
from explorer.methods.selective_backprop import selective_backprop as selective_backprop
from explorer.methods.seq_length_warmup import seq_length_warmup as seq_length_warmup
from explorer.methods.squeeze_excite import apply_squeeze_excite as _squeeze_excite
from explorer.methods.stochastic_depth import stochastic_depth as stochastic_depth
from explorer.methods.swa import swa as swa
from explorer.methods.weight_standardization import apply_weight_standardization as _weight_standardization
from explorer.methods.whitening import apply_whitening as _whitening

FORMS: dict[str, str]
ABSENT: dict[str, str]

alibi = _alibi
blurpool = _blurpool
factorize = _factorize
gated_linear_units = _gated_linear_units
ghost_batchnorm = _ghost_batchnorm
label_smoothing = _label_smoothing
low_precision_groupnorm = _low_precision_groupnorm
low_precision_layernorm = _low_precision_layernorm
rotary = _rotary
squeeze_excite = _squeeze_excite
weight_standardization = _weight_standardization
whitening = _whitening
