"""Mode "auto" in the engine: what is measured, chosen, kept and left behind."""

import json
import resource
import threading
import time
from collections import Counter

import mlx.core as mx
import pytest
import zoo
from whims import COUNT, PROMPT, plain, said

import mirror_mlx
from mirror_mlx import auto
from mirror_mlx.bench.choices import Nameless
from mirror_mlx.bench.lab import PacedTarget
from mirror_mlx.calibration import Found, kept
from mirror_mlx.draft import AutoregressiveDraft, ScriptedDraft
from mirror_mlx.draft.hosted import Hosted
from mirror_mlx.engine import Engine
from mirror_mlx.lookup import PromptLookup
from mirror_mlx.sampling import Sampling
from mirror_mlx.target.submission import LayerByLayer
from mirror_mlx.tuning.costs import Costs, DraftCosts
from mirror_mlx.tuning.curve import Curve
from mirror_mlx.tuning.governor import Governor
from mirror_mlx.tuning.policy import Fixed


def costs(verify=1.0, one=0.1, plain_ms=1.0):
    draft = DraftCosts(Curve.of({8: one}), Curve.of({1: one, 64: one}))
    return Costs(plain_ms, Curve.of({1: verify, 16: verify}), exits={1: 0.5}, drafts={(0, False): draft})


def told(engine, found, holds=0.9):
    """The engine as if it had been calibrated so."""
    found = Found(found, {(0, False): holds})
    engine._auto._found = found
    engine._auto._governor = engine._auto._governed(found)
    return engine


def right_draft(model):
    text = PROMPT + plain(model, count=200)
    return ScriptedDraft(lambda context: text[len(context)] if len(context) < len(text) else 0)


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


def test_a_draft_that_is_wrong_is_left_out_where_the_text_repeats_itself(monkeypatch):
    monkeypatch.setattr(auto, "measure", None)  # nothing is measured
    model = zoo.tiny("qwen3")
    answer, asked = plain(model, count=100), []

    class Right(PromptLookup):
        def propose(self, length):
            done = len(self._text) - len(PROMPT)
            return answer[done : done + length]

    draft = ScriptedDraft(lambda context: asked.append(context) or 0)
    with told(Engine(model, draft=draft, mode="auto"), costs(verify=5.0, plain_ms=5.0), holds=0.05) as engine:
        engine._proposer = Right()
        assert said(engine, count=100) == answer
        assert engine.stats.tokens_by_mode["sd"] > 60
        assert "without the draft" in engine.stats.setting
    assert len(asked) < 40


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
    slow = PacedTarget(LayerByLayer(), 0.02, len(model.layers))
    with told(Engine(model, draft=draft, mode="auto", submission=slow), costs(verify=20.0, plain_ms=20.0)) as engine:
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
    assert 0 < found.costs.exchange < 50, "hand-overs between threads take some time"
    assert 0 < found.costs.starts < 50
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


def _right_beside_a_slow_target():
    """A draft that is always right, whose windows are verified in the time of a token."""
    model = zoo.tiny("qwen3")
    paced = PacedTarget(LayerByLayer(), 0.004, len(model.layers))
    return Engine(model, draft=right_draft(model), mode="auto", submission=paced)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("opened", "temperatures", "modes"),
    [
        (_never_right, (0.0, 0.5, 1.0), {"ar": 50_000}),
        (_right_at_times, (0.0, 0.5, 1.0), {"ar": 1000, "sd": 1}),
        (_right_beside_a_slow_target, (0.0,), {"mirror": 50_000}),
    ],
)
def test_a_hundred_thousand_tokens_leave_nothing_behind(opened, temperatures, modes):
    """pytest -m slow -s tests/test_auto.py: tokens, and MB in use after each tenth. Ten minutes."""
    before, used, tokens, seen, number = threading.active_count(), [], 0, Counter(), 0
    with opened() as engine:
        while tokens < 100_000:
            number += 1
            temperature = temperatures[number % len(temperatures)]
            tokens += len(said(engine, Sampling(temperature=temperature, seed=number), 200))
            seen.update(engine.stats.tokens_by_mode)
            if tokens // 10_000 > len(used):
                used.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
                print(tokens, f"{used[-1]:.0f} MB", threading.active_count(), dict(seen))
    assert threading.active_count() == before
    assert all(seen[mode] >= least for mode, least in modes.items())
    assert used[-1] < used[1] + 4


def test_how_long_is_thought_beside_a_verification_is_told(monkeypatch):
    """Of the next step: that is the one it is thought beside."""
    facts = []

    def stepped(policy, fact):
        facts.append(fact)
        time.sleep(0.004)

    monkeypatch.setattr(Fixed, "stepped", stepped)
    model = zoo.tiny("qwen3")
    with Engine(model, draft=right_draft(model), mode="sd", num_draft_tokens=2) as engine:
        assert said(engine) == plain(model)
    assert len(facts) > 3
    assert facts[0].thought < 1.0
    assert all(4.0 <= fact.thought <= fact.target for fact in facts[1:])


def test_how_long_is_thought_amid_plain_decoding_is_told(monkeypatch):
    """Of the next stretch of it."""
    facts, told = [], Governor.plained

    def plained(policy, fact):
        facts.append(fact)
        told(policy, fact)

    monkeypatch.setattr(Governor, "plained", plained)
    monkeypatch.setattr(Governor, "stretched", lambda policy: time.sleep(0.004))
    model = zoo.tiny("qwen3")
    with _never_right() as engine:
        assert said(engine, Sampling(), 100) == plain(model, count=100)
    assert len(facts) > 3
    assert facts[0].thought == 0.0
    assert all(4.0 <= fact.thought < 100.0 for fact in facts[1:])
