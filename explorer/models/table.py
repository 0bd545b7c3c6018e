"""The table of models: a new family is its file and a line here."""

from explorer.models import gpt, resnet, resnet_deep
from explorer.models.specification import ModelSpec

MODELS: dict[str, type[ModelSpec]] = {model.name: model for model in (*resnet.FAMILY, *resnet_deep.FAMILY, *gpt.FAMILY)}
