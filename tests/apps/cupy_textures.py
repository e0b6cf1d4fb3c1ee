"""CuPy's textures: one, two and three dimensions in CUDA arrays, linear memory, filtering, four
channels, and a surface that a kernel writes."""

import cupy
import numpy
from cupy.cuda import runtime
from cupy.cuda.texture import (
    ChannelFormatDescriptor,
    CUDAarray,
    ResourceDescriptor,
    SurfaceObject,
    TextureDescriptor,
    TextureObject,
)
from report import report, timed

SOURCE = r"""
extern "C" {
__global__ void linear(float* y, cudaTextureObject_t t, int n) {
  int i = blockDim.x * blockIdx.x + threadIdx.x;
  if (i < n) y[i] = tex1Dfetch<float>(t, i);
}
__global__ void plane(float* y, cudaTextureObject_t t, float by, int w, int h) {
  int i = blockDim.x * blockIdx.x + threadIdx.x, j = blockIdx.y;
  if (i < w) y[j * w + i] = tex2D<float>(t, i + 0.5f + by, j + 0.5f);
}
__global__ void volume(float4* y, cudaTextureObject_t t, int w, int h) {
  int i = blockDim.x * blockIdx.x + threadIdx.x, j = blockIdx.y, k = blockIdx.z;
  if (i < w) y[(k * h + j) * w + i] = tex3D<float4>(t, i + 0.5f, j + 0.5f, k + 0.5f);
}
__global__ void paint(cudaSurfaceObject_t s, int w) {
  int i = blockDim.x * blockIdx.x + threadIdx.x, j = blockIdx.y;
  if (i < w) surf2Dwrite(float(100 * j + i), s, i * (int)sizeof(float), j);
}
}
"""
WIDTH, HEIGHT, DEPTH = 64, 32, 8
module = cupy.RawModule(code=SOURCE)
linear, plane, volume, paint = map(module.get_function, ("linear", "plane", "volume", "paint"))
random = numpy.random.default_rng(8)
one = ChannelFormatDescriptor(32, 0, 0, 0, runtime.cudaChannelFormatKindFloat)
four = ChannelFormatDescriptor(32, 32, 32, 32, runtime.cudaChannelFormatKindFloat)


def texture(resource, how=runtime.cudaFilterModePoint):
    clamp = (runtime.cudaAddressModeClamp,) * 3
    return TextureObject(resource, TextureDescriptor(clamp, how, runtime.cudaReadModeElementType))


def of_array(array):
    return ResourceDescriptor(runtime.cudaResourceTypeArray, cuArr=array)


row = cupy.asarray(random.random(WIDTH, numpy.float32))
flat = random.random((HEIGHT, WIDTH), numpy.float32)
deep = random.random((DEPTH, HEIGHT, 4 * WIDTH), numpy.float32)
of_row = texture(
    ResourceDescriptor(runtime.cudaResourceTypeLinear, arr=row, chDesc=one, sizeInBytes=row.nbytes)
)
flat_array, deep_array = CUDAarray(one, WIDTH, HEIGHT), CUDAarray(four, WIDTH, HEIGHT, DEPTH)
flat_array.copy_from(flat)
deep_array.copy_from(cupy.asarray(deep))
of_flat = texture(of_array(flat_array))
smooth = texture(of_array(flat_array), runtime.cudaFilterModeLinear)
of_deep = texture(of_array(deep_array))
painted = CUDAarray(one, WIDTH, HEIGHT, 0, runtime.cudaArraySurfaceLoadStore)
surface = SurfaceObject(of_array(painted))


def work():
    rows = cupy.zeros(WIDTH, cupy.float32)
    planes = [cupy.zeros((HEIGHT, WIDTH), cupy.float32) for _ in range(2)]
    volumes = cupy.zeros(deep.shape, cupy.float32)
    width, height = numpy.int32(WIDTH), numpy.int32(HEIGHT)
    linear((1,), (WIDTH,), (rows, of_row, width))
    plane((1, HEIGHT), (WIDTH,), (planes[0], of_flat, numpy.float32(0), width, height))
    plane((1, HEIGHT), (WIDTH,), (planes[1], smooth, numpy.float32(0.5), width, height))
    volume((1, HEIGHT, DEPTH), (WIDTH,), (volumes, of_deep, width, height))
    paint((1, HEIGHT), (WIDTH,), (surface, width))
    picture = cupy.zeros((HEIGHT, WIDTH), cupy.float32)
    painted.copy_to(picture)
    return rows, *planes, volumes, picture


work()
got, seconds = timed(work, runs=5, synchronize=cupy.cuda.Device().synchronize)
rows, same, between, volumes, picture = [part.get() for part in got]
numpy.testing.assert_array_equal(rows, row.get())
numpy.testing.assert_array_equal(same, flat)
middle = (flat + numpy.concatenate([flat[:, 1:], flat[:, -1:]], axis=1)) / 2
numpy.testing.assert_allclose(between, middle, atol=1e-2)  # filters have 8 bits of fraction
numpy.testing.assert_array_equal(volumes, deep)
want = numpy.arange(HEIGHT)[:, None] * 100 + numpy.arange(WIDTH)
numpy.testing.assert_array_equal(picture, want.astype(numpy.float32))
report(
    [part.astype(numpy.float64).sum() for part in (rows, same, between, volumes, picture)], seconds
)
