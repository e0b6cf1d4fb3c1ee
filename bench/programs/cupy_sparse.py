"""20 products of a sparse matrix and a vector, and one wait."""

import cupy
import cupyx.scipy.sparse
from report import report, timed

wait = cupy.cuda.Device().synchronize


def run():
    for _ in range(20):
        result = matrix @ x
    return result


matrix = cupyx.scipy.sparse.eye(1000, format="csr", dtype=cupy.float32)
x = cupy.ones(1000, cupy.float32)
run()
result, seconds = timed(run, runs=3, synchronize=wait)
report([float(result[0])], seconds)
