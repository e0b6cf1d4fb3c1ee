"""Kernels in Triton: a vector addition and a softmax, the second with autotuning."""

import torch
import triton
import triton.language as tl
from report import prepare, report, timed


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.autotune([triton.Config({}, num_warps=warps) for warps in (2, 4, 8)], key=["width"])
@triton.jit
def softmax_kernel(x, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < width
    values = tl.load(x + row * width + at, mask=inside, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * width + at, powers / tl.sum(powers, axis=0), mask=inside)


prepare()
x, y = torch.randn(1_000_000).cuda(), torch.randn(1_000_000).cuda()
rows = torch.randn(512, 700).cuda()


def work():
    total, soft = torch.empty_like(x), torch.empty_like(rows)
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, total, x.numel(), BLOCK=1024)
    softmax_kernel[(rows.shape[0],)](rows, soft, rows.shape[1], BLOCK=1024)
    return total, soft


work()
(total, soft), seconds = timed(work, runs=20)
assert torch.equal(total, x + y)
assert torch.allclose(soft, torch.softmax(rows, 1), rtol=1e-4, atol=1e-6)
report([total.double().sum().item(), soft.double().square().sum().item()], seconds)
