"""What the PyTorch workloads share: fixed seeds, comparable arithmetic, and the JSON line that
scripts/gpu-suite reads."""

import json
import statistics
import time

import torch


def prepare():
    torch.manual_seed(1234)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False


def timed(work, runs=1):
    """(result of the last run, median seconds of a run); the device is idle before and after."""
    seconds = []
    for _ in range(runs):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        result = work()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return result, statistics.median(seconds)


def report(values, seconds):
    print(
        json.dumps({"values": [float(value) for value in values], "seconds": round(seconds, 6)}),
        flush=True,
    )
