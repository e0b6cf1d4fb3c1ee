"""torch.compile(mode="reduce-overhead"): the compiled network runs as CUDA graphs, forwards and
backwards, with a new batch each time."""

import torch
from report import prepare, report, timed
from torch._dynamo.utils import counters

STEPS = 12

prepare()
model = torch.nn.Sequential(
    torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.LayerNorm(512), torch.nn.Linear(512, 64)
).cuda()
batches = torch.randn(STEPS, 128, 256).cuda()
compiled = torch.compile(model, mode="reduce-overhead")


def one(network, batch):
    model.zero_grad(set_to_none=True)
    output = network(batch)
    output.square().mean().backward()
    slopes = [parameter.grad.double().abs().sum().item() for parameter in model.parameters()]
    return output.detach().clone(), slopes


def work():
    results = []
    for batch in batches:
        torch.compiler.cudagraph_mark_step_begin()
        results.append(one(compiled, batch))
    return results


work()
results, seconds = timed(work, runs=3)
assert counters["inductor"]["cudagraph_skips"] == 0, counters["inductor"]
for batch, (output, slopes) in zip(batches, results, strict=True):
    want, want_slopes = one(model, batch)
    assert torch.allclose(output, want, rtol=1e-3, atol=1e-4), (output - want).abs().max()
    assert torch.allclose(torch.tensor(slopes), torch.tensor(want_slopes), rtol=1e-3)
report([*(output.double().sum() for output, _ in results), *results[-1][1]], seconds)
