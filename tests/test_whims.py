"""Whatever a policy decides, when and how often: the tokens are plain decoding's, and it is told what happened."""

import threading
import time
from collections import Counter
from itertools import accumulate, pairwise
from operator import mul

import pytest
import streams
import zoo
from hypothesis import given, settings
from hypothesis import strategies as st
from whims import COUNT, PROMPT, Whim, plain, said, whimsical

from mirror_mlx.bench.hostile import KINDS, hostile
from mirror_mlx.draft import AutoregressiveDraft, ScriptedDraft, StreamingDraft
from mirror_mlx.draft.hosted import Hosted
from mirror_mlx.draft.streaming import MlxSegments
from mirror_mlx.engine import Engine
from mirror_mlx.lookup import PromptLookup
from mirror_mlx.sampling import Sampling
from mirror_mlx.tuning.policy import Ask, Fixed
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.stopping import Stop


@settings(max_examples=20)
@given(
    kind=st.sampled_from(["qwen3", "gemma3_text", "mamba2", "qwen3_next", "exaone4"]),
    seed=st.integers(0, 1000),
    temperature=st.sampled_from([0.0, 1.0]),
)
def test_any_decisions_give_plain_decodings_tokens(kind, seed, temperature):
    model, sampling = zoo.tiny(kind), Sampling(temperature=temperature, seed=seed)
    wanted = plain(model, sampling)
    draft = AutoregressiveDraft(zoo.tiny(kind, seed=seed % 2))
    exits = range(1, len(model.layers)) or [1]
    with whimsical(Engine(model, draft=draft), Whim(seed, exits=list(exits))) as engine:
        assert said(engine, sampling) == wanted
        assert said(engine, sampling, prompt=[*PROMPT, *wanted[:4]])[: COUNT - 4] == wanted[4:]


class Sometimes(Whim):
    """Asks the draft for some steps, and does without it for some."""

    def ask(self):
        return Ask(Setting("sd", 3, 3 * (len(self.facts) // 4 % 2), way=(0, False)))

    def opening(self, prompt):
        return None

    def enough(self, confidences):
        return len(confidences)

    def waits(self, setting):
        return None

    patience = stop = waits


def test_a_draft_that_was_left_out_takes_in_the_text_before_it_is_asked_again():
    model = zoo.tiny("qwen3")
    wanted = plain(model)
    text = [*PROMPT, *wanted, *[0] * 8]
    draft = ScriptedDraft(lambda context: text[len(context)])
    with whimsical(Engine(model, draft=draft), policy := Sometimes(0)) as engine:
        assert said(engine) == wanted
        steps = engine.trace.steps
    without = [fact for fact in policy.facts if fact.setting.alone]
    assert all(not fact.passed and fact.source in ("lookup", "empty", "none") for fact in without)
    drafted = [step for step in steps if step.window.source == "jit"]
    assert len(without) >= 4
    assert len(drafted) >= 4
    assert all(step.outcome.accepted == len(step.window.tokens) == 3 for step in drafted[:-1]), "it knew the text"


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), temperature=st.sampled_from([0.0, 1.0]))
def test_so_they_do_with_streams_that_come_and_go(seed, temperature):
    model, sampling = zoo.tiny("qwen3"), Sampling(temperature=temperature, seed=seed)
    draft = StreamingDraft(MlxSegments(streams.tiny()))
    ways = [(0, False), (1, False), (3, False), (2, True)]
    with whimsical(Engine(model, draft=draft), Whim(seed, ways, exits=[1])) as engine:
        wanted = plain(model, sampling)
        assert said(engine, sampling) == wanted


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), kind=st.sampled_from(KINDS), temperature=st.sampled_from([0.0, 1.0]))
def test_so_they_do_with_hostile_drafts(seed, kind, temperature):
    model, sampling = zoo.tiny("qwen3"), Sampling(temperature=temperature, seed=seed)
    draft = hostile(kind, AutoregressiveDraft(zoo.tiny("qwen3", seed=1)), zoo.VOCAB)
    with whimsical(Engine(model, draft=draft, draft_timeout=0.5), Whim(seed, exits=[1])) as engine:
        assert said(engine, sampling) == plain(model, sampling)
        assert said(engine, sampling) == plain(model, sampling)


def hosted(elsewhere):
    return Hosted("coreml", AutoregressiveDraft(zoo.tiny("qwen3")), {"mlx": elsewhere})


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), temperature=st.sampled_from([0.0, 1.0]), opens=st.booleans())
def test_so_they_do_with_a_draft_that_moves(seed, temperature, opens):
    model, sampling = zoo.tiny("qwen3"), Sampling(temperature=temperature, seed=seed)

    def elsewhere():
        if not opens:
            raise OSError("no room")
        return AutoregressiveDraft(zoo.tiny("qwen3", seed=1))

    whim = Whim(seed, exits=[1], hosts=["coreml", "mlx", ""])
    with whimsical(Engine(model, draft=hosted(elsewhere)), whim) as engine:
        wanted = plain(model, sampling)
        assert said(engine, sampling) == wanted
        assert said(engine, sampling, prompt=[*PROMPT, *wanted[:4]])[: COUNT - 4] == wanted[4:]


@pytest.mark.parametrize("stopped", [False, True])
def test_a_window_that_reaches_to_the_end_is_said_to(stopped):
    """By what was asked for, or by the text's own end."""
    model, whim = zoo.tiny("qwen3"), Whim(3)
    whim.ask, whim.opening, whim.enough = lambda: Ask(Setting("mirror", 3, 3, 16, "draft")), lambda prompt: None, len
    whim.stop = lambda setting: None
    wanted = plain(model)
    proposed = [token for place, token in enumerate(wanted) if place % 4]  # the others are the target's own
    last = max(proposed[:-8], key=wanted.index)
    end = wanted.index(last) + 1 if stopped else COUNT
    with whimsical(Engine(model, draft=AutoregressiveDraft(model)), whim) as engine:
        engine._eos = {last} if stopped else set()
        assert said(engine) == wanted[:end]
        steps = engine.trace.steps
    done = 0
    for fact, (step, following) in zip(whim.facts, pairwise(steps), strict=True):  # nobody is told of the last one
        done += step.outcome.accepted + 1
        assert fact.ends == (done + len(following.window.tokens) >= (end if stopped else end - 1))
    assert {fact.ends for fact in whim.facts} == {False, True}


@pytest.mark.parametrize("ask", [Ask(Setting("mirror", 3, 3, 4, "draft")), Ask(Setting(), 100)])
def test_a_reader_that_stops_for_a_while_is_not_taken_for_slow_decoding(ask):
    whim, model = Whim(3), zoo.tiny("qwen3")
    whim.ask, whim.opening, told = lambda: ask, lambda prompt: None, []
    whim.plained = told.append
    with whimsical(Engine(model, draft=AutoregressiveDraft(model)), whim) as engine:
        said(engine)
        whim.facts, told[:] = [], []
        for number, _ in enumerate(engine.stream(PROMPT, COUNT, Sampling())):
            if number in (13, 33):
                time.sleep(1.0)
    wholes = [*(fact.whole for fact in whim.facts), *(fact.ms for fact in told if fact.tokens)]
    assert wholes
    assert max(wholes) < 900


def test_a_draft_that_moves_proposes_what_it_would_have_there():
    """The text goes with it: a right draft is right on every host, at once."""
    model = zoo.tiny("qwen3")
    whim = Whim(5, exits=[1], hosts=["coreml", "mlx"])
    with whimsical(Engine(model, draft=hosted(lambda: AutoregressiveDraft(zoo.tiny("qwen3")))), whim) as engine:
        assert said(engine, count=300) == plain(model, count=300)
    facts = [fact for fact in whim.facts if not isinstance(fact, tuple)]
    assert {fact.setting.host for fact in facts if fact.length} == {"coreml", "mlx"}
    assert all(fact.accepted == fact.length for fact in facts)


@settings(max_examples=10)
@given(seed=st.integers(0, 1000))
def test_so_they_do_with_lookup(seed):
    model = zoo.tiny("qwen3")
    with whimsical(Engine(model, draft=PromptLookup()), Whim(seed, exits=[1])) as engine:
        assert said(engine, prompt=PROMPT * 4) == plain(model, prompt=PROMPT * 4)


def test_facts_are_what_happened():
    model = zoo.tiny("qwen3")
    wanted = plain(model)
    text = PROMPT + wanted
    draft = ScriptedDraft(lambda context: text[len(context)] if len(context) < len(text) else 0)
    whim = Whim(7, exits=[1])
    with whimsical(Engine(model, draft=draft), whim) as engine:
        assert said(engine) == wanted
        stats = engine.stats
    windows = [fact for fact in whim.facts if not isinstance(fact, tuple) and fact.length]
    assert windows
    assert all(fact.accepted == fact.length for fact in windows)
    assert any(isinstance(fact, tuple) for fact in whim.facts)
    assert all(length == accepted for length, accepted in (f for f in whim.facts if isinstance(f, tuple)))
    assert sum(stats.tokens_by_mode.values()) == COUNT
    assert whim.answers == [COUNT]
    assert stats.setting == "a whim"


class Impatient(Whim):
    """Speculates, and does not wait for the first window."""

    def ask(self):
        return Ask(Setting("sd", 30, 30))

    def waits(self, setting):
        return 0.0

    def opening(self, prompt):
        return Setting("sd", 30, 30)

    def enough(self, confidences):
        return len(confidences)


@pytest.mark.parametrize("right", [True, False])
def test_the_text_goes_on_until_the_first_window_is_there(right):
    """As much of it as is left is verified, where the text has gone on as proposed."""
    model, ready = zoo.tiny("qwen3"), threading.Event()
    wanted = plain(model, count=40)
    text = PROMPT + wanted

    def proposed(context):
        ready.wait(20)
        at = len(context)
        return text[at] if at < len(text) and (right or at > len(PROMPT)) else 0

    impatient, draft = Impatient(1), ScriptedDraft(proposed)
    with whimsical(Engine(model, draft=draft, draft_timeout=30.0), impatient) as engine:
        found = []
        for response in engine.stream(PROMPT, 40):
            found.append(response.token)
            if len(found) == 3:
                ready.set()
        steps = engine.trace.steps
    assert found == wanted
    assert [step.mode for step in steps[:3]] == ["ar"] * 3
    first = next(step for step in steps if step.mode != "ar")
    assert (first.window.source == "rest") == right
    if right:
        assert len(first.window.tokens) == first.outcome.accepted == 30 - first.step


class Patient(Impatient):
    """Waits for the first window."""

    def waits(self, setting):
        return None


def test_waiting_for_a_window_is_part_of_the_step_and_not_of_verifying():
    def late(context):
        time.sleep(0.3)
        return 0

    model, patient = zoo.tiny("qwen3"), Patient(1)
    with whimsical(Engine(model, draft=ScriptedDraft(late), draft_timeout=30.0), patient) as engine:
        said(engine, count=4)
        first, step = patient.facts[0], engine.trace.steps[0]
    assert first.opening
    assert first.length > 0
    assert 300 < first.waited < first.whole
    assert first.target + first.waited <= first.whole
    assert first.target == pytest.approx((step.busy - step.waited) / 1e6)


class Plainly(Whim):
    """Stretches that are longer than requests."""

    def ask(self):
        return Ask(Setting(), 1000, self._setting())

    def plained(self, fact):
        self.facts.append(fact.count)

    def probed(self, fact):
        self.facts.append("probed")

    def stretched(self):
        self.facts.append("stretched")


def test_a_request_that_ends_amid_a_stretch_says_what_it_took():
    model = zoo.tiny("qwen3")
    plainly = Plainly(1, exits=[1])
    with whimsical(Engine(model, draft=AutoregressiveDraft(zoo.tiny("qwen3", seed=1))), plainly) as engine:
        for _ in range(3):
            assert said(engine, count=30) == plain(model, count=30)
    assert "stretched" not in plainly.facts
    assert sum(fact for fact in plainly.facts if fact != "probed") > 3 * 20


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_windows_of_which_the_draft_is_unsure_end_early(temperature):
    class Stops(Fixed):
        def stop(self, setting):
            return Stop(lambda sure: sure, [0.0, 0.05, 0.05, 0.05, 0.05, 0.0])

    model, sampling = zoo.tiny("qwen3"), Sampling(temperature=temperature, seed=3)
    draft, policy = AutoregressiveDraft(zoo.tiny("qwen3", seed=1)), Stops(Setting("sd", 5, 5))
    with whimsical(Engine(model, draft=draft, mode="sd"), policy) as engine:
        assert said(engine, sampling) == plain(model, sampling)
        windows = [step.window for step in engine.trace.steps[1:-3]]
    lengths = Counter(len(window.tokens) for window in windows)
    assert lengths[5] < sum(lengths.values())
    for window in windows:
        alive = list(accumulate(window.confidences, mul))
        assert all(share >= 0.05 for share in alive[:-1]), "what is unlikely to hold is not gone on with"
