"""Every mistake a person can make at the command line is one line on stderr and exit status 2."""

import io
import json
import shutil
import socket
import sys
from types import SimpleNamespace

import models
import pytest
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

from mirror_mlx import hub as hub_module
from mirror_mlx.cli.main import main

ASK = ("--prompt", "6 times 7?")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return models.pair(tmp_path_factory.mktemp("pair"), says="Yes, 42.")


@pytest.fixture
def mistake(capsys):
    """Runs a command that must fail; returns its one line."""

    def run(*argv):
        try:
            status = main([str(word) for word in argv])
        except SystemExit as end:  # argparse's way
            status = end.code
        out, err = capsys.readouterr()
        assert status == 2
        assert out == ""
        assert err.startswith("mirror-mlx")
        assert err.endswith("\n")
        assert err.count("\n") == 1, err
        assert "Traceback" not in err
        return err

    return run


@pytest.mark.parametrize("command", ["generate", "chat"])
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--num-draft-tokens", "0"], "--num-draft-tokens is 0: it must be 1 or more, or use --mode ar"),
        (["--num-draft-tokens", "129"], "--num-draft-tokens is 129: it must be in 1 … 128"),
        (["--num-draft-tokens", "few"], "argument --num-draft-tokens: invalid int value: 'few'"),
        (["--kappa", "0"], "--kappa is 0: it must be 1 or more"),
        (["--kappa", "1000"], "--kappa is 1000: the target has only 259 tokens"),
        (["--max-roots", "0"], "--max-roots is 0: it must be 1 or more"),
        (["--fan-out", "wide"], "argument --fan-out: invalid choice: 'wide'"),
        (["--accept", "all"], "argument --accept: invalid choice: 'all'"),
        (["--accept", "reject", "--downweight", "2"], "--downweight is 2.0: it must be in (0, 1]"),
        (["--downweight", "0.5"], "--downweight needs --accept reject: where tokens must match"),
        (["--draft-timeout", "0"], "--draft-timeout is 0.0: it must be more than 0"),
        (["--draft-timeout", "inf"], "--draft-timeout is inf: it must be more than 0 and at most 86400 seconds"),
        (["--exit-layer", "0"], "--exit-layer is 0: this model has 4 layers, so it must be in 1 … 3"),
        (["--exit-layer", "4"], "--exit-layer is 4: this model has 4 layers, so it must be in 1 … 3"),
        (["--temp", "-0.5"], "--temp is -0.5: it must be 0 or more"),
        (["--temp", "nan"], "--temp is nan: it must be 0 or more"),
        (["--top-p", "1.5"], "--top-p is 1.5: it must be in [0, 1]"),
        (["--min-p", "-1"], "--min-p is -1.0: it must be in [0, 1]"),
        (["--top-k", "-1"], "--top-k is -1: it must be 0 or more"),
        (["--xtc-threshold", "0.7"], "--xtc-threshold is 0.7: it must be in [0, 0.5]"),
        (["--seed", "-1"], "--seed is -1: it must be 0 or more"),
        (["--max-tokens", "0"], "--max-tokens is 0: it must be 1 or more, or -1 for no limit"),
        (["-m", "-2"], "--max-tokens is -2"),
        (["--max-kv-size", "0"], "--max-kv-size is 0: it must be 1 or more"),
        (["--kv-bits", "4", "--max-kv-size", "64"], "--kv-bits and --max-kv-size exclude each other"),
        (["--mode", "fast"], "argument --mode: invalid choice: 'fast'"),
        (["--predictor", "magic"], "argument --predictor: invalid choice: 'magic'"),
        (["--fallback", "hope"], "argument --fallback: invalid choice: 'hope'"),
        (["--draft-host", "moon"], "argument --draft-host: invalid choice: 'moon'"),
        (["--chat-template-config", "{oops"], "--chat-template-config is no JSON"),
        (["--chat-template-config", "[1]"], "--chat-template-config must be a JSON object"),
        (["--extra-eos-token", "<stop>"], "--extra-eos-token is '<stop>': this model's tokenizer has no such token"),
        (["--adapter-path", "/no/adapter"], "there is no adapter '/no/adapter': check --adapter-path"),
        (["--kapa", "3"], "there is no flag --kapa, did you mean --kappa?"),
        (["--frobnicate=3"], "there is no flag --frobnicate (see"),
        (["stray"], "'stray' belongs to no flag"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_flags(mistake, folder, command, flags, said):
    prompt = ASK if command == "generate" else ()
    assert said in mistake(command, *prompt, "--model", folder, *flags)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["-p", ""], "the prompt is empty"),
        (["-p", " \n"], "the prompt is empty"),
        (["-p", "x" * 600], "the prompt has 619 tokens and the model's context is 512: shorten the prompt"),
        (["-p", "\udcff"], "the prompt is not valid UTF-8 text"),
        (["--prompt-file", "/no/prompt.txt"], "there is no prompt file '/no/prompt.txt': check --prompt-file"),
        (["--prompt-file", "/"], "/ cannot be read: Is a directory"),
        (["-p", "x", "--prompt-file", "y"], "argument --prompt-file: not allowed with argument --prompt/-p"),
        ([*ASK, "--trace", "/no/folder/run.json"], "--trace /no/folder/run.json cannot be written: there is no folder"),
        ([*ASK, "--trace", "/"], "--trace / cannot be written: it is a folder"),
        ([*ASK, "--ignore-chat-template", "--system-prompt", "Hi"], "--system-prompt needs the chat template"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_prompts_and_files(mistake, folder, flags, said):
    assert said in mistake("generate", "--model", folder, *flags)


@pytest.mark.parametrize("given", ["", "\udcff\n"], ids=["nothing", "bytes"])
def test_standard_input(mistake, monkeypatch, given):
    monkeypatch.setattr(sys, "stdin", io.StringIO(given))
    assert ("not valid UTF-8" if given else "there is no prompt: give one with --prompt") in mistake("generate")


def test_a_prompt_file_that_is_no_text(mistake, tmp_path):
    (tmp_path / "prompt").write_bytes(b"\xff\xfe\x00")
    assert "is not UTF-8 text" in mistake("generate", "--prompt-file", tmp_path / "prompt")


def test_the_trace_is_refused_before_anything_is_loaded(mistake):
    assert "--trace" in mistake("generate", *ASK, "--trace", "/no/run.json", "--model", "/no/model")


def test_commands(mistake):
    assert "the following arguments are required: COMMAND" in mistake()
    assert "invalid choice: 'chta'" in mistake("chta")


def broken(tmp_path, how):
    """A model folder with something wrong in it."""
    folder = models.save_tiny(tmp_path / "model")
    config, weights = folder / "config.json", folder / "model.safetensors"
    if how == "empty":
        shutil.rmtree(folder)
        folder.mkdir()
    elif how == "no weights":
        weights.unlink()
    elif how == "truncated":
        weights.write_bytes(weights.read_bytes()[:5000])
    elif how == "cut header":
        weights.write_bytes(weights.read_bytes()[:5])
    elif how == "damaged config":
        config.write_text('{"model_type": "qwen3", ')
    elif how == "list for a config":
        config.write_text("[]")
    elif how == "unknown type":
        config.write_text(json.dumps({**models.CONFIG, "model_type": "sphinx"}))
    elif how == "other sizes":
        config.write_text(json.dumps({**models.CONFIG, "hidden_size": 64}))
    elif how == "damaged tokenizer":
        (folder / "tokenizer.json").write_text('{"model": ')
    elif how == "no tokenizer":
        (folder / "tokenizer.json").unlink()
    return folder


BROKEN = {
    "empty": "has no config.json: it is not a model folder",
    "no weights": "has no model*.safetensors: the weights are missing",
    "truncated": "cannot be loaded",
    "cut header": "cannot be loaded",
    "damaged config": "has a damaged JSON file",
    "list for a config": "cannot be loaded",
    "unknown type": "Model type sphinx not supported",
    "other sizes": "cannot be loaded",
    "damaged tokenizer": "has a damaged JSON file",
    "no tokenizer": "cannot be loaded",
}


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("role", ["--model", "--draft-model"])
def test_broken_folders(mistake, tmp_path, folder, how, role):
    bad = broken(tmp_path, how)
    others = ("--model", folder) if role == "--draft-model" else ()
    line = mistake("generate", *ASK, *others, role, bad)
    assert BROKEN[how] in line
    assert str(bad) in line


def test_folders_that_are_none(mistake, tmp_path):
    assert "there is no folder '/no/model': check the path" in mistake("generate", *ASK, "--model", "/no/model")
    assert "there is no folder './model': check the path" in mistake("chat", "--model", "./model")
    (tmp_path / "file").touch()
    assert "is a file: give the model's folder" in mistake("chat", "--model", tmp_path / "file")


def test_drafts_that_do_not_fit(mistake, tmp_path):
    target = models.save_tiny(tmp_path / "target")
    family = models.save_tiny(tmp_path / "family", tokenizer_seed=1)
    assert "the draft has another tokenizer: token 3 is" in mistake(
        "generate", *ASK, "--model", target, "--draft-model", family
    )
    short = models.save_tiny(tmp_path / "short", max_position_embeddings=256)
    assert "the draft's context is 256 tokens and the target's 512" in mistake(
        "generate", *ASK, "--model", target, "--draft-model", short
    )


def test_a_model_without_a_chat_template(mistake, tmp_path):
    plain = models.save_tiny(tmp_path / "plain", chat_template=None)
    assert "has no chat template: use 'mirror-mlx generate'" in mistake("chat", "--model", plain)
    assert "--system-prompt needs the chat template, and this model has none" in mistake(
        "generate", *ASK, "--model", plain, "--system-prompt", "Hi"
    )


def test_a_template_that_refuses(mistake, tmp_path):
    template = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}x"
    strict = models.save_tiny(tmp_path / "strict", chat_template=template)
    assert "chat template refuses these messages: no system role" in mistake(
        "generate", *ASK, "--model", strict, "--system-prompt", "Hi"
    )


def test_no_network(mistake, monkeypatch):
    def lost(*_args, **_kwargs):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", lost)
    for name in ("nobody/no-such-model", "no-such-model"):
        line = mistake("generate", *ASK, "--model", name)
        assert f"{name} is no folder and cannot be fetched from the hub: check the name and the network" in line


def test_a_hub_that_says_nothing(mistake, monkeypatch):
    monkeypatch.setattr(hub_module, "_HUB_TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert "cannot be fetched from the hub" in mistake("generate", *ASK, "--model", "nobody/no-such-model")


def refuses(kind):
    def download(_name, **_):
        raise kind("40x Client Error", response=SimpleNamespace(headers={}, request=None))

    return download


def test_a_gated_model(mistake, monkeypatch):
    monkeypatch.setattr(hub_module, "_newest_revision", lambda name: "abc")
    monkeypatch.setattr(hub_module, "_download", refuses(GatedRepoError))
    line = mistake("generate", *ASK, "--model", "meta/gated")
    assert "meta/gated is gated: accept its licence on huggingface.co, then run 'hf auth login'" in line


@pytest.mark.parametrize("name", ["nobody/none", "not a name", "a/b/c"])
def test_names_the_hub_does_not_know(mistake, monkeypatch, name):
    monkeypatch.setattr(hub_module, "_newest_revision", refuses(RepositoryNotFoundError))
    assert repr(name) in mistake("generate", *ASK, "--model", name)
