"""JAX: jit, grad, scan, vmap and a convolution, with its default preallocation of memory."""

import time

import jax
import jax.numpy as jnp
import numpy
from report import report

assert jax.devices()[0].platform == "gpu", jax.devices()
random = numpy.random.default_rng(4)
weights = jnp.asarray(random.standard_normal((128, 128)), jnp.float32) / 12
batch = jnp.asarray(random.standard_normal((64, 128)), jnp.float32)
image = jnp.asarray(random.standard_normal((4, 3, 32, 32)), jnp.float32)
kernel = jnp.asarray(random.standard_normal((8, 3, 5, 5)), jnp.float32)


@jax.jit
def loss(w):
    def step(state, _):
        return jnp.tanh(state @ w), jnp.abs(state).sum()

    state, sums = jax.lax.scan(step, batch, None, length=8)
    return jnp.square(state).mean() + 1e-6 * sums.sum()


slope = jax.jit(jax.grad(loss))
convolve = jax.jit(lambda i, k: jax.lax.conv_general_dilated(i, k, (1, 1), "SAME"))
each = jax.jit(jax.vmap(lambda row: jnp.sort(row)[:5].sum()))


def work():
    return [
        part.block_until_ready()
        for part in (loss(weights), slope(weights), convolve(image, kernel), each(batch))
    ]


work()
begin = time.perf_counter()
for _ in range(10):
    got = work()
seconds = (time.perf_counter() - begin) / 10
rows = numpy.sort(numpy.asarray(batch), axis=1)[:, :5].sum(axis=1)
numpy.testing.assert_allclose(numpy.asarray(got[3]), rows, rtol=1e-5)
assert numpy.isfinite(numpy.asarray(got[1])).all()
report([numpy.asarray(part, numpy.float64).sum() for part in got], seconds)
