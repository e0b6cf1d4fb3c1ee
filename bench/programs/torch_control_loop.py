"""100 steps of a control loop: 8 numbers there, two layers, the index of the largest one back."""

import torch
from report import prepare, report, timed

prepare()
layers = [torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)]
network = torch.nn.Sequential(*layers).cuda()
state = torch.ones(1, 8)


@torch.no_grad()
def steps():
    for _ in range(100):
        action = network(state.cuda()).argmax().item()
    return action


steps()
action, seconds = timed(steps, runs=3)
report([action], seconds)
