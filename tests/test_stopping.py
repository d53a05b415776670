"""Windows that end early: what that is worth, what the throughput model makes of it, what a governor learns of it."""

import random
from dataclasses import replace
from itertools import accumulate
from operator import mul

import pytest
import world as worlds
from hypothesis import given
from hypothesis import strategies as st

from mirror_mlx.tuning.belief import Beliefs
from mirror_mlx.tuning.chance import Chance
from mirror_mlx.tuning.choice import Reach
from mirror_mlx.tuning.governor import Governor
from mirror_mlx.tuning.policy import Stepped
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.stopping import Stop, ends, least
from mirror_mlx.tuning.throughput import predict

WAY = (0, False)
COSTS = worlds.costs(one=10.0, plain=20.0, tokens=2.0)
DRAFT = COSTS.drafts[WAY]


class Two(Chance):
    """Windows of two kinds, half of each."""

    def __init__(self, easy, hard):
        self.easy, self.hard = easy, hard

    def windows(self, count):
        return [list(accumulate([rate] * count, mul)) for rate in (self.easy, self.hard)]

    def alive(self, count):
        return [sum(both) / 2 for both in zip(*self.windows(count), strict=True)]


@given(
    st.floats(0.05, 0.99), st.floats(0.05, 0.99), st.integers(1, 15), st.floats(0.5, 60), st.floats(1, 100),
    st.floats(1, 3),
)  # fmt: skip
def test_windows_end_with_a_proposal_at_least_and_hard_ones_first(easy, hard, length, one, token, tokens):
    costs = replace(worlds.costs(one=one, plain=20.0, tokens=tokens), token=token)
    draft, belief = costs.drafts[WAY], Two(easy, hard)
    alive = belief.alive(length)
    found = ends(costs, draft, length, alive, belief.windows)
    assert len(found) == 2
    assert all(1 <= end.length <= length and end.passes <= draft.passes(length) for end in found)
    assert found[0].length >= found[1].length or easy <= hard
    assert ends(replace(costs, token=0.0), draft, length, alive, belief.windows)[0].length == length


def test_the_less_a_token_takes_the_likelier_a_window_has_to_hold():
    alive = Two(0.9, 0.4).alive(8)
    fast, slow = (least(replace(COSTS, token=token), DRAFT, 8, alive) for token in (5.0, 20.0))
    assert len(fast) == len(slow) == 9
    assert all(one > other for one, other in zip(fast[1:8], slow[1:8], strict=True))
    assert fast[0] == fast[8] == 0.0, "a window is begun, and a whole one needs nothing"


def test_windows_that_end_early_are_expected_to_bring_more():
    """Of easy windows and hard ones: with both at their best the rate is higher than with any one length."""
    belief = Two(0.95, 0.3)

    def rate(length, token):
        return predict(replace(COSTS, token=token), Setting("sd", length, length), belief).rate

    fixed = max(rate(length, 0.0) for length in range(1, 16))
    assert rate(14, 1 / fixed) > 1.05 * fixed


def test_windows_end_early_in_turns_alone():
    governor = Governor(COSTS, Reach(8), {WAY: 0.7})
    setting = Setting("sd", 8, 8)
    assert not governor.stop(setting).at([])
    assert governor.stop(Setting("mirror", 8, 8, 16, "draft")) is None
    assert governor.stop(replace(setting, way=(2, False))) is None, "a way of which nothing is known"


def step(confidences, accepted):
    return Stepped(
        Setting("sd", 8, 8), len(confidences), accepted, target=20.0, whole=50.0, confidences=confidences, by="jit"
    )


def test_how_far_apart_windows_are_is_learnt_from_what_the_draft_says():
    def spread(*windows):
        beliefs = Beliefs([WAY], {WAY: 0.7}, backup=False)
        for _ in range(100):
            for confidences, accepted in windows:
                beliefs.stepped(step(confidences, accepted))
        easy, hard = (kinds[5] for kinds in (beliefs.of(Setting("sd", 8, 8)).windows(8)[at] for at in (-1, 0)))
        usual = beliefs.of(Setting("sd", 8, 8)).alive(8)[5]
        mean = sum(kinds[5] for kinds in beliefs.of(Setting("sd", 8, 8)).windows(8)) / 8
        assert mean == pytest.approx(usual, rel=1e-6)
        return easy - hard

    alike = spread(([0.7] * 8, 3), ([0.7] * 8, 2))
    apart = spread(([0.98] * 8, 8), ([0.3] * 8, 0))
    assert apart > 2 * alike


def test_what_a_window_has_not_come_to_is_not_taken_for_as_good_as_what_others_have():
    """Easy windows are long, and hold; hard ones end after two proposals: of a third one little is known."""
    beliefs = Beliefs([WAY], {WAY: 0.7}, backup=False)
    for _ in range(60):
        beliefs.stepped(step([0.97] * 8, 8))
        beliefs.stepped(step([0.6, 0.6], 2))
    assert beliefs.of(Setting("sd", 8, 8)).alive(3)[2] < 0.97


@pytest.mark.parametrize("seed", range(3))
def test_in_turns_a_governor_ends_hard_windows_early_and_is_faster_for_it(seed):
    """Half of the windows are hard, and the draft knows which."""
    rng, costs = random.Random(seed), worlds.costs(one=10.0, plain=20.0, tokens=1.0, rows=0.005)

    def played(policy_stop, length):
        governor = Governor(costs, Reach(11), {WAY: 0.7})
        tokens, ms = 0, 0.0
        setting = Setting("sd", length, length)
        for _ in range(600):
            rate = rng.choice([0.95, 0.3])
            stop = governor.stop(setting) if policy_stop else Stop(lambda sure: sure, [0.0] * (length + 1))
            made = 1
            while made < length and not stop.at([rate] * made):
                made += 1
            held = next((at for at in range(made) if rng.random() > rate), made)
            whole = costs.verify.at(made + 1) + 10.0 * made
            governor.verified(made, held, [rate] * made)
            target = costs.verify.at(made + 1)
            governor.stepped(Stepped(setting, made, held, target, whole, confidences=[rate] * made, by="jit"))
            tokens, ms = tokens + held + 1, ms + whole
        return tokens / ms

    best = max(played(False, length) for length in (1, 2, 3, 5, 8, 11))
    assert played(True, 11) > 1.02 * best
