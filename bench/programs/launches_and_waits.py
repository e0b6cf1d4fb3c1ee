"""500 launches of a tiny kernel, each waited for: microseconds of one are a 500th."""

import torch
from report import prepare, report, timed

LAUNCHES = 500

prepare()
x = torch.zeros(16, device="cuda")


def launch():
    for _ in range(LAUNCHES):
        x.add_(1)
        torch.cuda.synchronize()


launch()
_, seconds = timed(launch, runs=5)
report([x[0].item()], seconds)
