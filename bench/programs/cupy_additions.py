"""100 additions, and one wait."""

import cupy
from report import report, timed

wait = cupy.cuda.Device().synchronize


def run():
    for _ in range(100):
        result = x + 1
    return result


x = cupy.arange(10000, dtype=cupy.float32)
run()
result, seconds = timed(run, runs=3, synchronize=wait)
report([float(result[0])], seconds)
