"""Which way of decoding is best, where everything is known."""

import json
from dataclasses import replace
from itertools import product

import pytest
import world as worlds
from hypothesis import given
from hypothesis import strategies as st
from world import REACH, World

from mirror_mlx.bench.rollout import Rollout
from mirror_mlx.tuning import choice
from mirror_mlx.tuning.choice import Reach, best
from mirror_mlx.tuning.costs import Costs, DraftCosts
from mirror_mlx.tuning.curve import Curve
from mirror_mlx.tuning.observed import Observed
from mirror_mlx.tuning.policy import Passed
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.throughput import predict


@given(st.dictionaries(st.integers(1, 64), st.floats(0.1, 1e3), min_size=1), st.floats(0, 100), st.floats(0, 100))
def test_more_never_costs_less(points, one, other):
    curve = Curve.of(points)
    low, high = sorted((one, other))
    assert curve.at(low) <= curve.at(high) + 1e-9
    assert min(points.values()) - 1e-9 <= curve.at(min(points)) <= points[min(points)] + 1e-9
    assert sum(ms for _, ms in curve.points) == pytest.approx(sum(points.values()))


@given(st.dictionaries(st.integers(1, 16), st.floats(1, 3), min_size=1), st.floats(1, 24))
def test_wide_passes_are_slowed_as_the_widest_that_was_measured(slower, branches):
    """Factors that are measured within milliseconds may seem to fall: beyond them, along a line, passes would take next
    to nothing, or less."""
    curve = Curve.through(slower, level=True)
    (draft,) = replace(worlds.costs()).drafts.values()
    for one in (replace(draft, slower=curve), DraftCosts.mean([replace(draft, slower=curve)] * 2)):
        alone, beside = one.one.at(branches), one.beside.at(branches)
        assert min(slower.values()) * alone <= beside + 1e-6
        assert beside <= max(slower.values()) * alone + 1e-6
    found = Observed(replace(worlds.costs(), drafts={(0, False): replace(draft, slower=curve)}))
    for _ in range(20):
        found.passed((0, False), [Passed(40.0, 1.0, beside=True), Passed(20.0, 1.0), Passed(10.0, 16.0, beside=True)])
    found.rescale()
    slow = found.costs.drafts[0, False]
    assert slow.beside.at(branches) >= slow.one.at(branches) - 1e-6


def test_costs_survive_json():
    found = worlds.costs(way=(2, True))
    assert Costs.from_dict(json.loads(json.dumps(found.as_dict()))) == found


def test_costs_without_a_point_are_refused():
    with pytest.raises(ValueError, match="needs a point"):
        Costs.from_dict(worlds.costs().as_dict() | {"verify": []})


@given(st.floats(5, 60), st.floats(0.3, 0.95), st.floats(1.2, 2.8), st.sampled_from([1, 3, 7, 15]), st.integers(0, 2))
def test_where_a_search_begins_hides_no_better_setting(one, alpha, brought, length, way):
    """A window's best length depends on the way it is proposed in: one factor at a time does not lead from one to the
    other."""
    found = worlds.costs(one)
    (draft,) = found.drafts.values()
    ways = {(0, False): 1.0, (2, False): 3.0, (2, True): brought}
    costs = replace(found, drafts={way: replace(draft, tokens=tokens) for way, tokens in ways.items()})
    world, start = World(costs, alpha), Setting("mirror", length, length, 16, "draft", 4, list(ways)[way])
    anywhere, near = (rated(best(costs, REACH, lambda setting: world, start, near=near)) for near in (False, True))
    assert anywhere >= near
    assert anywhere >= rated(best(costs, REACH, lambda setting: world))


def rated(found):
    """What settings are compared by."""
    return choice._rated(*found)


@given(st.floats(5, 60), st.floats(0.8, 0.99), st.floats(0.01, 0.1), st.sampled_from([3, 7, 15]))
def test_near_windows_in_turns_are_shorter_ones_beside_the_target(one, alpha, rows, length):
    """Where the draft proposes in one way, from there one finds as much as from anywhere."""
    world = World(worlds.costs(one, 20.0, tokens=3.0, rows=rows), alpha)
    start = Setting("sd", length, length)
    near, anywhere = (rated(best(world.costs, REACH, lambda setting: world, start, near=one)) for one in (True, False))
    assert near >= 0.97 * anywhere


@given(st.floats(1, 200), st.floats(0.05, 0.95))
def test_the_best_setting_is_no_worse_than_any_other(one, alpha):
    world = World(worlds.costs(one), alpha)
    rate = best(world.costs, REACH, lambda setting: world)[1].rate
    rate = max(rate, 1 / world.costs.plain)
    for length, roots in product((1, 3, 7, 15), (8, 64)):
        for mode, late in (("sd", length), ("mirror", length), ("mirror", 0)):
            other = Setting(mode, length, late, roots, "hybrid", 4)
            assert predict(world.costs, other, world).rate <= rate * 1.02


@given(st.floats(0.0, 0.05), st.floats(0.6, 0.95), st.floats(5, 200))
def test_it_does_without_a_draft_that_is_no_good(alpha, lookup, one):
    """However it has worked so far."""
    world = World(worlds.costs(one), alpha, hits=lambda count: 0.0, lookup=lookup)
    for begun in (Setting("sd", 7, 7), Setting("mirror", 7, 7, 16, "hybrid", 4), Setting("mirror", 3, 0, 4, "draft")):
        found, said = best(world.costs, REACH, lambda setting: world, begun, near=True)
        assert found.alone
        assert said.rate > predict(world.costs, begun, world).rate


@given(alpha=st.floats(0.1, 1.0), length=st.integers(1, 15), answer=st.integers(30, 300))
def test_an_answer_takes_as_many_steps_as_if_its_end_wasted_so_much(alpha, length, answer):
    """Beside counting them, for answers of all lengths up to twice as many tokens."""

    class Short(World):
        def answer(self):
            return answer

    alive = World(worlds.costs(), alpha).alive(length)
    ends = [before - after for before, after in zip([1.0, *alive], [*alive, 0.0], strict=True)]  # after 1, 2, … tokens
    steps = [0.0]
    for left in range(1, 2 * answer):
        steps.append(1 + sum(share * steps[max(0, left - took)] for took, share in enumerate(ends, 1)))
    mean = sum(steps[1:]) / (len(steps) - 1)
    said = predict(worlds.costs(), Setting("sd", length, length), Short(worlds.costs(), alpha))
    assert answer / said.tokens == pytest.approx(mean, rel=0.005)


@given(alpha=st.floats(0.1, 0.99), length=st.integers(1, 15), answer=st.integers(30, 300))
def test_beside_the_target_the_first_window_of_an_answer_takes_its_time(alpha, length, answer):
    """And so an answer takes so much longer than its steps."""

    class Short(World):
        def answer(self):
            return answer

    costs, turn = worlds.costs(one=7.0), Setting("sd", length, length)
    setting = Setting("mirror", length, length, 8, "draft")
    wanted = predict(costs, turn, Short(costs, alpha)).tokens / predict(costs, turn, World(costs, alpha)).tokens
    ever, said = (predict(costs, setting, world) for world in (World(costs, alpha), Short(costs, alpha)))
    first = 7.0 * costs.drafts[0, False].passes(length)
    assert said.step == ever.step
    assert answer / said.rate == pytest.approx(answer / (wanted * ever.rate) + first)


@given(alpha=st.floats(0.3, 0.95), one=st.floats(2, 120), hits=st.floats(0.05, 0.95), proposed=st.floats(0.0, 3.0))
def test_the_target_waits_for_the_draft_where_ssd_would_have_it_wait(alpha, one, hits, proposed):
    """SSD (arXiv 2603.03251), theorem 17, for one text at a time: a slow backup brings a whole window and is waited
    for, a fast one takes no time and brings less. Here hits after either backup are as frequent."""

    class Told(World):
        def backup(self, count):
            return proposed

    world = Told(worlds.costs(one=one), alpha, hits=lambda count: hits)
    length = 7
    slow, fast = Setting("mirror", length, length, 8, "draft"), Setting("mirror", length, 0, 8, "draft")
    waited, at_once = predict(world.costs, slow, world), predict(world.costs, fast, world)
    whole = 1 + sum(world.alive(length))
    costs = world.costs
    verify = costs.verify.at(length + 1) * costs.slower + costs.exchange
    most = (hits * whole + (1 - hits) * (1 + proposed)) * (1 - 1e-9)
    if waited.hit != pytest.approx(verify) or at_once.hit != pytest.approx(verify) or at_once.tokens < most:
        return  # windows that are not finished in time: the theorem has none
    passes = waited.miss - at_once.miss
    expected = whole / (verify + (1 - hits) * (at_once.miss - verify + passes))
    other = (hits * whole + (1 - hits) * (1 + proposed)) / (verify + (1 - hits) * (at_once.miss - verify))
    assert waited.rate == pytest.approx(expected)
    assert at_once.rate == pytest.approx(other)
    best_one, _ = best(world.costs, Reach(length, 8, ("draft",)), lambda setting: world, slow)
    alike = (best_one.mode, best_one.length, best_one.roots) == ("mirror", length, 8)
    if alike and abs(expected / other - 1) > 1e-6:
        assert (best_one.late > 0) == (expected > other) or 0 < best_one.late < length


def test_windows_in_turns_give_way_to_few_roots_where_many_take_too_long():
    dear = Curve.of({1: 10.0, 4: 11.0, 64: 200.0})
    true = replace(worlds.costs(), drafts={(0, False): DraftCosts(Curve.of({1: 10.0}), dear, 2.0, 64)})
    turns = Setting("sd", 7, 7)
    found, _ = best(true, REACH, lambda setting: World(true, 0.8), turns)
    assert found.mode == "mirror"
    assert found.roots < 24


def test_streams_that_are_checked_bring_more_than_a_token_a_pass():
    one = Curve.of({1: 10.0})
    draft = DraftCosts(one, one, tokens=2.0, checks=2)
    assert (draft.passes(1), draft.passes(0)) == (1.0, 0.0)
    assert 1 + 6 / 2 < draft.passes(7) < 1 + 8 / 2
    assert DraftCosts(one, one, tokens=3.0, checks=2).passes(7) == 3.0
    assert DraftCosts(one, one, tokens=3.0).passes(7) == 3.0


@given(verify=st.floats(20, 200), one=st.floats(1, 60), single=st.floats(0.2, 1.0), passes=st.integers(1, 9))
def test_once_the_outcome_is_known_passes_are_over_one_branch(verify, one, single, passes):
    rolled = Rollout(one, one, passes)
    all_of_them, few = rolled.waits(verify, passes, one), rolled.waits(verify, passes, single * one)
    assert few <= all_of_them + 1e-9
    assert all_of_them == pytest.approx(max(0.0, rolled.ends - verify), abs=1e-6)
    if few > 0:
        under_way = max(rolled.free(verify) - verify, 0.0)
        left = passes - rolled.done(verify) - (under_way > 0 and verify > rolled.starts)
        assert few == pytest.approx(under_way + max(0, left) * single * one, abs=1e-6)
