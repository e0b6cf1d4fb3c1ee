"""A DataLoader with worker processes and pinned batches, as training loops have it."""

import torch
from report import prepare, report, timed
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        return torch.full((3, 64, 64), float(index)), index * index


def work():
    total, labels = torch.zeros((), dtype=torch.float64, device="cuda"), 0
    loader = DataLoader(Squares(), batch_size=32, num_workers=4, pin_memory=True)
    for images, squares in loader:
        assert images.is_pinned()
        total += images.to("cuda", non_blocking=True).double().sum()
        labels += squares.to("cuda", non_blocking=True).sum().item()
    return total.item(), labels


if __name__ == "__main__":
    prepare()
    (total, labels), seconds = timed(work)
    assert total == 3 * 64 * 64 * sum(range(512)), total
    assert labels == sum(index * index for index in range(512)), labels
    report([total, labels], seconds)
