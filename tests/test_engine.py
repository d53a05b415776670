"""The composing call: for any draft, predictor and fallback the output is plain decoding's."""

import gc
import json
import random
import threading
import time
import weakref

import mlx.core as mx
import pytest
import zoo
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror_mlx import Engine, Sampling
from mirror_mlx.draft import AutoregressiveDraft, ScriptedDraft
from mirror_mlx.draft.wrapped import Wrapped
from mirror_mlx.errors import DraftError, PromptError, UsageError
from mirror_mlx.rendezvous import Rendezvous
from mirror_mlx.target import Target
from mirror_mlx.target.submission import Whole

PROMPT = [(i * 37 + 5) % zoo.VOCAB for i in range(12)]
MODEL = zoo.tiny("qwen3")
GREEDY = Sampling()
OTHER = zoo.tiny("qwen3", seed=1)


def decode(model=MODEL, draft=None, prompt=PROMPT, count=30, sampling=GREEDY, **options):
    with Engine(model, None, draft, **options) as engine:
        responses = list(engine.stream(prompt, max_tokens=count, sampling=sampling))
        return [response.token for response in responses], engine.stats, responses


def rows_cost(monkeypatch, ms=3.0):
    """As where compute is the limit: verifying a proposal is no cheaper than decoding a token."""
    begin = Target.begin

    def slower(self, pending, window, *args, **kwargs):
        time.sleep(ms / 1e3 * len(window))
        return begin(self, pending, window, *args, **kwargs)

    monkeypatch.setattr(Target, "begin", slower)


def scripted(expected, right, seed=0):
    """Proposes the right token with probability `right`, else anything, inside the vocabulary or not."""
    rng = random.Random(seed)

    def fn(context):
        place = len(context) - len(PROMPT)
        if 0 <= place < len(expected) and rng.random() < right:
            return expected[place]
        return rng.choice([rng.randrange(zoo.VOCAB), zoo.VOCAB, -1, 10**12])

    return ScriptedDraft(fn)


@given(
    mode=st.sampled_from(["mirror", "mirror", "sd", "auto"]),
    predictor=st.sampled_from(["tap", "draft", "hybrid"]),
    fallback=st.sampled_from(["jit", "empty", "lookup", "recycle", "lookahead"]),
    adaptive=st.booleans(),
    gamma=st.sampled_from([1, 2, 3, 7, 12]),
    kappa=st.sampled_from([1, 4, 8]),
    roots=st.sampled_from([1, 5, 64]),
    temperature=st.sampled_from([0.0, 0.7, 1.0]),
    draft=st.sampled_from(["same", "other", "right", "wrong", "half"]),
    whole=st.booleans(),
    count=st.integers(1, 24),
)
@settings(max_examples=60)
def test_every_combination_equals_plain_decoding(
    mode, predictor, fallback, adaptive, gamma, kappa, roots, temperature, draft, whole, count
):
    sampling = Sampling(temperature=temperature, seed=gamma)
    expected, _, _ = decode(mode="ar", sampling=sampling, count=count)
    made = {
        "same": lambda: AutoregressiveDraft(MODEL),
        "other": lambda: AutoregressiveDraft(OTHER),
        "right": lambda: scripted(expected, 1.0),
        "wrong": lambda: scripted(expected, 0.0),
        "half": lambda: scripted(expected, 0.6),
    }[draft]()
    given_tokens, stats, _ = decode(
        draft=made, mode=mode, predictor=predictor, fallback=fallback, adaptive=adaptive, num_draft_tokens=gamma,
        kappa=kappa, max_roots=roots, sampling=sampling, count=count, submission=Whole() if whole else None,
    )  # fmt: skip
    assert given_tokens == expected
    assert stats.tokens == count
    assert stats.reason == ""


def test_who_waits_for_the_tap_begins_to_before_the_rest_is_submitted(monkeypatch):
    """On a GPU that takes until most of it has been computed."""
    seen = []

    class Watched(Whole):
        def begin(self, prefix, tap, tokens):
            super().begin(prefix, tap, tokens)
            seen.append("tap" if tap else "all")

        def proceed(self, tokens):
            super().proceed(tokens)
            seen.append("rest")

        def finish(self, suffix, tokens):
            super().finish(suffix, tokens)
            seen.append("done")

    told = Rendezvous.roots
    monkeypatch.setattr(Rendezvous, "roots", lambda *of: (told(*of), seen.append("told")))
    for predictor, order in (("tap", ["tap", "told", "rest", "done"]), ("draft", ["rest", "all", "rest", "done"])):
        seen.clear()
        decode(draft=AutoregressiveDraft(MODEL), count=12, predictor=predictor, submission=Watched())
        assert len(seen) > 4
        assert seen == order * (len(seen) // 4)


def test_a_perfect_draft_fills_every_window():
    expected, _, _ = decode(mode="ar", count=40)
    given_tokens, stats, _ = decode(draft=scripted(expected, 1.0), count=40, num_draft_tokens=4)
    assert given_tokens == expected
    assert stats.steps == 8  # five a step, from the first on: its window is drafted beside the prefill
    assert stats.hit_rate > 0.5


def test_text_is_mlx_lms_response_with_an_origin():
    expected, _, _ = decode(mode="ar", count=12)
    _, _, responses = decode(draft=scripted(expected, 1.0), count=12, num_draft_tokens=3)
    assert [r.origin for r in responses[:6]] == ["draft", "draft", "draft", "target", "draft", "draft"]
    assert all(r.from_draft == (r.origin == "draft") for r in responses)
    assert [r.generation_tokens for r in responses] == list(range(1, 13))
    assert [r.finish_reason for r in responses] == [None] * 11 + ["length"]
    assert responses[0].prompt_tokens == len(PROMPT)
    for response in responses[:4]:
        assert mx.argmax(response.logprobs).item() == response.token
        assert mx.exp(response.logprobs).sum().item() == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("mode", ["mirror", "sd"])
def test_a_stop_token_ends_the_text_and_later_requests_stay_exact(mode):
    expected, _, _ = decode(mode="ar", count=30)
    with Engine(MODEL, None, scripted(expected, 1.0), mode=mode, num_draft_tokens=5) as engine:
        engine._eos = {expected[9]}
        first = expected.index(expected[9])
        responses = list(engine.stream(PROMPT, max_tokens=30))
        assert [r.token for r in responses] == expected[: first + 1]
        assert responses[-1].finish_reason == "stop"
        windows = [step.window.tokens for step in engine.trace.steps]
        assert windows[-1][-1] == expected[9]
        assert not any(expected[9] in window[:-1] for window in windows)
        engine._eos = set()
        again = [r.token for r in engine.stream(PROMPT, max_tokens=30)]
        assert again == expected


def test_a_conversation_reuses_the_cache_and_stays_exact():
    prompt = list(PROMPT)
    with Engine(MODEL, None, AutoregressiveDraft(OTHER), num_draft_tokens=3) as engine:
        for turn in range(4):
            expected, _, _ = decode(mode="ar", prompt=prompt, count=10)
            assert [r.token for r in engine.stream(prompt, max_tokens=10)] == expected
            prompt = [*prompt, *expected, turn + 1, 2]
        prompt = prompt[:8]
        expected, _, _ = decode(mode="ar", prompt=prompt, count=10)
        assert [r.token for r in engine.stream(prompt, max_tokens=10)] == expected


def test_an_abandoned_generator_leaves_the_engine_usable():
    expected, _, _ = decode(mode="ar", count=20)
    with Engine(MODEL, None, AutoregressiveDraft(OTHER)) as engine:
        for stop_after in (1, 2, 7):
            stream = engine.stream(PROMPT, max_tokens=20)
            taken = [next(stream).token for _ in range(stop_after)]
            assert taken == expected[:stop_after]
            if stop_after == 7:
                with pytest.raises(UsageError, match="another request"):
                    next(engine.stream(PROMPT))
            stream.close()
            assert engine.stats.tokens == stop_after
        assert [r.token for r in engine.stream(PROMPT, max_tokens=20)] == expected


def test_an_interrupt_while_decoding_leaves_the_engine_usable(monkeypatch):
    expected, _, _ = decode(mode="ar", count=20)
    with Engine(MODEL, None, AutoregressiveDraft(OTHER)) as engine:
        finish, calls = engine.target.finish, []

        def interrupted():
            calls.append(1)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return finish()

        monkeypatch.setattr(engine.target, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(engine.stream(PROMPT, max_tokens=20))
        assert [r.token for r in engine.stream(PROMPT, max_tokens=20)] == expected


def test_an_engine_that_is_dropped_takes_its_thread_along():
    engine = Engine(MODEL, None, AutoregressiveDraft(OTHER))
    next(engine.stream(PROMPT))
    assert any(thread.name == "mirror-draft" for thread in threading.enumerate())
    gone = weakref.ref(engine)
    del engine
    gc.collect()
    assert gone() is None
    assert type(MODEL.layers[0]).__module__.startswith("mlx_lm.")


def test_the_timeline_is_written_where_it_is_wanted(tmp_path):
    decode(draft=AutoregressiveDraft(OTHER), trace=tmp_path / "run.json")
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    assert {"verify", "glue", "pass"} <= {event["name"] for event in events}


def test_without_a_draft_it_decodes_plainly_and_says_so():
    _, stats, _ = decode()
    assert (stats.mode, stats.reason) == ("ar", "there is no draft")


def test_auto_does_without_a_draft_of_which_nothing_is_accepted(monkeypatch):
    rows_cost(monkeypatch)
    said, stats, _ = decode(draft=ScriptedDraft(lambda context: 0), mode="auto", count=200)
    assert said == decode(mode="ar", count=200)[0]
    assert stats.tokens_by_mode["ar"] > 150


def test_the_prompt_must_fit_and_must_not_be_empty():
    with Engine(MODEL) as engine:
        longest = engine.target.context_length
        with pytest.raises(PromptError, match=rf"{longest + 1} tokens and the model's context is {longest}"):
            engine.stream([1] * (longest + 1))
        with pytest.raises(PromptError, match="empty"):
            engine.stream([])
        with pytest.raises(PromptError, match="outside the model's vocabulary"):
            engine.stream([zoo.VOCAB])
        with pytest.raises(UsageError, match="no tokenizer"):
            engine.stream("hello")
        with pytest.raises(UsageError, match="max_tokens is 0"):
            engine.stream([1], max_tokens=0)
        full = list(engine.stream([1] * (longest - 3), max_tokens=-1))
        assert len(full) == 3
        assert full[-1].finish_reason == "length"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_draft_tokens": 0}, "num_draft_tokens is 0"),
        ({"num_draft_tokens": 1000}, "1 … 128"),
        ({"kappa": 0}, "kappa is 0"),
        ({"kappa": zoo.VOCAB + 1}, f"only {zoo.VOCAB} tokens"),
        ({"exit_layer": 77}, "exit_layer is 77"),
        ({"mode": "fast"}, "choose from auto, mirror, sd, ar"),
        ({"predictor": "oracle"}, "choose from tap, draft, hybrid"),
        ({"fallback": "pray"}, "choose from jit, empty"),
        ({"accept": "maybe"}, "accept is 'maybe'"),
        ({"gamma": 3}, "no option 'gamma'"),
        ({"streams": -1}, "streams is -1"),
        ({"stream_mode": "blind"}, "choose from trust, exact"),
        ({"draft_timeout": 0}, "draft_timeout is 0"),
        ({"kv_bits": 4, "max_kv_size": 16}, "exclude each other"),
        ({"kv_bits": 5, "kv_group_size": 7}, "cannot be used with this model"),
    ],
)
def test_options_out_of_range_are_one_line(options, message):
    classes = [type(layer) for layer in MODEL.layers]
    with pytest.raises(UsageError, match=message) as caught:
        Engine(MODEL, **options)
    assert "\n" not in str(caught.value)
    assert [type(layer) for layer in MODEL.layers] == classes


def test_something_that_is_no_draft_is_refused():
    with pytest.raises(DraftError, match="AutoregressiveDraft"):
        Engine(MODEL, None, OTHER)


@pytest.mark.parametrize("mode", ["mirror", "sd"])
@pytest.mark.parametrize("length", [1, 2, 3, len(PROMPT)])
def test_the_first_window_is_drafted_beside_the_prefill(mode, length):
    prompt = PROMPT[:length]
    expected, _, _ = decode(mode="ar", prompt=prompt, count=9)
    draft = ScriptedDraft(lambda context: expected[min(len(context) - length, 8)] if len(context) >= length else 0)
    given_tokens, stats, _ = decode(draft=draft, mode=mode, prompt=prompt, count=9, num_draft_tokens=8)
    assert given_tokens == expected
    assert stats.steps == (1 if length > 1 else 2)  # of one token no row is left for the draft to begin with


def test_a_draft_that_must_not_be_waited_for_does_not_open():
    expected, _, _ = decode(mode="ar", count=9)
    for fallback in ("empty", "lookup"):
        with Engine(MODEL, None, scripted(expected, 1.0), num_draft_tokens=4, fallback=fallback) as engine:
            tokens = [r.token for r in engine.stream(PROMPT, max_tokens=9)]
        assert tokens == expected
        assert engine.trace.steps[0].window.source in ("empty", "none", "lookup")


class Wide(Wrapped):
    """A pass over several branches takes much longer than over one, and than the target does."""

    def __init__(self, draft):
        super().__init__(draft)
        self.widths = []

    def advance(self, keys):
        self.widths.append(len(keys))
        time.sleep(0.03 if len(keys) > 1 else 0.001)
        return super().advance(keys)


@pytest.mark.parametrize("times", [True, False])
def test_a_draft_soon_begins_no_pass_that_keeps_the_target_waiting(times, monkeypatch):
    expected, draft = decode(count=120)[0], Wide(AutoregressiveDraft(MODEL))
    rows_cost(monkeypatch, 5.0)
    with Engine(MODEL, None, draft, mode="mirror", predictor="draft", num_draft_tokens=2) as engine:
        engine.times = engine.times if times else None
        assert [r.token for r in engine.stream(PROMPT, 120, GREEDY)] == expected
        steps = sum(step.mode == "mirror" for step in engine.trace.steps)
    wide = sum(width > 1 for width in draft.widths[len(draft.widths) // 2 :])
    assert (wide > steps / 4) == (not times), (steps, draft.widths)


@pytest.mark.parametrize("fallback", ["jit", "empty"])
def test_where_nothing_is_drafted_late_every_pass_is_worth_beginning(fallback, monkeypatch):
    plans, start = [], Rendezvous.start
    monkeypatch.setattr(Rendezvous, "start", lambda *args: plans.append(args[2]) or start(*args))
    decode(draft=AutoregressiveDraft(MODEL), mode="mirror", num_draft_tokens=2, fallback=fallback)
    assert all(plan.due is None for plan in plans) == (fallback == "empty")


def test_a_short_limit_shortens_the_first_window():
    for count in (1, 2, 3):
        expected, _, _ = decode(mode="ar", count=count)
        given_tokens, stats, _ = decode(draft=scripted(expected, 1.0), count=count, num_draft_tokens=8)
        assert given_tokens == expected
        assert stats.drafted == count - 1
