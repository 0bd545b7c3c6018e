"""Train a network of two layers with JAX on handwritten digits: a script as it was, and three lines for the sweep."""

import argparse
import time

import jax
import jax.numpy as jnp
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from explorer import track

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

x, y = load_digits(return_X_y=True)
x_train, x_test, y_train, y_test = map(jnp.asarray, train_test_split(x / 16, y, test_size=0.25, random_state=0))
draw, *keys = jax.random.split(jax.random.key(options.seed), 3)
weights = [jax.random.normal(keys[0], (64, 32)) / 8, jax.random.normal(keys[1], (32, 10)) / 6]


def logits(weights, x):
    return jnp.tanh(x @ weights[0]) @ weights[1]


@jax.value_and_grad
def loss(weights, x, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits(weights, x)), y[:, None], axis=1).mean()


@jax.jit
def step(weights, rows):
    value, slopes = loss(weights, x_train[rows], y_train[rows])
    return jax.tree.map(lambda weight, slope: weight - options.lr * slope, weights, slopes), value


step(weights, jnp.arange(32))  # compiled, so that the time below is that of training
seconds, number = 0.0, 0
for epoch in range(options.epochs):
    order = jax.random.permutation(jax.random.fold_in(draw, epoch), len(x_train))
    begun = time.perf_counter()
    for first in range(0, len(x_train) - 31, 32):
        weights, value = step(weights, order[first : first + 32])
        number += 1
    value.block_until_ready()
    seconds += time.perf_counter() - begun
    track.log(step=number, train_loss=value, seconds=seconds)
accuracy = (logits(weights, x_test).argmax(axis=1) == y_test).mean()
track.done(accuracy=accuracy, examples=number * 32)
