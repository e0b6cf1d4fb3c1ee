"""What the PyTorch workloads share: fixed seeds, comparable arithmetic, and the JSON line that scripts/gpu-suite reads."""

import json
import time

import torch


def prepare():
    torch.manual_seed(1234)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False


def timed(work):
    """(result, seconds) with the device idle before and after."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    result = work()
    torch.cuda.synchronize()
    return result, time.perf_counter() - begin


def report(values, seconds):
    print(json.dumps({"values": [float(value) for value in values], "seconds": round(seconds, 6)}), flush=True)
