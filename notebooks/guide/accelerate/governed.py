"""Train a small network on handwritten digits: the loop of Accelerate's documentation."""

import argparse

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader

import explorer


def train(govern=explorer.govern, lr=0.01, epochs=5, seed=0):
    accelerator = Accelerator(cpu=True)
    set_seed(seed)
    x, y = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
    x = x.float() / 16
    data, held_out = explorer.Split(inputs=x[:1400], labels=y[:1400]), x[1400:]
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    loader = DataLoader(range(len(data)), batch_size=32, shuffle=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=epochs * len(loader))
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    documents = {"documents": "governed", "policy": "sealed", "ledger": "runs/_own/digits"}
    governed = govern(model, optimizer, examples=data, steps=epochs * len(loader), **documents)
    for epoch in range(epochs):
        model.train()
        for rows in loader:
            governed.step(rows, lambda model, x, y: F.cross_entropy(model(x), y, reduction="none"))
            scheduler.step()
        model.eval()
        with torch.no_grad():
            accuracy = (model(held_out).argmax(1) == y[1400:]).float().mean().item()
        accelerator.print(f"epoch {epoch + 1}: accuracy {accuracy:.3f}")
    governed.finish()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    train(**vars(parser.parse_args()))
