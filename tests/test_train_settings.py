import dataclasses
from pathlib import Path

import pytest

from mirror_mlx.errors import DataError, UsageError
from mirror_mlx.train.lm import LmSettings
from mirror_mlx.train.settings import fingerprint, merge, read_json


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"iters": 3, "minutes": 1.0}, "give one of them"),
        ({"iters": 0}, "--iters must be greater than 0, not 0"),
        ({"learning_rate": float("nan")}, "--learning-rate must be greater than 0"),
        ({"warmup": -1}, "--warmup must not be negative"),
        ({"prompt_weight": 1.5}, "--prompt-weight must be from 0 to 1"),
        ({"held_out": 1.0}, "--held-out is a fraction"),
        ({"max_seq_length": 1}, "--max-seq-length must be at least 2"),
        ({"init": "a", "shape": {"hidden_size": 8}}, "--init brings its own architecture"),
        ({"shape": {"hidden_size": 0}}, "--hidden-size must be greater than 0"),
    ],
)
def test_what_is_out_of_range_is_named_by_its_flag(change: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        dataclasses.replace(LmSettings(("a.jsonl",), "out"), **change).check()


def test_a_run_is_bounded_by_steps_unless_by_time() -> None:
    assert LmSettings(("a",), "out").iters == 1000
    assert LmSettings(("a",), "out", minutes=2.0).iters is None


def test_the_command_tells_no_folders() -> None:
    settings = LmSettings(("/home/x/a b.jsonl",), "/home/x/out", shape={"hidden_size": 64}, iters=5, seed=3)
    assert settings.command() == "mirror-mlx train lm --data 'a b.jsonl' --out out --iters 5 --seed 3 --hidden-size 64"


def test_settings_survive_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("text")
    settings = LmSettings((str(tmp_path / "a"),), "out", shape={"hidden_size": 64}, minutes=1.5)
    assert LmSettings.from_json(settings.to_json()) == settings


def test_a_resumed_run_keeps_its_settings() -> None:
    stored = LmSettings(("a",), "out", shape={"hidden_size": 64, "head_dim": 8}, learning_rate=1e-3)
    assert merge(stored, {"out": "moved"}) == dataclasses.replace(stored, out="moved")
    assert merge(stored, {"learning_rate": 1e-3, "shape": {"head_dim": 8}}) == stored
    with pytest.raises(UsageError, match=r"--learning-rate was 0\.001, now 0\.002"):
        merge(stored, {"learning_rate": 2e-3})
    with pytest.raises(UsageError, match="--head-dim was 8, now 16"):
        merge(stored, {"shape": {"head_dim": 16}})


def test_the_fingerprint_is_of_the_contents(tmp_path: Path) -> None:
    for name, text in (("a", "x"), ("b", "x"), ("c", "y")):
        (tmp_path / name).write_text(text)
    a, b, c = (fingerprint((str(tmp_path / name),)) for name in "abc")
    assert a == b != c
    with pytest.raises(DataError, match="not found"):
        fingerprint((str(tmp_path / "d"),))


def test_a_configuration_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not found: expected a model configuration"):
        read_json(tmp_path / "config.json", "a model configuration")
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(UsageError, match="expected a JSON object"):
        read_json(tmp_path / "config.json", "a model configuration")
