"""How the baseline of `notebooks/sweeps/digits.yaml` was tuned: batch size and learning rate at about equal time.

python benchmarks/tune_digits.py        writes benchmarks/tune_digits.md
"""

from pathlib import Path

from options import options
from tuning import Search, write_table

WEIGHT_DECAY = 5e-3
SEARCH = Search(
    task={"dataset": {"digits": {"size": 16}}, "model": "resnet8"},
    optimizer=lambda lr: {"sgd": {"lr": lr, "weight_decay": WEIGHT_DECAY}},
    ladder=((8, 2.5), (16, 4.0), (32, 5.0)),
    learning_rates=(0.05, 0.1, 0.2, 0.4),
    seeds=(100, 101, 102),
    metrics={"accuracy": "accuracy", "nll": "NLL (nats)"},
)


def main() -> None:
    options(__doc__).parse_args()
    words = f"resnet8, digits at 16x16, SGD with momentum 0.9 and weight decay {WEIGHT_DECAY:g}"
    write_table(SEARCH, "Tuning of the digits baseline", words, Path(__file__).with_suffix(".md"))


if __name__ == "__main__":
    main()
