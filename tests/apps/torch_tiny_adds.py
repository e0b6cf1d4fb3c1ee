"""1000 additions of one small tensor, each needing the one before: what a launch costs the
application."""

import torch
from report import prepare, report, timed

ADDITIONS = 1000

prepare()
ones = torch.ones(16, device="cuda")


def chain():
    x = torch.zeros(16, device="cuda")
    for _ in range(ADDITIONS):
        x = x + ones
    return x


chain()
x, seconds = timed(chain, runs=15)
assert x.cpu().tolist() == [ADDITIONS] * 16
report(x.tolist(), seconds)
