"""torch.distributed over NCCL with one rank: every collective, on one GPU."""

import os
import tempfile

import torch
import torch.distributed as dist
from report import prepare, report, timed

prepare()
with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group(
        "nccl", init_method=f"file://{os.path.join(folder, 'store')}", rank=0, world_size=1
    )
    values = torch.randn(1 << 20).cuda()
    kept = values.clone()

    def work():
        dist.all_reduce(values)
        dist.broadcast(values, 0)
        gathered = [torch.empty_like(values)]
        dist.all_gather(gathered, values)
        dist.barrier()
        return gathered[0]

    work()
    got, seconds = timed(work, runs=10)
    assert torch.equal(got, kept)
    dist.destroy_process_group()
report([got.double().sum().item()], seconds)
