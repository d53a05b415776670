"""The rates of `bench tap`: records made by hand with rates worked out by hand, and the runtime's own state machine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_mlx.bench.hits import KAPPAS, PER_ROW, PER_STEP, Record, Tally, Way, best_exit, choose, used
from mirror_mlx.messages import Candidates, Outcome
from mirror_mlx.pooling import Pooling
from mirror_mlx.rounds import Expand, Plan, Round

TAP = (2, "plain")
# Scores, by reach × probability: (1, 9) .24, (2, 1) .24, (0, 7) .1, (2, 2) .08.
DRAFT = Candidates([[5, 7], [6, 9], [1, 2]], [[0.8, 0.1], [0.5, 0.3], [0.6, 0.2]], own=[0.8, 0.5])
# (1, 9) .42, (0, 8) .2, (2, 3) .06, (2, 1) .036.
LENS = Candidates([[5, 8], [9, 6], [3, 1]], [[0.6, 0.2], [0.7, 0.2], [0.5, 0.3]], own=[0.6, 0.2])
FIRST = Candidates([[9, 4]], [[0.6, 0.3]], own=[]), Candidates([[4, 9]], [[0.6, 0.3]], own=[])


def record(accepted, token):
    return Record((5, 6), Outcome(accepted, token), DRAFT, {TAP: LENS})


RECORDS = (
    record(1, 9),  # both name it first
    record(2, 3),  # a bonus that the tap alone names
    record(0, 7),  # a correction that the draft alone names, third
    Record((), Outcome(0, 4), FIRST[0], {TAP: FIRST[1]}),  # nothing was proposed: nothing was rejected
)


@pytest.fixture(scope="module")
def tables():
    tally = Tally([TAP], kappa=1, max_roots=2)
    for one in RECORDS:
        tally.add(one)
    return tally.tables()


def keys(way, of=RECORDS[0]):
    return [root.key for root in choose(of, way, pooling=Pooling(0.4, 0.6))]


def test_a_predictor_alone_spends_its_budget_on_its_best_roots():
    assert keys(Way("draft", 8, TAP, 3)) == [(1, 9), (2, 1), (0, 7)]
    assert keys(Way("tap", 8, TAP, 3)) == [(1, 9), (0, 8), (2, 3)]


def test_without_a_budget_every_row_has_kappa_roots():
    assert sorted(keys(Way("tap", 1, TAP))) == [(0, 8), (1, 9), (2, 3)]
    assert sorted(keys(Way("hybrid", 1, TAP))) == [(0, 7), (0, 8), (1, 9), (2, 1), (2, 3)]


def test_in_the_hybrid_half_is_the_drafts_and_what_both_say_together_fills_up_the_rest():
    # Both together: (1, 9) .44, (0, 7) and (0, 8) .16, (2, 1) .10, (2, 3) .09, (2, 2) .06.
    assert keys(Way("hybrid", 8, TAP, 4)) == [(1, 9), (2, 1), (0, 7), (0, 8)]
    assert keys(Way("hybrid", 8, TAP, 6)) == [(1, 9), (2, 1), (0, 7), (0, 8), (2, 3), (2, 2)]
    assert len(keys(Way("hybrid", 8, TAP, 9))) == 6, "nobody has named more"
    assert keys(Way("hybrid", 8, TAP, 1)) == keys(Way("tap", 8, TAP, 1)), "half of one root is none: the tap's alone"


def test_a_draft_without_candidates_leaves_all_to_the_tap():
    silent = Record((5, 6), Outcome(0, 8), None, {TAP: LENS})
    assert keys(Way("draft", 8, TAP, 4), silent) == []
    assert keys(Way("hybrid", 8, TAP, 3), silent) == [(1, 9), (0, 8), (2, 3)]


def test_what_was_measured(tables):
    assert (tables["steps"], tables["rejected"], tables["steps_by_row"]) == (4, 2, [2, 1, 1])
    assert tables["tokens_per_step"] == 1.75


def test_rates_by_kappa(tables):
    draft, tap, hybrid = tables["draft"], tables["taps"][0]["tap"], tables["taps"][0]["hybrid"]
    assert (tables["taps"][0]["exit_layer"], tables["taps"][0]["lens"]) == TAP
    assert draft["by_kappa"]["hit_rate"] == [0.5, 0.75, 0.75, 0.75]
    assert draft["by_kappa"]["hit_rate_given_rejection"] == [1, 1, 1, 1]
    assert tap["by_kappa"]["hit_rate"] == [0.75] * 4
    assert tap["by_kappa"]["miss_rate"] == [0.25] * 4
    assert tap["by_kappa"]["hit_rate_given_rejection"] == tap["by_kappa"]["miss_rate_given_rejection"] == [0.5] * 4
    assert hybrid["by_kappa"]["hit_rate"] == [1] * 4
    assert [len(draft["by_kappa"]["hit_rate"]), len(draft["per_row"]["hit_rate"])] == [len(KAPPAS), len(PER_ROW)]


def test_rates_by_row(tables):
    assert tables["draft"]["by_row"] == [1, 1, 0]
    assert tables["taps"][0]["tap"]["by_row"] == [0.5, 1, 1]


def test_rates_at_equal_budgets(tables):
    draft, tap, hybrid = tables["draft"], tables["taps"][0]["tap"], tables["taps"][0]["hybrid"]
    assert draft["per_row"]["hit_rate"] == tap["per_row"]["hit_rate"] == [0.75] * 3
    assert hybrid["per_row"]["hit_rate"] == [1] * 3
    assert draft["per_step"]["hit_rate"] == tap["per_step"]["hit_rate"] == [0.75] * len(PER_STEP)
    assert hybrid["per_step"]["hit_rate"] == [1] * len(PER_STEP)
    assert hybrid["per_step"]["hit_rate_given_rejection"] == [1] * len(PER_STEP)


def test_rates_as_the_pair_is_run(tables):
    assert tables["draft"]["as_run"] == {"hit_rate": 0.25, "hit_rate_given_rejection": 0.5}
    assert tables["taps"][0]["tap"]["as_run"] == {"hit_rate": 0.5, "hit_rate_given_rejection": 0.5}
    assert tables["taps"][0]["hybrid"]["as_run"] == {"hit_rate": 0.5, "hit_rate_given_rejection": 0.5}


def test_what_never_happened_has_no_rate():
    tally = Tally([TAP], kappa=1, max_roots=2)
    empty = tally.tables()
    assert (empty["steps"], empty["steps_by_row"], empty["tokens_per_step"]) == (0, [], 0)
    assert empty["draft"]["by_kappa"]["miss_rate"] == [None] * 4
    tally.add(record(2, 3))
    found = tally.tables()["taps"][0]["tap"]
    assert found["by_row"] == [None, None, 1]
    assert found["by_kappa"]["hit_rate_given_rejection"] == [None] * 4
    assert found["by_kappa"]["hit_rate"] == [1] * 4


@st.composite
def candidates(draw, rows, most):
    tokens = [draw(st.lists(st.integers(0, 9), min_size=1, max_size=most, unique=True)) for _ in range(rows)]
    probs = [sorted((draw(st.floats(0, 1)) for _ in row), reverse=True) for row in tokens]
    return Candidates(tokens, probs, [draw(st.floats(0, 1)) for _ in range(rows - 1)])


@given(st.data(), st.sampled_from(["draft", "tap", "hybrid"]), st.integers(1, 4), st.integers(1, 40), st.booleans())
def test_roots_are_those_that_the_runtime_opens(data, predictor, kappa, budget, early):
    """Whether the tap comes before the draft's roots are open (early) or after."""
    window = tuple(data.draw(st.lists(st.integers(0, 9), max_size=4)))
    rows = len(window) + 1
    asked = min(2 * kappa + 1, 6)  # of each row, as the runtime does
    own = data.draw(st.none() | candidates(rows, asked))
    lens = data.draw(candidates(rows, asked))
    round_ = Round(Plan(window, length=3, vocab_size=10, predictor=predictor, kappa=kappa, max_roots=budget))
    if early:
        round_.tapped(lens)
    round_.glued(own if predictor != "tap" else None)
    for _ in range(2):
        action = round_.next()
        if isinstance(action, Expand):
            round_.expanded(action.roots)
        if not early:
            round_.tapped(lens)
    given_record = Record(window, Outcome(0, 1), own, {TAP: lens})
    assert [root.key for root in choose(given_record, Way(predictor, kappa, TAP, budget))] == list(round_.cache.keys)


def test_a_way_that_was_not_counted_has_no_rate():
    tally = Tally([TAP], kappa=1, max_roots=2)
    for ask in (tally.rate, tally.by_row):
        with pytest.raises(KeyError, match="kappa=3"):
            ask(Way("tap", 3, TAP))


def test_an_earlier_exit_is_as_good_within_half_a_point():
    assert best_exit({2: 0.90, 4: 0.96}) == 4
    assert best_exit({2: 0.956, 4: 0.96, 6: 0.9601}) == 2
    assert best_exit({2: 0.954, 4: 0.96}) == 4
    assert best_exit({6: 0.5, 2: 0.5}) == 2


def test_the_runtime_uses_the_trained_tap_where_there_is_one():
    taps = [{"exit_layer": n, "lens": lens} for n, lens in ((2, "plain"), (4, "plain"), (4, "trained"), (6, "plain"))]
    assert [(tap["exit_layer"], tap["lens"]) for tap in used({"taps": taps})] == [
        (2, "plain"),
        (4, "trained"),
        (6, "plain"),
    ]
