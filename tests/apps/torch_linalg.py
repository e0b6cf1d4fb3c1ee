"""Linear algebra of cuSOLVER and cuBLAS: factorisations, eigenvalues, singular values, a system."""

import torch
from report import prepare, report, timed

prepare()
a = torch.randn(256, 256, dtype=torch.float64)
symmetric = a @ a.T + 256 * torch.eye(256, dtype=torch.float64)
right = torch.randn(256, 8, dtype=torch.float64)


def work(device):
    m, s, b = a.to(device), symmetric.to(device), right.to(device)
    return (
        torch.linalg.cholesky(s),
        torch.linalg.eigvalsh(s),
        torch.linalg.svdvals(m),
        torch.linalg.solve(m, b),
        torch.linalg.qr(m).R.abs(),  # signs of rows are free
        torch.linalg.slogdet(m).logabsdet,
    )


work("cuda")
got, seconds = timed(lambda: work("cuda"), runs=5)
for mine, want in zip(got, work("cpu"), strict=True):
    assert torch.allclose(mine.cpu(), want, rtol=1e-6, atol=1e-6), (mine.cpu() - want).abs().max()
report([part.sum().item() for part in got], seconds)
