"""torch.profiler around some work: it must not fail. Without CUPTI it has no activities of the GPU,
so that only what the host did is compared."""

import torch
from report import prepare, report, timed
from torch.profiler import ProfilerActivity, profile

prepare()
a = torch.randn(512, 512).cuda()


def work():
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        result = (a @ a).relu().sum()
        torch.cuda.synchronize()
    return result, {event.key for event in profiler.key_averages()}


(result, events), seconds = timed(work)
assert {"aten::mm", "aten::relu", "aten::sum"} <= events, sorted(events)
report([result.item()], seconds)
