"""Shared by all tests: OpenBLAS goes under MLX first, and no test leaves a thread behind."""

import mirror_mlx  # isort: skip  # noqa: F401  (loads OpenBLAS; must come before mlx)
import json
import os
import signal
import threading
import time

import pytest
from hypothesis import settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job: Ctrl-C is to be tested there too
    signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("house", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("house")


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory):
    """No test leaves a calibration behind, or finds another run's."""
    os.environ["MIRROR_MLX_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def _no_thread_left():
    yield
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        ours = [thread for thread in threading.enumerate() if thread.name.startswith("mirror-")]
        if not ours:
            return
        time.sleep(0.01)
    raise AssertionError(f"left behind: {ours}")


@pytest.fixture(scope="session")
def schooled(tmp_path_factory):
    """A folder with `chats.jsonl`, 100 conversations of school maths, and `target`, a tiny model that has seen them."""
    from mirror_mlx.problems import conversations
    from mirror_mlx.train import lm

    folder = tmp_path_factory.mktemp("schooled")
    chats = folder / "chats.jsonl"
    chats.write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in conversations(4, 100)))
    shape = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4,
             "head_dim": 8, "intermediate_size": 96, "max_position_embeddings": 512}  # fmt: skip
    lm.train(
        lm.LmSettings(
            data=(str(chats),), out=str(folder / "target"), shape=shape, vocab_size=330, batch_size=4,
            max_seq_length=128, iters=60, warmup=4, learning_rate=5e-3, eval_every=100,
        )
    )  # fmt: skip
    return folder
