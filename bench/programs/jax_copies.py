"""10 times 1 MiB to the device and back."""

import jax
import numpy as np
from report import report, timed

host = np.ones(1 << 18, np.float32)


def copy():
    for _ in range(10):
        result = np.asarray(jax.device_put(host))
    return result


copy()
result, seconds = timed(copy, runs=3, synchronize=lambda: None)
report([result[0]], seconds)
