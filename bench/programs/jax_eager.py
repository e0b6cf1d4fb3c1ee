"""100 additions of JAX that are not jitted, and one wait."""

import jax
import jax.numpy as jnp
from report import report, timed


def add():
    global y
    for _ in range(100):
        y = y + 1
    return jax.block_until_ready(y)


y = jnp.ones((1000,))
add()
_, seconds = timed(add, runs=3, synchronize=lambda: None)
report([y[0]], seconds)
