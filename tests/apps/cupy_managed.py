"""CuPy on managed memory: the host reads and writes what kernels read and write, by the same
address; advice and prefetching."""

import ctypes

import cupy
import numpy
from cupy.cuda import runtime
from report import report, timed

N = 200_000
pool = cupy.cuda.MemoryPool(cupy.cuda.malloc_managed)
cupy.cuda.set_allocator(pool.malloc)
synchronize = cupy.cuda.Device().synchronize


def on_host(array):
    """The array's own memory, as the host sees it."""
    memory = (ctypes.c_double * array.size).from_address(array.data.ptr)
    return numpy.ctypeslib.as_array(memory)


x = cupy.zeros(N)
synchronize()
host = on_host(x)
want = numpy.random.default_rng(10).standard_normal(N)


def work():
    host[:] = want
    y = x * 2 + 1
    synchronize()
    seen = on_host(y).copy()
    runtime.memPrefetchAsync(x.data.ptr, x.nbytes, 0, cupy.cuda.get_current_stream().ptr)
    x.fill(3)
    synchronize()
    return seen, host.copy()


work()
(seen, filled), seconds = timed(work, runs=5, synchronize=synchronize)
numpy.testing.assert_array_equal(seen, want * 2 + 1)
numpy.testing.assert_array_equal(filled, numpy.full(N, 3.0))
report([seen.sum(), filled.sum()], seconds)
