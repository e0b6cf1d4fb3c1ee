"""A small Llama (random weights from a fixed seed) writes tokens with a static cache: transformers
compiles its steps, which then run as CUDA graphs. The tokens must be those of a dynamic cache."""

import torch
from report import prepare, report, timed
from torch._dynamo.utils import counters
from transformers import LlamaConfig, LlamaForCausalLM

NEW_TOKENS = 16

prepare()
config = LlamaConfig(
    vocab_size=1000,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=4,
    num_attention_heads=8,
    num_key_value_heads=4,
    max_position_embeddings=128,
)
model = LlamaForCausalLM(config).eval().cuda()
prompt = torch.arange(100, 108).unsqueeze(0).cuda()


def write(**options):
    with torch.no_grad():
        return model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=NEW_TOKENS,
            min_new_tokens=NEW_TOKENS,
            do_sample=False,
            pad_token_id=0,
            **options,
        )


def write_with_static_cache():
    return write(cache_implementation="static")


want = write()
write_with_static_cache()
tokens, seconds = timed(write_with_static_cache, runs=5)
assert counters["stats"]["unique_graphs"] > 0, "nothing was compiled"
assert tokens.tolist() == want.tolist(), (tokens, want)
# How often CUDA graphs were left out has to be as natively.
report([*tokens[0].tolist(), counters["inductor"]["cudagraph_skips"]], seconds)
