"""Matrix products in f32 and bf16 against the CPU's result."""

import torch
from report import prepare, report, timed

prepare()
a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
want = a @ b
da, db = a.cuda(), b.cuda()
da @ db
got, seconds = timed(lambda: da @ db, runs=30)
assert torch.allclose(got.cpu(), want, rtol=1e-3, atol=1e-2), (got.cpu() - want).abs().max()
half = (da.bfloat16() @ db.bfloat16()).float().cpu()
assert (half - want).abs().max() < 2.0
report([got.double().sum().item(), got[0, 0].item(), half.double().abs().sum().item()], seconds)
