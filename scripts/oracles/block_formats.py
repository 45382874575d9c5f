"""Writes tests/data/block_formats.txt: blocks of GGUF's formats, and the floats that the public package `gguf` makes of them.

    pip install gguf
    scripts/oracles/block_formats.py > tests/data/block_formats.txt

A line "TYPE blocks HEX floats HEX" has a few blocks, some with extreme scales. A line "TYPE random COUNT HASH" stands for
COUNT blocks of splitmix64's bytes (seed: GGUF's number of the type) whose half-precision scales, where infinite or NaN, have
the exponent's lowest bit cleared. HASH: the sum over all floats of bits * (2 i + 1) * 0x9e3779b97f4a7c15 modulo 2^64;
every NaN counts as 0x7fc00000.
"""
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize

SCALES = {"F16": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "MXFP4"]
EXTREMES = [0x7bff, 0xfbff, 0x0001, 0x8001, 0x0400, 0x0000, 0x8000]  # largest, smallest, smallest normal, zeros
GOLDEN = np.uint64(0x9e3779b97f4a7c15)
RANDOM_BLOCKS = 2048


def splitmix_bytes(seed, count):
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, (count + 7) // 8 + 1, dtype=np.uint64) * GOLDEN
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
        z ^= z >> np.uint64(31)
    return z.view(np.uint8)[:count].copy()


def floats(name, blocks):
    with np.errstate(all="ignore"):
        bits = dequantize(blocks, Type[name]).view(np.uint32).ravel().copy()
    bits[(bits & 0x7fffffff) > 0x7f800000] = 0x7fc00000
    return bits


def main():
    print("#", "by scripts/oracles/block_formats.py")
    for name in TYPES:
        _, size = GGML_QUANT_SIZES[Type[name]]
        blocks = splitmix_bytes(Type[name], RANDOM_BLOCKS * size).reshape(RANDOM_BLOCKS, size)
        for at in SCALES.get(name, []):
            high = blocks[:, at + 1]
            high[(high & 0x7c) == 0x7c] &= 0xfb
        few = blocks[:4 if size < 80 else 2].copy()
        for i, block in enumerate(few[:-1]):  # the last one stays as it is
            for at in SCALES.get(name, []):
                block[at:at + 2] = np.frombuffer(np.uint16(EXTREMES[(i + at) % len(EXTREMES)]).tobytes(), np.uint8)
        if name == "MXFP4":
            few[:, 0] = [0, 1, 2, 255]
        print(name, "blocks", few.tobytes().hex(), "floats", floats(name, few).tobytes().hex())
        bits = floats(name, blocks).astype(np.uint64)
        with np.errstate(over="ignore"):
            weights = (2 * np.arange(len(bits), dtype=np.uint64) + np.uint64(1)) * GOLDEN
            print(name, "random", RANDOM_BLOCKS, f"{int(np.sum(bits * weights, dtype=np.uint64)):016x}")


if __name__ == "__main__":
    main()
