"""The draft's thread, with fakes: every fault becomes a fact, every wait ends, nothing is left behind."""

import random
import threading
import time

import pytest
import zoo

from mirror_mlx import Engine, Sampling
from mirror_mlx.draft import ScriptedDraft
from mirror_mlx.messages import Candidates, Outcome
from mirror_mlx.rendezvous import Rendezvous
from mirror_mlx.rounds import Plan
from mirror_mlx.trace import Trace

MODEL = zoo.tiny("qwen3")
PROMPT = [(i * 37 + 5) % zoo.VOCAB for i in range(12)]
EVENTS = ["begin", "prefill", "glue", "expand", "advance", "commit", "rewind"]
KINDS = ["raise", "hang", "late", "nonsense", "none", "exit"]


class FaultyDraft(ScriptedDraft):
    """Does `kind` at the `nth` call of `event`, and is otherwise a draft that is often right."""

    def __init__(self, fn, event, kind, nth):
        super().__init__(fn)
        self._fault = (event, kind)
        self._left = nth
        self.closed = threading.Event()
        self.struck = False

    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        if name not in EVENTS:
            return value

        def call(*args, **kwargs):
            event, kind = super(FaultyDraft, self).__getattribute__("_fault")
            if name == event:
                self._left -= 1
                if self._left == 0:
                    self.struck = True
                    return self._strike(kind, value, args)
            return value(*args, **kwargs)

        return call

    def _strike(self, kind, call, args):
        if kind == "raise":
            raise RuntimeError("broken pipe to the Neural Engine")
        if kind == "exit":
            raise SystemExit("a library gave up")
        if kind == "hang":
            self.closed.wait(20)
        if kind == "late":
            time.sleep(0.08)
        if kind == "none":
            return None
        if kind == "nonsense":
            call(*args)
            return random.choice([[1, 2], {(0, 0): "text"}, {(0, 0): [1.5]}, object(), Candidates([[1]], [], [])])
        return call(*args)

    def close(self):
        self.closed.set()


@pytest.fixture(scope="module")
def expected():
    with Engine(MODEL, mode="ar") as engine:
        return [r.token for r in engine.stream(PROMPT, max_tokens=30, sampling=Sampling(temperature=0.7))]


def often_right(expected, seed):
    rng = random.Random(seed)

    def fn(context):
        place = len(context) - len(PROMPT)
        return expected[place] if 0 <= place < len(expected) and rng.random() < 0.8 else rng.randrange(zoo.VOCAB)

    return fn


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("event", EVENTS)
def test_a_fault_at_any_event_changes_no_token_and_leaves_nothing_running(event, kind, expected):
    """With the six seeds of each: 252 faults."""
    for seed in range(6):
        rng = random.Random(f"{event} {kind} {seed}")
        draft = FaultyDraft(often_right(expected, seed), event, kind, nth=rng.choice([1, 1, 2, 5]))
        options = {"predictor": rng.choice(["tap", "draft", "hybrid"]), "mode": rng.choice(["mirror", "mirror", "sd"])}
        engine = Engine(MODEL, None, draft, num_draft_tokens=3, kappa=2, draft_timeout=0.04, **options)
        for turn in range(2):  # the second request begins where the first one broke off, or is plain
            began = time.monotonic()
            tokens = [r.token for r in engine.stream(PROMPT, max_tokens=30, sampling=Sampling(temperature=0.7))]
            assert tokens == expected
            assert time.monotonic() - began < 10
            if turn == 0 and kind in ("raise", "exit") and draft.struck and engine.stats.mode != "ar":
                assert event in ("commit", "rewind")
        if kind == "hang":
            draft.closed.set()
        engine.close()
        assert not [t for t in threading.enumerate() if t.name.startswith("mirror-")]


def test_a_dead_draft_is_named_in_the_stats(expected):
    draft = FaultyDraft(often_right(expected, 0), "advance", "raise", 3)
    with Engine(MODEL, None, draft) as engine:
        list(engine.stream(PROMPT, max_tokens=30))
        assert engine.stats.mode == "ar"
        assert engine.stats.reason == "draft died: RuntimeError: broken pipe to the Neural Engine"
        list(engine.stream(PROMPT, max_tokens=30))
        assert engine.stats.mode == "mirror"  # a fault that passes does not outlive its request


def test_a_hanging_draft_costs_one_deadline_not_one_a_step(expected):
    draft = FaultyDraft(often_right(expected, 0), "advance", "hang", 2)
    with Engine(MODEL, None, draft, draft_timeout=0.1) as engine:
        began = time.monotonic()
        list(engine.stream(PROMPT, max_tokens=30))
        assert "draft late: no window within" in engine.stats.reason
        list(engine.stream(PROMPT, max_tokens=30))
        assert engine.stats.reason == "draft late: still busy with an earlier request"
        assert time.monotonic() - began < 3
        draft.closed.set()


def test_a_draft_that_hangs_in_python_is_interrupted_by_close():
    def spin(context):
        while True:
            time.sleep(0.01)

    engine = Engine(MODEL, None, ScriptedDraft(spin), draft_timeout=0.05)
    list(engine.stream(PROMPT, max_tokens=5))
    engine.close()
    engine.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("mirror-")]


def exchange(fn, plan, outcome, tokens=(1, 2)):
    rendezvous = Rendezvous(ScriptedDraft(fn))
    rendezvous.begin(Sampling(), Trace(), list(tokens[:-1]))
    ticket = rendezvous.start(0, plan, list(tokens))
    deadline = time.monotonic() + 2
    while outcome is None or (outcome.key not in ticket.round.cache and time.monotonic() < deadline):
        time.sleep(0.001)
        if outcome is None:
            break
    rendezvous.resolve(ticket, outcome)
    window = rendezvous.collect(ticket)
    rendezvous.close()
    return window


def test_a_predicted_outcome_is_handed_over_without_waiting():
    plan = Plan(window=(), length=3, vocab_size=100, predictor="draft", tap=False)
    window = exchange(lambda context: len(context), plan, Outcome(0, 2))
    assert window.tokens == (3, 4, 5)
    assert window.source in ("hit", "partial")


def test_closing_twice_and_before_the_first_request_is_fine():
    rendezvous = Rendezvous(ScriptedDraft(lambda context: 0))
    rendezvous.close()
    rendezvous.close()
    rendezvous.begin(Sampling(), Trace(), [1])
    assert "ended" in str(rendezvous.fault)
