"""The public names, for type checkers and editors: the package itself loads each on first use."""

from explorer import functional as functional
from explorer import track as track
from explorer.api import load as load
from explorer.data.dataset import Split as Split
from explorer.run_files import Metric as Metric
from explorer.sweep.commands.begun import begin as begin
from explorer.training.custom import Place as Place
from explorer.training.custom import train as train
from explorer.training.govern import Governed as Governed
from explorer.training.govern import govern as govern
from explorer.training.govern import replay as replay
from explorer.training.model_files import load_model as load_model
from explorer.training.model_layers import layers as layers
from explorer.training.tagging import tag as tag

__version__: str
