"""Fourier transforms: complex, real, in several dimensions, of a length that is prime; and back."""

import torch
from report import prepare, report, timed

prepare()
signal = torch.randn(64, 4096)
image = torch.randn(4, 256, 256)
prime = torch.randn(16, 1009)


def work(device):
    whole = torch.fft.fft(signal.to(device))
    real = torch.fft.rfft(prime.to(device))
    plane = torch.fft.fft2(image.to(device))
    back = torch.fft.irfft(real, n=1009)
    return whole, real, plane, back


work("cuda")
got, seconds = timed(lambda: work("cuda"), runs=10)
for mine, want in zip(got, work("cpu"), strict=True):
    assert torch.allclose(mine.cpu(), want, rtol=1e-3, atol=1e-3), (mine.cpu() - want).abs().max()
report([part.abs().double().sum().item() for part in got], seconds)
