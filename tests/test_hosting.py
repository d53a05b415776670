"""A converted draft beside its MLX one: found by its contents, run by the reference host, output the target's own."""

import json
import shutil

import mlx.core as mx
import pytest

import mirror_mlx
from mirror_mlx import hosting
from mirror_mlx.cli.main import main
from mirror_mlx.draft import StreamingDraft
from mirror_mlx.draft.package import find
from mirror_mlx.draft.package.manifest import FILE
from mirror_mlx.errors import DraftError, UsageError
from mirror_mlx.loading import DEMO
from mirror_mlx.messages import Root
from mirror_mlx.sampling import Sampling

QUESTION = [{"role": "user", "content": "Tom has 3 boxes with 12 pencils in each. How many pencils does he have?"}]


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """A working folder with the demo draft's packages in ane_models/demo."""
    folder = tmp_path_factory.mktemp("work")
    assert main(["convert", "demo", "--out", str(folder / find.NAME / "demo"), "--context", "512"]) == 0
    return folder


@pytest.fixture
def there(converted, monkeypatch, tmp_path):
    monkeypatch.chdir(converted)
    monkeypatch.setattr(find, "CACHE", tmp_path / "nothing")
    return converted


def test_conversion_says_how_near_the_packages_are(converted):
    made = json.loads((converted / find.NAME / "demo" / FILE).read_text())
    assert made["parity"]["float32_top1"] >= 0.999
    assert made["parity"]["float16_top1"] >= 0.99
    assert made["parity"]["float32_hidden"] <= 1e-3


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_reference_host_proposes_what_mlx_does(there, temperature):
    said, per_step = {}, {}
    for host in ("ar", "mlx", "reference"):
        options = {"mode": "ar"} if host == "ar" else {"mode": "sd", "draft_host": host}
        with mirror_mlx.load("demo", **options) as engine:
            sampling = Sampling(temperature=temperature, seed=3)
            said[host] = [r.token for r in engine.stream(QUESTION, 48, sampling)]
            per_step[host] = engine.stats.tokens_per_step
            if host != "ar":
                assert engine.stats.draft_host == f"{host}: asked for"
                assert engine.stats.mode == "sd"
    assert said["ar"] == said["mlx"] == said["reference"]
    assert per_step["reference"] >= 0.9 * per_step["mlx"] > 1


def test_mirror_with_more_branches_than_a_pass_has_columns(there):
    with mirror_mlx.load("demo", mode="ar") as engine:
        expected = [r.token for r in engine.stream(QUESTION, 40)]
    with mirror_mlx.load("demo", mode="mirror", draft_host="reference", max_roots=40, num_draft_tokens=7) as engine:
        assert engine._rendezvous._worker._draft.width < 40
        assert [r.token for r in engine.stream(QUESTION, 40)] == expected
        assert (engine.stats.mode, engine.stats.reason) == ("mirror", "")


def test_branches_that_fill_the_slots_end_there(there):
    """64 branches of a window of 7 need 448 slots beside the text: what does not fit is not proposed, and the next step
    has the slots again."""
    made = StreamingDraft(hosting.segments(hosting.choose("reference", DEMO / "draft"), DEMO / "draft"))
    made.use(None, length=7)
    made.begin(Sampling())
    made.prefill([5 + i % 50 for i in range(330)])
    for _ in range(2):
        made.glue(list(range(8)), 4)
        keys = [(row, token) for row in range(8) for token in range(10, 18)]
        made.expand([Root(*key) for key in keys])
        got = {key: [] for key in keys}
        while any(len(tokens) < 7 for tokens in got.values()):
            asked = [key for key, tokens in got.items() if len(tokens) < 7][: made.width]
            found = made.advance(asked)
            for key, tokens in found.items():
                got[key] += tokens
            if not found:
                break
        lengths = [len(tokens) for tokens in got.values()]
        assert max(lengths) == 7
        assert min(lengths) == 0
        made.commit(1)
    made.close()


def test_a_text_longer_than_the_slots_goes_on_without_the_draft(there):
    with mirror_mlx.load("demo", mode="ar") as engine:
        expected = [r.token for r in engine.stream([5] * 500, 8)]
    with mirror_mlx.load("demo", mode="mirror", draft_host="reference") as engine:
        assert [r.token for r in engine.stream([5] * 500, 8)] == expected
        assert "filled the draft's 512 slots" in engine.stats.reason


def test_without_a_neural_engine_the_draft_stays_in_mlx(there, monkeypatch):
    monkeypatch.setattr(hosting.sys, "platform", "linux")
    assert str(hosting.choose("auto", DEMO / "draft")) == "mlx: no Neural Engine here"
    monkeypatch.setattr(hosting.sys, "platform", "darwin")
    monkeypatch.setattr(hosting.platform, "machine", lambda: "x86_64")
    assert "this one is for x86_64" in hosting.choose("auto", DEMO / "draft").reason
    monkeypatch.setattr(hosting.platform, "machine", lambda: "arm64")
    monkeypatch.setattr(hosting.platform, "mac_ver", lambda: ("14.5", ("", "", ""), "arm64"))
    assert "need macOS 15, this is 14.5" in hosting.choose("auto", DEMO / "draft").reason
    monkeypatch.setattr(hosting.platform, "mac_ver", lambda: ("15.1", ("", "", ""), "arm64"))
    monkeypatch.setattr(hosting, "find_spec", lambda name: name == "CoreML" or None)
    assert str(hosting.choose("auto", DEMO / "draft")) == "coreml: converted as demo"
    monkeypatch.setattr(hosting, "find_spec", lambda name: None)
    assert "pip install 'mirror-mlx[coreml]'" in hosting.choose("auto", DEMO / "draft").reason


def test_a_draft_that_was_not_converted(there, tmp_path):
    shutil.copytree(DEMO / "draft", tmp_path / "other")
    weights = tmp_path / "other" / "streams.safetensors"  # another draft, whose packages the bundled ones are not
    mx.save_safetensors(str(weights), {name: array + 1 for name, array in mx.load(str(weights)).items()})
    with pytest.raises(DraftError, match="has not been converted: run 'mirror-mlx convert"):
        mirror_mlx.load("demo", draft_model=tmp_path / "other", draft_host="reference")


def test_a_package_that_was_changed(there, tmp_path, monkeypatch):
    shutil.copytree(there / find.NAME, tmp_path / find.NAME)
    monkeypatch.chdir(tmp_path)
    weights = next((tmp_path / find.NAME).rglob("weight.bin"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(DraftError, match=r"weight\.bin was changed after conversion"):
        mirror_mlx.load("demo", draft_host="reference")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["nowhere/at/all"], "there is no folder"),
        (["demo", "--context", "100"], "--context is 100: it must be a multiple of 32"),
        (["demo", "--context", "64"], "--context is 64"),
        (["demo", "--precision", "float8"], "invalid choice"),
    ],
)
def test_mistakes_are_one_line(argv, said, tmp_path, capsys):
    try:
        status = main(["convert", *argv, "--out", str(tmp_path / "out")])
    except SystemExit as exit_:
        status = exit_.code
    assert status == 2
    told = capsys.readouterr().err.strip()
    assert said in told
    assert told.count("\n") == 0
    assert not (tmp_path / "out").exists()


def test_an_unknown_host_is_named():
    with pytest.raises(UsageError, match="draft_host is 'moon': choose from auto, coreml"):
        mirror_mlx.load("demo", draft_host="moon")
