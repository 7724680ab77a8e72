"""Joining a host trace and a profile that share no id, by the order and names of operators.

Before PyTorch 2.3 a profile does not carry the RecordFunction handle. "External id" counts the same
operators, but from another start and with other gaps (user scopes count in one and not in the
other), so equal numbers mean nothing: in a public Megatron-LM pair 333 of 5,422 agree in name,
while following both in order joins every ATen kernel. Both files list a thread's operators by
start; where names differ, the nearest place is sought from which a few names agree again.
"""

from collections.abc import Sequence

WINDOW = 60
RUN = 3


def align(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int]]:
    """Return pairs of positions with equal names, ascending in both.

    The cost is linear where the sequences agree and WINDOW**2 at each place where they do not.
    """
    pairs = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] == right[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
            continue
        i, j = _resume(left, right, i, j)
    return pairs


def _resume(left: Sequence[str], right: Sequence[str], i: int, j: int) -> tuple[int, int]:
    """Return the nearest positions from which both agree again; the ends if there are none."""
    for total in range(1, WINDOW):
        for skip in range(total + 1):
            a, b = i + skip, j + total - skip
            ahead = left[a : a + RUN]
            if ahead and list(ahead) == list(right[b : b + RUN]):
                return a, b
    # Nothing near: leave out a stretch of both.
    return i + WINDOW // 2, j + WINDOW // 2
