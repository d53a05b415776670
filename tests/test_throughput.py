"""The throughput model beside what it is a model of: the state machine of a step, with set times for everything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_mlx.messages import Candidates, Outcome
from mirror_mlx.rounds import Advance, Expand, Glue, Plan, Round, Wait
from mirror_mlx.tuning import throughput
from mirror_mlx.tuning.costs import Costs, DraftCosts
from mirror_mlx.tuning.curve import Curve
from mirror_mlx.tuning.due import Due
from mirror_mlx.tuning.throughput import Setting

VOCAB = 100_000


def candidates(rows, first):
    tokens = [[first + 100 * row + place for place in range(60)] for row in range(rows)]
    probs = [[0.3 / (place + 1) for place in range(60)] for _ in range(rows)]
    return Candidates(tokens, probs, [0.8] * (rows - 1))


def hits(count):
    """The share of outcomes among the first so many roots."""
    return 1 - 0.6 * count**-0.7 if count else 0.0


class Step:
    """Played on two clocks. ends: when the next window is there, by which root the outcome is, or none."""

    def __init__(self, costs, setting):
        self.costs, self.setting, self.draft = costs, setting, costs.drafts[setting.way]
        self.verify = costs.verify.at(setting.length + 1) * costs.slower
        self.verify += costs.tap if setting.predictor != "draft" else 0.0

    def ends(self, place):
        setting, tap = self.setting, self.setting.predictor != "draft"
        one, passes = self.draft.one.scaled(self.draft.slower), self.draft.passes(setting.length)
        due = Due(self.verify, passes, one, setting, hits) if setting.late else None
        plan = Plan(
            tuple(range(setting.length)), setting.length, VOCAB, setting.predictor, kappa=24, max_roots=setting.roots,
            tap=tap, late=setting.late, due=due,
        )  # fmt: skip
        round_, at, pending, spoken = Round(plan), 0.0, 0.0, self.costs.exits[4] * self.verify if tap else None
        there = {}  # when a window was finished
        facts = sorted([(self.verify, "outcome"), *([(spoken, "tap")] if tap else [])])
        while True:
            while facts and facts[0][0] <= at:
                if facts.pop(0)[1] == "tap":
                    round_.tapped(candidates(setting.length + 1, 50_000))
                else:
                    key = (0, VOCAB - 1) if place is None else round_.cache.keys[place]
                    if round_.cache.finished(key):
                        return max(self.verify, there[key])
                    round_.resolved(Outcome(*key))
            action = round_.next(at, self.draft.width)
            if isinstance(action, Wait):
                at = facts[0][0]
            elif isinstance(action, Glue):
                glue = self.draft.glue.at(setting.length + 1)
                at = self.after(at, glue if action.candidates else 0.0)
                pending = 0.0 if action.candidates else max(0.0, glue - self.draft.one.at(1))
                round_.glued(candidates(setting.length + 1, 1000) if action.candidates else None)
            elif isinstance(action, Expand):
                round_.expanded(action.roots)
            elif isinstance(action, Advance):
                keys = action.keys
                made = [round_.cache.passes(key) for key in keys]
                load = setting.load(len(keys), made.count(0), made.count(1))
                at = self.after(at, self.draft.one.at(load) + pending)
                pending, proposed = 0.0, {}
                for key in keys:
                    first = 1 + (setting.length - 1) % int(self.draft.tokens)
                    count = int(self.draft.tokens) if round_.cache.passes(key) else first
                    proposed[key] = list(range(count))
                round_.advanced(keys, proposed)
                there |= {key: at for key in keys if round_.cache.finished(key)}
            else:
                return at

    def after(self, at, cost):
        """When that is done which takes so long alone, and longer while the target is busy."""
        room = max(0.0, self.verify - at) / self.draft.slower
        return at + cost * self.draft.slower if cost <= room else max(at, self.verify) + cost - room


@st.composite
def played(draw):
    plain, one = draw(st.floats(5, 200)), draw(st.floats(1, 60))
    streams, length = draw(st.integers(0, 2)), draw(st.integers(1, 12))
    wide = draw(st.floats(1, 6))  # a pass over 24 branches ÷ one over one
    draft = DraftCosts(
        Curve.of({1: one, 8: one * draw(st.floats(1, 2))}), Curve.of({1: one, 24: wide * one}), 1.0 + streams,
        draw(st.sampled_from([None, 64, 16, 10])),
        draw(st.floats(1, 1.3)),
    )  # fmt: skip
    way = (streams, False)
    verify = Curve.of({1: plain, 16: 1.5 * plain})
    costs = Costs(plain, verify, 0.03 * plain, {4: draw(st.floats(0.1, 0.95))}, 1.05, drafts={way: draft})
    predictor = draw(st.sampled_from(["draft", "tap", "hybrid"]))
    late = draw(st.sampled_from([length, max(1, length // 2), 0]))
    return costs, Setting("mirror", length, late, draw(st.sampled_from([4, 8, 16, 24])), predictor, 4, way)


@given(played())
def test_a_step_takes_as_long_as_its_state_machine_says(case):
    costs, setting = case
    draft, step = costs.drafts[setting.way], Step(costs, setting)
    said = throughput._Beside.of(costs, draft, setting, hits, 0.0)
    late = draft.passes(setting.late, setting.length) * draft.one.at(1)
    assert said.free + late == pytest.approx(step.ends(None), abs=1e-6)
    place = 0
    for part in said.parts:
        for root in {place, place + part.roots - 1}:
            assert part.takes == pytest.approx(step.ends(root), abs=1e-6)
        place += part.roots
    assert said.share == pytest.approx(hits(place))
