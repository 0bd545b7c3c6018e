"""The table of models. A new family needs its file and a line here."""

from explorer.models import airbench, gpt, mlp, resnet, text_classifier, unet
from explorer.models.specification import ModelSpec

FAMILIES = (
    resnet.FAMILY,
    resnet.DEEP_FAMILY,
    airbench.FAMILY,
    unet.FAMILY,
    gpt.FAMILY,
    mlp.FAMILY,
    text_classifier.FAMILY,
)
MODELS: dict[str, type[ModelSpec]] = {model.name: model for family in FAMILIES for model in family}
