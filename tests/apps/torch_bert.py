"""BERT-base (random weights from a fixed seed) on one short sentence, its score read back with
.item() every time."""

import torch
from report import prepare, report, timed
from transformers import BertConfig, BertModel

prepare()
model = BertModel(BertConfig()).eval().cuda()
tokens = torch.arange(1000, 1032).unsqueeze(0).cuda()


def score():
    with torch.no_grad():
        return model(tokens).pooler_output.sum().item()


score()
value, seconds = timed(score, runs=30)
with torch.no_grad():
    pooled = model(tokens).pooler_output[0].double().cpu()
assert torch.isfinite(pooled).all()
report([value, *pooled[:8]], seconds)
