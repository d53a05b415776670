"""The methods of SpecBench on tiny models: mlx-lm's, unchanged, and this runtime's beside them."""

import shutil
import time
from itertools import pairwise

import mlx.core as mx
import models
import pytest
import streams
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model
from test_streaming_model import write

from mirror_mlx import loading
from mirror_mlx.bench import spec_methods
from mirror_mlx.bench.lab import Cores
from mirror_mlx.bench.peers import MlxSpeculation, PacedModel, Plain, view
from mirror_mlx.bench.spec_lab import Folders, lab_of
from mirror_mlx.bench.spec_parts import Parts, where
from mirror_mlx.draft import AutoregressiveDraft
from mirror_mlx.engine import Engine
from mirror_mlx.errors import UsageError
from mirror_mlx.interpose import interpose
from mirror_mlx.messages import Outcome, Window
from mirror_mlx.sampling import Sampling
from mirror_mlx.target import Target
from mirror_mlx.trace import StepTrace, Trace

PROMPT = [70, 71, 72, 73, 74, 75]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    models.save_tiny(folder / "target", seed=3)
    write(streams.tiny(), folder / "draft")
    shutil.copytree(folder / "target", folder / "draft-ar")
    return folder


@pytest.fixture(scope="module")
def target(pair):
    return load_model(pair / "target")[0]


@pytest.fixture(scope="module")
def tokenizer(pair):
    return loading.load_tokenizer(pair / "target")


@pytest.fixture(scope="module")
def lab(pair):
    folders = Folders.of(str(pair), ar=str(pair / "draft-ar"))
    return lab_of(folders, {"num_draft_tokens": 3, "kappa": 2, "max_roots": 6}, Cores())


def said(method, prompt=PROMPT, limit=24, sampling=Sampling()):
    return list(method.stream(prompt, limit, sampling)), method.account()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_plain_decoding_is_the_runtimes(target, tokenizer, temperature):
    sampling = Sampling(temperature=temperature, seed=5)
    tokens, account = said(Plain(target, tokenizer), sampling=sampling)
    with Engine(target, tokenizer, mode="ar") as engine:
        wanted = [response.token for response in engine.stream(PROMPT, 24, sampling)]
    assert tokens[: len(wanted)] == wanted  # it does not stop by itself: the harness does that
    assert account.steps == [1] * len(tokens)


def test_mlx_lms_steps_are_told_apart(target, tokenizer):
    """Its draft is the target: all proposals hold, and the last step is as long as there is room."""
    tokens, account = said(MlxSpeculation("mlx-sd@4", target, view(target), tokenizer, 4, 0.0))
    assert tokens == said(Plain(target, tokenizer))[0]
    assert account.steps == [5, 5, 5, 5, 4]
    other = MlxSpeculation("mlx-sd@4", target, streams_like(target), tokenizer, 4, 0.0)
    tokens, account = said(other)
    assert tokens == said(Plain(target, tokenizer))[0]
    assert sum(account.steps) == 24
    assert len(account.steps) > 5
    sampled = [said(other, sampling=Sampling(1.0, seed=2))[0] for _ in range(2)]
    assert sampled[0] == sampled[1]


def streams_like(model):
    """The same architecture with other weights."""
    other = view(model)
    mx.random.seed(9)
    other.load_weights([(name, mx.random.normal(a.shape)) for name, a in tree_flatten(other.parameters())])
    return other


def test_every_pass_of_a_paced_draft_takes_its_time(target, tokenizer):
    passes = []

    class Watched:
        layers = target.layers

        def __call__(self, tokens, cache=None):
            passes.append((time.perf_counter(), tokens.shape[1]))
            return target(tokens, cache=cache)

    began = time.perf_counter()
    tokens, account = said(MlxSpeculation("mlx-sd@2", view(target), Watched(), tokenizer, 2, 5e-3), limit=6)
    took = time.perf_counter() - began
    assert [rows for _, rows in passes] == [5, 1, 1, 2, 1]  # the prompt, and two for each window
    assert account.steps == [3, 3]
    assert took > len(passes) * 5e-3
    times = [moment for moment, _ in passes]
    assert min(b - a for a, b in pairwise(times)) > 5e-3
    assert tokens == said(Plain(target, tokenizer), limit=6)[0]
    assert PacedModel(target, None).layers is target.layers


def test_a_view_shares_weights_and_nothing_else(target):
    one, other = view(target), view(target)
    arrays = [dict(tree_flatten(model.parameters())) for model in (target, one, other)]
    assert all(arrays[0][name] is arrays[1][name] is arrays[2][name] for name in arrays[0])
    calls = []
    interpose(one.layers[0], lambda module, call, *args, **kwargs: (calls.append(1), call(*args, **kwargs))[1])
    tokens = mx.array([[1, 2]])
    assert mx.array_equal(one(tokens), other(tokens))
    assert calls == [1]
    assert type(other.layers[0]) is type(target.layers[0])


def test_all_methods_say_what_plain_says(lab):
    names = [name for name in spec_methods.TABLE if name != "rest"]
    methods, left_out = spec_methods.make(spec_methods.chosen(None), lab)
    assert list(left_out) == ["rest"]
    assert [method.name for method in methods] == names
    try:
        for sampling in (Sampling(), Sampling(1.0, seed=4)):
            wanted = said(methods[0], sampling=sampling)[0]
            for method in methods:
                if not (method.own_noise and sampling.temperature):
                    method.empty(PROMPT)
                    tokens, account = said(method, sampling=sampling)
                    assert tokens == wanted[: len(tokens)], method.name
                    assert sum(account.steps) == len(tokens)
                    assert (account.predicted is not None) == method.name.startswith(("sag", "mir", "hyb", "auto"))
                    assert not account.reason
    finally:
        spec_methods.close(methods)


def test_nothing_is_reused_between_answers(lab, monkeypatch):
    reused, drafted = [], []
    prefill, draft_prefill = Target.prefill, AutoregressiveDraft.prefill
    monkeypatch.setattr(Target, "prefill", lambda *a: reused.append(prefill(*a)) or reused[-1])
    monkeypatch.setattr(AutoregressiveDraft, "prefill", lambda s, t: (drafted.append(len(t)), draft_prefill(s, t)))
    for name in ("hybrid-ar", "sd-ar"):
        (method,), _ = spec_methods.make([name], lab)
        reused.clear()
        drafted.clear()
        try:
            for _ in range(3):
                method.empty(PROMPT)
                said(method)
        finally:
            method.close()
        assert reused == [0] * 6, name
        assert drafted == [len(PROMPT) - 2] * 3, name  # the last but one is glued, for the first window


def test_recycling_forgets_between_runs(lab):
    (method,), _ = spec_methods.make(["recycle"], lab)
    try:
        steps = []
        for fresh in (True, False, True):
            if fresh:
                method.fresh()
            method.empty(PROMPT)
            steps.append(len(said(method)[1].steps))
        assert steps[0] == steps[2] > steps[1]
    finally:
        method.close()


def test_adaptive_windows_may_be_longer(lab):
    (method,), _ = spec_methods.make(["sd-ar-adaptive"], lab)
    try:
        assert max(said(method, limit=40)[1].steps) > 4  # the draft is the target; other windows hold 3
    finally:
        method.close()


@pytest.mark.parametrize(("mode", "draft", "fallback"), [("mirror", 2, 5), ("sd", 7, 0)])
def test_where_a_steps_time_went(mode, draft, fallback):
    trace = Trace()
    for step, (start, source, waited) in enumerate(((0, "hit", 2), (20, "jit", 5), (40, "none", 0))):
        trace.add("target", "verify", step, start * 10**6, (start + 10) * 10**6)
        trace.steps.append(StepTrace(step, Window(), Outcome(0, 1), 1, source, 12 * 10**6, waited * 10**6, mode=mode))
    trace.steps[-1].mode = "ar"

    class Inner:
        eager = True

        def begin(self, prefix, tap, tokens):
            pass

        def proceed(self, tokens):
            pass

        def finish(self, suffix, tokens):
            pass

    parts = Parts(Inner())
    parts.prefix, parts.tap, parts.suffix = 12 * 10**6, 2 * 10**6, 4 * 10**6
    found = where(trace, parts)  # the third step is a plain one: its verification counts whole
    assert found == {"prefix": 12, "tap": 2, "verify": 14, "draft": draft, "fallback": fallback, "rest": 52 - 35}
    assert where(Trace(), parts) == {}


def test_names_and_folders(pair, tmp_path):
    assert spec_methods.chosen(["sd-ar"]) == ["plain", "sd-ar"]
    assert spec_methods.chosen(["sd-ar", "mlx-sd@11", "mlx-sd@4", "plain"]) == [
        "plain",
        "mlx-sd@4",
        "mlx-sd@11",
        "sd-ar",
    ]
    assert spec_methods.chosen(None) == list(spec_methods.TABLE)
    assert spec_methods.recipe("mlx-sd@11").length == 11
    with pytest.raises(UsageError, match="choose from plain"):
        spec_methods.chosen(["nonsense-of-any-kind"])
    found = Folders.of(str(pair))
    assert (found.ar.name, found.stream.name, found.target.name) == ("draft", "draft", "target")  # one for all
    alone = Folders.of(str(pair / "target"), ar=str(pair / "draft-ar"))
    assert (alone.ar, alone.stream) == (pair / "draft-ar", None)
    main_stream = Folders.of(str(pair), ar=str(pair / "draft"))
    assert main_stream.ar == main_stream.stream == pair / "draft"
