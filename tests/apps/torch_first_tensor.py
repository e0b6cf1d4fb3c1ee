"""The first tensor on the GPU, and one addition: what every PyTorch program pays."""

import time

begin = time.perf_counter()
import torch  # noqa: E402
from report import prepare, report  # noqa: E402

prepare()
a = torch.arange(1000, device="cuda", dtype=torch.float32)
b = a + 1
values = b.cpu()
assert torch.equal(values, torch.arange(1000, dtype=torch.float32) + 1)
report(
    [values.sum(), torch.cuda.device_count(), torch.cuda.get_device_capability()[0]],
    time.perf_counter() - begin,
)
