"""20 arrays of 1000 random numbers, and one wait."""

import cupy
from report import report, timed

wait = cupy.cuda.Device().synchronize


def run():
    for _ in range(20):
        result = cupy.random.rand(1000)
    return result


run()
result, seconds = timed(run, runs=3, synchronize=wait)
report([result.size], seconds)
