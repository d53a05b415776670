"""Where a function has a value. Pure."""

from collections.abc import Callable


def inverse(rising: Callable[[float], float], value: float, low: float, high: float, halvings: int = 40) -> float:
    """Where between `low` and `high` a function that rises reaches `value`; the nearer of the two, where it is beyond.
    What is left open is (high − low) ÷ 2^(halvings + 1).

    >>> round(inverse(lambda x: x * x, 2.0, 0.0, 2.0), 9), round(inverse(lambda x: x, 5.0, 0.0, 2.0), 9)
    (1.414213562, 2.0)
    """
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < value else (low, middle)
    return (low + high) / 2
