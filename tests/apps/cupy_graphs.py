"""CuPy's graphs: streams are captured, with a fork and a join, and launched with new inputs."""

import cupy
import numpy
from report import report, timed

n = 50_000
random = numpy.random.default_rng(7)
hosts = [random.standard_normal(n) for _ in range(5)]
main, side = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
forked, joined = cupy.cuda.Event(), cupy.cuda.Event()
x = cupy.asarray(hosts[0])


def both_ways(a):
    up = cupy.exp(a) * 2
    forked.record(main)
    side.wait_event(forked)
    with side:
        down = cupy.sqrt(cupy.abs(a)) + 1
        joined.record(side)
    total = up + 3
    main.wait_event(joined)
    return total + down


with main:
    both_ways(x)  # compiles the kernels
    main.synchronize()
    main.begin_capture()
    y = both_ways(x)
    graph = main.end_capture()
assert not main.is_capturing() and not side.is_capturing()


def work():
    sums = []
    for host in hosts:
        x.set(host, stream=main)
        graph.launch(main)
        main.synchronize()
        sums.append(float(y.sum()))
    return sums


graph.upload(main)
work()
sums, seconds = timed(work, runs=5, synchronize=cupy.cuda.Device().synchronize)
want = numpy.exp(hosts[-1]) * 2 + 3 + numpy.sqrt(numpy.abs(hosts[-1])) + 1
numpy.testing.assert_allclose(y.get(), want, rtol=1e-12)
report(sums, seconds)
