"""Sparse matrices of cuSPARSE: CSR and COO times dense, and a gradient through one."""

import torch
from report import prepare, report, timed

prepare()
dense = torch.randn(512, 512)
dense[torch.rand(512, 512) > 0.05] = 0
other = torch.randn(512, 64)
csr, coo = dense.to_sparse_csr().cuda(), dense.to_sparse_coo().cuda()
factor = other.cuda().requires_grad_()


def work():
    factor.grad = None
    product = torch.sparse.mm(coo, factor)
    product.square().sum().backward()
    return csr @ other.cuda(), product.detach(), factor.grad


work()
(first, second, gradient), seconds = timed(work, runs=10)
want = dense @ other
for mine in (first, second):
    assert torch.allclose(mine.cpu(), want, rtol=1e-4, atol=1e-3), (mine.cpu() - want).abs().max()
slope = 2 * dense.T @ want
assert torch.allclose(gradient.cpu(), slope, rtol=1e-3, atol=1e-2)
report([part.double().sum().item() for part in (first, second, gradient)], seconds)
