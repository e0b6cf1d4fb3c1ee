"""ONNX Runtime with its CUDA provider: a small convolutional network, beside the CPU provider."""

import time

import numpy
import onnxruntime
from onnx import TensorProto, checker, helper, numpy_helper
from report import cannot_run, report

if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
    cannot_run("this onnxruntime has no CUDA provider (the package onnxruntime-gpu has)")

random = numpy.random.default_rng(9)


def weights(name, *shape):
    values = random.standard_normal(shape) / numpy.sqrt(numpy.prod(shape[1:]))
    return numpy_helper.from_array(values.astype(numpy.float32), name)


graph = helper.make_graph(
    [
        helper.make_node("Conv", ["x", "kernel", "shift"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[8, 8], strides=[8, 8]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "matrix", "offset"], ["y"], transB=1),
    ],
    "network",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 3, 32, 32])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 10])],
    [
        weights("kernel", 16, 3, 3, 3),
        weights("shift", 16),
        weights("matrix", 10, 256),
        weights("offset", 10),
    ],
)
# An old enough form for every onnxruntime with CUDA 12 or later.
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
checker.check_model(model)
feed = {"x": random.standard_normal((8, 3, 32, 32)).astype(numpy.float32)}


def session(*providers):
    made = onnxruntime.InferenceSession(model.SerializeToString(), providers=list(providers))
    name = providers[0][0] if isinstance(providers[0], tuple) else providers[0]
    assert made.get_providers()[0] == name, made.get_providers()
    return made


on_gpu = session(("CUDAExecutionProvider", {"use_tf32": "0"}))
(want,) = session("CPUExecutionProvider").run(None, feed)
on_gpu.run(None, feed)
begin = time.perf_counter()
for _ in range(20):
    (got,) = on_gpu.run(None, feed)
seconds = (time.perf_counter() - begin) / 20
numpy.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
report([got.astype(numpy.float64).sum(), *got[0]], seconds)
