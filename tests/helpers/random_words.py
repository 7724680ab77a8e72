"""SplitMix64 in Python integers, straight from its definition."""

MASK = 2**64 - 1


def splitmix_finalizer(word: int) -> int:
    z = word & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)
