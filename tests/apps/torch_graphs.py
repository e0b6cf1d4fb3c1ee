"""torch.cuda.graph: a whole step of training is captured once and replayed with new batches, beside
the same steps without a graph; then make_graphed_callables."""

import copy

import torch
from report import prepare, report, timed

STEPS = 20

prepare()
batches = torch.randn(STEPS, 32, 64).cuda()
labels = torch.randint(0, 10, (STEPS, 32)).cuda()


def new_model():
    torch.manual_seed(5)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 10)
    ).cuda()


def step(model, optimizer, batch, wanted):
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(model(batch), wanted)
    loss.backward()
    optimizer.step()
    return loss


plain, graphed = new_model(), new_model()
of_plain, of_graphed = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (plain, graphed))
batch, wanted = batches[0].clone(), labels[0].clone()
before = copy.deepcopy(graphed.state_dict())
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step(graphed, of_graphed, batch, wanted)
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = step(graphed, of_graphed, batch, wanted)


def train():
    graphed.load_state_dict(before)
    losses = []
    for place in range(STEPS):
        batch.copy_(batches[place])
        wanted.copy_(labels[place])
        graph.replay()
        losses.append(loss.clone())
    return losses


train()
losses, seconds = timed(train, runs=5)
want = [step(plain, of_plain, batches[i], labels[i]).item() for i in range(STEPS)]
losses = [value.item() for value in losses]
assert torch.allclose(torch.tensor(losses), torch.tensor(want), rtol=1e-4), (losses, want)
for ours, theirs in zip(graphed.parameters(), plain.parameters(), strict=True):
    assert torch.allclose(ours, theirs, rtol=1e-3, atol=1e-5), (ours - theirs).abs().max()

callable_by_graph = torch.cuda.make_graphed_callables(new_model(), (batches[0],))
got, want = callable_by_graph(batches[1]), new_model()(batches[1])
got.square().sum().backward()
assert torch.allclose(got, want, rtol=1e-4, atol=1e-5), (got - want).abs().max()
slopes = [parameter.grad.double().abs().sum() for parameter in callable_by_graph.parameters()]
report([*losses, got.double().sum(), *slopes], seconds)
