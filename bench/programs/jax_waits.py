"""100 calls of a jitted function, each waited for."""

import jax
import jax.numpy as jnp
from report import report, timed

function = jax.jit(lambda a: a * 2 + 1)
a = jnp.ones((1000,))


def call():
    for _ in range(100):
        result = function(a).block_until_ready()
    return result


call()
result, seconds = timed(call, runs=3, synchronize=lambda: None)
report([result[0]], seconds)
