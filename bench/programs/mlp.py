"""A step that torch_training.py and torch_compiled.py have in common."""

import torch


def trainer(prepared=lambda network: network):
    """Trains an MLP of six layers of 256 by 10 steps, and returns the last loss."""
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(256, 256), torch.nn.ReLU())]
    network = torch.nn.Sequential(*layers).cuda()
    forward = prepared(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    x = torch.ones(64, 256, device="cuda")

    def train():
        for _ in range(10):
            optimizer.zero_grad()
            loss = forward(x).pow(2).mean()
            loss.backward()
            optimizer.step()
        return loss

    return train
