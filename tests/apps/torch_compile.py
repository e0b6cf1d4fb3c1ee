"""torch.compile in its default mode: Triton kernels for a small network, forwards and backwards."""

import torch
from report import prepare, report, timed

prepare()
model = torch.nn.Sequential(
    torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.LayerNorm(512), torch.nn.Linear(512, 64)
).cuda()
batch = torch.randn(128, 256).cuda()
want = model(batch)
compiled = torch.compile(model)


def work():
    model.zero_grad()
    output = compiled(batch)
    output.square().mean().backward()
    return output


work()
output, seconds = timed(work, runs=20)
assert torch.allclose(output, want, rtol=1e-3, atol=1e-4), (output - want).abs().max()
slopes = [parameter.grad.double().abs().sum().item() for parameter in model.parameters()]
report([output.double().sum().item(), *slopes], seconds)
