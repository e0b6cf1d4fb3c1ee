"""JAX on two GPUs: an array that is sharded over them, and a sum over both."""

import time

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from report import report

devices = jax.devices()
assert len(devices) >= 2, devices
mesh = Mesh(numpy.array(devices[:2]), ("gpus",))
rows = NamedSharding(mesh, PartitionSpec("gpus"))
host = numpy.random.default_rng(5).standard_normal((1024, 512)).astype(numpy.float32)
array = jax.device_put(host, rows)
assert len({shard.device for shard in array.addressable_shards}) == 2


@jax.jit
def work(a):
    # Not in TF32, whose rounding depends on the algorithm.
    return jnp.matmul(a, a.T, precision="highest").sum(), a.sum(axis=0)


jax.block_until_ready(work(array))
begin = time.perf_counter()
total, columns = jax.block_until_ready(work(array))
seconds = time.perf_counter() - begin
sums = host.sum(axis=0, dtype=numpy.float64)
numpy.testing.assert_allclose(numpy.asarray(columns), sums, rtol=1e-3, atol=1e-2)
numpy.testing.assert_allclose(float(total), (sums**2).sum(), rtol=1e-3)
report([total, numpy.asarray(columns, numpy.float64).sum(), jnp.abs(array).sum()], seconds)
