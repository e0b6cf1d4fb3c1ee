"""ResNet-50 training in bf16, batch 32: every step brings a new batch from pinned memory (19 MB)
and updates the weights."""

import torch
import torchvision
from report import prepare, report, timed

STEPS = 10

prepare()
torch.backends.cudnn.deterministic = True
model = torchvision.models.resnet50(weights=None).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
batch = torch.randn(32, 3, 224, 224).pin_memory()
labels = torch.randint(0, 1000, (32,)).cuda()
losses = []


def step():
    images = batch.to("cuda", non_blocking=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss


for _ in range(3):
    losses.append(step())
loss, seconds = timed(step, runs=STEPS)
losses = [value.item() for value in (*losses, loss)]
assert losses[-1] < losses[0], losses
report(losses, seconds)
