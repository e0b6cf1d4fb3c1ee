"""torch.multiprocessing: a process is handed a tensor on the GPU and works in the same memory."""

import torch
import torch.multiprocessing
from report import prepare, report, timed


def double_what_comes(received, answers):
    while (tensor := received.get()) is not None:
        tensor.mul_(2)
        torch.cuda.synchronize()
        answers.put(tensor.double().sum().item())
        del tensor


def main():
    prepare()
    spawn = torch.multiprocessing.get_context("spawn")
    received, answers = spawn.Queue(), spawn.Queue()
    other = spawn.Process(target=double_what_comes, args=(received, answers))
    other.start()
    kept = torch.randn(1000, 100).cuda()
    tensor = kept.clone()

    def work():
        tensor.copy_(kept)
        torch.cuda.synchronize()
        received.put(tensor)
        return answers.get(timeout=120)

    work()
    told, seconds = timed(work, runs=5)
    received.put(None)
    other.join(60)
    assert other.exitcode == 0, other.exitcode
    assert torch.equal(tensor, kept * 2)
    report([told, tensor.double().sum().item()], seconds)


if __name__ == "__main__":
    main()
