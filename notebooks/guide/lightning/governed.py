"""Train a small network on handwritten digits: a module and a Trainer as Lightning's documentation writes them."""

import argparse

import torch
import torch.nn.functional as F
from lightning.pytorch import LightningModule, Trainer, seed_everything
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import explorer
from explorer.adapters.lightning import GovernedSteps


class Classifier(LightningModule):
    def __init__(self, lr=0.01):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_acc", (self(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


class Governed(GovernedSteps, Classifier):
    def losses(self, inputs, labels):
        return F.cross_entropy(self(inputs), labels, reduction="none")


def train(govern=explorer.govern, lr=0.01, epochs=5, seed=0):
    seed_everything(seed, verbose=False)
    x, y = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
    x = x.float() / 16
    data, held_out = explorer.Split(inputs=x[:1400], labels=y[:1400]), TensorDataset(x[1400:], y[1400:])
    module = Governed(lr=lr)
    module.govern_by(examples=data, govern=govern, documents="governed", policy="sealed", ledger="runs/_own/digits")
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(max_epochs=epochs, accelerator="cpu", **quiet)
    loader = DataLoader(range(len(data)), batch_size=32, shuffle=True)
    trainer.fit(module, loader, DataLoader(held_out, batch_size=397))
    return module


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    train(**vars(parser.parse_args()))
