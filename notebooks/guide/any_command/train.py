"""Train a small network of scikit-learn on handwritten digits: a script as it was, and three lines for the sweep."""

import argparse
import time

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split

from explorer import track

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

x, y = load_digits(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x / 16, y, test_size=0.25, random_state=0)
model = SGDClassifier(
    loss="log_loss",
    learning_rate="constant",
    eta0=options.lr,
    random_state=options.seed,
)
draw = np.random.default_rng(options.seed)
seconds = 0.0
for epoch in range(1, options.epochs + 1):
    order = draw.permutation(len(x_train))
    begun = time.perf_counter()
    model.partial_fit(x_train[order], y_train[order], classes=np.arange(10))
    seconds += time.perf_counter() - begun
    accuracy = accuracy_score(y_test, model.predict(x_test))
    track.log(step=epoch, accuracy=accuracy, seconds=seconds)
track.done(accuracy=accuracy, examples=options.epochs * len(x_train))
