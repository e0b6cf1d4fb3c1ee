"""100 launches of a kernel of Numba, and one wait."""

from numba import cuda
from report import report, timed


@cuda.jit
def add_one(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += 1


def launch():
    for _ in range(100):
        add_one[4, 256](x)


x = cuda.device_array(1024, dtype="float32")
launch()
_, seconds = timed(launch, runs=3, synchronize=cuda.synchronize)
report([x.copy_to_host()[0] > 0], seconds)
