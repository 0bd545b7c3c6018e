"""How the baseline of `notebooks/sweeps/source.yaml` was tuned: batch size and learning rate at about equal time.

python benchmarks/tune_source.py        writes benchmarks/tune_source.md
"""

from pathlib import Path

from options import options
from tuning import Search, write_table

SEARCH = Search(
    task={"dataset": {"source": {"bytes_per_class": 20_000, "context": 64}}, "model": "gpt-tiny"},
    optimizer=lambda lr: {"adamw": {"lr": lr, "betas": [0.9, 0.95], "weight_decay": 0.1}},
    ladder=((4, 0.5), (8, 0.75), (16, 1.0)),
    learning_rates=(1e-3, 1.5e-3, 2e-3, 3e-3),
    seeds=(100, 101),
    metrics={"bits_per_byte": "bits per byte"},
)


def main() -> None:
    options(__doc__).parse_args()
    words = "gpt-tiny, Python source of the installed distributions, AdamW with betas 0.9 and 0.95 and weight decay 0.1"
    write_table(SEARCH, "Tuning of the baseline on source code", words, Path(__file__).with_suffix(".md"))


if __name__ == "__main__":
    main()
