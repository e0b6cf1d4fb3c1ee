"""ResNet-50 inference (torchvision, random weights, fixed seed): convolutions through cuDNN."""

import torch
import torchvision
from report import prepare, report, timed

prepare()
model = torchvision.models.resnet50(weights=None).eval().cuda()
images = torch.randn(4, 3, 224, 224).cuda()
with torch.no_grad():
    model(images)
    logits, seconds = timed(lambda: model(images), runs=30)
logits = logits.double().cpu()
assert torch.isfinite(logits).all()
report([logits.sum(), logits.abs().max(), *logits[0, :5], *logits.argmax(dim=1)], seconds)
