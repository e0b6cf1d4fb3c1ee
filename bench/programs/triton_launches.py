"""100 launches of a kernel of Triton, and one wait."""

import torch
import triton
import triton.language as tl
from report import prepare, report, timed


@triton.jit
def add_one(x, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


def launch():
    for _ in range(100):
        add_one[(4,)](x, 4096, block=1024)


prepare()
x = torch.zeros(4096, device="cuda")
launch()
_, seconds = timed(launch, runs=3)
report([x[0].item()], seconds)
