import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm import load
from mlx_lm.generate import generate_step
from mlx_lm.utils import load_model, quantize_model, save_config

from mirror_mlx.errors import DataError, ModelError, UsageError
from mirror_mlx.train import checkpoint, lm, loss, metrics, model, step
from mirror_mlx.train.checkpoint import Progress
from mirror_mlx.train.lm import LmSettings

SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
}


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("data") / "chats.jsonl"
    names = ["Ann", "Bo", "Cy", "Di"]
    lines = (
        {"question": f"{names[n % 4]} has {n} pears and buys {n}.", "answer": f"{n}+{n}={2 * n}.\n#### {2 * n}"}
        for n in range(60)
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


@pytest.fixture
def settings(chats: str, tmp_path: Path) -> LmSettings:
    return LmSettings(
        data=(chats,), out=str(tmp_path / "out"), shape=SHAPE, vocab_size=300, batch_size=2, max_seq_length=64,
        warmup=2, iters=6, steps_per_report=1, eval_every=4, learning_rate=3e-3,
    )  # fmt: skip


def after(steps: int) -> Callable[[], bool]:
    """A `stop` that says yes after `steps` steps."""
    asked = iter(range(1, steps + 1))
    return lambda: next(asked) == steps


def losses(settings: LmSettings) -> list[float]:
    lines = metrics.read(Path(settings.out) / "metrics.jsonl")
    return [line["loss"] for line in lines if "loss" in line]


def test_the_loss_falls_and_mlx_lm_loads_the_result(settings: LmSettings) -> None:
    settings = dataclasses.replace(settings, iters=40)
    result = lm.train(settings)
    assert result.finished
    assert result.progress.step == 40
    assert result.val_loss is not None
    seen = losses(settings)
    assert len(seen) == 40
    assert seen[-1] < seen[0] - 1
    out = Path(settings.out)
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md", "config.json", "generation_config.json", "metrics.jsonl", "metrics.png", "model.safetensors",
        "tokenizer.json", "tokenizer_config.json",
    ]  # fmt: skip
    trained, tokenizer = load(str(out))
    assert {value.dtype for value in dict(nn.utils.tree_flatten(trained.parameters())).values()} == {mx.bfloat16}
    assert tokenizer.eos_token_ids == {0, 2}
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": "Ann"}], add_generation_prompt=True)
    tokens = [token for token, _ in generate_step(mx.array(prompt), trained, max_tokens=3)]
    assert len(tokens) == 3
    config = json.loads((out / "config.json").read_text())
    assert list(config) == sorted(config)
    assert "library_name: mlx" in (out / "README.md").read_text()


def test_a_resumed_run_is_the_run_that_was_not_stopped(settings: LmSettings) -> None:
    straight = dataclasses.replace(settings, out=settings.out + "-straight")
    lm.train(straight)
    stopped = lm.train(settings, stop=after(3))
    assert not stopped.finished
    assert stopped.progress.step == 3
    assert (Path(settings.out) / "model.safetensors").is_file()
    assert lm.train(settings, resume=True).finished
    assert losses(settings) == losses(straight)
    weights, expected = (mx.load(str(Path(each.out) / "model.safetensors")) for each in (settings, straight))
    assert all(mx.array_equal(weights[name], expected[name]) for name in expected)


def test_muon_learns_and_is_resumed(settings: LmSettings) -> None:
    settings = dataclasses.replace(settings, optimizer="muon", learning_rate=0.02, iters=20, accumulate=2)
    straight = dataclasses.replace(settings, out=settings.out + "-straight")
    lm.train(straight)
    lm.train(settings, stop=after(3))
    lm.train(settings, resume=True)
    assert losses(settings) == losses(straight)
    assert losses(settings)[-1] < losses(settings)[0] - 1


def test_a_killed_run_goes_on_from_its_last_checkpoint(settings: LmSettings) -> None:
    class KilledError(Exception):
        pass

    class Fragile(metrics.Silent):
        def step(self, progress: Progress, metrics: dict[str, Any]) -> None:
            if progress.step == 5:
                raise KilledError

    settings = dataclasses.replace(settings, save_every=2)
    with pytest.raises(KilledError):
        lm.train(settings, observer=Fragile())
    out = Path(settings.out)
    (out / ".checkpoint").mkdir()
    assert [path.name for path in checkpoint.find(out)] == ["checkpoint-00000004"]
    assert lm.train(settings, resume=True).progress.step == 6
    assert len(losses(settings)) == 6
    assert checkpoint.find(out) == []


def test_what_cannot_be_resumed_says_why(settings: LmSettings, chats: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no unfinished run"):
        lm.train(settings, resume=True)
    own = tmp_path / "own.jsonl"
    own.write_bytes(Path(chats).read_bytes())
    settings = dataclasses.replace(settings, data=(str(own),))
    lm.train(settings, stop=after(1))
    with pytest.raises(UsageError, match="exists already: --resume goes on"):
        lm.train(settings)
    with own.open("a") as file:
        file.write('{"text": "more"}\n')
    with pytest.raises(UsageError, match="data files have changed"):
        lm.train(settings, resume=True)
    own.write_bytes(Path(chats).read_bytes())
    (found,) = checkpoint.find(Path(settings.out))
    (found / "optimizer.safetensors").write_bytes(b"")
    with pytest.raises(DataError, match="is damaged"):
        lm.train(settings, resume=True)


def test_mistakes_leave_nothing_behind(settings: LmSettings, tmp_path: Path) -> None:
    def refused(error: type[Exception], match: str, **change: Any) -> None:
        with pytest.raises(error, match=match):
            lm.train(dataclasses.replace(settings, **change))
        assert not Path(settings.out).exists()

    refused(UsageError, "--max-seq-length 256 is longer than the model's context of 128", max_seq_length=256)
    refused(DataError, "too few for a batch", batch_size=500)
    refused(UsageError, "no model can be made", config=str(write(tmp_path, {"model_type": "abacus"})))
    refused(ModelError, "not a model folder", teacher=str(tmp_path / "nobody"), tokenizer=str(tmp_path))
    refused(UsageError, "has no tokenizer", tokenizer=str(tmp_path))


def write(folder: Path, config: dict[str, Any]) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


def test_a_model_is_trained_on_and_teaches(settings: LmSettings, tmp_path: Path) -> None:
    lm.train(settings)
    on = dataclasses.replace(settings, init=settings.out, shape={}, out=str(tmp_path / "on"), warmup=0)
    lm.train(on)
    assert losses(on)[0] < losses(settings)[0]
    small = {**SHAPE, "hidden_size": 16, "num_hidden_layers": 1}
    draft = dataclasses.replace(settings, teacher=settings.out, shape=small, out=str(tmp_path / "draft"), iters=30)
    lm.train(draft)
    assert losses(draft)[-1] < losses(draft)[0]
    assert json.loads((tmp_path / "draft" / "config.json").read_text())["hidden_size"] == 16
    taught, teaches = ((Path(each.out) / "tokenizer.json").read_bytes() for each in (draft, settings))
    assert taught == teaches


def test_a_teacher_may_be_quantised(settings: LmSettings, tmp_path: Path) -> None:
    lm.train(settings)
    out = Path(settings.out)
    large, config = load_model(out)
    large, config = quantize_model(large, config, group_size=32, bits=8)
    mx.save_safetensors(str(out / "model.safetensors"), dict(nn.utils.tree_flatten(large.parameters())))
    save_config(config, out / "config.json")
    draft = dataclasses.replace(settings, teacher=settings.out, out=str(tmp_path / "draft"), iters=2)
    assert lm.train(draft).finished
    with pytest.raises(ModelError, match="is quantised"):
        lm.train(dataclasses.replace(draft, init=settings.out, shape={}, out=str(tmp_path / "on")))


def test_any_architecture_of_mlx_lm_can_be_trained(settings: LmSettings, tmp_path: Path) -> None:
    llama = {**SHAPE, "model_type": "llama", "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
    config = str(write(tmp_path, llama))
    result = lm.train(dataclasses.replace(settings, config=config, shape={}, iters=2, dtype="float16", held_out=0))
    assert result.val_loss is None
    load(settings.out)


def test_losses_agree_with_their_definitions() -> None:
    random = np.random.default_rng(0)
    logits, other = random.normal(size=(2, 2, 3, 5)).astype(np.float32)
    targets, weights = random.integers(0, 5, (2, 3)), random.random((2, 3)).astype(np.float32)
    p, q = (np.exp(x) / np.exp(x).sum(-1, keepdims=True) for x in (other, logits))
    nll = -np.log(np.take_along_axis(q, targets[..., None], -1))[..., 0]
    given = mx.array(logits), mx.array(targets), mx.array(weights)
    assert loss.cross_entropy(*given).item() == pytest.approx((nll * weights).sum() / weights.sum(), rel=1e-5)
    divergence = ((p * np.log(p / q)).sum(-1) * weights).sum() / weights.sum()
    assert loss.distillation(given[0], mx.array(other), given[2]).item() == pytest.approx(divergence, rel=1e-4)
    assert loss.distillation(given[0], given[0], given[2]).item() == pytest.approx(0, abs=1e-6)
    padded = mx.concatenate([mx.array(other), mx.full((2, 3, 2), 9.0)], axis=-1)
    assert loss.distillation(given[0], padded, given[2]).item() == pytest.approx(divergence, rel=1e-4)
    assert loss.weighted_mean(given[2], mx.zeros((2, 3))).item() == 0


def test_the_learning_rate_warms_up_and_falls() -> None:
    settings = LmSettings(("a",), "out", iters=100, warmup=10, learning_rate=1.0)
    rates = [step.learning_rate(settings, Progress(step=n)) for n in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9] > 0.97
    assert rates[9:] == sorted(rates[9:], reverse=True)
    assert step.learning_rate(settings, Progress(step=100)) == pytest.approx(step.LOWEST)
    timed = LmSettings(("a",), "out", minutes=10.0, warmup=0, learning_rate=1.0)
    assert step.learning_rate(timed, Progress(step=5, seconds=300)) == pytest.approx(0.51)


def test_new_weights_depend_on_the_seed_alone() -> None:
    config = {**lm_config(), **SHAPE, "vocab_size": 300}
    one, same, other = (dict(nn.utils.tree_flatten(model.build(config, seed).parameters())) for seed in (1, 1, 2))
    assert all(mx.array_equal(one[name], same[name]) for name in one)
    assert not mx.array_equal(one["model.embed_tokens.weight"], other["model.embed_tokens.weight"])


def lm_config() -> dict[str, Any]:
    from mirror_mlx.train.architecture import ARCHITECTURE

    return ARCHITECTURE
