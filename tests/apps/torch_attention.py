"""Scaled dot product attention on each of the back ends that PyTorch has: plain mathematics, flash,
memory-efficient, cuDNN."""

import torch
from report import prepare, report, timed
from torch.nn.attention import SDPBackend, sdpa_kernel

prepare()
shape = (2, 8, 256, 64)
query, key, value = (torch.randn(shape).cuda().bfloat16() for _ in range(3))
want = torch.nn.functional.scaled_dot_product_attention(
    *(part.cpu().float() for part in (query, key, value)), is_causal=True
)
results, total = [], 0.0
for backend in (
    SDPBackend.MATH,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
):
    with sdpa_kernel(backend):

        def work():
            return torch.nn.functional.scaled_dot_product_attention(
                query, key, value, is_causal=True
            )

        work()
        got, seconds = timed(work, runs=10)
    difference = (got.cpu().float() - want).abs().max().item()
    assert difference < 0.05, (backend, difference)
    results.append(got.double().sum().item())
    total += seconds
report(results, total)
