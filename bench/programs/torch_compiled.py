"""The training steps of torch_training.py, compiled."""

import torch
from mlp import trainer
from report import prepare, report, timed

prepare()
train = trainer(torch.compile)
train()
train()
loss, seconds = timed(train, runs=3)
report([loss.item()], seconds)
