"""DistributedDataParallel over NCCL, a process for each of two GPUs: the gradients are those of the
whole batch in one process."""

import os
import tempfile
import time

import torch
import torch.distributed
import torch.multiprocessing
from report import prepare, report

RANKS, STEPS = 2, 10


def new_model():
    torch.manual_seed(11)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))


def train(model, batches, device):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches:
        optimizer.zero_grad()
        model(batch.to(device)).square().mean().backward()
        optimizer.step()


def batches():
    return torch.randn(STEPS, RANKS, 16, 64, generator=torch.Generator().manual_seed(12))


def one_rank(rank, store, results):
    prepare()
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        "nccl", init_method=f"file://{store}", rank=rank, world_size=RANKS
    )
    model = torch.nn.parallel.DistributedDataParallel(new_model().cuda(), device_ids=[rank])
    begin = time.perf_counter()
    train(model, batches()[:, rank], "cuda")
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    if rank == 0:
        state = [parameter.detach().cpu() for parameter in model.module.parameters()]
        torch.save((state, seconds), results)
    torch.distributed.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as folder:
        store, results = (os.path.join(folder, name) for name in ("store", "results"))
        torch.multiprocessing.spawn(one_rank, args=(store, results), nprocs=RANKS)
        state, seconds = torch.load(results)
    prepare()
    whole = new_model().cuda()
    train(whole, batches().flatten(1, 2), "cuda")
    for ours, theirs in zip(state, whole.parameters(), strict=True):
        assert torch.allclose(ours, theirs.detach().cpu(), rtol=1e-3, atol=1e-5)
    report([part.double().sum().item() for part in state], seconds)


if __name__ == "__main__":
    main()
