"""What the throughput model says of settings that were measured, from calibration and what the text did. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from mirror_mlx.messages import first_pass
from mirror_mlx.trace import StepTrace
from mirror_mlx.tuning.chance import Chance
from mirror_mlx.tuning.costs import Costs, trusted
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.throughput import predict


@dataclass(frozen=True, slots=True)
class Measured:
    """What was decoded in one setting, and how long it took."""

    setting: Setting
    steps: Sequence[StepTrace]
    seconds: float

    @property
    def tokens(self) -> int:
        return sum(step.outcome.accepted + 1 for step in self.steps)

    @property
    def kind(self) -> tuple[int, int]:
        """Settings that propose alike: by how many streams that are not checked, and how many of their proposals the
        first pass makes."""
        streams = trusted(self.setting.way)
        return streams, first_pass(self.setting.length, 1 + streams)

    def of(self, predictor: str) -> "Measured":
        """The steps in which that one named the outcomes: a hybrid may let draft or tap do it alone."""
        steps = [step for step in self.steps if step.predictor == predictor]
        return replace(self, setting=replace(self.setting, predictor=predictor or "hybrid"), steps=steps)

    def guessed(self) -> float:
        """See `throughput.Belief`."""
        known = [found for step in self.steps if (found := step.guessed) is not None]
        return sum(known) / max(len(known), 1)

    def hits(self, count: float) -> float:
        """The share of outcomes among the first so many roots."""
        places = [step.place for step in self.steps if step.next != "none"]
        return sum(place is not None and place < count for place in places) / max(len(places), 1)


def rates(of: Sequence[Measured]) -> list[float]:
    """How often a proposal held, by place, given that those before it did, of all that was proposed in one way."""
    windows = [(len(step.window.tokens), step.outcome.accepted) for one in of for step in one.steps]
    found = []
    for place in range(max((length for length, _ in windows), default=0)):
        tried = sum(length > place and accepted >= place for length, accepted in windows)
        held = sum(length > place and accepted > place for length, accepted in windows)
        if tried:
            found.append(held / tried)
    return found or [0.0]


def _texts(costs: Costs, one: Measured) -> Costs:
    """With as many tokens a pass as streams that are checked have brought in this text."""
    way = one.setting.way
    passes, held = (sum(step.window.checked[part] for step in one.steps) for part in (0, 1))
    if not way[1] or way not in costs.drafts or not passes:
        return costs
    return replace(costs, drafts={**costs.drafts, way: replace(costs.drafts[way], tokens=1.0 + held / passes)})


def errors(rows: Mapping[str, Mapping[str, float]]) -> list[float]:
    """How far off predictions are, as shares of what was measured."""
    return [abs(row["predicted"] / row["measured"] - 1) for row in rows.values()]


def compared(found: Mapping[str, Measured], costs: Costs) -> dict[str, Any]:
    """`settings`: tokens a second by name, predicted and measured, and a step's time, predicted ÷ measured: tokens are
    few, and what held in one setting is not what holds in another; `error`, `median_error`: of them all, as shares;
    `gain_error`: of their ratios to plain decoding, the median; `best`: which one the model would take, and
    `best_share`: what that reaches of the best measured."""
    rows = {}
    for name, one in found.items():
        held = rates([other for other in found.values() if other.kind == one.kind])
        now, guess = _texts(costs, one), one.guessed()
        tokens = ms = 0.0
        for asked in {step.predictor for step in one.steps}:
            part = one.of(asked)
            said = predict(now, part.setting, Chance(held, part.hits, guess))
            tokens, ms = tokens + len(part.steps) * said.tokens, ms + len(part.steps) * said.step
        rows[name] = {
            "predicted": 1e3 * tokens / ms, "measured": one.tokens / one.seconds, "step": ms / 1e3 / one.seconds
        }  # fmt: skip
    wrong = errors(rows)
    plain = rows.get("ar", dict.fromkeys(("predicted", "measured"), 1e3 / costs.plain))
    gains = [
        abs(row["predicted"] / plain["predicted"] / (row["measured"] / plain["measured"]) - 1) for row in rows.values()
    ]
    best = max(rows, key=lambda name: rows[name]["predicted"])
    top = max(row["measured"] for row in rows.values())
    return {
        "settings": rows, "error": max(wrong), "median_error": median(wrong),
        "gain_error": median(gains), "best": best,
        "best_share": rows[best]["measured"] / top,
    }  # fmt: skip
