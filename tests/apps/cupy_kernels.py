"""CUDA C++ in CuPy: RawKernel and RawModule (NVRTC), an ElementwiseKernel, a constant symbol."""

import cupy
import numpy
from report import report, timed

SOURCE = r"""
extern "C" {
__constant__ float weights[4];
__global__ void weigh(const float* x, float* y, int n) {
  int i = blockDim.x * blockIdx.x + threadIdx.x;
  if (i < n) y[i] = x[i] * weights[i % 4];
}
__global__ void shift(float* y, float by, int n) {
  int i = blockDim.x * blockIdx.x + threadIdx.x;
  if (i < n) y[i] += by;
}
}
"""
module = cupy.RawModule(code=SOURCE)
weigh, shift = module.get_function("weigh"), module.get_function("shift")
weights = cupy.ndarray(4, cupy.float32, module.get_global("weights"))
weights[:] = cupy.asarray([1, 2, 3, 4], cupy.float32)
double = cupy.RawKernel(
    'extern "C" __global__ void twice(float* y, int n) {'
    " int i = blockDim.x * blockIdx.x + threadIdx.x; if (i < n) y[i] *= 2; }",
    "twice",
)
squares = cupy.ElementwiseKernel("float32 x", "float32 y", "y = x * x", "squares")
n = 100_000
x = cupy.arange(n, dtype=cupy.float32) / n


def work():
    y = cupy.empty_like(x)
    grid = ((n + 255) // 256,)
    weigh(grid, (256,), (x, y, numpy.int32(n)))
    shift(grid, (256,), (y, numpy.float32(0.5), numpy.int32(n)))
    double(grid, (256,), (y, numpy.int32(n)))
    return y, squares(y)


work()
(y, square), seconds = timed(work, runs=10, synchronize=cupy.cuda.Device().synchronize)
host = numpy.arange(n, dtype=numpy.float32) / numpy.float32(n)
want = (host * numpy.resize(numpy.array([1, 2, 3, 4], numpy.float32), n) + numpy.float32(0.5)) * 2
numpy.testing.assert_allclose(y.get(), want, rtol=1e-6)
report([y.sum(dtype=cupy.float64), square.sum(dtype=cupy.float64)], seconds)
