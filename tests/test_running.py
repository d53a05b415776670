"""What a governor keeps account of: acceptance, confidence, ranks, fan-out, who is worth asking, what was lost."""

import random
from itertools import pairwise, product

import pytest
import world as worlds
from hypothesis import given
from hypothesis import strategies as st

from mirror_mlx.tuning.belief import Beliefs
from mirror_mlx.tuning.budget import Budget
from mirror_mlx.tuning.fanout import Fan, geometric, greedy, uniform
from mirror_mlx.tuning.observed import Observed
from mirror_mlx.tuning.policy import Stepped
from mirror_mlx.tuning.ranks import Ranks
from mirror_mlx.tuning.running import Acceptance, Confidence
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.worth import Worth


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=80))
def test_fewer_tokens_survive_further_on(windows):
    acceptance = Acceptance()
    for length, accepted in windows:
        acceptance.saw(length, min(accepted, length))
    alive = acceptance.alive(8)
    assert all(0 <= later <= before <= 1 for before, later in pairwise(alive))


@given(st.floats(0.1, 0.95), st.floats(0.2, 0.95))
def test_acceptance_is_found_again(early, late):
    world = worlds.World(worlds.costs(), early)
    acceptance = Acceptance()
    for _ in range(300):
        acceptance.saw(4, world.accepted(4))
    assert acceptance.rate(0) == pytest.approx(early, abs=0.25)
    world.alpha = late
    for _ in range(100):
        acceptance.saw(4, world.accepted(4))
    assert acceptance.rate(0) == pytest.approx(late, abs=0.25)


def test_what_is_sure_is_worth_more_and_nonsense_is_worth_nothing():
    seen = Confidence()
    for _ in range(100):
        seen.saw([0.95, 0.95, 0.3], accepted=2)
    assert seen.worth(0.93) > 0.95 > 0.1 > seen.worth(0.31)
    for _ in range(100):
        seen.saw([0.95], accepted=0)
    assert seen.worth(0.95) < 0.05


@given(st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 40)), st.integers(1, 64)), max_size=60))
def test_more_roots_never_catch_less(steps):
    ranks = Ranks()
    for place, opened in steps:
        ranks.saw(place if place is None or place < opened else None, opened)
    rates = [ranks.hits(count) for count in range(0, 129)]
    assert rates[0] == 0
    assert all(0 <= rate <= 1 for rate in rates)


@given(st.floats(0.2, 0.9), st.floats(0.2, 1.5), st.integers(1, 4), st.integers(1, 9), st.integers(1, 9))
def test_no_fan_out_misses_less_than_the_greedy_one(acceptance, exponent, length, budget, most):
    ends = [acceptance**row * (1 - acceptance) for row in range(length)] + [acceptance**length]

    def miss(row, count):
        return count**-exponent if count else 1.5

    def missed(counts):
        return sum(share * miss(row, count) for row, (share, count) in enumerate(zip(ends, counts, strict=True)))

    found = greedy(ends, miss, budget, most)
    spent = min(budget, most * (length + 1))
    assert sum(found) == spent
    ways = (counts for counts in product(range(min(budget, most) + 1), repeat=length + 1) if sum(counts) == spent)
    assert missed(found) <= min(map(missed, ways)) + 1e-9
    assert missed(found) <= missed(uniform(length + 1, spent)) + 1e-9


@given(st.floats(0.3, 0.9), st.floats(0.3, 1.2), st.integers(1, 7))
def test_the_closed_form_is_what_greedy_comes_to(acceptance, exponent, length):
    budget = 40 * (length + 1)
    ends = [acceptance**row * (1 - acceptance) for row in range(length)] + [acceptance**length]
    found = greedy(ends, lambda row, count: count**-exponent if count else 2.0, budget, budget)
    for whole, exact in zip(found, geometric(acceptance, exponent, length, budget), strict=True):
        assert whole == pytest.approx(exact, abs=1.5)


@pytest.mark.parametrize("acceptance", [0.3, 0.7, 0.98])
@pytest.mark.parametrize("budget", [4, 8, 16, 32])
def test_a_fan_out_by_counts_catches_what_equal_shares_do_from_the_first_step_on(acceptance, budget):
    length, most, rng = 7, 8, random.Random(5)
    counted, equal, caught = Fan("geometric"), Fan("uniform"), [0, 0]
    for step in range(1500):
        accepted = next((row for row in range(length) if rng.random() > acceptance), length)
        known = 0.9 if accepted == length else 0.5
        rank = next((rank for rank in range(40) if rng.random() < known), 40)
        shares = [fan.of(length + 1, budget, most) for fan in (counted, equal)]
        assert all(sum(each) == budget for each in shares)
        assert max(shares[0]) <= most
        assert step >= 20 or budget <= length or shares[0] == shares[1]
        for at, each in enumerate(shares):
            caught[at] += rank < each[accepted]
        counted.saw(length, accepted, rank if rank < most else None, most)
    assert caught[0] >= caught[1] - 8


@pytest.mark.parametrize("fastest", ["hybrid", "draft", "tap"])
@pytest.mark.parametrize("slower", [1.03, 1.2])
def test_a_hybrid_is_as_fast_as_the_fastest_of_its_predictors(fastest, slower):
    worth, rng, spent = Worth(), random.Random(3), 0.0
    for _ in range(2000):
        asked = worth.predictor
        ms = 100.0 * (1.0 if asked == fastest else slower) * max(0.5, rng.gauss(1, 0.05))
        if rng.random() < 0.01:
            ms *= 10  # an interruption
        spent += min(ms, 120.0)
        worth.saw(asked, 4, ms, own=rng.random() < {"tap": 0.2, "hybrid": 0.5, "draft": 0.8}[fastest])
    assert worth.preferred == fastest or slower < 1.05
    assert spent / 2000 < 102.5


def test_a_step_that_leaves_nothing_to_verify_costs_more_than_its_time():
    worth = Worth()
    for number in range(100):
        asked = worth.predictor
        worth.saw(asked, 5, 10.0 if asked == "draft" else 11.0, empty=asked == "draft", own=number % 3 > 0)
    assert worth.preferred == "hybrid"


@pytest.mark.parametrize(("own", "left"), [(True, "draft"), (False, "tap")])
def test_who_foresees_nothing_more_is_left_out_whatever_it_takes(own, left):
    worth = Worth()
    for number in range(400):
        asked = worth.predictor
        worth.saw(asked, 4, (10.0 if asked in (left, "hybrid") else 11.0) + 0.1 * (number % 3), own=own)
    assert worth.preferred == left


def test_who_foresees_nothing_more_is_not_tried_by_itself():
    worth, asked = Worth(), []
    for _ in range(200):
        asked.append(worth.predictor)
        worth.saw(asked[-1], 4, {"hybrid": 11.0, "draft": 12.0, "tap": 10.0}[asked[-1]], own=True)
    assert "tap" not in asked
    assert worth.preferred == "draft"


def test_who_is_named_less_often_may_be_the_faster_one():
    """A tap that foresees half of what the draft does, but spares it most of its passes."""
    worth = Worth()
    for number in range(100):
        asked = worth.predictor
        worth.saw(asked, 4, {"hybrid": 11.0, "draft": 12.0, "tap": 10.0}[asked], own=number % 3 > 0)
    assert worth.preferred == "tap"


def test_of_two_that_take_as_long_it_is_who_foresees_more():
    asked = []
    for seed in range(10):
        worth, rng = Worth(), random.Random(seed)
        for _ in range(600):
            asked.append(worth.predictor)
            foreseen = rng.random() < {"hybrid": 0.9, "draft": 0.95, "tap": 0.5}[asked[-1]]
            own = rng.random() < 0.6 if asked[-1] == "hybrid" else asked[-1] == "draft"
            worth.saw(asked[-1], 4, 30.0 * rng.gauss(1, 0.2), own=own if foreseen else None)
    assert asked.count("tap") < 0.12 * len(asked)


def test_who_promises_much_again_and_again_loses_little():
    budget, plain, spent, lost = Budget(), 10.0, 0.0, 0.0
    while spent < 20_000 * plain:
        if budget.may_try(plain, won=plain):
            budget.spend(5 * plain, 2 * plain)
            budget.forgive(plain)
            spent, lost = spent + 5 * plain, lost + 3 * plain
        else:
            budget.spend(16 * plain, 16 * plain)
            spent += 16 * plain
    assert lost < 0.015 * spent


@pytest.mark.parametrize(("longer", "slow"), [(1.0, False), (2.5, False), (40.0, True)])
def test_a_pass_beside_plain_decoding_takes_longer_and_says_nothing_of_its_device(longer, slow):
    observed = Observed(worlds.costs(one=10.0))
    for _ in range(6):
        observed.probed((0, False), 10.0 * longer)
    assert observed.slow == slow
    for _ in range(6):
        recovered = observed.probed((0, False), 10.0)
        assert recovered or not slow or not observed.slow
    assert not observed.slow


def test_proposals_that_were_cut_off_count_as_their_confidence_says():
    beliefs, chance = Beliefs([(0, False)], {(0, False): 0.6}, False), random.Random(5)
    setting = Setting("sd", 3, 3)
    for _ in range(600):
        sure = [chance.choice((0.95, 0.15)) for _ in range(3)]
        length = next((place for place, one in enumerate(sure) if one < 0.5), 3)
        held = next((place for place in range(length) if chance.random() > sure[place]), length)
        beliefs.stepped(Stepped(setting, length, held, target=1.0, whole=1.0, by="jit", confidences=sure))
    assert beliefs.of(setting).alive(1)[0] == pytest.approx(0.55, abs=0.12)


@pytest.mark.parametrize("without", ["plained", "alone", "answered"])
def test_a_text_that_was_hard_is_forgotten_where_the_draft_is_not_asked(without):
    """What the draft has been worth for longer is believed again, but not of one that is never right."""
    setting, alone = Setting("mirror", 3, 3, 8, "draft"), Setting("sd", 3, 0)

    def believed(usual):
        """After windows of which so much held, and a few of which nothing did; and some time later."""
        beliefs = Beliefs([(0, False)], {(0, False): 0.5}, True)
        for held in [usual] * 100 + [0] * 15:
            beliefs.stepped(Stepped(setting, 3, held, target=1.0, whole=1.0, source="hit", by="hit"))
        hard = beliefs.of(setting).alive(1)[0]
        for _ in range(8):
            if without == "plained":
                beliefs.plained(40, [])
            elif without == "alone":
                for _ in range(40):
                    beliefs.stepped(Stepped(alone, 3, 0, target=1.0, whole=1.0, source="lookup", by="lookup"))
            else:
                beliefs.answered(60)
        return hard, beliefs.of(setting).alive(1)[0]

    hard, later = believed(2)
    assert hard < 0.72
    assert later > 0.8
    hard, later = believed(0)
    assert hard < later < 0.1


def test_windows_of_streams_tell_what_the_main_stream_alone_is_worth():
    trust, main = Setting("mirror", 7, 7, 16, "draft", way=(2, False)), Setting("mirror", 7, 7, 16, "draft")
    beliefs = Beliefs([(0, False), (2, False)], {}, False)
    chance = random.Random(3)
    for _ in range(400):
        accepted = 0
        while accepted < 7 and chance.random() < (0.9 if accepted in (0, 1, 4) else 0.5):  # passes of 1, 3 and 3
            accepted += 1
        beliefs.stepped(Stepped(trust, 7, accepted, target=1.0, whole=1.0, source="hit", by="hit"))
    assert [round(rate, 1) for rate in beliefs.of(main).alive(2)] == pytest.approx([0.9, 0.8], abs=0.11)
    assert beliefs.of(main).alive(4)[3] > 0.5 > beliefs.of(trust).alive(4)[3]


@pytest.mark.parametrize(("held", "low", "high"), [(4, 0.99, 1.0), (2, 0.55, 0.75), (0, 0.0, 0.2)])
def test_streams_that_are_checked_tell_what_they_are_worth_unchecked(held, low, high):
    """Of three passes two have two proposals of streams each to check."""
    checks, trusts = (Setting("mirror", 7, 7, 16, "draft", way=(2, exact)) for exact in (True, False))
    beliefs = Beliefs([(2, True), (2, False)], {(2, True): 0.9, (2, False): 0.6}, False)
    chance = random.Random(5)
    for _ in range(300):
        accepted = 0
        while accepted < 7 and chance.random() < 0.9:
            accepted += 1
        fact = Stepped(checks, 7, accepted, target=1.0, whole=1.0, source="hit", by="hit", checked=(2, held))
        beliefs.stepped(fact)
    of_streams, of_main = (beliefs.of(setting).alive(3) for setting in (trusts, checks))
    assert of_streams[:2] == of_main[:2], "the first pass's only proposal is the main stream's, and so is the next"
    assert low <= of_streams[2] / of_main[2] <= high


def test_who_was_not_asked_for_long_is_believed_to_be_as_good_as_anybody():
    ranks, new = Ranks(), Ranks()
    for _ in range(20):
        ranks.saw(None, 16)
    bad = ranks.hits(8)
    for _ in range(3000):
        ranks.faded()
    assert bad < 0.3 < new.hits(8)
    assert ranks.hits(8) == pytest.approx(new.hits(8), abs=0.02)


def test_a_few_windows_say_little_of_what_a_lookup_is_worth():
    """A lookup would be tried whenever a few had been lucky. In the end what has changed is known."""
    beliefs = Beliefs([(0, False)], {}, backup=True)
    lookup = Setting("sd", 3, 0)
    found = [beliefs.of(lookup).backup(3)]
    for offers in ([(6, 0), (6, 2), (6, 0), (0, 0), (6, 1)] * 60, [(6, 6)] * 8, [(6, 6)] * 300):
        beliefs.plained(len(offers), offers)
        found.append(beliefs.of(lookup).backup(3))
    assert found[1] == pytest.approx(0.6, abs=0.1)
    assert found[2] < found[1] + 0.3
    assert found[3] > 2.5
