"""What the target takes: a token, a verification by rows, the tap. Each grows `tokens` by what the target says."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from statistics import median

from mirror_mlx.target import Target
from mirror_mlx.tuning.choice import LENGTHS
from mirror_mlx.tuning.tally import usual
from mirror_mlx.verify import verify

_PLAIN, _FEW = 7, 5  # tokens decoded plainly at a time, and of a slow target
_PLAIN_S, _VERIFY_S = 0.12, 5.0  # seconds after which they are enough, and verifications are
_FAST_S = 1.5  # and those of a fast target, which are measured more often: as much disturbs them more
REPEATS, _MOST = 3, 9
_THINKS = 3.0  # ms of thought beside a verification,
_PAIRS, _PAIRS_S = 7, 1.0  # how many of them are compared with others, and seconds after which fewer are enough


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
) -> tuple[float, dict[int, float]]:
    """A token of plain decoding, and by rows a step that verifies so many, ms.

    Each length has its turn, `REPEATS` times (less often where that takes long, more often where it does not), between
    plain tokens: what disturbs for a while disturbs all alike, and where plain decoding was slower the turn is taken to
    have been as much slower.

    between  done before each of them, as the draft has its turn in decoding: who comes after it finds caches cold
    done     called after each, but for those that a fast target has more of: how many is not known beforehand
    """
    began, alone, found = time.perf_counter(), [plain(target, tokens)], []
    for repeat in range(1 + _MOST):
        if repeat > 1 and time.perf_counter() - began > (_FAST_S if repeat > REPEATS else _VERIFY_S):
            break
        turn = {}
        for length in lengths:
            between()
            ((_, turn[length + 1]),) = steps(target, tokens, length, 1)
            if repeat <= REPEATS:
                done()
        alone.append(plain(target, tokens))
        found.append((turn, (alone[-2] + alone[-1]) / 2))
    found = found[1:]  # the first has warmed them up
    token = usual([near for _, near in found])
    return token, {rows: usual([turn[rows] * token / near for turn, near in found]) for rows in found[0][0]}


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
    the target is another device, all of it where it is computed on the same core. between: as in `turns`."""
    began, shares = time.perf_counter(), list[float]()
    while len(shares) < _PAIRS and (len(shares) < REPEATS or time.perf_counter() - began < _PAIRS_S):
        between()
        ((_, alone),) = steps(target, tokens, length, 1)
        ms = min(_THINKS, alone / 2)
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
