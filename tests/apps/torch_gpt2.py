"""GPT-2 (random weights from a fixed seed) writes a few tokens greedily; the tokens must be the
same."""

import torch
from report import prepare, report, timed
from transformers import GPT2Config, GPT2LMHeadModel

NEW_TOKENS = 16

prepare()
model = GPT2LMHeadModel(GPT2Config()).eval().cuda()
prompt = torch.arange(100, 108).unsqueeze(0).cuda()


def write():
    with torch.no_grad():
        return model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            pad_token_id=0,
        )


write()
tokens, seconds = timed(write, runs=7)
assert tokens.shape[1] == prompt.shape[1] + NEW_TOKENS
report(tokens[0].tolist(), seconds)
