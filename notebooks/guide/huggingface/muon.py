"""Train a small Llama on source code: a training script as the library's examples write it."""

import argparse

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

from explorer import track
from explorer.adapters.huggingface import ExplorerCallback, Together
from explorer.methods.muon import MuonOptimizer, hidden_matrices, matrix_groups


def train(lr=3e-3, epochs=1.0, seed=0):
    blocks = np.load("source.npz")
    texts, held_out = ([{"input_ids": row, "labels": row} for row in blocks[side]] for side in ("texts", "held_out"))
    set_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2)
    )
    hidden = hidden_matrices(model, head={"lm_head.weight"})
    rest = [parameter for name, parameter in model.named_parameters() if name not in hidden]
    together = Together(MuonOptimizer(matrix_groups(model, hidden)), torch.optim.AdamW(rest, lr=lr))
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir="out",
            num_train_epochs=epochs,
            learning_rate=lr,
            lr_scheduler_type="cosine",
            warmup_steps=5,
            per_device_train_batch_size=16,
            eval_strategy="epoch",
            save_strategy="epoch",
            seed=seed,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=texts,
        eval_dataset=held_out,
        callbacks=[ExplorerCallback()],
        optimizers=(together, None),
    )
    trainer.train(resume_from_checkpoint=track.resume())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    train(**vars(parser.parse_args()))
