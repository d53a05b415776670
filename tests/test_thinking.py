"""When it is thought of what to do, and for how long, where the target is slowed by that."""

from dataclasses import replace
from statistics import fmean

import pytest
import world as worlds
from world import REACH, World, play

from mirror_mlx.tuning import choice, course
from mirror_mlx.tuning.governor import Governor
from mirror_mlx.tuning.policy import Stepped
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.thinking import Thinking
from mirror_mlx.tuning.throughput import predict


def test_between_tokens_it_is_thought_no_longer_than_one_takes(monkeypatch):
    """Unless the target would take longer for it in any case."""
    looked = []
    monkeypatch.setattr(choice, "predict", lambda *of: looked.append(of) or predict(*of))

    class Watched(Governor):
        most = 0

        def stretched(self, may=True):
            looked.clear()
            parked = self.parked
            super().stretched(may)
            self.most = max(self.most, len(looked) if parked else 0)

    for thought in (0.0, 1.0):
        world = World(replace(worlds.costs(4.0, 4.0), thought=thought), 0.1)
        governor = Watched(world.costs, REACH, {(0, False): 0.1})
        play(governor, world, 1000)
        assert (0 < governor.most < 15) == (thought == 0)
        world.alpha = 0.9  # and what is found out by and by is done
        play(governor, world, 1000)
        assert not governor.parked


class Slowed(World):
    """By what is thought amid plain decoding, so long for each setting that is looked at."""

    each, thinks, before = 0.2, 0.0, 0

    def __post_init__(self):
        super().__post_init__()
        self.looked = []

    def thought(self):
        new, self.before = len(self.looked) - self.before, len(self.looked)
        self.thinks += self.each * new
        return self.each * new


@pytest.mark.parametrize("seed", range(6))
def test_little_of_the_time_goes_into_looking_for_something_better_than_plain_decoding(monkeypatch, seed):
    """A search takes as long as several tokens here; what becomes good is found soon even so."""
    world = Slowed(replace(worlds.costs(20.0, 7.0, rows=0.3), thought=1.0), 0.3, lookup=0.1, seed=seed)
    monkeypatch.setattr(choice, "predict", lambda *of: world.looked.append(of) or predict(*of))
    governor = Governor(world.costs, REACH, {(0, False): 0.3}, backup=True)
    ms, said = play(governor, world, 4000)
    assert sum(setting.mode == "ar" for setting, _ in said) > 3900
    assert 0 < world.thinks < 0.005 * ms
    world.lookup = 0.9
    _, said = play(governor, world, 1000)
    assert sum(setting.alone for setting, _ in said) > 600


def test_while_it_is_too_early_to_say_that_a_try_does_not_pay_nothing_else_is_looked_for():
    """Where the target is slowed by that; then once, before it is given up."""
    looks = {thought: looks_of_a_try(thought) for thought in (0.0, 1.0)}
    assert looks[0.0] > looks[1.0] == 1


def looks_of_a_try(thought):
    world = World(replace(worlds.costs(4.0, 20.0, rows=0.02), thought=thought), 0.0)
    governor = Governor(world.costs, REACH, {(0, False): 0.0})
    course, looked = governor._course, []
    course._lookout.best = lambda costs, start, *, near: looked.append(start) or (start, predict(costs, start, world))
    tried = Setting("sd", 3, 3)
    course.begins(tried, governor._estimates.of(tried))
    governor._doubt.begins(True)
    while not governor.parked:
        governor.stepped(world.step(governor.ask().setting))
    assert course.steps >= 4
    return len(looked)


@pytest.mark.parametrize(("whole", "thoughts"), [(12.0, 5), (60.0, 10), (200.0, 20)])
def test_short_steps_are_thought_of_together_from_the_first_one_on(whole, thoughts):
    """Thought of one by one, those of a try would each take a third longer than the ones that it is to tell of."""
    thinking, seen = Thinking(slows=True), []
    fact = Stepped(Setting("sd", 3, 0), 3, 0, target=whole, whole=whole)
    for number in range(20):
        if thinking.told(fact, since=number % 8, alike=True):
            seen.append(len(thinking.facts()))
    assert len(seen) == thoughts
    assert sum(seen) == 20


def test_of_steps_that_are_thought_of_together_each_has_its_turn():
    """Windows that take long and less long by turns would else be known by one of them alone."""
    thinking, setting, seen = Thinking(slows=True), Setting("mirror", 3, 3, 8, "draft"), []
    for number in range(160):
        fact = Stepped(setting, 3, 3, target=20.0, whole=40.0 if number % 2 else 20.0)
        if thinking.told(fact, since=100, alike=True):
            seen.append(thinking.closely(thinking.facts()).whole)
    assert len(seen) == 20
    assert seen.count(40.0) == seen.count(20.0)
    odd = Stepped(setting, 3, 3, target=20.0, whole=99.0)
    assert not thinking.told(odd, since=100, alike=True)
    assert thinking.told(replace(odd, whole=77.0), since=100, alike=False)
    assert thinking.closely(thinking.facts()).whole == 77.0


def test_a_draft_that_has_become_good_soon_has_longer_windows(monkeypatch):
    """A search takes some hundred steps where the target is slowed by it, and other lengths have their turn before."""
    steps = {}
    for compared in (0, course._LENGTHS):
        monkeypatch.setattr(course, "_LENGTHS", compared)
        steps[compared] = fmean(steps_until_longer(seed) for seed in range(12))
    assert steps[course._LENGTHS] < 0.6 * steps[0]


@pytest.mark.parametrize(("length", "times", "taken"), [(8, 1.02, True), (3, 1.02, False), (3, 1.04, True)])
def test_windows_are_made_shorter_only_for_more_than_for_other_changes(length, times, taken):
    world = World(replace(worlds.costs(10.0, 24.0), thought=1.0), 0.8)
    governor = Governor(world.costs, REACH, {(0, False): 0.8})
    of, other = governor._course, Setting("mirror", length, length, 8, "draft")
    done = replace(other, length=5, late=5)
    of.begins(done, predict(world.costs, done, world))
    of._prefer(other, replace(of.expected, tokens=times * of.expected.tokens))
    assert (of.setting == other) == taken


def steps_until_longer(seed):
    """Than those that were best before."""
    world = World(replace(worlds.costs(10.0, 24.0, tokens=3.0, way=(2, False)), thought=1.0), 0.5, seed=seed)
    governor = Governor(world.costs, REACH, {(2, False): 0.5})
    play(governor, world, 600)
    world.alpha, before, steps = 0.97, governor.setting.length, 0
    while governor.setting.length <= before:
        governor.stepped(world.step(governor.ask().setting))
        steps += 1
    return steps
