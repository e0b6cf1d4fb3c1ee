"""An LSTM of two layers by cuDNN, forwards and backwards."""

import torch
from report import prepare, report, timed

prepare()
model = torch.nn.LSTM(64, 128, num_layers=2, batch_first=True)
batch = torch.randn(16, 50, 64)
with torch.no_grad():
    want, _ = model(batch)
model, batch = model.cuda(), batch.cuda()


def work():
    model.zero_grad()
    output, _ = model(batch)
    output.square().mean().backward()
    return output


work()
output, seconds = timed(work, runs=10)
assert torch.allclose(output.cpu(), want, rtol=1e-3, atol=1e-4), (output.cpu() - want).abs().max()
slopes = [parameter.grad.double().abs().sum().item() for parameter in model.parameters()]
report([output.double().sum().item(), *slopes], seconds)
