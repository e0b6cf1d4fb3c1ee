"""CuPy's arrays: element-wise kernels, reductions, sorting, streams and events, the memory pool."""

import cupy
import numpy
from report import report, timed

cupy.random.seed(1)
host = numpy.random.default_rng(1).standard_normal((1000, 500))
synchronize = cupy.cuda.Device().synchronize
stream = cupy.cuda.Stream(non_blocking=True)
pool = cupy.get_default_memory_pool()


def work():
    a = cupy.asarray(host)
    with stream:
        b = cupy.sort(cupy.exp(a) * 2 + 1, axis=1)
        done = stream.record()
    cupy.cuda.get_current_stream().wait_event(done)
    return b, b.sum(), b.argmax(), cupy.cumsum(a[0])[-1]


work()
(b, total, place, last), seconds = timed(work, runs=10, synchronize=synchronize)
want = numpy.sort(numpy.exp(host) * 2 + 1, axis=1)
numpy.testing.assert_allclose(b.get(), want, rtol=1e-12)
assert pool.used_bytes() > 0
del b
pool.free_all_blocks()
report([total, place, last], seconds)
