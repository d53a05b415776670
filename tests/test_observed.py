"""What steps say of devices, and of a draft, beside what was calibrated."""

import random
from dataclasses import replace
from statistics import fmean

import pytest
import world as worlds
from world import REACH, World, parts_of

from mirror_mlx.tuning.belief import Beliefs
from mirror_mlx.tuning.choice import best
from mirror_mlx.tuning.estimates import Estimates
from mirror_mlx.tuning.observed import Observed
from mirror_mlx.tuning.policy import Passed, Stepped
from mirror_mlx.tuning.setting import Setting

WAY = (0, False)
SETTINGS = [Setting("sd", 5, 5), Setting("mirror", 5, 5, 8, "draft")]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.mode)
@pytest.mark.parametrize("seed", range(6))
def test_a_draft_that_is_slow_now_and_then_is_no_reason_to_expect_more_of_a_step(setting, seed):
    """Than its parts, which are known for each step: what a step takes is exactly these here."""
    world, chance = World(worlds.costs(20.0, 60.0), 0.8, seed=seed), random.Random(seed)
    observed = Observed(world.costs)
    for _ in range(80):
        by = 2.0 if chance.random() < 0.5 else 1.0
        now = World(replace(world.costs, drafts={WAY: world.costs.drafts[WAY].scaled(by)}), 0.8, noise=0.0)
        fact = now.step(setting)
        observed.verified(fact)
        observed.passed(WAY, fact.passed)
        observed.rescale()
        parts = observed.serial(fact) if setting.mode == "sd" else parts_of(observed, fact, now)
        observed.lasted(fact, parts)
    observed.rescale()
    assert observed.costs.more[setting.kind] == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("first", [True, False])
def test_an_outcome_that_is_prepared_for_late_is_no_reason_to_expect_more_of_other_steps(first):
    """The draft comes to two roots a pass: what others take is none of the excess of a step, nor is what the first ones
    take less than all of them on average."""
    costs = worlds.costs(20.0, 60.0)
    world = World(replace(costs, drafts={WAY: replace(costs.drafts[WAY], width=2)}), 0.8, noise=0.0)
    estimates, setting = Estimates(world.costs, {WAY: 0.8}, backup=False), Setting("mirror", 4, 4, 8, "draft")
    facts = [world.step(setting) for _ in range(2000)]
    seen = [fact for fact in facts if (fact.source == "hit" and fact.place < 2) == first]
    mean = fmean(fact.whole for fact in seen) / fmean(fact.whole for fact in facts)
    assert (mean < 0.97) if first else (mean > 1.03)
    for fact in seen[:100]:
        estimates.weigh(fact)
    estimates.rescale(0.0)
    assert estimates.costs.excess(setting.kind, setting.length) == pytest.approx(1.0, abs=0.01)


def test_a_step_in_a_way_whose_passes_were_never_timed_says_nothing():
    costs, setting = worlds.costs(20.0, 60.0), Setting("mirror", 4, 4, 8, "draft", way=(2, True))
    estimates = Estimates(costs, {WAY: 0.8}, backup=False)
    assert setting.way not in costs.drafts
    estimates.weigh(Stepped(setting, 0, 0, target=20.0, whole=90.0, source="hit", place=0))
    estimates.rescale(0.0)
    assert estimates.costs.excess(setting.kind, setting.length) == 1.0


def test_a_pass_over_a_windows_rows_alone_says_what_that_takes():
    observed = Observed(worlds.costs(20.0))
    for _ in range(100):
        observed.passed(WAY, [Passed(30.0, 0.0, rows=8), Passed(20.0, 1.0)])
    observed.rescale()
    draft = observed.costs.drafts[WAY]
    assert draft.glue.at(8) == pytest.approx(30.0, rel=0.05)
    assert draft.one.at(1) == pytest.approx(20.0, rel=0.05)


def test_what_the_draft_expects_after_a_window_holds_as_its_proposals_do_until_more_is_known():
    beliefs, setting = Beliefs([WAY], {WAY: 0.4}, backup=False), SETTINGS[1]
    window = Stepped(SETTINGS[0], 5, 5, target=60.0, whole=100.0, source="jit", by="jit")
    before = beliefs.of(setting).guessed()
    for _ in range(60):
        beliefs.stepped(window)
    assert before < 0.6
    assert beliefs.of(setting).guessed() > 0.9
    for _ in range(60):
        beliefs.stepped(replace(window, setting=setting, guessed=False))
    assert beliefs.of(setting).guessed() < 0.2


@pytest.mark.parametrize(("tried", "alone"), [(0, False), (15, False), (16, True)])
def test_a_draft_that_seems_to_be_of_use_is_left_out_once_it_is_known(tried, alone):
    world = World(worlds.costs(20.0, 60.0), 0.6, lookup=0.9)
    world.tried = tried
    assert best(world.costs, REACH, lambda setting: world)[0].alone == alone


def test_one_that_is_of_no_use_is_left_out_at_once():
    world = World(worlds.costs(60.0, 60.0), 0.1, hits=lambda count: 0.0, lookup=0.9)
    world.tried = 0
    assert best(world.costs, REACH, lambda setting: world)[0].alone


@pytest.mark.parametrize(("holds", "least", "most"), [(0.97, 0.75, 1.0), (0.4, 0.5, 0.5)])
def test_a_draft_whose_windows_hold_is_taken_to_foresee_outcomes_before_it_was_asked_to(holds, least, most):
    beliefs, setting = Beliefs([WAY], {WAY: holds}, backup=False), SETTINGS[1]
    assert least <= beliefs.of(setting).hits(1) <= most
    assert beliefs.of(replace(setting, predictor="tap")).hits(1) == 0.5
    missed = Stepped(setting, 5, 5, target=60.0, whole=100.0, source="jit", by="jit", opened=8)
    for _ in range(100):
        beliefs.stepped(missed)
    assert beliefs.of(setting).hits(1) < 0.2, "until it was, and did not"


def test_a_requests_first_window_says_nothing_of_those_that_follow():
    beliefs, setting = Beliefs([WAY], {WAY: 0.9}, backup=False), SETTINGS[0]
    before = list(beliefs.of(setting).alive(5))
    window = Stepped(setting, 5, 0, target=60.0, whole=100.0, source="jit", by="jit", opening=True)
    for _ in range(20):
        beliefs.stepped(window)
    assert list(beliefs.of(setting).alive(5)) == before
    beliefs.stepped(replace(window, opening=False))
    assert beliefs.of(setting).alive(5)[0] < before[0]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.mode)
def test_first_steps_that_take_longer_than_others_count_by_how_short_answers_are(setting):
    shares, plain, alone = {}, Setting("ar"), Setting("sd", 5, 0)
    for answer in (60, 6000):
        estimates = Estimates(worlds.costs(), {WAY: 0.8}, backup=True)
        for _ in range(60):
            estimates.beliefs.answered(answer)
        before = {one: estimates.rate(one) for one in (setting, plain, alone)}
        waited = estimates.costs.drafting(setting.way, 5) if setting.mode == "mirror" else 0.0
        usual = waited + 3 / before[setting]
        fact = Stepped(setting, 5, 2, target=160.0, whole=usual, opening=True)
        for more, least, most in ((0.0, 0.0, 1.0), (300.0, 200.0, 300.0)):
            for _ in range(60):
                estimates.opened(fact, usual + more)
            estimates.rescale(0.0)
            assert least <= estimates.costs.opening <= most
        assert [estimates.rate(one) for one in (plain, alone)] == [before[plain], before[alone]]
        shares[answer] = estimates.rate(setting) / before[setting]
        lost = estimates.costs.opening * before[setting] / estimates.beliefs.of(setting).answer()
        assert shares[answer] == pytest.approx(1 / (1 + lost))
        for _ in range(200):
            estimates.observed.rested()
        estimates.rescale(0.0)
        assert estimates.costs.opening < 10.0, "long past"
    assert shares[60] < 0.95 < 0.99 < shares[6000]


def test_what_is_thought_beside_a_verification_is_not_taken_for_what_it_takes():
    """Most of it is thought in the first steps, when what little was seen of them counts for much."""
    costs = replace(worlds.costs(), thought=0.5)
    observed, setting = Observed(costs), SETTINGS[0]
    takes = costs.verify.at(setting.length + 1)
    for thought in (36.0, 12.0, 6.0, 0.0):
        observed.verified(Stepped(setting, setting.length, 2, target=takes + thought / 2, whole=200.0, thought=thought))
    observed.rescale()
    assert observed.costs.verify.at(setting.length + 1) == pytest.approx(takes)


def test_nor_is_a_verification_taken_to_be_faster_for_it():
    """Beside a fast target more may be thought than it takes, and by which share it is slower is not known well."""
    costs, setting = replace(worlds.costs(), thought=1.0), SETTINGS[0]
    observed, takes = Observed(costs), costs.verify.at(setting.length + 1)
    for _ in range(4):
        observed.verified(Stepped(setting, setting.length, 2, target=3 * takes, whole=900.0, thought=2.9 * takes))
    observed.rescale()
    assert observed.costs.verify.at(setting.length + 1) == pytest.approx(takes)
    observed.verified(Stepped(setting, setting.length, 2, target=0.9 * takes, whole=200.0, thought=5.0))
    observed.rescale()
    assert observed.costs.verify.at(setting.length + 1) < takes
