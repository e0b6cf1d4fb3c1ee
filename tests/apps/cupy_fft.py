"""CuPy's Fourier transforms, by plans of cuFFT that are made and cached."""

import cupy
import numpy
from report import report, timed

random = numpy.random.default_rng(2)
signal = random.standard_normal((32, 4096)) + 1j * random.standard_normal((32, 4096))
image = random.standard_normal((128, 192))


def work():
    return cupy.fft.fft(cupy.asarray(signal)), cupy.fft.rfft2(cupy.asarray(image))


work()
(line, plane), seconds = timed(work, runs=10, synchronize=cupy.cuda.Device().synchronize)
numpy.testing.assert_allclose(line.get(), numpy.fft.fft(signal), rtol=1e-9, atol=1e-9)
numpy.testing.assert_allclose(plane.get(), numpy.fft.rfft2(image), rtol=1e-9, atol=1e-8)
report([abs(line).sum(), abs(plane).sum()], seconds)
