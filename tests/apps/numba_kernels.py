"""Numba-CUDA: a kernel with shared memory, atomics, streams and a reduction."""

import numpy

# numba-cuda asks for it when it compiles its first kernel, and ends there where NumPy has dropped
# the name (2.5).
if not hasattr(numpy, "row_stack"):
    numpy.row_stack = lambda arrays: numpy.vstack(arrays)

from numba import cuda, float32  # noqa: E402
from report import report, timed  # noqa: E402

THREADS = 128


@cuda.jit
def block_sums(x, sums):
    part = cuda.shared.array(THREADS, float32)
    at = cuda.grid(1)
    lane = cuda.threadIdx.x
    part[lane] = x[at] if at < x.size else 0.0
    cuda.syncthreads()
    step = THREADS // 2
    while step > 0:
        if lane < step:
            part[lane] += part[lane + step]
        cuda.syncthreads()
        step //= 2
    if lane == 0:
        sums[cuda.blockIdx.x] = part[0]


@cuda.jit
def count_positive(x, count):
    at = cuda.grid(1)
    if at < x.size and x[at] > 0:
        cuda.atomic.add(count, 0, 1)


n = 10_000
blocks = (n + THREADS - 1) // THREADS
host = numpy.random.default_rng(6).standard_normal(n).astype(numpy.float32)


def work():
    stream = cuda.stream()
    x = cuda.to_device(host, stream)
    sums = cuda.device_array(blocks, numpy.float32, stream=stream)
    count = cuda.to_device(numpy.zeros(1, numpy.int32), stream)
    block_sums[blocks, THREADS, stream](x, sums)
    count_positive[blocks, THREADS, stream](x, count)
    return sums.copy_to_host(stream=stream), count.copy_to_host(stream=stream), stream


work()[2].synchronize()
(sums, count, _), seconds = timed(work, runs=5, synchronize=cuda.synchronize)
padded = numpy.zeros(blocks * THREADS, numpy.float32)
padded[:n] = host
numpy.testing.assert_allclose(sums, padded.reshape(blocks, THREADS).sum(axis=1), atol=1e-3)
assert count[0] == (host > 0).sum(), count
report([float(sums.astype(numpy.float64).sum()), count[0]], seconds)
