"""From names to an engine. What goes wrong is in test_cli_mistakes."""

import threading
import warnings

import mlx.core as mx
import models
import pytest
from mlx.utils import tree_flatten

import mirror_mlx
from mirror_mlx import blas, loading
from mirror_mlx import hub as hub_module
from mirror_mlx.draft import ScriptedDraft
from mirror_mlx.errors import DraftError, ModelError, UsageError

ASK = [{"role": "user", "content": "6 times 7?"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return models.pair(tmp_path_factory.mktemp("pair"), says="Yes, 42.")


def test_a_folder_of_two_is_a_pair(folder):
    with mirror_mlx.load(folder, mode="mirror") as engine:
        assert engine.generate(ASK) == "Yes, 42."
        assert engine.stats.mode == "mirror"
        assert engine.stats.tokens_per_step > 2


def test_a_target_alone_decodes_plainly(folder):
    with mirror_mlx.load(str(folder / "target")) as engine:
        assert engine.generate(ASK) == "Yes, 42."
        assert (engine.stats.mode, engine.stats.reason) == ("ar", "there is no draft")


def test_a_draft_by_name_or_as_an_object(folder):
    for draft in (folder / "draft", str(folder / "draft"), ScriptedDraft(lambda context: context[-1])):
        with mirror_mlx.load(folder / "target", draft, mode="mirror") as engine:
            assert engine.generate(ASK) == "Yes, 42."
            assert engine.stats.mode == "mirror"


def test_plain_mode_leaves_the_draft_unread(folder, tmp_path):
    with mirror_mlx.load(folder / "target", tmp_path / "nowhere", mode="ar") as engine:
        assert engine.generate(ASK) == "Yes, 42."


def test_the_users_home(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder))
    with mirror_mlx.load("~/target") as engine:
        assert engine.target.num_layers == 4


def test_more_ends(folder):
    with mirror_mlx.load(folder, extra_eos_token=[","]) as engine:
        assert engine.generate(ASK) == "Yes"
    with pytest.raises(UsageError, match="no such token"):
        mirror_mlx.load(folder, extra_eos_token=["<stop>"])


def test_half_precision_is_widened_on_the_cpu(folder, tmp_path):
    weights = mx.load(str(models.save_tiny(tmp_path / "model") / "model.safetensors"))
    mx.save_safetensors(
        str(tmp_path / "model" / "model.safetensors"), {name: w.astype(mx.bfloat16) for name, w in weights.items()}
    )
    with mirror_mlx.load(tmp_path / "model") as engine:
        kinds = {value.dtype for _, value in tree_flatten(engine.target.model.parameters())}
    assert kinds == {mx.float32 if mx.default_device() == mx.Device(mx.cpu) else mx.bfloat16}


def test_a_tail_of_unused_rows_is_no_other_tokenizer(tmp_path):
    folder = models.pair(tmp_path, draft={"vocab_size": models.VOCAB + 5})
    with mirror_mlx.load(folder, mode="mirror") as engine:
        plain = list(engine.stream(ASK, max_tokens=8))
        assert engine.stats.mode == "mirror"
    with mirror_mlx.load(folder, mode="ar") as engine:
        assert [r.token for r in plain] == [r.token for r in engine.stream(ASK, max_tokens=8)]


def test_unknown_hosts_and_options(folder):
    with pytest.raises(UsageError, match="draft_host is 'moon': choose from auto, coreml"):
        mirror_mlx.load(folder, draft_host="moon")
    with pytest.raises(UsageError, match="there is no option 'gamma'"):
        mirror_mlx.load(folder, gamma=3)


def test_slow_blas_is_said(folder, monkeypatch):
    if mx.default_device() != mx.Device(mx.cpu):
        pytest.skip("no BLAS is used on this device")
    monkeypatch.setattr(blas, "missing", lambda: "MLX runs on reference BLAS here")
    with pytest.warns(UserWarning, match="reference BLAS"):
        mirror_mlx.load(folder / "target").close()
    monkeypatch.setattr(blas, "missing", lambda: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        mirror_mlx.load(folder / "target").close()


@pytest.fixture
def hub(monkeypatch, folder):
    """A hub and a cache: set `newest`, `copy` and `fetched` to a value, or to an exception."""

    class Hub:
        newest = "abc"
        copy = FileNotFoundError("not in the cache")
        fetched = folder
        downloads = 0

        def give(self, value):
            if isinstance(value, BaseException):
                raise value
            return value

        def download(self, _name, allow_patterns):
            assert "streams.safetensors" in allow_patterns
            self.downloads += 1
            return self.give(self.fetched)

    hub = Hub()
    monkeypatch.setattr(hub_module, "_newest_revision", lambda name: hub.give(hub.newest))
    monkeypatch.setattr(hub_module, "snapshot_download", lambda name, **_: hub.give(hub.copy))
    monkeypatch.setattr(hub_module, "_download", hub.download)
    return hub


def test_what_is_not_cached_is_downloaded(hub, folder):
    assert hub_module.find("org/name", ModelError) == folder
    assert hub.downloads == 1


def test_a_cached_copy_is_used_while_it_is_the_newest(hub, tmp_path):
    hub.copy = tmp_path / "abc"
    assert hub_module.find("org/name", ModelError) == tmp_path / "abc"
    assert hub.downloads == 0
    hub.newest = "def"
    hub_module.find("org/name", ModelError)
    assert hub.downloads == 1


def test_a_cached_copy_is_used_without_the_hub(hub, tmp_path):
    hub.newest, hub.copy = TimeoutError("no answer"), tmp_path / "abc"
    assert hub_module.find("org/name", ModelError) == tmp_path / "abc"


def test_a_download_that_breaks_off_is_one_line(hub):
    hub.fetched = RuntimeError("peer closed\nconnection")
    with pytest.raises(DraftError, match=r"org/name .* check the name and the network \(peer closed connection\)"):
        hub_module.find("org/name", DraftError)


def test_the_hub_is_asked_on_a_thread_that_can_be_left(monkeypatch):
    asked = threading.Event()
    go_on = threading.Event()

    class Slow:
        def model_info(self, name, timeout):
            asked.set()
            go_on.wait(5)

    monkeypatch.setattr(hub_module, "HfApi", Slow)
    monkeypatch.setattr(hub_module, "_HUB_TIMEOUT", 0.05)
    with pytest.raises(TimeoutError, match="no answer"):
        hub_module._newest_revision("org/name")
    assert asked.is_set()
    go_on.set()


def test_a_pair_says_how_it_is_run_best_and_the_caller_goes_before(tmp_path):
    folder = models.pair(tmp_path)
    (folder / "pair.json").write_text('{"options": {"num_draft_tokens": 3, "kappa": 2}}')
    with loading.load(folder, mode="mirror", kappa=5, exit_layer=None) as engine:
        assert (engine.options.num_draft_tokens, engine.options.kappa) == (3, 5)
    for more in ('{"options": {"kappa": 2}, "hits": {"kappa": 9}}', '{"hits": {}}'):
        (folder / "pair.json").write_text(more)
        with loading.load(folder) as engine:
            assert engine.options.kappa == (2 if "options" in more else 8)
    for damage in ("{", '{"options": {"gamma": 1}}', '{"options": 3}', "[]"):
        (folder / "pair.json").write_text(damage)
        with pytest.raises(ModelError, match=r"pair\.json is damaged"):
            loading.load(folder)


def test_a_trained_tap_lies_in_the_pair_or_in_the_target(tmp_path):
    folder = models.pair(tmp_path)
    with loading.load(folder, mode="mirror") as engine:
        assert engine.target.adapter is None
    models.save_tap(folder / "target", [1])
    with loading.load(folder, mode="mirror") as engine:
        assert set(engine.target.adapter.layers) == {1}
        before = list(engine.stream(ASK, max_tokens=8))
    with loading.load(folder / "target", folder / "draft", mode="mirror") as engine:
        assert set(engine.target.adapter.layers) == {1}
    models.save_tap(folder, [1, 2])
    with loading.load(folder, mode="mirror", exit_layer=1) as engine:
        assert set(engine.target.adapter.layers) == {1, 2}
        assert [r.token for r in engine.stream(ASK, max_tokens=8)] == [r.token for r in before]
        assert (engine.stats.mode, engine.stats.reason) == ("mirror", "")


def test_a_tap_is_widened_on_the_cpu(tmp_path):
    folder = models.pair(tmp_path)
    file = models.save_tap(folder, [2])
    mx.save_safetensors(str(file), {name: value.astype(mx.float16) for name, value in mx.load(str(file)).items()})
    with loading.load(folder, mode="mirror") as engine:
        kinds = {array.dtype for array in engine.target.adapter.layers[2]}
    assert kinds == {mx.float32 if mx.default_device() == mx.Device(mx.cpu) else mx.float16}


def test_a_tap_of_another_model_is_named(tmp_path):
    folder = models.pair(tmp_path)
    for options, says in (({"hidden": 48}, "hidden size of 48, and this model has 32"), ({}, "layers 2, 9, and this")):
        file = models.save_tap(folder, [2, 9] if not options else [2], **options)
        with pytest.raises(ModelError, match=says) as caught:
            loading.load(folder, mode="mirror")
        assert str(file) in str(caught.value)
    loading.load(folder, mode="ar").close()  # nobody would look at it
