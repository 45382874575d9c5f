"""Writes the models of tests/goldens: small random checkpoints with logits and greedy tokens by transformers in fp32.

    pip install torch transformers safetensors
    scripts/oracles/golden_models.py --out tests/goldens
"""
import argparse
import os

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

BASE = dict(vocab_size=331, hidden_size=96, num_hidden_layers=3, max_position_embeddings=512, initializer_range=0.12,
            bos_token_id=0, eos_token_id=1, pad_token_id=1, attention_dropout=0.0)


def rope(rope_type="default", rope_theta=10000.0, **more):
    return dict(rope_type=rope_type, rope_theta=rope_theta, **more)


# name: model type, config, dtype of the file, size of its shards
CASES = {
    "llama-9q3kv-tied": ("llama", dict(
        BASE, hidden_size=144, intermediate_size=160, num_attention_heads=9, num_key_value_heads=3, head_dim=16,
        tie_word_embeddings=True, rms_norm_eps=1e-5, rope_parameters=rope()), torch.bfloat16, "10MB"),
    "qwen2-14q2kv-bias": ("qwen2", dict(
        BASE, intermediate_size=176, num_attention_heads=14, num_key_value_heads=2, tie_word_embeddings=True,
        rms_norm_eps=1e-6, rope_parameters=rope(), hidden_size=112), torch.bfloat16, "10MB"),
    "qwen35-6q2kv-gdn4-12": ("qwen3_5_text", dict(
        BASE, num_hidden_layers=4, intermediate_size=136, num_attention_heads=6, num_key_value_heads=2, head_dim=32,
        linear_num_key_heads=4, linear_num_value_heads=12, linear_key_head_dim=16, linear_value_head_dim=24,
        linear_conv_kernel_dim=4, tie_word_embeddings=False,
        rope_parameters=rope(partial_rotary_factor=0.25, mrope_section=[2, 1, 1], mrope_interleaved=True)),
        torch.bfloat16, "10MB"),
    "qwen3-10q2kv-untied": ("qwen3", dict(
        BASE, intermediate_size=112, num_attention_heads=10, num_key_value_heads=2, head_dim=16, tie_word_embeddings=False,
        rms_norm_eps=1e-6, rope_parameters=rope(rope_theta=1e6)), torch.float16, "300KB"),
    "llama3-rope-untied": ("llama", dict(
        BASE, intermediate_size=160, num_attention_heads=6, num_key_value_heads=3, head_dim=16, tie_word_embeddings=False,
        rms_norm_eps=1e-5, rope_parameters=rope("llama3", 500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                original_max_position_embeddings=64)), torch.float32, "10MB"),
}


def write(out, name, kind, config, dtype, shard):
    torch.manual_seed(sum(map(ord, name)))
    config = AutoConfig.for_model(kind, **config)
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for _, parameter in model.named_parameters():
            if parameter.ndim == 1:  # norms, biases, A_log, dt_bias: away from their neutral values
                parameter.add_(torch.randn_like(parameter) * 0.2)
            parameter.copy_(parameter.to(dtype).float())
    folder = f"{out}/{name}"
    os.makedirs(folder, exist_ok=True)
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.randint(2, 331, (2, 77), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits.float()
        greedy = model.generate(ids[:, :40], max_new_tokens=24, do_sample=False, eos_token_id=None, pad_token_id=1)
    save_file(dict(input_ids=ids.int(), logits=logits.contiguous(), greedy=greedy[:, 40:].int().contiguous()),
              f"{folder}/golden.safetensors")
    print(name, float(logits.std()), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("names", nargs="*", help="of the cases; all by default")
    arguments = parser.parse_args()
    for case in arguments.names or CASES:
        write(arguments.out, case, *CASES[case])
