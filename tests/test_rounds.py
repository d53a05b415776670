"""The state machine of a step, played against a draft that is a table, with facts arriving in every order."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mirror_mlx.messages import Candidates, Outcome, Window
from mirror_mlx.pooling import Pooling
from mirror_mlx.rounds import Advance, Expand, Glue, Plan, Round, Settle, State, Wait
from mirror_mlx.tuning.curve import Curve
from mirror_mlx.tuning.due import Due
from mirror_mlx.tuning.passes import Needed
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.stopping import Stop

V = 10


def continuation(key, index):
    return (key[0] * 3 + key[1] * 5 + index * 7) % V


@st.composite
def plans(draw):
    window = tuple(draw(st.lists(st.integers(0, V - 1), max_size=4)))
    return Plan(
        window=window,
        length=draw(st.integers(0, 4)),
        vocab_size=V,
        predictor=draw(st.sampled_from([None, "tap", "draft", "hybrid"])),
        fallback=draw(st.sampled_from(["jit", "empty"])),
        kappa=draw(st.integers(1, 4)),
        max_roots=draw(st.integers(1, 12)),
        tap=draw(st.booleans()),
        stops=draw(st.frozensets(st.integers(0, V - 1), max_size=3)),
        due=draw(st.none() | st.builds(due, at=st.floats(0, 60), each=st.floats(0, 10))),
        beyond=tuple(draw(st.lists(st.integers(-1, V), max_size=2))),
        stop=draw(st.none() | st.builds(stop, least=st.lists(st.floats(0, 1), min_size=4, max_size=4))),
    )


def stop(least):
    """The draft is as sure of each proposal as it is likely to hold; there are windows of up to 4."""
    return Stop(lambda sure: sure, [0.0, *least])


def sure(key, index):
    return (1 + continuation(key, index)) / V


def due(at, each, hits=lambda count: 1 - 0.5**count):
    """A pass takes 10 ms, and so much for each branch."""
    return Due(at, Needed((1.0,)), Curve.of({1: 10.0 + each, 2: 10.0 + 2 * each}), Setting("mirror", late=1), hits)


@st.composite
def candidates(draw, rows):
    tokens = [draw(st.lists(st.integers(0, V - 1), min_size=1, max_size=4, unique=True)) for _ in range(rows)]
    return Candidates(tokens, [[1 / (i + 2) for i in range(len(row))] for row in tokens], [0.5] * (rows - 1))


def ends(plan, key):
    """Whether the text is over with this outcome."""
    return key[1] in plan.stops or not plan.stops.isdisjoint(plan.window[: key[0]])


@given(plans(), st.data())
def test_every_order_of_facts_ends_in_the_right_window(plan, data):
    rows = len(plan.window) + 1
    round_ = Round(plan)
    outcome = Outcome(data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, V - 1)))
    facts = ["outcome"]
    if plan.tap and plan.predictor in ("tap", "hybrid"):
        facts.insert(0, "tap")
    progress: dict = {}
    width, joins = data.draw(st.none() | st.integers(1, 4)), data.draw(st.booleans())
    known = predicted = False
    for _ in range(200):
        waiting = isinstance(action := round_.next(data.draw(st.floats(0, 60)), width, joins), Wait)
        if facts and (waiting or (not isinstance(action, Settle) and data.draw(st.booleans()))):
            fact = facts.pop(0)
            if fact == "tap":
                round_.tapped(data.draw(candidates(rows)))
            else:
                known = True
                predicted = round_.cache.finished(outcome.key) or progress.get(outcome.key, 0) > 0
                round_.resolved(outcome)
            continue
        match action:
            case Glue(count, named):
                assert 1 <= count <= rows
                assert count == rows or known
                said = data.draw(candidates(rows)) if named else None
                if action.root is None:
                    round_.glued(said)
                    continue
                assert joins
                assert not known
                assert plan.predictor in ("draft", "hybrid") or not plan.tap
                assert action.root.key == (len(plan.window), plan.beyond[0])
                assert not ends(plan, action.root.key)
                progress[action.root.key] = 1
                first = action.root.key
                round_.joined(said, action.root, {first: [continuation(first, 0)]}, {first: [sure(first, 0)]})
            case Expand(opened):
                assert len({root.key for root in opened}) == len(opened)
                assert known or len(round_.cache) + len(opened) <= plan.max_roots
                assert not any(ends(plan, root.key) for root in opened)
                round_.expanded(opened)
            case Advance(keys):
                assert keys
                assert width is None or len(keys) <= width
                assert not known or keys == (outcome.key,)
                proposed = {key: [continuation(key, progress.get(key, 0))] for key in keys}
                confidences = {key: [sure(key, progress.get(key, 0))] for key in keys}
                for key in keys:
                    progress[key] = progress.get(key, 0) + 1
                round_.advanced(keys, proposed, confidences)
            case Settle(accepted, window):
                assert accepted == outcome.accepted
                expected = tuple(continuation(outcome.key, i) for i in range(len(window.tokens)))
                assert window.tokens == expected
                assert not any(token in plan.stops for token in window.tokens[:-1])
                if plan.fallback == "jit" and not ends(plan, outcome.key):
                    stopped = plan.stop is not None and plan.stop.at(window.confidences)
                    assert len(window.tokens) == plan.length or window.tokens[-1] in plan.stops or stopped
                assert not (window.tokens and ends(plan, outcome.key))
                assert (window.source in ("hit", "partial")) == predicted
                assert round_.state is State.SETTLED
                return
            case Wait():
                raise AssertionError("waits although every fact is there")
    raise AssertionError("no end")


def test_what_the_draft_expects_has_its_first_pass_with_the_windows_rows():
    plan = Plan(window=(1, 2), length=3, vocab_size=V, predictor="draft", kappa=2, max_roots=3, beyond=(7, 4))
    round_ = Round(plan)
    action = round_.next(joins=True)
    assert (action.rows, action.candidates, action.root.key, action.after) == (3, 3, (2, 7), (4,))
    # The others come before it where they are likelier.
    said = Candidates([[5, 1], [6, 2], [8, 7]], [[0.9, 0.1], [0.9, 0.1], [0.9, 0.1]], [0.1, 0.1])
    round_.joined(said, action.root, {(2, 7): [4, 5]})
    opened = round_.next().roots
    assert (2, 7) not in {root.key for root in opened}
    round_.expanded(opened)
    assert len(round_.cache) == 3
    assert round_.place((2, 7)) == 2
    assert round_.foreseen((2, 7)) == "draft"
    assert round_.cache.get((2, 7)) == (4, 5)
    assert round_.cache.passes((2, 7)) == 1
    round_.resolved(Outcome(2, 7))
    assert round_.next() == Advance(((2, 7),))


def test_an_outcome_that_comes_before_it_was_compared_with_others_finds_it():
    plan = Plan(window=(1,), length=2, vocab_size=V, predictor="draft", beyond=(7,))
    round_ = Round(plan)
    root = round_.next(joins=True).root
    round_.joined(Candidates([[5], [6]], [[0.9], [0.9]], [0.5]), root, {root.key: [3, 4]}, {}, {}, {root.key: [9]})
    round_.resolved(Outcome(1, 7))
    window = round_.next().window
    assert (window.tokens, window.source, window.beyond) == ((3, 4), "hit", (9,))


def test_nothing_is_expected_where_the_text_ends_or_nobody_asks_the_draft():
    plan = Plan(window=(1,), length=2, vocab_size=V, predictor="draft", beyond=(7,))
    for other, joins in (
        (replace(plan, stops={7}), True), (replace(plan, stops={1}), True), (replace(plan, predictor="tap"), True),
        (replace(plan, beyond=()), True), (replace(plan, beyond=(V,)), True), (plan, False),
    ):  # fmt: skip
        assert Round(other).next(joins=joins).root is None


def test_a_window_that_is_unlikely_to_hold_is_not_waited_for_any_longer():
    plan = Plan(window=(), length=4, vocab_size=V, predictor=None, stop=stop([0.5, 0.5, 0.5, 0.0]))
    for sure, count in (((0.9, 0.9, 0.9, 0.9), 4), ((0.9, 0.5, 0.9, 0.9), 2), ((0.4, 1.0, 1.0, 1.0), 1), ((), 4)):
        round_ = Round(plan)
        round_.resolved(Outcome(0, 9))
        round_.glued(None)
        round_.expanded(round_.next().roots)
        key = (0, 9)
        while isinstance(action := round_.next(), Advance):
            made = round_.cache.passes(key)
            round_.advanced((key,), {key: [made]}, {key: list(sure[made : made + 1])} if sure else {})
        assert len(action.window.tokens) == count, sure


def test_serial_speculation_waits_for_the_outcome_and_glues_only_what_was_accepted():
    round_ = Round(Plan(window=(1, 2, 3), length=2, vocab_size=V, predictor=None))
    assert round_.next() == Wait()
    round_.resolved(Outcome(1, 9))
    assert round_.next() == Glue(rows=2, candidates=0)


def test_the_hybrid_leaves_half_of_the_budget_to_the_tap():
    half = Pooling(0.4, 0.6)
    plan = Plan(window=(), length=3, vocab_size=V, predictor="hybrid", kappa=4, max_roots=4, pooling=half)
    round_ = Round(plan)
    round_.glued(Candidates([[1, 2, 3, 4]], [[0.4, 0.3, 0.2, 0.1]], []))
    action = round_.next()
    assert [root.token for root in action.roots] == [1, 2]
    round_.expanded(action.roots)
    round_.tapped(Candidates([[2, 5, 6, 7]], [[0.4, 0.3, 0.2, 0.1]], []))
    action = round_.next()
    assert [root.token for root in action.roots] == [5, 6]


def test_once_the_tap_has_spoken_the_draft_is_still_heard():
    plan = Plan(window=(), length=3, vocab_size=V, predictor="hybrid", kappa=2, max_roots=2)
    round_ = Round(plan)
    assert round_.next() == Glue(rows=1, candidates=5)
    round_.glued(Candidates([[1, 2, 3]], [[0.6, 0.35, 0.01]], []))
    assert [root.token for root in round_.next().roots] == [1]
    round_.expanded(round_.next().roots)
    round_.tapped(Candidates([[4, 2, 3]], [[0.45, 0.4, 0.01]], []))
    assert [root.token for root in round_.next().roots] == [2], "the tap alone would have named 4"


def test_a_branch_that_gets_nothing_is_closed_not_asked_forever():
    round_ = Round(Plan(window=(), length=3, vocab_size=V, predictor="draft", kappa=1))
    round_.glued(Candidates([[1]], [[0.9]], []))
    round_.expanded(round_.next().roots)
    round_.advanced(((0, 1),), {})
    assert round_.next() == Wait()


def test_a_pass_that_would_keep_the_target_waiting_is_over_few_branches_or_none():
    """The outcome is due after 30 ms; a pass takes 12 ms over one branch, and 2 more for each other."""
    plan = Plan(window=(), length=3, vocab_size=V, predictor="draft", kappa=8, max_roots=8, due=due(30.0, each=2.0))
    round_ = Round(plan)
    round_.glued(Candidates([list(range(8))], [[0.3] * 8], []))
    round_.expanded(round_.next().roots)
    keys = round_.cache.keys
    assert [round_.next(at) for at in (0.0, 14.0)] == [Advance(keys), Advance(keys[:4])]
    assert round_.next(29.0) == round_.next(90.0) == Wait()
    round_.advanced(keys[:4], {key: [1, 2, 3] for key in keys[:4]})
    assert round_.next(4.0) == Advance(keys[4:])
    assert round_.next(15.0) == Advance(keys[4:6]), "those before them catch most outcomes"
    round_.resolved(Outcome(*keys[4]))
    assert round_.next(29.0) == Advance((keys[4],)), "once the outcome is known nothing is left out"


def test_what_was_named_and_had_no_pass_is_no_hit():
    round_ = Round(Plan(window=(), length=2, vocab_size=V, predictor="draft", kappa=2, due=due(0.0, each=1.0)))
    round_.glued(Candidates([[1, 2]], [[0.6, 0.3]], []))
    round_.expanded(round_.next().roots)
    assert round_.next() == Wait()
    round_.resolved(Outcome(0, 2))
    assert round_.next() == Advance(((0, 2),))
    round_.advanced(((0, 2),), {(0, 2): [5, 6]})
    assert round_.next() == Settle(0, Window((5, 6), "jit"))


def test_who_named_an_outcome_first():
    plan = Plan(window=(1,), length=2, vocab_size=V, predictor="hybrid", kappa=2, max_roots=4)
    round_ = Round(plan)
    round_.glued(Candidates([[2, 3], [4, 5]], [[0.5, 0.3], [0.6, 0.3]], [0.5]))
    opened = round_.next()
    round_.expanded(opened.roots)
    own = {root.key for root in opened.roots}
    assert {round_.foreseen(key) for key in own} == {"draft"}
    round_.tapped(Candidates([[2, 7], [4, 8]], [[0.5, 0.4], [0.5, 0.4]], [0.5]))
    assert round_.foreseen((0, 7)) is None  # named, but not opened: nothing is prepared for it
    more = round_.next()
    round_.expanded(more.roots)
    assert {round_.foreseen(root.key) for root in more.roots} == {"tap"}
    assert {round_.foreseen(key) for key in own} == {"draft"}


def test_the_drafts_own_roots_come_first_then_the_taps_best():
    round_ = Round(Plan(window=(), length=2, vocab_size=V, predictor="hybrid", kappa=3, max_roots=6))
    round_.glued(Candidates([[2, 3, 4]], [[0.5, 0.3, 0.1]], []))
    round_.expanded(round_.next().roots)
    assert round_.next() == Advance(((0, 2), (0, 3), (0, 4)))
    round_.advanced([(0, 2)], {(0, 2): [7]})  # a pass that takes one branch
    round_.tapped(Candidates([[5, 4, 6]], [[0.6, 0.3, 0.05]], []))
    round_.expanded(round_.next().roots)
    keys = round_.next().keys
    assert keys[:4] == ((0, 2), (0, 3), (0, 4), (0, 5))
    round_.advanced([(0, 2)], {(0, 2): [8]})
    assert round_.next().keys == keys[1:]


def test_who_looks_on_while_roots_are_named_does_not_take_it_for_idle(monkeypatch):
    looked, queue = [], Round._queue

    def looking(round_, *given):
        looked.append(round_.idle)
        queue(round_, *given)

    monkeypatch.setattr(Round, "_queue", looking)
    round_ = Round(Plan(window=(1,), length=2, vocab_size=V, predictor="draft"))
    round_.glued(Candidates([[2], [3]], [[0.5], [0.5]], [0.5]))
    assert looked == [False]
    assert not round_.idle
