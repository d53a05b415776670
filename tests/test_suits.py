"""Windows as they suit the text of late, played out in a world of numbers."""

from dataclasses import replace
from statistics import fmean

import pytest
import world as worlds
from hypothesis import given
from hypothesis import strategies as st
from world import World, play

from mirror_mlx.tuning.choice import Reach
from mirror_mlx.tuning.ease import Ease, eased
from mirror_mlx.tuning.governor import Governor
from mirror_mlx.tuning.policy import Fixed
from mirror_mlx.tuning.setting import Setting

REACH = Reach(15, 64, ("draft", "hybrid"), (4,))
COSTS = worlds.costs(one=8.0, plain=50.0, rows=0.05)
TOKENS = 4000


def changing(every=60, alphas=(0.95, 0.5)):
    """A text that is easy and hard by turns."""

    def turns(at):
        return lambda world: setattr(world, "alpha", alphas[at // every % len(alphas)])

    return {at: turns(at) for at in range(0, TOKENS, every)}


def played(policy, seed=0, alpha=0.7, events=None):
    return play(policy, World(COSTS, alpha, seed=seed), TOKENS, events)


def governor(alpha=0.7):
    return Governor(COSTS, REACH, {(0, False): alpha})


def test_they_beat_windows_of_one_length_where_the_text_changes():
    """In each, and by how much is said on average: by chance it is 1 % or 6."""
    shares = [share_of_the_best_length(seed) for seed in range(10)]
    assert max(shares) < 1
    assert fmean(shares) < 0.965


def share_of_the_best_length(seed):
    of = {n: played(Fixed(Setting("mirror", n, n, 16, "draft")), seed, events=changing())[0] for n in REACH.lengths()}
    return played(governor(), seed, events=changing())[0] / min(of.values())


@pytest.mark.parametrize("alpha", [0.6, 0.8, 0.95])
def test_where_it_does_not_change_nothing_is_lost(alpha):
    """What holds by chance is no sign."""
    of = {n: played(Fixed(Setting("mirror", n, n, 16, "draft")), alpha=alpha)[0] for n in REACH.lengths()}
    assert played(governor(alpha), alpha=alpha)[0] < 1.02 * min(of.values())


def test_they_differ_by_length_alone_and_go_with_what_was_decided():
    policy = governor()
    played(policy, events=changing())
    decided = policy.setting
    suited = [policy._course._suits.at(decided, ease) for ease in (-1.5, 0.0, 1.5)]
    lengths = [setting.length for setting in suited]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]
    assert len({replace(setting, length=1, late=1) for setting in suited}) == 1
    assert suited[1] == decided
    assert all(policy._course._suits.within(setting, decided) for setting in suited)
    assert not policy._course._suits.within(Setting("ar"), decided)
    assert not policy._course._suits.within(decided, Setting("ar"))
    policy.park("somebody said so")
    assert policy.ask().setting == Setting("ar")


@given(rate=st.floats(0.01, 0.99), ease=st.floats(-3, 3))
def test_ease_is_a_difference_of_log_odds(rate, ease):
    assert 0 < eased(rate, ease) < 1
    assert (eased(rate, ease) > rate) == (ease > 0) or eased(rate, ease) == pytest.approx(rate)
    assert eased(eased(rate, ease), -ease) == pytest.approx(rate)
    assert eased(1.0, ease) == 1.0
    assert eased(0.0, ease) == 0.0


def test_a_window_that_is_not_verified_yet_is_a_sign_until_it_is():
    ease = Ease()
    for held in ([1.0] * 3, [0.0]) * 20:
        ease.begins()
        for _ in range(3):
            ease.saw([0.7] * 3, held)
    ease.begins()
    assert ease.value == 0.0
    ease.proposed([0.7] * 3, [0.99] * 3)
    assert ease.value > 0.3
    ease.saw([0.7] * 3, [0.0])
    assert ease.value < -0.3
    ease.proposed([0.7] * 3, [0.99] * 3)
    ease.begins()
    assert ease.value == 0.0


def test_nothing_verified_says_nothing():
    ease = Ease()
    ease.saw([], [])
    ease.proposed([], [])
    assert ease.value == 0.0
