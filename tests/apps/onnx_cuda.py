"""ONNX Runtime with its CUDA provider: a small convolutional network, beside the CPU provider."""

import tempfile
import time

import numpy
import onnxruntime
import torch
from report import prepare, report

prepare()
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(4),
    torch.nn.Flatten(),
    torch.nn.Linear(256, 10),
).eval()
batch = torch.randn(8, 3, 32, 32)
with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/model.onnx"
    torch.onnx.export(model, (batch,), path, dynamo=False, input_names=["x"], output_names=["y"])
    session = onnxruntime.InferenceSession(path, providers=["CUDAExecutionProvider"])
    assert session.get_providers()[0] == "CUDAExecutionProvider", session.get_providers()
    feed = {"x": batch.numpy()}
    session.run(None, feed)
    begin = time.perf_counter()
    for _ in range(20):
        (got,) = session.run(None, feed)
    seconds = (time.perf_counter() - begin) / 20
with torch.no_grad():
    numpy.testing.assert_allclose(got, model(batch).numpy(), rtol=1e-3, atol=1e-3)
report([got.astype(numpy.float64).sum(), *got[0]], seconds)
