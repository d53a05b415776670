"""Training a draft: what it learns from, what it ends in, and that it goes on where it stood."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
import streams
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model
from models import save_tiny

import mirror_mlx
from mirror_mlx.draft import AutoregressiveDraft, StreamingDraft
from mirror_mlx.draft.streaming import load
from mirror_mlx.errors import DataError, ModelError, UsageError
from mirror_mlx.sampling import Sampler
from mirror_mlx.train import (
    answers,
    checkpoint,
    draft,
    draft_loss,
    draft_model,
    loss,
    metrics,
    policy,
    teacher,
    tokenizer,
)
from mirror_mlx.train.draft import DraftSettings
from mirror_mlx.train.lm import LmSettings


@pytest.fixture
def settings(schooled, tmp_path):
    return DraftSettings(
        data=(str(schooled / "chats.jsonl"),), out=str(tmp_path / "draft"), target=str(schooled / "target"),
        cache=str(schooled / "cache"), batch_size=4, max_seq_length=96, iters=8, warmup=2, max_answer_tokens=24,
        answer_temps=(0.0,), trial_prompts=2, trial_tokens=12, steps_per_report=1, eval_every=100, val_batches=2,
        learning_rate=5e-3,
    )  # fmt: skip


def after(steps):
    asked = iter(range(1, steps + 1))
    return lambda: next(asked) == steps


def losses(settings):
    return [line["loss"] for line in metrics.read(Path(settings.out) / "metrics.jsonl") if "loss" in line]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({}, StreamingDraft),
        ({"streams": 2, "tracks": 2, "head_size": 200, "head_rank": 16, "loss": "kl"}, StreamingDraft),
        ({"streams": 0, "loss": "ce", "answers": "given"}, AutoregressiveDraft),
        ({"streams": 1, "head_size": 150, "loss": "ce"}, StreamingDraft),
    ],
)
def test_a_draft_is_made_that_the_engine_uses(settings, schooled, change, kind):
    settings = dataclasses.replace(settings, iters=30, **change)
    result = draft.train(settings)
    assert result.finished
    assert result.figures["tokens_per_step"] >= 1
    assert 0 <= result.figures["acceptance"] <= 1
    assert losses(settings)[-1] < losses(settings)[0]
    assert sum(name.startswith("stream_") for name in result.figures) == settings.streams
    with mirror_mlx.load(schooled / "target", settings.out, mode="mirror") as engine:
        assert isinstance(engine.draft, kind)
        said = engine.generate("What is 2 + 3?", max_tokens=12)
        assert not engine.stats.reason
    with mirror_mlx.load(schooled / "target", mode="ar") as engine:
        assert engine.generate("What is 2 + 3?", max_tokens=12) == said
    assert "mirror-mlx train draft" in (Path(settings.out) / "README.md").read_text()
    assert (Path(settings.out) / "metrics.png").read_bytes()[:4] == b"\x89PNG"


def test_a_resumed_run_is_the_run_that_was_not_stopped_through_both_stages(settings):
    settings = dataclasses.replace(settings, on_policy=0.5, accumulate=2)
    straight = dataclasses.replace(settings, out=settings.out + "-straight")
    draft.train(straight)
    for steps in (3, 3):  # once in each stage
        draft.train(settings, stop=after(steps), resume=Path(settings.out).exists())
    assert draft.train(settings, resume=True).finished
    assert losses(settings) == losses(straight)
    one, other = (dict(tree_flatten(load(Path(each.out)).parameters())) for each in (settings, straight))
    assert all(mx.array_equal(one[name], other[name]) for name in one)


def test_a_run_killed_without_warning_goes_on_to_the_same_curve(settings, tmp_path):
    settings = dataclasses.replace(settings, iters=30, save_every=2, answers="given", cache=None)
    straight = dataclasses.replace(settings, out=str(tmp_path / "straight"))
    draft.train(straight)
    words = ["train", "draft", "--data", settings.data[0], "--target", settings.target, "--out", settings.out]
    for name in ("batch_size", "max_seq_length", "iters", "warmup", "trial_prompts", "trial_tokens",
                 "steps_per_report", "eval_every", "val_batches", "learning_rate", "save_every", "answers",
                 "max_answer_tokens", "answer_temps"):  # fmt: skip
        value = getattr(settings, name)
        words += ["--" + name.replace("_", "-"), *map(str, value if isinstance(value, tuple) else [value])]
    command = [sys.executable, "-m", "mirror_mlx.cli.main", *words]
    killed = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while not checkpoint.find(Path(settings.out)) and killed.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL, killed.communicate()
    done = subprocess.run([*command, "--resume"], check=False, capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0, done.stderr
    assert "30 steps" in done.stdout
    np.testing.assert_allclose(losses(settings), losses(straight), rtol=1e-5)
    assert not Path(settings.out + ".cache").exists()


def test_a_full_disk_loses_nothing(settings, monkeypatch):
    settings = dataclasses.replace(settings, save_every=2)
    saved, calls = checkpoint.save_weights, []

    def half(path, weights):
        calls.append(path)
        if len(calls) > 4:
            path.write_bytes(b"\x08\0\0\0\0\0\0\0{}      half")
            raise OSError(28, "No space left on device", str(path))
        saved(path, weights)

    monkeypatch.setattr(checkpoint, "save_weights", half)
    with pytest.raises(DataError, match="No space left on device; checkpoint-00000004 is kept, --resume goes on"):
        draft.train(settings)
    monkeypatch.setattr(checkpoint, "save_weights", saved)
    assert draft.train(settings, resume=True).progress.step == 8
    assert len(losses(settings)) == 8


def test_a_file_that_does_not_come_out_whole_is_noticed(tmp_path):
    """MLX's writer does not look: a limit on the file's size stands for the full disk."""
    script = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "import mlx.core as mx\n"
        "from mirror_mlx.train.export import save_weights\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n"
        "    save_weights(Path(sys.argv[1]), {'a': mx.zeros((4096,))})\n"
        "except (OSError, RuntimeError):\n"
        "    sys.exit(7)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "a.safetensors"], capture_output=True, check=False)
    assert done.returncode == 7, done.stderr


def test_what_cannot_be_trained_says_why(settings, schooled, tmp_path):
    def refused(error, match, **change):
        with pytest.raises(error, match=match):
            draft.train(dataclasses.replace(settings, **change))
        assert not Path(settings.out).exists()

    refused(UsageError, "--target is missing", target="")
    refused(ModelError, "--target .* is not a model folder", target=str(tmp_path))
    refused(DataError, "not found", data=("nowhere.jsonl",))
    refused(UsageError, "--loss is 'mse'", loss="mse")
    refused(UsageError, "no draft can be made of this configuration", boundary=9)
    refused(UsageError, "2 tracks cannot share", tracks=2, shape={"num_key_value_heads": 1})
    refused(UsageError, "--init brings its own", init=settings.target, tracks=2)
    refused(UsageError, "--answer-temps", answer_temps=(-1.0,))
    other = save_tiny(tmp_path / "other")
    refused(UsageError, "another tokenizer than the target", init=str(other))
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompt": "a", "completion": "b"}\n{"prompt": 7, "completion": "b"}\n')
    refused(DataError, "bad.jsonl, line 2: prompt must be a string", data=(str(bad),))
    stopped = dataclasses.replace(settings)
    draft.train(stopped, stop=after(1))
    kept = checkpoint.read(checkpoint.find(Path(stopped.out))[-1])[1]
    with pytest.raises(UsageError, match="'train draft', not of 'train lm'"):
        LmSettings.from_json(kept)


def test_a_checkpoint_becomes_a_streaming_draft(settings, schooled):
    settings = dataclasses.replace(settings, init=settings.target, shape={}, boundary=3, learning_rate=1e-9, iters=2)
    draft.train(dataclasses.replace(settings, dtype="float32"))
    dense, _ = load_model(schooled / "target")
    dense.apply(lambda value: value.astype(mx.float32))
    text = mx.array([[5, 9, 12, 7]])
    made = load(Path(settings.out))
    assert made.config.boundary == 3
    assert mx.allclose(made(text), dense(text), atol=1e-3)


def test_answers_are_the_targets_own_and_kept(schooled, tmp_path):
    target, _ = load_model(schooled / "target")
    words = tokenizer.load(schooled / "target")
    asked = [json.loads(line)["messages"] for line in (schooled / "chats.jsonl").read_text().splitlines()[:5]]
    file = tmp_path / "answers.jsonl"
    how = {"max_tokens": 10, "temperatures": (0.0,), "seed": 0}
    told = []
    found = answers.answer([*asked, "text"], target, words, file, progress=lambda *of: told.append(of), **how)
    assert found[-1] == "text"
    assert told[-1] == (6, 6)
    for before, now in zip(asked, found, strict=False):
        assert [m["role"] for m in before] == [m["role"] for m in now]
        assert [m for m in before if m["role"] == "user"] == [m for m in now if m["role"] == "user"]
    with mirror_mlx.load(schooled / "target", mode="ar") as engine:
        said = [r.token for r in engine.stream(found[0][:1], max_tokens=10) if r.finish_reason != "stop"]
    assert words.decode(said) == found[0][1]["content"]
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:3]) + lines[3][:9])  # a crash
    assert answers.answer([*asked, "text"], target, words, file, **how) == found
    with_nobody = answers.answer([*asked, "text"], nn.Module(), words, file, **how)
    assert with_nobody == found


def test_opinions_are_the_targets_best_and_kept(schooled, tmp_path):
    target, _ = load_model(schooled / "target")
    rows = np.random.default_rng(0).integers(0, 300, (7, 12)).astype(np.int32)
    told = []
    found = teacher.opinions(rows, target, tmp_path, batch_size=3, top=9, progress=lambda *of: told.append(of))
    assert told[-1] == (7, 7)
    ids, logprobs = found.of(np.array([5, 0]))
    wanted = nn.log_softmax(target(mx.array(rows[[5, 0], :-1])).astype(mx.float32))
    assert mx.allclose(mx.take_along_axis(wanted, ids, axis=-1), logprobs, atol=1e-2)
    assert mx.array_equal(
        mx.sort(logprobs, axis=-1)[..., 0] >= mx.sort(wanted, axis=-1)[..., -9] - 1e-2, mx.ones((2, 11))
    )
    again = teacher.opinions(rows, lambda ids: mx.zeros((*ids.shape, 330)), tmp_path, batch_size=3, top=9)
    assert np.array_equal(again.ids, found.ids)
    with pytest.raises(DataError, match="is of other data"):
        teacher.opinions(rows[:4], target, tmp_path, batch_size=3, top=9)


def test_divergences_agree_with_their_definitions():
    random = np.random.default_rng(0)
    logits, other = (random.normal(size=(3, 12)).astype(np.float32) for _ in range(2))
    p, q = (np.exp(x) / np.exp(x).sum(-1, keepdims=True) for x in (other, logits))
    ids, logprobs = teacher.best_of(mx.array(other), 12)
    known = loss.known(mx.array(logits), ids, logprobs)
    tv = np.abs(p - q).sum(-1) / 2
    kl, reverse = (p * np.log(p / q)).sum(-1), (q * np.log(q / p)).sum(-1)
    lam = np.exp(-3 * (1 - tv))
    close = {"rtol": 1e-3, "atol": 1e-5}
    np.testing.assert_allclose(loss.acceptance(known[0], known[2]), 1 - tv, **close)
    np.testing.assert_allclose(loss.divergence("kl", *known), kl, **close)
    np.testing.assert_allclose(loss.divergence("reverse", *known), reverse, **close)
    np.testing.assert_allclose(loss.divergence("lk", *known), lam * kl + (1 - lam) * tv, **close)
    # With fewer entries the tail is one more; with a trimmed head what it lacks belongs to the tail.
    ids, logprobs = teacher.best_of(mx.array(other), 5)
    known = loss.known(mx.array(logits), ids, logprobs)
    best = np.take_along_axis(p, np.array(ids), -1)
    np.testing.assert_allclose(known[0], np.concatenate([best, 1 - best.sum(-1, keepdims=True)], -1), **close)
    places = mx.array([-1, 0, 1, -1, 2, 3, -1, 4, 5, 6, 7, 8])
    known = loss.known(mx.array(logits[:, :9]), ids, logprobs, places)
    np.testing.assert_allclose(known[0].sum(axis=-1), np.ones(3), atol=1e-4)
    assert mx.isfinite(loss.divergence("reverse", *known)).all()


def test_a_verdict_is_what_the_runtime_would_decide(schooled):
    target, config = load_model(schooled / "target")
    model = streams.tiny({"streams": 2}, vocab_size=config["vocab_size"])
    prefix = mx.array([[7, 8, 9, 10, 11], [12, 13, 14, 15, 16]])
    samplers = policy.samplers(3, 1, 2, (0.0, 1.0))
    found = policy.propose(model, target, prefix, samplers, 4, 6)
    for row, sampler in enumerate(policy.samplers(3, 1, 2, (0.0, 1.0))):
        text = prefix[row].tolist()
        for i in range(4):
            proposed = sampler.choose(model(mx.array([text]))[0, -1:], [len(text)]).item()
            assert proposed == found.windows[row, i].item()
            text.append(proposed)
        ours = sampler.choose(target(mx.array([text]))[0, 4:], range(5, 10)).tolist()
        agreed = [a == b for a, b in zip(ours, text[5:], strict=False)]
        assert found.accepted[row] == (agreed.index(False) if False in agreed else 4)
    assert isinstance(samplers[0], Sampler)


def test_a_large_vocabulary_changes_memory_not_the_gradient(monkeypatch):
    ids = mx.array([[3, 5, 8, 13, 21, 34], [2, 7, 1, 8, 2, 8]])
    gradients = []
    for large in (1 << 14, 1):
        monkeypatch.setattr(draft_loss, "LARGE", large)
        model = streams.tiny({"streams": 2, "tracks": 2})
        made = draft_loss.DraftLoss(model, 259, kind="lk", streams=2, stream_weight=0.5)
        best, logprobs = teacher.best_of(mx.random.normal((2, 5, 259), key=mx.random.key(1)), 8)
        judged = draft_loss.Judged(ids[:, 1:], mx.ones((2, 5)), 0.5 * mx.ones((2, 5)), best, logprobs)
        (total, _), found = nn.value_and_grad(model, made)(ids, judged)
        gradients.append((total, dict(tree_flatten(found))))
    (one, other), (first, second) = zip(*gradients, strict=True)
    assert mx.allclose(one, other, rtol=1e-5)
    assert all(mx.allclose(first[name], second[name], rtol=1e-3, atol=1e-5) for name in first)
    assert any(name.startswith("stream_embeddings") and mx.abs(first[name]).max() > 0 for name in first)


def test_a_smaller_head_is_the_head_as_far_as_it_goes():
    model = streams.tiny()
    text = mx.array([[3, 5, 8, 13]])
    vocab = model.config.base["vocab_size"]
    counts = np.arange(vocab)[::-1]
    trimmed = draft_model.with_head(model, counts, None, 40)
    assert trimmed.token_ids.tolist() == list(range(40))
    assert mx.allclose(trimmed(text), model(text)[..., :40], atol=1e-4)
    factored = draft_model.with_head(model, counts, model.config.hidden_size, None)
    assert mx.allclose(factored(text), model(text), atol=1e-3)
    assert draft_model.with_head(model, counts, None, None) is model


def test_ids_the_draft_or_the_target_lacks(settings, schooled, tmp_path):
    """A draft whose vocabulary is not padded as far as the target's learns what it has; a target without logits for
    its own tokenizer is refused."""
    config = json.loads((schooled / "target" / "config.json").read_text())
    model = streams.tiny(vocab_size=config["vocab_size"] - 4)
    places = draft_loss.places(model, config["vocab_size"])
    assert places.tolist() == [*range(config["vocab_size"] - 4), -1, -1, -1, -1]
    assert draft_loss.places(model, config["vocab_size"] - 9) is None
    small = tmp_path / "small"
    save_tiny(small, vocab_size=20)
    refusing = dataclasses.replace(settings, target=str(small), answers="given")
    with pytest.raises(UsageError, match=r"has no logits for token \d+ .* only for 20"):
        draft.train(refusing)
