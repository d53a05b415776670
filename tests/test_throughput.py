"""The throughput model beside what it is a model of: the state machine of a step, with set times for everything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_mlx.messages import Candidates, Outcome
from mirror_mlx.rounds import Advance, Expand, Glue, Plan, Round, Wait
from mirror_mlx.tuning import throughput
from mirror_mlx.tuning.costs import Costs, DraftCosts
from mirror_mlx.tuning.curve import Curve
from mirror_mlx.tuning.throughput import Setting

VOCAB = 100_000


def candidates(rows, first):
    tokens = [[first + 100 * row + place for place in range(20)] for row in range(rows)]
    probs = [[0.3 / (place + 1) for place in range(20)] for _ in range(rows)]
    return Candidates(tokens, probs, [0.8] * (rows - 1))


class Step:
    """Played on two clocks. ends: by how the step ends, "own", "tapped" or "miss": when the next window is there."""

    def __init__(self, costs, setting):
        self.costs, self.setting, self.draft = costs, setting, costs.drafts[setting.way]
        self.verify = costs.verify.at(setting.length + 1) * costs.slower
        self.verify += costs.tap if setting.predictor != "draft" else 0.0
        self.width = self.draft.width or setting.roots

    def ends(self, how):
        setting, tap = self.setting, self.setting.predictor != "draft"
        plan = Plan(
            tuple(range(setting.length)), setting.length, VOCAB, setting.predictor, kappa=8, max_roots=setting.roots,
            tap=tap, late=setting.late,
        )  # fmt: skip
        round_, at, pending, spoken = Round(plan), 0.0, 0.0, self.costs.exits[4] * self.verify if tap else None
        there = {}  # when a window was finished
        facts = sorted([(self.verify, "outcome"), *([(spoken, "tap")] if tap else [])])
        while True:
            while facts and facts[0][0] <= at:
                if facts.pop(0)[1] == "tap":
                    round_.tapped(candidates(setting.length + 1, 50_000))
                else:
                    key = self.key(round_, how)
                    if key is None:
                        return None
                    if round_.cache.finished(key):
                        return max(self.verify, there[key])
                    round_.resolved(Outcome(*key))
            action = round_.next()
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
                keys = action.keys[: self.width]
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

    def key(self, round_, how):
        if how == "miss":
            return 0, VOCAB - 1
        named = [key for key in round_.cache.keys if (round_.foreseen(key) == "draft") == (how == "own")]
        return named[0] if named else None


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
    late = draw(st.sampled_from([length, max(1, length // 2)]))
    return costs, Setting("mirror", length, late, draw(st.sampled_from([4, 8, 16, 24])), predictor, 4, way)


@given(played())
def test_a_step_takes_as_long_as_its_state_machine_says(case):
    costs, setting = case
    draft, step = costs.drafts[setting.way], Step(costs, setting)
    said = throughput._Beside.of(costs, draft, setting, 0.0)
    late = draft.passes(setting.late, setting.length) * draft.one.at(1)
    near = 1e-6
    if setting.roots > step.width:  # groups of roots take turns in ways that are not followed pass by pass
        near = 2 * draft.slower * draft.one.at(step.width)
    assert said.free + late == pytest.approx(step.ends("miss"), abs=near)
    for how, ends in (("own", said.own), ("tapped", said.tapped)):
        if (played_out := step.ends(how)) is not None:
            assert ends == pytest.approx(played_out, abs=near)
