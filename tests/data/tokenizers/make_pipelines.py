"""Makes pipelines.jsonl.gz: what Hugging Face's `tokenizers` (pip install tokenizers) does with the parts of a tokenizer.json
that the real vocabularies leave untouched. Each line is one tokenizer, from the small model's by a change, and its cases
[text, ids, ids with special tokens].

    python make_pipelines.py models/mini-qwen35/tokenizer.json 150
"""
import copy
import gzip
import json
import pathlib
import random
import sys
import unicodedata

from tokenizers import Tokenizer

BASE = json.loads(pathlib.Path(sys.argv[1]).read_text())
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
SPLIT = BASE["pre_tokenizer"]["pretokenizers"][0]


def pre_tokenizers(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def split(pattern):
    return dict(SPLIT, pattern={"Regex": pattern})


def added(content, **flags):
    base = {"id": 0, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return dict(base, **flags)


def template(single):
    pieces, names = [], {}
    for name in single:
        if name == "A":
            pieces.append({"Sequence": {"id": "A", "type_id": 0}})
        else:
            id = next(t["id"] for t in BASE["added_tokens"] if t["content"] == name)
            names[name] = {"id": name, "ids": [id], "tokens": [name]}
            pieces.append({"SpecialToken": {"id": name, "type_id": 0}})
    return {"type": "TemplateProcessing", "single": pieces, "pair": pieces + [{"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": names}


def variants():
    def make(**changes):
        result = copy.deepcopy(BASE)
        tokens = changes.pop("tokens", [])
        model = changes.pop("model", {})
        result.update(changes)
        result["model"].update(model)
        next_id = BASE["added_tokens"][-1]["id"] + 1
        for token in tokens:
            known = result["model"]["vocab"].get(token["content"])
            result["added_tokens"].append(dict(token, id=next_id if known is None else known))
            next_id += known is None
        return result

    yield make()
    yield make(normalizer=None)
    yield make(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}]})
    yield make(normalizer={"type": "Sequence", "normalizers": []})
    yield make(pre_tokenizer=dict(BYTE_LEVEL, use_regex=True))
    yield make(pre_tokenizer=dict(BYTE_LEVEL, use_regex=True, add_prefix_space=True))
    yield make(pre_tokenizer=dict(BYTE_LEVEL, add_prefix_space=True))
    yield make(pre_tokenizer=pre_tokenizers({"type": "Digits", "individual_digits": False}, dict(BYTE_LEVEL, add_prefix_space=True)))
    yield make(pre_tokenizer=pre_tokenizers({"type": "Digits", "individual_digits": True}, SPLIT, BYTE_LEVEL))
    yield make(pre_tokenizer=pre_tokenizers(pre_tokenizers(split(r"\s+")), pre_tokenizers(split(r"(?=[a-z])"), BYTE_LEVEL)))
    yield make(pre_tokenizer=pre_tokenizers(split(r"x*"), BYTE_LEVEL))
    yield make(pre_tokenizer=pre_tokenizers(split(r"\S\s?|\D{2,3}"), BYTE_LEVEL))
    yield make(pre_tokenizer=pre_tokenizers(split(r"[\s]|[^\S\n]+|.$|^."), BYTE_LEVEL))
    yield make(pre_tokenizer=pre_tokenizers(split(r"\p{Han}+|[^\p{Latin}]|\d{2}|(?<=a)b|(?i:k|st)|\u00e9"), BYTE_LEVEL))
    yield make(model={"ignore_merges": True})
    yield make(model={"merges": [" ".join(m) for m in BASE["model"]["merges"]]})
    yield make(post_processor=template(["<|im_start|>", "A", "<|im_end|>"]))
    yield make(post_processor={"type": "Sequence", "processors": [BYTE_LEVEL, template(["<|endoftext|>", "A"])]})
    yield make(tokens=[added("cat", single_word=True), added("dog", lstrip=True), added("cow", rstrip=True), added("pig", lstrip=True, rstrip=True),
                       added("an", single_word=True, lstrip=True), added(" \n", rstrip=True)])
    yield make(tokens=[added("aa"), added("aab"), added("aabb"), added("bb"), added("é"), added("<|im_start|>x", special=True)])
    yield make(tokens=[added("e\u0301", normalized=True), added("Å", normalized=True), added("ab", normalized=True, lstrip=True), added("\u212b")])
    yield make(normalizer=None, tokens=[added("e\u0301", normalized=True), added("é", normalized=True, special=True)])
    short = copy.deepcopy(BASE["model"])
    short["vocab"] = {t if t not in ("q", "Ã", "©", "Ċ") else f"\u4e00{i}": i for t, i in short["vocab"].items()}
    short["merges"] = [m for m in short["merges"] if all(p in short["vocab"] for p in (m[0], m[1], m[0] + m[1]))]
    yield make(model=short)


ATOMS = list("aabbcxk0123456789.,'!_-") + [" ", " ", "  ", "\n", "\t", "\r\n", "\u180e", "\u00a0", "\u0085", "\u200b", "\u2028", "\u200d", "\u203f"] + [
    "cat", "dog", "cow", "pig", "an", "The", "the", "tickets", "aa", "aabb", "é", "e\u0301", "Å", "A\u030a", "\u212b", "\u212a", "ſ", "'s", "'ſ", "ﬆ", "st", "ß",
    "你", "好", "。", "、", "ー", "々", "٣", "²", "½", "Ⅷ", "〇", "①", "㊀", "\U0001d7ce", "😀", "\u0301", "\u0323\u0301", "\u0301\u0323", "ᄀ", "ᅡ", "ᆨ", "가", "q",
    "<|im_start|>", "<|im_end|>", "<|im_start", "<|endoftext|>", "\u037e", "\u0958", "\u09c7\u09be", "\u1100\u1161", "ⓐ", "\u0345", "\x00", "\x1c"]


FIRST = ["", "cat catⓐ ⓐcat cat_ \u203fcat cat\u200d ½cat, cat-cat cat", "  dog  cow  pig  ", " \n \n  \n\n "]


def main():
    rng = random.Random(5)
    out = pathlib.Path(__file__).parent / "pipelines.jsonl.gz"
    with gzip.GzipFile(out, "wb", mtime=0) as file:
        for variant in variants():
            text = json.dumps(variant)
            tokenizer = Tokenizer.from_str(text)
            cases = []
            for i in range(int(sys.argv[2])):
                sample = FIRST[i] if i < len(FIRST) else "".join(rng.choice(ATOMS) for _ in range(rng.randint(1, 24)))
                ids = [tokenizer.encode(sample, add_special_tokens=add).ids for add in (False, True)]
                cases.append([sample, *ids])
            file.write((json.dumps({"tokenizer": text, "cases": cases}, separators=(",", ":")) + "\n").encode())


if __name__ == "__main__":
    main()
