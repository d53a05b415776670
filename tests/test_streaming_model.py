"""The streaming model: dense where it should be, on disk, from other checkpoints, and over several processes."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
import streams
from mlx.utils import tree_flatten
from mlx_lm.utils import _get_classes, load_model
from models import CONFIG, VOCAB, save_tiny

import mirror_mlx
from mirror_mlx.draft import StreamingDraft
from mirror_mlx.draft.streaming import StreamingConfig, StreamingModel, from_dense, is_streaming, load, save
from mirror_mlx.draft.streaming.config import KEY
from mirror_mlx.errors import DraftError

TEXT = mx.array([[(i * 5 + 2) % VOCAB for i in range(19)] for _ in range(2)])


def write(model: StreamingModel, folder: Path) -> Path:
    save_tiny(folder)
    (folder / "model.safetensors").unlink()
    (folder / "config.json").write_text(json.dumps(model.config.to_json()))
    save(model, folder)
    return folder


@pytest.mark.parametrize("kind", ["qwen3", "llama", "qwen2"])
@pytest.mark.parametrize("tied", [True, False])
def test_one_track_is_the_dense_model_bit_for_bit(kind, tied):
    model = streams.tiny(model_type=kind, tie_word_embeddings=tied, attention_bias=kind == "llama")
    model_class, args_class = _get_classes(model.config.base)
    dense = model_class(args_class.from_dict(model.config.base))
    dense.update(model.tracks[0].parameters())
    assert mx.array_equal(model(TEXT), dense(TEXT))
    assert mx.array_equal(model(TEXT, 3)[0], dense(TEXT))


@pytest.mark.parametrize("shape", streams.SHAPES)
def test_a_folder_gives_back_what_was_saved(shape, tmp_path):
    model = streams.tiny(streams.SHAPES[shape])
    folder = write(model, tmp_path / "draft")
    assert is_streaming(folder)
    count = model.config.streams
    for given, wanted in zip(load(folder)(TEXT, count), model(TEXT, count), strict=True):
        assert mx.array_equal(given, wanted)


def test_a_dense_draft_is_an_mlx_lm_model_too(tmp_path):
    model = streams.tiny()
    dense, config = load_model(write(model, tmp_path / "draft"))
    assert config["model_type"] == "qwen3"
    assert mx.array_equal(dense(TEXT), model(TEXT))


def test_a_quantised_draft_loads(tmp_path):
    import mlx.nn as nn

    model = streams.tiny(hidden_size=64, intermediate_size=64)
    nn.quantize(model, 32, 8)
    model.config.base["quantization"] = {"group_size": 32, "bits": 8}
    folder = write(model, tmp_path / "draft")
    assert mx.allclose(load(folder)(TEXT, 3)[1], model(TEXT, 3)[1], atol=1e-5)


def test_a_checkpoint_is_cut_at_the_boundary(tmp_path):
    folder = save_tiny(tmp_path / "dense", num_hidden_layers=5)
    dense, _ = load_model(folder)
    for boundary, expected in ((None, 2), (4, 4)):
        model = from_dense(folder, boundary=boundary, streams=2)
        assert [len(model.layers(segment)[0]) for segment in (1, 2)] == [expected, 5 - expected]
        assert mx.array_equal(model(TEXT), dense(TEXT))


def test_loading_a_pair_finds_the_streaming_draft(tmp_path):
    save_tiny(tmp_path / "target", seed=3)
    write(streams.tiny(), tmp_path / "draft")
    with mirror_mlx.load(tmp_path, streams=2, mode="mirror") as engine:
        assert isinstance(engine.draft, StreamingDraft)
        assert engine.draft.streams == 2
        text = engine.generate("Hello", max_tokens=20)
    with mirror_mlx.load(tmp_path, mode="ar") as engine:
        assert engine.generate("Hello", max_tokens=20) == text


def spoil(folder: Path, **own: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    base = {key: own.pop(key) for key in list(own) if key in config}
    config = {**config, **base, KEY: {**config[KEY], **own}}
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"boundary": 4}, "with 4 layers it must be in 1 … 3"),
        ({"boundary": "2"}, "boundary is 2"),
        ({"streams": -1}, "streams is -1"),
        ({"tracks": 3}, "choose from 1, 2, 4, 8"),
        ({"tracks": 8}, "num_attention_heads is 4: 8 tracks cannot share it equally"),
        ({"head_rank": 0}, "head_rank is 0"),
        ({"head_size": 9999}, "head_size is 9999: the vocabulary has"),
        ({"model_type": "gemma"}, "model_type is 'gemma'"),
        ({"surprise": 1}, "unknown keys: surprise"),
        ({"num_hidden_layers": 6}, "do not fit config.json"),
    ],
)
def test_a_folder_that_cannot_be_used_says_why(own, said, tmp_path):
    folder = write(streams.tiny(), tmp_path / "draft")
    spoil(folder, **own)
    with pytest.raises(DraftError, match=said):
        load(folder)


def test_damaged_and_missing_weights_say_so(tmp_path):
    folder = write(streams.tiny(), tmp_path / "draft")
    (folder / "streams.safetensors").write_bytes(b"nonsense")
    with pytest.raises(DraftError, match=r"streams\.safetensors is damaged"):
        load(folder)
    (folder / "streams.safetensors").unlink()
    with pytest.raises(DraftError, match="do not fit"):
        load(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(DraftError, match=r"has no model\.safetensors"):
        load(folder)


def test_a_checkpoint_of_another_kind_is_refused(tmp_path):
    folder = save_tiny(tmp_path / "dense")
    spoiled = json.loads((folder / "config.json").read_text()) | {"model_type": "olmo2"}
    (folder / "config.json").write_text(json.dumps(spoiled))
    with pytest.raises(DraftError):
        from_dense(folder, boundary=None, streams=2)
    with pytest.raises(DraftError, match="no 'mirror' part"):
        StreamingConfig.of(CONFIG)


RANK = """
import sys
import mlx.core as mx
import numpy as np
from pathlib import Path
from mirror_mlx.draft import StreamingDraft
from mirror_mlx.draft.streaming import MlxSegments, load
from mirror_mlx.messages import Root

group = mx.distributed.init(strict=True, backend="ring")
model = load(Path(sys.argv[1]), group)
text = mx.array([[(i * 5 + 2) % 50 for i in range(19)] for _ in range(2)])
mains, ahead = model(text, 3)
draft = StreamingDraft(MlxSegments(model))
draft.prefill([1, 2, 3])
draft.glue([4, 5], 0)
draft.expand([Root(0, 6), Root(1, 7)])
said = [tokens for _ in range(2) for tokens in draft.advance([(0, 6), (1, 7)]).values()]
np.savez(f"{sys.argv[2]}-{group.rank()}.npz", mains=np.array(mains), ahead=np.array(ahead), said=said)
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.parametrize("shape", [{"tracks": 2}, {"tracks": 2, "head_rank": 8, "head_size": 90}])
def test_two_tracks_in_two_processes_are_the_same_model(shape, tmp_path):
    model = streams.tiny(shape)
    folder = write(model, tmp_path / "draft")
    hosts = tmp_path / "hosts.json"
    hosts.write_text(json.dumps([[f"127.0.0.1:{free_port()}"] for _ in range(2)]))
    (tmp_path / "rank.py").write_text(RANK)
    ranks = [
        subprocess.Popen(
            [sys.executable, tmp_path / "rank.py", folder, tmp_path / "out"],
            env={"MLX_RANK": str(rank), "MLX_HOSTFILE": str(hosts), "PATH": "/usr/bin:/bin"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in ranks:
        _, stderr = process.communicate(timeout=120)
        assert process.returncode == 0, stderr
    text = mx.array([[(i * 5 + 2) % 50 for i in range(19)] for _ in range(2)])
    mains, ahead = model(text, 3)
    for rank in range(2):
        found = np.load(tmp_path / f"out-{rank}.npz")
        np.testing.assert_allclose(found["mains"], np.array(mains), atol=1e-5)
        np.testing.assert_allclose(found["ahead"], np.array(ahead), atol=1e-5)
        assert found["said"].tolist() == np.load(tmp_path / "out-0.npz")["said"].tolist()
    held = dict(tree_flatten(model.parameters()))
    assert sum("tracks.1" in name for name in held) == sum("tracks.0" in name for name in held) > 0
