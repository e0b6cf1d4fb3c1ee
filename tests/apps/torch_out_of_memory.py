"""Out of memory is an exception that says how much there is, and the program goes on after it."""

import torch
from report import prepare, report, timed

prepare()
free, total = torch.cuda.mem_get_info()
kept = torch.arange(1 << 20, device="cuda", dtype=torch.float32)
failures = 0


def work():
    global failures
    for _ in range(3):
        try:
            torch.empty(2 * total, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            assert "GiB" in str(error), error
            failures += 1


_, seconds = timed(work)
torch.cuda.empty_cache()
again = torch.ones(64 << 20, device="cuda")
assert failures == 3 and 0 < free <= total
report([failures, kept.double().sum().item(), again.double().sum().item()], seconds)
