"""What the target takes: a token, a verification by rows, the tap. Each grows `tokens` by what the target says."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import inf, sqrt
from statistics import fmean, median, stdev

from mirror_mlx.target import Target
from mirror_mlx.tuning.choice import LENGTHS
from mirror_mlx.tuning.tally import usual
from mirror_mlx.verify import verify

_PLAIN, _FEW = 7, 5  # tokens decoded plainly at a time, and of a slow target
_PLAIN_S = 0.12  # seconds after which they are enough,
_VERIFY_S, _MORE_S = 5.0, 10.0  # and after which verifications are, without more of them and with
REPEATS, _MOST = 3, 12  # turns that each length has after the draft, and more without it
_SURE = 0.025  # how well it is known what they take when there need not be more
_PAIRS, _PAIRS_S = 7, 1.0  # verifications with thought and without, and seconds after which fewer are enough

Turn = Mapping[int, float]
"""What a step takes by rows, in plain tokens."""


def plain(target: Target, tokens: list[int]) -> float:
    """A token, ms, in the middle of a text: the next one is submitted before it is read, which the last one has not to
    wait for. The first one finds caches cold, and is late; the next one is on its way by then, and seems to be fast."""
    ended: list[float] = []

    def more() -> int:
        fast = len(ended) == _FEW - 1 and ended[-1] - ended[0] < _PLAIN_S
        return _PLAIN - _FEW if fast else 0

    for token, _ in target.plain(tokens, _FEW, more):
        tokens.append(token)
        ended.append(time.perf_counter())
    return 1e3 * usual([after - before for before, after in pairwise(ended[1:-1])])


def windows(longest: int) -> tuple[int, ...]:
    """Lengths of those that are verified."""
    return (0, *(n for n in LENGTHS if n < longest), longest)


def turns(
    target: Target,
    tokens: list[int],
    lengths: Sequence[int],
    between: Callable[[], object],
    done: Callable[[], object],
) -> tuple[float, dict[int, float], float]:
    """A token of plain decoding, and by rows a step that verifies so many, ms; and by how much one such step differs
    from another, a standard deviation as a share.

    Each length has its turn, `REPEATS` times, less often where that takes long, between plain tokens: what disturbs for
    a while disturbs all alike, and where plain decoding was slower the turn is taken to have been as much slower. Where
    turns do not agree there are more of them, in which the draft has none: what that makes of verifications is much the
    same for all.

    between  done before each of them, as the draft has its turn in decoding: who comes after it finds caches cold
    done     called after each, but for those that there are more of: how many is not known beforehand
    """
    began, alone = time.perf_counter(), [plain(target, tokens)]

    def turn(before: Callable[[], object], after: Callable[[], object]) -> Turn:
        """What a step takes by rows, in plain tokens."""
        took = {}
        for length in lengths:
            before()
            ((_, took[length + 1]),) = steps(target, tokens, length, 1)
            after()
        alone.append(plain(target, tokens))
        near = (alone[-2] + alone[-1]) / 2
        return {rows: ms / near for rows, ms in took.items()}

    def spent() -> float:
        return time.perf_counter() - began

    between()
    turn(lambda: None, done)  # which warms them up
    del alone[:-1]
    cold, warm = [turn(between, done)], list[Turn]()
    while len(cold) < REPEATS and spent() < _VERIFY_S:
        cold.append(turn(between, done))
    while len(warm) < _MOST and spent() < _MORE_S and unsure(cold, warm) > _SURE:
        warm.append(turn(lambda: None, lambda: None))
    token, differ = usual(alone), spread(cold, warm)
    return token, {rows: share * token for rows, share in by_rows(cold, warm).items()}, differ if differ < inf else 0.0


def by_rows(cold: Sequence[Turn], warm: Sequence[Turn]) -> Turn:
    """What a step takes with caches cold. cold, warm: turns of each kind, of which the one differs from the other by
    the same factor whatever rows there are."""
    return {rows: usual(shares) for rows, shares in _together(cold, warm).items()}


def spread(cold: Sequence[Turn], warm: Sequence[Turn]) -> float:
    """By how much that differs from one turn to another: a standard deviation, as a share; inf: nothing tells."""
    if len(cold) + len(warm) < 2:
        return inf
    return fmean(stdev(shares) / fmean(shares) for shares in _together(cold, warm).values())


def unsure(cold: Sequence[Turn], warm: Sequence[Turn]) -> float:
    """And how well it is known: the error to be expected of it, likewise."""
    return spread(cold, warm) / sqrt(len(cold) + len(warm))


def _together(cold: Sequence[Turn], warm: Sequence[Turn]) -> dict[int, list[float]]:
    """By rows, what all of them took as if each were of the first kind."""
    factor = _all(cold) / _all(warm) if warm else 1.0
    return {rows: [*(turn[rows] for turn in cold), *(factor * turn[rows] for turn in warm)] for rows in cold[0]}


def _all(of: Sequence[Turn]) -> float:
    """A step with each of the rows there are."""
    return sum(usual([turn[rows] for turn in of]) for rows in of[0])


def taps(
    target: Target, tokens: list[int], length: int, exits: Sequence[int], between: Callable[[], object]
) -> Iterator[tuple[int, float, float]]:
    """Exit layer, at which share of a verification of `length` proposals its tap has spoken, and what it adds to one,
    ms. Each is compared with a verification just before. between: as in `turns`."""
    chosen = target.exit_layer
    try:
        for layer in exits:
            target.exit_layer = layer
            shares, more = [], []
            for _ in range(REPEATS):
                between()
                ((_, bare),) = steps(target, tokens, length, 1)
                between()
                ((spoken, whole),) = steps(target, tokens, length, 1, tap=True)
                shares.append(spoken / bare)
                more.append(whole - bare)
            yield layer, min(1.0, median(shares)), median(more)
    finally:
        target.exit_layer = chosen


def thought(target: Target, tokens: list[int], length: int, between: Callable[[], object]) -> float:
    """Of what is thought beside a verification of `length` proposals, the share by which that takes longer: none where
    the target is another device, all of it where it is computed on the same core. It is thought for half as long as one
    takes: what disturbs one verification and not the next is more than any decision takes. between: as in `turns`."""
    began, shares = time.perf_counter(), list[float]()
    while len(shares) < _PAIRS and (len(shares) < REPEATS or time.perf_counter() - began < _PAIRS_S):
        between()
        ((_, alone),) = steps(target, tokens, length, 1)
        ms = alone / 2
        between()
        ((_, beside),) = steps(target, tokens, length, 1, meanwhile=partial(_think, ms))
        shares.append((beside - alone) / ms)
    return min(1.0, max(0.0, median(shares)))


def _think(ms: float) -> None:
    ends = time.perf_counter() + ms / 1e3
    while time.perf_counter() < ends:
        pass


def steps(
    target: Target,
    tokens: list[int],
    length: int,
    count: int,
    tap: bool = False,
    meanwhile: Callable[[], object] = lambda: None,
) -> Iterator[tuple[float, float]]:
    """Steps with windows of nonsense: when the tap has spoken, and when it is over, ms from the beginning. meanwhile:
    done while the target is at work."""
    for _ in range(count):
        window = [tokens[-1]] * length
        began = time.perf_counter()
        seen = target.begin(tokens[-1], window, tokens, tap=tap)
        heard = None if seen is None else seen.heard()
        target.proceed()
        meanwhile()
        outcome = verify(window, target.finish())
        target.commit(outcome)
        ended = time.perf_counter()
        yield 1e3 * ((began if heard is None else heard()) - began), 1e3 * (ended - began)
        tokens += [*window[: outcome.accepted], outcome.token]
