"""PyTorch's allocator with expandable segments: it grows its memory by mapping more of it."""

import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

import torch  # noqa: E402
from report import prepare, report, timed  # noqa: E402

prepare()


def work():
    kept, total = [], 0.0
    for size in (1, 3, 7, 30, 90, 50, 200):
        part = torch.full((size, 1 << 18), float(size), device="cuda")
        total += part.double().mean().item()
        kept.append(part)
        if len(kept) > 2:
            kept.pop(0)
    return total


work()
total, seconds = timed(work, runs=5)
assert total == 1 + 3 + 7 + 30 + 90 + 50 + 200, total
segments = torch.cuda.memory_snapshot()
assert any(segment["is_expandable"] for segment in segments), "no segment is expandable"
torch.cuda.empty_cache()
report([total], seconds)
