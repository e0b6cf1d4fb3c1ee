"""What the workloads share: fixed seeds and comparable arithmetic in PyTorch, and the JSON line
that scripts/gpu-suite reads."""

import json
import statistics
import sys
import time

CANNOT_RUN = 77  # exit code: something that the program needs is not on this machine


def cannot_run(why):
    print(why, file=sys.stderr)
    sys.exit(CANNOT_RUN)


def prepare():
    import torch

    torch.manual_seed(1234)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False


def timed(work, runs=1, synchronize=None):
    """(result of the last run, median seconds of a run); the device is idle before and after.
    `synchronize` waits for the device; PyTorch's, if it is not given."""
    if synchronize is None:
        import torch

        synchronize = torch.cuda.synchronize
    seconds = []
    for _ in range(runs):
        synchronize()
        begin = time.perf_counter()
        result = work()
        synchronize()
        seconds.append(time.perf_counter() - begin)
    return result, statistics.median(seconds)


def report(values, seconds):
    print(
        json.dumps({"values": [float(value) for value in values], "seconds": round(seconds, 6)}),
        flush=True,
    )
