"""ResNet-50 inference (torchvision, random weights, fixed seed): convolutions through cuDNN."""

import torch
import torchvision
from report import prepare, report, timed

IMAGES = 8

prepare()
torch.backends.cudnn.allow_tf32 = True  # as it is unless a program asks for more precision
model = torchvision.models.resnet50(weights=None).eval().cuda()
images = torch.randn(IMAGES, 3, 224, 224).cuda()


def infer():
    with torch.no_grad():
        return model(images)


infer()
logits, seconds = timed(infer, runs=30)
logits = logits.double().cpu()
assert torch.isfinite(logits).all()
report([logits.sum(), logits.abs().max(), *logits[0, :5], *logits.argmax(dim=1)], seconds)
