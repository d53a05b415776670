"""Which way of decoding is best, of those a target and a draft can run. Pure."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import TypeVar

from mirror_mlx.messages import Predictor
from mirror_mlx.tuning.costs import Costs, Way
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.throughput import Belief, Prediction, predict

LENGTHS = (1, 2, 3, 4, 5, 7, 8, 11, 15)
_ROOTS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_PLAIN = Setting("ar")
_ROUNDS = 3  # through all factors; after that nothing has been seen to change
_AT_ONCE = 12  # settings that are looked at beside one verification: what takes longer keeps both devices waiting
_TAKES = 0.4  # ms to look at one, beside a verification
_TRIED = 16  # windows of a draft's that have to be compared before it is left out
_TAP = 0.97  # times the rate that is expected with a tap: more of what it takes is in none of its parts

T = TypeVar("T")
BeliefOf = Callable[[Setting], Belief]
"""What is believed of the text and the draft in this setting."""
Search = Generator[None, None, tuple[Setting, Prediction]]
"""Ends with what is best, and what is expected of it."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What may be chosen from, beside how the draft proposes, which the costs name.

    length      longest window
    roots       most outcomes of a step
    predictors  who may name them; none: the draft cannot work beside the target
    exits       exit layers of the tap
    waits       whether the target may wait for the draft, beside it
    """

    length: int
    roots: int = 0
    predictors: Sequence[Predictor] = ()
    exits: Sequence[int] = ()
    waits: bool = True

    def lengths(self) -> list[int]:
        return sorted({*(n for n in LENGTHS if n < self.length), self.length})

    def counts(self) -> list[int]:
        return sorted({*(n for n in _ROOTS if n < self.roots), self.roots})


def _rated(setting: Setting, said: Prediction) -> float:
    """What settings are compared by: tokens a millisecond, and somewhat less with a tap."""
    return said.rate * (_TAP if setting.mode == "mirror" and setting.predictor != "draft" else 1.0)


def best(
    costs: Costs, reach: Reach, belief: BeliefOf, start: Setting = _PLAIN, *, near: bool = False
) -> tuple[Setting, Prediction]:
    """The setting of speculation with the highest rate, and what is expected of it; plain decoding where there is none.
    Arguments as for `search`."""
    return finished(search(costs, reach, belief, start, near=near))


def search(costs: Costs, reach: Reach, belief: BeliefOf, start: Setting = _PLAIN, *, near: bool = False) -> Search:
    """The same, by and by: one step for each setting that is looked at.

    start  where to look from, a good one of before; plain decoding: there is none
    near   from there alone, and beside the target, where windows as long as are best in turns are too long: a fifth to
           a half of the work, and seldom finds that a draft had better propose in another way
    """
    places = [] if start.mode == "ar" else [replace(start, late=start.length) if start.alone else start]
    if not (near and places):
        places += _starts(costs, reach)
    elif start.mode == "sd" and costs.drafts and reach.predictors:
        places.append(_beside_it(reach, start.way))
    if reach.length < 1:
        places = []
    known: dict[Setting, Prediction] = {}

    def say(setting: Setting) -> Iterator[None]:
        """Most settings are come across several times in a search."""
        if setting not in known:
            known[setting] = predict(costs, setting, belief(setting))
            yield

    found = []
    for place in places:
        found.append((yield from _climb(costs, reach, known, say, place)))
    # Who is left out is asked seldom: where the draft seems to be of use it has to be known how good it is before.
    of_use = any(setting.late and said.rate * costs.plain > 1 for setting, said in found)
    if places and (belief(places[0]).tried >= _TRIED or not of_use):
        for setting in _without(costs, reach, belief, places[0]):
            yield from say(setting)
            found.append((setting, known[setting]))
    yield from say(_PLAIN)
    return max(found, key=lambda pair: _rated(*pair), default=(_PLAIN, known[_PLAIN]))


def further(looking: Generator[None, None, T], budget: float = inf, beside: float = 0.0) -> T | None:
    """As far as there is time for beside one verification: what it ends with; None: it has not ended. budget: ms that
    it may take longer for it, where it does; beside: ms that nobody waits in, where that is known."""
    try:
        count = max(1.0, budget / _TAKES) if budget < inf else max(_AT_ONCE, beside / _TAKES)
        for _ in range(int(count)):
            next(looking)
    except StopIteration as ended:
        found: T = ended.value
        return found
    return None


def finished(looking: Generator[None, None, T]) -> T:
    """What a search ends with."""
    while (found := further(looking)) is None:
        pass
    return found


def _starts(costs: Costs, reach: Reach) -> list[Setting]:
    """To look from: one in each mode, and for each way the draft proposes in."""
    ways = list(costs.drafts) or [(0, False)]
    beside_it = [_beside_it(reach, way) for way in ways] if costs.drafts and reach.predictors else []
    return [*beside_it, _in_turns(reach, ways[-1])]


def _in_turns(reach: Reach, way: Way) -> Setting:
    """With windows that are neither long nor short;"""
    lengths = reach.lengths()
    length = lengths[len(lengths) // 2]
    return Setting("sd", length, length, way=way)


def _beside_it(reach: Reach, way: Way) -> Setting:
    """the same beside the target."""
    return beside(reach, _in_turns(reach, way), reach.predictors[-1])


def _without(costs: Costs, reach: Reach, belief: BeliefOf, setting: Setting) -> list[Setting]:
    """The draft: what proposes at no cost may be better than one that is wrong, or slow. (Where there is none, that is
    what all other settings are about.) setting: how it would propose, if it were asked."""
    if not costs.drafts or not belief(setting).backup(1):
        return []
    return [Setting("sd", n, 0, way=setting.way) for n in reach.lengths()]


def _climb(
    costs: Costs,
    reach: Reach,
    known: Mapping[Setting, Prediction],
    say: Callable[[Setting], Iterator[None]],
    setting: Setting,
) -> Search:
    """One factor after another is set to what is best beside the others."""
    yield from say(setting)
    for _ in range(_ROUNDS):
        before = setting
        for vary in (_modes, _ways, sized, _late, _roots, _predictors, _exits):
            others = vary(reach, costs, setting)
            for other in others:
                yield from say(other)
            setting = max((setting, *others), key=lambda one: _rated(one, known[one]))
        if setting == before:
            break
    return setting, known[setting]


def _modes(reach: Reach, costs: Costs, setting: Setting) -> list[Setting]:
    if setting.mode == "mirror":
        return [replace(setting, mode="sd", late=setting.length)]
    if not costs.drafts or not reach.predictors:
        return []
    # As many roots as there may be are often too many: a pass over them takes long.
    return [replace(beside(reach, setting, one), roots=n) for one in reach.predictors for n in reach.counts()]


def beside(reach: Reach, setting: Setting, predictor: Predictor) -> Setting:
    """What is done in turns, done beside the target."""
    exit_layer = reach.exits[len(reach.exits) // 2] if reach.exits else 0
    late = setting.late if reach.waits else 0
    return replace(
        setting, mode="mirror", late=late, roots=reach.counts()[-1], predictor=predictor, exit_layer=exit_layer
    )


def _ways(reach: Reach, costs: Costs, setting: Setting) -> list[Setting]:
    return [replace(setting, way=way) for way in costs.drafts]


def sized(reach: Reach, costs: Costs, setting: Setting) -> list[Setting]:
    """Windows of other lengths: both with as many passes where the target waits as before, and with all of them."""
    kept = [resized(setting, n) for n in reach.lengths()]
    if setting.mode == "sd" or not reach.waits:
        return kept
    return kept + [replace(setting, length=n, late=n) for n in reach.lengths()]


def resized(setting: Setting, length: int) -> Setting:
    """One of them: beside the target no more of it is waited for than before, in turns all that the draft makes."""
    whole = setting.mode == "sd" and not setting.alone
    return replace(setting, length=length, late=length if whole else min(length, setting.late))


def _late(reach: Reach, costs: Costs, setting: Setting) -> list[Setting]:
    draft = costs.drafts.get(setting.way)
    if setting.mode == "sd" or draft is None or not reach.waits:
        return []
    enough = (draft.brought(n, setting.length) for n in range(ceil(draft.passes(setting.length)) + 1))
    return [replace(setting, late=n) for n in dict.fromkeys(enough)]


def _roots(reach: Reach, costs: Costs, setting: Setting) -> list[Setting]:
    return [replace(setting, roots=n) for n in reach.counts()] if setting.mode == "mirror" else []


def _predictors(reach: Reach, costs: Costs, setting: Setting) -> list[Setting]:
    return [replace(setting, predictor=one) for one in reach.predictors] if setting.mode == "mirror" else []


def _exits(reach: Reach, costs: Costs, setting: Setting) -> list[Setting]:
    if setting.mode != "mirror" or setting.predictor == "draft":
        return []
    return [replace(setting, exit_layer=layer) for layer in reach.exits]
