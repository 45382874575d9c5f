"""Random contents of tensors as src/tools/random_fill.h defines them, computed with numpy: prints the fingerprints
(XXH3 of 3000 elements of tensor "a", seed 1) that random_fill_test.cpp holds. Needs the packages numpy and xxhash."""
import numpy as np
import xxhash

BLOCK = 1024
MASK = (1 << 64) - 1


def block_key(key, block):
    z = (key + (block + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def words(key, count):
    with np.errstate(over="ignore"):
        h = (np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B9)) ^ np.uint32(key & 0xFFFFFFFF)
        h ^= h >> np.uint32(16)
        h *= np.uint32(0x85EBCA6B)
        h ^= h >> np.uint32(13)
        h *= np.uint32(0xC2B2AE35)
        h ^= h >> np.uint32(16)
        return h + np.uint32(key >> 32)


def values(kind, center, spread, key):
    w = words(key, BLOCK)
    if kind.startswith("normal"):
        numbers, unit = w.view(np.uint8).reshape(-1, 4).astype(np.int32).sum(1) - 510, 147.80053
    else:
        numbers, unit = (w >> 16).astype(np.int32) - 32768, 32768
    return numbers.astype(np.float32) * (np.float32(spread) / np.float32(unit)) + np.float32(center)


def block_bytes(kind, center, spread, key):
    if kind.endswith("f32"):
        return values(kind, center, spread, key).tobytes()
    if kind.endswith("bf16"):
        bits = values(kind, center, spread, key).view(np.uint32).astype(np.uint64)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).tobytes()
    codes = words(key, BLOCK // 4).view(np.uint8)
    if kind == "e8m0":
        codes = (127 + center + (codes < 64) - 1 * (codes >= 192)).astype(np.uint8)
    if kind == "e4m3":
        codes = codes - ((codes & 0x7F) == 0x7F).astype(np.uint8)
    return codes.tobytes()


def main():
    key = xxhash.xxh3_64_intdigest(b"a", seed=1)
    for kind, center, spread, width in (("normal f32", 1, 0.05, 4), ("normal bf16", 0, 0.02, 2),
                                        ("uniform f32", -3, 2, 4), ("e2m1", 0, 0, 1), ("e8m0", -7, 0, 1),
                                        ("e4m3", 0, 0, 1)):
        data = b"".join(block_bytes(kind, center, spread, block_key(key, block)) for block in range(3))
        print(kind, xxhash.xxh3_64_intdigest(data[:3000 * width]))


main()
