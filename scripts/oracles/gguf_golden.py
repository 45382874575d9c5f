"""Golden logits of a GGUF file, by Hugging Face transformers in float32 over the dequantised weights.

    pip install torch transformers accelerate gguf safetensors
    scripts/fetch_smollm2 && scripts/oracles/gguf_golden.py smollm2.gguf tests/goldens/smollm2-gguf/golden.safetensors

OUT holds `prompt` [P] (the ids of --chat in the model's chat template), `greedy` [N] (its greedy continuation, EOS included), `margin`
[N] (between the two best logits at each step), `ids` [T] (the prompt, cut or continued to T) and, teacher forced, every 16th
column of the logits as `logits` [T, vocab / 16].
"""
import argparse
import pathlib

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

STRIDE = 16


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out")
    parser.add_argument("--chat", default="Write one sentence about the sea.")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--new", type=int, default=48)
    args = parser.parse_args()
    folder, file = str(args.model.parent), args.model.name
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": args.chat}], add_generation_prompt=True,
                                           return_tensors="pt", return_dict=True)["input_ids"]
    ids, greedy, margin, cache, step = prompt, [], [], None, prompt
    with torch.no_grad():
        while len(greedy) < args.new and (not greedy or greedy[-1] != tokenizer.eos_token_id):
            output = model(step, past_key_values=cache, use_cache=True)
            cache, two = output.past_key_values, output.logits[0, -1].topk(2).values
            step = output.logits[0, -1].argmax().view(1, 1)
            greedy.append(int(step))
            margin.append(float(two[0] - two[1]))
            ids = torch.cat([ids, step], 1)
        ids = ids[:, :args.tokens]
        logits = model(ids).logits[0, :, ::STRIDE]
    save_file({"prompt": prompt[0].int().contiguous(), "greedy": torch.tensor(greedy).int(), "margin": torch.tensor(margin),
               "ids": ids[0].int().contiguous(), "logits": logits.contiguous()}, args.out)


if __name__ == "__main__":
    main()
