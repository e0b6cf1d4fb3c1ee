"""100 sums of 10000 numbers, each read by the host."""

import cupy
from report import report, timed

wait = cupy.cuda.Device().synchronize


def run():
    for _ in range(100):
        result = float(x.sum())
    return result


x = cupy.arange(10000, dtype=cupy.float32)
run()
result, seconds = timed(run, runs=3, synchronize=wait)
report([result], seconds)
