"""20 FFTs of 4096 points, and one wait."""

import cupy
from report import report, timed

wait = cupy.cuda.Device().synchronize


def run():
    for _ in range(20):
        result = cupy.fft.fft(x)
    return result


x = cupy.ones(4096, cupy.complex64)
run()
result, seconds = timed(run, runs=3, synchronize=wait)
report([float(result[0].real)], seconds)
