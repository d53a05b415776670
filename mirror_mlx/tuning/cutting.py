"""How much of a window is worth verifying: as long as the next proposals bring more than their rows cost (as SpecDec++,
arXiv 2405.19715, and PEARL, arXiv 2408.11850, motivate). Pure."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from mirror_mlx.tuning.costs import Costs
from mirror_mlx.tuning.curve import Curve
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.throughput import Belief, predict


def enough(confidences: Sequence[float], worth: Callable[[float], float], cost: Curve) -> int:
    """How many proposals to verify.

    confidences  the draft's own probability of each
    worth        how often those hold of which it was as sure
    cost         of a step that verifies so many, in tokens: see `rows`

    >>> enough([0.9, 0.8, 0.1, 0.9], lambda sure: sure, Curve.of({0: 0.0, 4: 1.2}))
    2
    """
    alive, brought, most, take = 1.0, 0.0, -cost.at(0), 0
    for count, sure in enumerate(confidences, 1):
        alive *= worth(sure)
        brought += alive
        if brought - cost.at(count) >= most:
            most, take = brought - cost.at(count), count
    return take


def rows(costs: Costs, setting: Setting, belief: Belief, rate: float) -> Curve:
    """What a step costs that verifies so many proposals, in tokens: what else is decoded in the time, at this rate,
    without what the draft gets done in it for the next one. A step that ends when the draft has finished is no shorter
    for a shorter verification."""

    def cost(count: int) -> float:
        during = replace(costs, verify=Curve.of({1: costs.verify.at(count + 1)}))
        said = predict(during, setting, belief)
        return rate * said.step - said.tokens

    return Curve.through((count, cost(count)) for count in {0, setting.length // 2, setting.length})
