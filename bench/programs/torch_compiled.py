"""The training steps of torch_training.py, compiled."""

import torch
from report import prepare, report, timed

prepare()
layers = [layer for _ in range(6) for layer in (torch.nn.Linear(256, 256), torch.nn.ReLU())]
network = torch.nn.Sequential(*layers).cuda()
compiled = torch.compile(network)
optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
x = torch.ones(64, 256, device="cuda")


def train():
    for _ in range(10):
        optimizer.zero_grad()
        loss = compiled(x).pow(2).mean()
        loss.backward()
        optimizer.step()
    return loss


train()
train()
loss, seconds = timed(train, runs=3)
report([loss.item()], seconds)
