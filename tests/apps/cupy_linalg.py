"""CuPy's linear algebra (cuBLAS, cuSOLVER) and sparse matrices (cuSPARSE)."""

import cupy
import cupyx.scipy.sparse
import numpy
from report import report, timed

random = numpy.random.default_rng(3)
host = random.standard_normal((200, 200))
right = random.standard_normal(200)
sparse_host = numpy.where(random.random((300, 300)) < 0.03, random.standard_normal((300, 300)), 0)


def work():
    a = cupy.asarray(host)
    sparse = cupyx.scipy.sparse.csr_matrix(cupy.asarray(sparse_host))
    return (
        a @ a,
        cupy.linalg.solve(a, cupy.asarray(right)),
        cupy.linalg.svd(a, compute_uv=False),
        cupy.linalg.eigvalsh(a @ a.T),
        sparse @ cupy.ones(300),
        (sparse @ sparse).toarray(),
    )


work()
got, seconds = timed(work, runs=5, synchronize=cupy.cuda.Device().synchronize)
want = (
    host @ host,
    numpy.linalg.solve(host, right),
    numpy.linalg.svd(host, compute_uv=False),
    numpy.linalg.eigvalsh(host @ host.T),
    sparse_host @ numpy.ones(300),
    sparse_host @ sparse_host,
)
for mine, right_one in zip(got, want, strict=True):
    numpy.testing.assert_allclose(mine.get(), right_one, rtol=1e-7, atol=1e-8)
report([part.sum() for part in got], seconds)
