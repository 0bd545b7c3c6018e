"""The contracts of Explorer for what is in this package."""

from typing import ClassVar

from blocks.bars import Bars
from blocks.gradient_noise import GradientNoise

from explorer.testing import DatasetContract, MethodContract


class TestGradientNoise(MethodContract):
    method = GradientNoise(scale=0.02)
    task: ClassVar = {"dataset": "bars", "model": "patches"}
    lowers_loss = False  # 40 steps of plain SGD leave this model near chance


class TestBars(DatasetContract):
    source = Bars()
    other = Bars(contrast=40)
    model = "patches"
