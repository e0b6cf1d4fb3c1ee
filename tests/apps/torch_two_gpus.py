"""Two GPUs in one program: halves of a matrix product on each, copies between the devices both
ways, and one device's stream waiting for the other's."""

import torch
from report import prepare, report, timed

prepare()
assert torch.cuda.device_count() >= 2, f"needs two GPUs, has {torch.cuda.device_count()}"
a, b = torch.randn(4096, 1024), torch.randn(1024, 2048)
want = a @ b
upper, lower = a[:2048].to("cuda:0"), a[2048:].to("cuda:1")
# the second copy goes from device to device
first, second = b.to("cuda:0"), b.to("cuda:0").to("cuda:1")


def work():
    top, bottom = upper @ first, lower @ second
    moved = bottom.to("cuda:0", non_blocking=True)  # waits for the other device's stream
    whole = torch.cat([top, moved])
    back = whole.to("cuda:1")
    torch.cuda.synchronize(1)
    return whole, back


work()
(whole, back), seconds = timed(work, runs=20)
torch.cuda.synchronize(1)
assert torch.equal(whole.cpu(), back.cpu())
assert torch.allclose(whole.cpu(), want, rtol=1e-3, atol=1e-2), (whole.cpu() - want).abs().max()

# Pinned memory that both devices use, and a gradient that passes from one to the other.
shared = torch.randn(1 << 20).pin_memory()
sums = [shared.to(f"cuda:{device}", non_blocking=True).double().sum().item() for device in (0, 1)]
weight = torch.randn(512, 512, device="cuda:0", requires_grad=True)
loss = ((weight @ weight).to("cuda:1") ** 2).mean()
loss.backward()
report(
    [
        whole.double().sum().item(),
        whole[4095, 7].item(),
        *sums,
        loss.item(),
        weight.grad.double().sum().item(),
    ],
    seconds,
)
