"""64 MiB there and back, pinned and pageable."""

import torch
from report import prepare, report, timed

BYTES = 64 << 20

prepare()
pinned = torch.ones(BYTES, dtype=torch.uint8).pin_memory()
pageable = torch.ones(BYTES, dtype=torch.uint8)
device = torch.empty(BYTES, dtype=torch.uint8, device="cuda")


def copy():
    for host in (pinned, pageable):
        device.copy_(host, non_blocking=True)
        host.copy_(device, non_blocking=True)


copy()
_, seconds = timed(copy, runs=3)
assert pageable.sum().item() == pinned.sum().item() == BYTES
report([BYTES], seconds)
