"""The first tensor on the GPU, and one addition: what every PyTorch program pays behind its
imports."""

import time

import torch
from report import prepare, report

prepare()
begin = time.perf_counter()
a = torch.arange(1000, device="cuda", dtype=torch.float32)
b = a + 1
values = b.cpu()
seconds = time.perf_counter() - begin
assert torch.equal(values, torch.arange(1000, dtype=torch.float32) + 1)
report([values.sum(), torch.cuda.device_count(), torch.cuda.get_device_capability()[0]], seconds)
