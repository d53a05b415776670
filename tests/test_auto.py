"""Mode "auto" in the engine: whatever is decided, when and how often, the tokens are plain decoding's."""

import json
import random
import resource
import threading
import time
from collections import Counter
from itertools import accumulate, pairwise
from operator import mul

import mlx.core as mx
import pytest
import streams
import zoo
from hypothesis import given, settings
from hypothesis import strategies as st

import mirror_mlx
from mirror_mlx import auto
from mirror_mlx.bench.choices import Nameless
from mirror_mlx.bench.hostile import KINDS, hostile
from mirror_mlx.calibration import Found, kept
from mirror_mlx.draft import AutoregressiveDraft, ScriptedDraft, StreamingDraft
from mirror_mlx.draft.hosted import Hosted
from mirror_mlx.draft.streaming import MlxSegments
from mirror_mlx.engine import Engine
from mirror_mlx.lookup import PromptLookup
from mirror_mlx.sampling import Sampling
from mirror_mlx.tuning.costs import Costs, DraftCosts
from mirror_mlx.tuning.curve import Curve
from mirror_mlx.tuning.policy import Account, Ask, Fixed
from mirror_mlx.tuning.stopping import Stop
from mirror_mlx.tuning.throughput import Setting

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
COUNT = 48


def plain(model, sampling=Sampling(), count=COUNT, prompt=PROMPT):
    with Engine(model, mode="ar") as engine:
        return [r.token for r in engine.stream(prompt, count, sampling)]


def said(engine, sampling=Sampling(), count=COUNT, prompt=PROMPT):
    return [r.token for r in engine.stream(prompt, count, sampling)]


class Whim:
    """A policy that decides anything at all."""

    def __init__(self, seed, ways=((0, False),), exits=(1, 2, 3), hosts=("",)):
        self._random = random.Random(seed)
        self._ways, self._exits, self._hosts = ways, exits, hosts
        self.facts, self.answers = [], []

    def _setting(self):
        pick = self._random.choice
        length = self._random.randint(0, 6)
        return Setting(
            pick(["mirror", "mirror", "sd"]), length, self._random.randint(0, length), self._random.randint(1, 12),
            pick(["draft", "tap", "hybrid"]), pick(self._exits), pick(self._ways),
            pick(self._hosts),
        )  # fmt: skip

    def ask(self):
        if self._random.random() < 0.3:
            return Ask(Setting(), self._random.randint(1, 5), self._random.choice([None, self._setting()]))
        return Ask(self._setting())

    def waits(self, setting):
        return self._random.choice([None, 0.0, 0.001])

    def opening(self, prompt):
        assert prompt > 0
        return self._random.choice([None, self._setting()])

    def enough(self, confidences):
        return self._random.randint(0, len(confidences))

    def patience(self, setting):
        return self._random.choice([None, 1.0])

    def stop(self, setting):
        least = [self._random.random() for _ in range(setting.length + 1)]
        return self._random.choice([None, Stop(lambda sure: sure, least)])

    def verified(self, length, accepted, confidences):
        assert accepted <= length

    def stepped(self, fact):
        assert fact.whole > 0
        assert 0 <= fact.accepted <= fact.length
        assert fact.source not in ("hit", "partial") or fact.place is not None, "a hit has been named"
        self.facts.append(fact)

    def plained(self, fact):
        assert fact.tokens >= 0 <= fact.beside
        assert fact.ms >= 0 <= fact.beside_ms

    def probed(self, fact):
        assert fact.accepted <= fact.length
        self.facts.append((fact.length, fact.accepted))

    def stretched(self):
        pass

    def failed(self):
        pass

    def answered(self, tokens):
        self.answers.append(tokens)

    def account(self):
        return Account("a whim")


def whimsical(engine, whim):
    engine._policy = lambda: (whim, "")
    return engine


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


def costs(verify=1.0, one=0.1, plain_ms=1.0):
    draft = DraftCosts(Curve.of({8: one}), Curve.of({1: one, 64: one}))
    return Costs(plain_ms, Curve.of({1: verify, 16: verify}), exits={1: 0.5}, drafts={(0, False): draft})


def told(engine, found):
    """The engine as if it had been calibrated so."""
    found = Found(found, {(0, False): 0.9})
    engine._auto._found = found
    engine._auto._governor = engine._auto._governed(found)
    return engine


def right_draft(model):
    text = PROMPT + plain(model, count=200)
    return ScriptedDraft(lambda context: text[len(context)] if len(context) < len(text) else 0)


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


def test_a_draft_that_names_no_outcomes_works_in_turns(monkeypatch, tmp_path):
    monkeypatch.setenv("MIRROR_MLX_CACHE", str(tmp_path))
    model = zoo.tiny("qwen3")
    draft = Nameless(AutoregressiveDraft(zoo.tiny("qwen3", seed=1)))
    with Engine(model, draft=draft, mode="auto", predictor="draft") as engine:
        engine.calibrate()
        found, reach = engine.calibration
        assert found.costs.drafts
        assert reach.predictors == []
        assert said(engine) == plain(model)


def test_it_speculates_where_that_is_cheap_and_says_so(monkeypatch):
    monkeypatch.setattr(auto, "measure", None)  # nothing is measured
    model = zoo.tiny("qwen3")
    with told(Engine(model, draft=right_draft(model), mode="auto"), costs(verify=5.0, plain_ms=500.0)) as engine:
        assert said(engine, count=100) == plain(model, count=100)
        stats = engine.stats
    assert stats.tokens_by_mode.get("mirror", 0) + stats.tokens_by_mode.get("sd", 0) > 60
    assert stats.gain is not None
    assert any("× plain expected" in line for line in stats.tried)


def test_it_decodes_plainly_where_speculation_costs_too_much():
    model = zoo.tiny("qwen3")
    with told(Engine(model, draft=right_draft(model), mode="auto"), costs(verify=5000.0)) as engine:
        assert said(engine, count=100) == plain(model, count=100)
        assert engine.stats.tokens_by_mode == {"ar": 100}
        assert engine.stats.setting == "plain decoding"


def test_it_moves_a_draft_away_from_a_host_on_which_it_dies():
    class Dies(ScriptedDraft):
        host = "coreml: converted"

        def advance(self, keys):
            raise RuntimeError("the compiler says no")

    model = zoo.tiny("qwen3")
    right = right_draft(model)
    draft = Hosted("coreml", Dies(lambda context: 0), {"mlx": lambda: right})
    with told(Engine(model, draft=draft, mode="auto"), costs(verify=0.1, plain_ms=50.0)) as engine:
        assert said(engine, count=190) == plain(model, count=190)
        stats = engine.stats
    assert stats.draft_host == "mlx"
    assert stats.accepted > 20
    assert any("the draft is moved to mlx" in line for line in stats.tried)


def test_a_draft_that_fails_where_it_belongs_is_calibrated_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("MIRROR_MLX_CACHE", str(tmp_path))

    class Dies(AutoregressiveDraft):
        def advance(self, keys):
            raise RuntimeError("the compiler says no")

    model = zoo.tiny("qwen3")

    def run(elsewhere):
        draft = Hosted("coreml", Dies(zoo.tiny("qwen3", seed=1)), {"mlx": lambda: elsewhere(zoo.tiny("qwen3", seed=1))})
        with Engine(model, draft=draft, mode="auto") as engine:
            engine.calibrate()
            assert said(engine, count=60) == plain(model, count=60)
            return engine.calibration[0], engine._auto._governor.ask().setting.host or engine._auto._governor._here

    for _ in range(2):  # measured, then read
        found, here = run(AutoregressiveDraft)
        assert (found.refusal, found.host, here) == ("", "mlx", "mlx")
        assert found.costs.drafts
    for file in (tmp_path / "calibration").iterdir():
        file.unlink()
    found, here = run(Dies)
    assert "the compiler says no" in found.refusal
    assert (found.host, here) == ("", "coreml")


def test_a_calibration_that_no_longer_holds_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("MIRROR_MLX_CACHE", str(tmp_path))
    model = zoo.tiny("qwen3")
    with Engine(model, draft=AutoregressiveDraft(zoo.tiny("qwen3", seed=1)), mode="auto") as engine:
        engine.calibrate()
        (file,) = (tmp_path / "calibration").iterdir()
        engine._auto._governor._observed._plain.value = 0.9
        engine.close()
        assert file.exists()
        engine._auto._governor._observed._plain.value = 0.5  # twice as fast as when it was calibrated
    assert not file.exists()


def test_a_calibration_is_kept_and_a_damaged_one_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("MIRROR_MLX_CACHE", str(tmp_path))
    model, calls, measure = zoo.tiny("qwen3"), [], auto.measure
    monkeypatch.setattr(auto, "measure", lambda *args, **kwargs: calls.append(1) or measure(*args, **kwargs))

    def run(seed=1):
        with Engine(model, draft=AutoregressiveDraft(zoo.tiny("qwen3", seed=seed)), mode="auto") as engine:
            shares = []
            engine.calibrate(shares.append)
            return engine.calibration[0], shares

    found, shares = run()
    assert shares
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert found.costs.plain > 0
    assert found.costs.verify.at(8) > 0
    assert found.costs.drafts[0, False].one.at(1) > 0
    assert not found.refusal
    files = list((tmp_path / "calibration").iterdir())
    assert len(files) == 1
    assert run()[0] == found
    assert len(calls) == 1
    run(seed=2)
    assert len(calls) == 2  # another draft
    files[0].write_text(files[0].read_text()[:40])
    run()
    assert len(calls) == 3
    assert kept.read(files[0]) is not None


def test_calibrating_leaves_no_trace_in_what_is_said():
    for kind in ("qwen3", "gemma3_text", "mamba2"):
        model = zoo.tiny(kind)
        with Engine(model, draft=AutoregressiveDraft(zoo.tiny(kind, seed=1)), mode="auto") as engine:
            assert said(engine) == plain(model)
            assert said(engine) == plain(model)


@pytest.mark.parametrize(("branches", "reason"), [(1, "no window within"), (2, "passes take more than")])
def test_a_draft_that_never_answers_is_calibrated_away(monkeypatch, branches, reason):
    monkeypatch.setattr("mirror_mlx.calibration.drafting._PATIENCE", 0.05)
    stop = threading.Event()

    class Hangs(ScriptedDraft):
        def advance(self, keys):
            if len(keys) >= branches:
                stop.wait(5)
            return super().advance(keys)

    model = zoo.tiny("qwen3")
    with Engine(model, draft=Hangs(lambda context: 0), mode="auto", draft_timeout=0.2) as engine:
        text = said(engine)
        stop.set()
        assert text == plain(model)
        assert engine.stats.tokens_by_mode == {"ar": COUNT}
        assert reason in engine.stats.reason


def test_the_file_says_what_was_measured(tmp_path):
    found = Found(costs(), {(0, False): 0.5, (2, True): 0.25}, names=False, refusal="no")
    assert Found.from_dict(json.loads(json.dumps(found.as_dict()))) == found


def test_auto_without_a_draft_is_plain_decoding():
    model = zoo.tiny("qwen3")
    with Engine(model, mode="auto") as engine:
        assert said(engine) == plain(model)
        assert (engine.stats.mode, engine.stats.reason) == ("ar", "there is no draft")
        with pytest.raises(mirror_mlx.errors.UsageError, match="nothing to choose from"):
            _ = engine.calibration


def test_models_are_told_apart():
    one, same, other = zoo.tiny("qwen3"), zoo.tiny("qwen3"), zoo.tiny("qwen3", seed=1)
    assert kept.identity(one) == kept.identity(same) != kept.identity(other)
    assert mx.default_device() is not None


def _never_right():
    """A draft that is best left alone."""
    return Engine(zoo.tiny("qwen3"), draft=AutoregressiveDraft(zoo.tiny("qwen3", seed=1)), mode="auto")


def _right_at_times():
    """A draft that takes no time, and is right wherever nothing is sampled."""
    model = zoo.tiny("qwen3")
    text = [*PROMPT, *plain(model, count=200), *PROMPT]
    return Engine(model, draft=ScriptedDraft(lambda context: text[len(context)]), mode="auto")


@pytest.mark.slow
@pytest.mark.parametrize(("opened", "modes"), [(_never_right, {"ar"}), (_right_at_times, {"ar", "sd"})])
def test_a_hundred_thousand_tokens_leave_nothing_behind(opened, modes):
    """pytest -m slow -s tests/test_auto.py: tokens, and MB in use after each tenth. Ten minutes."""
    before, used, tokens, seen, number = threading.active_count(), [], 0, Counter(), 0
    with opened() as engine:
        while tokens < 100_000:
            number += 1
            tokens += len(said(engine, Sampling(temperature=number % 3 / 2, seed=number), 200))
            seen.update(engine.stats.tokens_by_mode)
            if tokens // 10_000 > len(used):
                used.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
                print(tokens, f"{used[-1]:.0f} MB", threading.active_count(), dict(seen))
    assert threading.active_count() == before
    assert modes <= seen.keys()
    assert used[-1] < used[1] + 4
