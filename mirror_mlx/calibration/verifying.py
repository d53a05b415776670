"""What the target takes: a token, a verification by rows, the tap. Each grows `tokens` by what the target says."""

import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from mirror_mlx.target import Target
from mirror_mlx.tuning.choice import LENGTHS
from mirror_mlx.verify import verify

_PLAIN, _FEW = 24, 10  # tokens decoded plainly, and with a slow target
REPEATS = 3
_PLAIN_S, _VERIFY_S = 1.5, 5.0  # seconds after which they are enough, and verifications are


def plain(target: Target, tokens: list[int]) -> float:
    """A token, ms."""
    times, before = [], time.perf_counter()
    for token, _ in target.plain(tokens, _PLAIN):
        tokens.append(token)
        times.append(time.perf_counter() - before)
        before = time.perf_counter()
        if len(times) >= _FEW and sum(times) > _PLAIN_S:
            break
    return 1e3 * median(times[2:])


def windows(longest: int) -> tuple[int, ...]:
    """Lengths of those that are verified."""
    return (0, *(n for n in LENGTHS if n < longest), longest)


def verifications(
    target: Target, tokens: list[int], lengths: Sequence[int], between: Callable[[], object]
) -> Iterator[tuple[int, float]]:
    """Rows, and what a step takes that verifies so many, ms: each of them `REPEATS` times, less often where that takes
    long, in turn, so that what disturbs for a while disturbs all alike.

    between  done before each of them, as the draft has its turn in decoding: who comes after it finds caches cold
    """
    began = time.perf_counter()
    for repeat in range(1 + REPEATS):
        if repeat > 1 and time.perf_counter() - began > _VERIFY_S:
            return
        for length in lengths:
            between()
            ((_, whole),) = steps(target, tokens, length, 1)
            if repeat:  # before, they are warmed up
                yield length + 1, whole


def taps(
    target: Target, tokens: list[int], length: int, exits: Sequence[int], bare: float, between: Callable[[], object]
) -> Iterator[tuple[int, float, float]]:
    """Exit layer, at which share of a verification its tap has spoken, and what it adds to one, ms.

    bare  what a verification of `length` proposals takes without, ms; between: as in `verifications`
    """
    chosen = target.exit_layer
    try:
        for layer in exits:
            target.exit_layer = layer
            found = []
            for _ in range(REPEATS):
                between()
                found += steps(target, tokens, length, 1, tap=True)
            spoken, whole = zip(*found, strict=True)
            yield layer, min(1.0, median(spoken) / bare), median(whole) - bare
    finally:
        target.exit_layer = chosen


def steps(
    target: Target, tokens: list[int], length: int, count: int, tap: bool = False
) -> Iterator[tuple[float, float]]:
    """Steps with windows of nonsense: when the tap has spoken, and when it is over, ms from the beginning."""
    for _ in range(count):
        window = [tokens[-1]] * length
        began = time.perf_counter()
        seen = target.begin(tokens[-1], window, tokens, tap=tap)
        if seen is not None:
            seen.read()
        spoken = time.perf_counter()
        outcome = verify(window, target.finish())
        target.commit(outcome)
        yield 1e3 * (spoken - began), 1e3 * (time.perf_counter() - began)
        tokens += [*window[: outcome.accepted], outcome.token]
