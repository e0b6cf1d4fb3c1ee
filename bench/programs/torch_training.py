"""10 training steps of an MLP of six layers of 256, eager, and one wait."""

from mlp import trainer
from report import prepare, report, timed

prepare()
train = trainer()
train()
train()
loss, seconds = timed(train, runs=3)
report([loss.item()], seconds)
