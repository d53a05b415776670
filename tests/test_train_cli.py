import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from mirror_mlx.cli.main import main
from mirror_mlx.train import display
from mirror_mlx.train.checkpoint import Progress

SMALL = [
    f"--{name}={number}"
    for name, number in {
        "hidden-size": 32, "num-hidden-layers": 1, "num-attention-heads": 2, "num-key-value-heads": 1, "head-dim": 16,
        "intermediate-size": 32, "vocab-size": 280, "max-seq-length": 64, "batch-size": 1,
    }.items()
]  # fmt: skip


@pytest.fixture
def chats(tmp_path: Path) -> str:
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"{n}+1?", "completion": f"{n + 1}"}) + "\n" for n in range(40)))
    return str(path)


def test_help_teaches_without_mlx(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["train", "lm", "--help"])
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    assert "mirror-mlx train lm --data chats.jsonl --out tiny --minutes 30" in said
    assert "--teacher" in said


def test_it_trains(chats: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert main(["train", "lm", "--data", chats, "--out", out, "--iters", "3", *SMALL]) == 0
    said = capsys.readouterr()
    assert f"{out}: 3 steps, 192 tokens, validation loss" in said.out
    assert f"mirror-mlx chat --model {out}" in said.out
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_ctrl_c_saves_and_says_how_to_go_on(
    chats: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = display.Display.step

    def interrupt(self: display.Display, progress: Progress, metrics: dict[str, Any]) -> None:
        drawn(self, progress, metrics)
        if progress.step == 2:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(display.Display, "step", interrupt)
    before = signal.getsignal(signal.SIGINT)
    out = str(tmp_path / "out")
    command = ["train", "lm", "--data", chats, "--out", out, "--iters", "4", "--steps-per-report", "1", *SMALL]
    assert main(command) == 130
    assert signal.getsignal(signal.SIGINT) is before
    assert f"stopped after step 2, saved; to go on: mirror-mlx train lm --out {out} --resume" in capsys.readouterr().err
    assert main([*command, "--resume", "--seed", "1"]) == 2
    assert "--seed was 0, now 1" in capsys.readouterr().err
    assert main(["train", "lm", "--out", out, "--resume"]) == 0
    assert f"{out}: 4 steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--data is missing"),
        (["--resume"], "holds no unfinished run"),
        (["--data", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--data", "x", "--warmup", "-1"], "--warmup must not be negative"),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "lm", "--out", str(tmp_path / "out"), *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
