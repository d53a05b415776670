"""Training the tap: it reads a middle layer better than the plain lens, and the engine uses it."""

import dataclasses
import shutil
from pathlib import Path

import mlx.core as mx
import pytest

import mirror_mlx
from mirror_mlx.errors import ModelError, UsageError
from mirror_mlx.target.tap import load
from mirror_mlx.train import metrics, tap
from mirror_mlx.train.tap import TapSettings


@pytest.fixture
def settings(schooled, tmp_path):
    return TapSettings(
        data=(str(schooled / "chats.jsonl"),), out=str(tmp_path / "tap"), target=str(schooled / "target"),
        cache=str(schooled / "cache"), batch_size=4, max_seq_length=96, iters=30, warmup=2, max_answer_tokens=24,
        answer_temps=(0.0,), steps_per_report=1, eval_every=100, val_batches=2, learning_rate=5e-3,
    )  # fmt: skip


def test_it_reads_better_than_the_plain_lens_and_the_engine_uses_it(settings, schooled, tmp_path):
    target_before = (schooled / "target" / "model.safetensors").read_bytes()
    result = tap.train(settings)
    figures = result.figures
    for layer in (1, 2, 3):
        assert figures[f"exit_{layer}_kl"] < figures[f"exit_{layer}_plain_kl"]
    adapter = load(Path(settings.out))
    assert sorted(adapter.layers) == [1, 2, 3]
    assert adapter.layers[2][0].shape == (8, 64)
    assert (schooled / "target" / "model.safetensors").read_bytes() == target_before
    assert "mirror-mlx train tap" in (Path(settings.out) / "README.md").read_text()

    pair = tmp_path / "pair"
    shutil.copytree(schooled / "target", pair / "target")
    shutil.copytree(schooled / "target", pair / "draft")
    shutil.copy(Path(settings.out) / "tap.safetensors", pair)
    with mirror_mlx.load(pair, mode="mirror", predictor="tap", exit_layer=2) as engine:
        assert engine.target.tap_refusal is None
        said = engine.generate("What is 2 + 3?", max_tokens=20)
    with mirror_mlx.load(pair, mode="ar") as engine:
        assert engine.generate("What is 2 + 3?", max_tokens=20) == said


def test_a_resumed_run_is_the_run_that_was_not_stopped(settings):
    straight = dataclasses.replace(settings, out=settings.out + "-straight", exit_layers=(3, 1), rank=2)
    tap.train(straight)
    asked = iter(range(1, 99))
    stopped = dataclasses.replace(straight, out=settings.out)
    assert not tap.train(stopped, stop=lambda: next(asked) == 7).finished
    tap.train(stopped, resume=True)
    curves = [[line.get("loss") for line in metrics.read(Path(s.out) / "metrics.jsonl")] for s in (straight, stopped)]
    assert curves[0] == curves[1]
    one, other = (load(Path(s.out)).layers for s in (straight, stopped))
    assert sorted(one) == [1, 3]
    assert all(mx.array_equal(a, b) for layer in one for a, b in zip(one[layer], other[layer], strict=True))


def test_what_cannot_be_trained_says_why(settings, tmp_path):
    def refused(error, match, **change):
        with pytest.raises(error, match=match):
            tap.train(dataclasses.replace(settings, **change))
        assert not Path(settings.out).exists()

    refused(UsageError, "this target has 4 layers, so each must be in 1 … 3", exit_layers=(4,))
    refused(UsageError, "--rank must be greater than 0", rank=0)
    refused(ModelError, "is not a model folder", target=str(tmp_path))
