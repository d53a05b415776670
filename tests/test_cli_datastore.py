"""`mirror-mlx datastore`, from files to a file, and every mistake in one line."""

import json
import os
import re

import models
import pytest
from mlx_lm.tokenizer_utils import load as load_tokenizer

from mirror_mlx.cli.main import main
from mirror_mlx.lookup import Datastore, Retrieval, by_name, fingerprint


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return models.pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def chats(tmp_path):
    path = tmp_path / "chats.jsonl"
    lines = [{"prompt": f"{n}+1?", "completion": f"It is {n + 1}."} for n in range(8)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def mistake(capsys):
    """Runs a command that must fail; returns its one line."""

    def run(*argv):
        try:
            status = main([str(word) for word in argv])
        except SystemExit as end:  # argparse's way
            status = end.code
        out, err = capsys.readouterr()
        assert (status, out) == (2, "")
        assert err.count("\n") == 1, err
        return err

    return run


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["datastore", "--help"])
    assert stopped.value.code == 0
    assert "mirror-mlx datastore --model Qwen3-8B --data chats.jsonl --out chats.datastore" in capsys.readouterr().out


def test_chats_and_texts_become_a_datastore(folder, chats, tmp_path, capsys):
    (tmp_path / "notes.md").write_text("The sky is blue.\nGrass is green.\n")
    (tmp_path / "empty.py").write_text("")
    out = tmp_path / "all.datastore"
    data = [str(chats), str(tmp_path / "notes.md"), str(tmp_path / "empty.py")]
    assert main(["datastore", "--model", str(folder), "--data", *data, "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert re.fullmatch(rf"{out}: \d+ tokens of 9 documents, 0\.0 MB, \d+\.\d s\n", said.out)

    tokenizer = load_tokenizer(folder / "target")
    store = Datastore.load(out, tokenizer=fingerprint(tokenizer.get_vocab()))
    assert f" {len(store)} tokens" in said.out
    retrieval = by_name("retrieve", datastore=out)
    assert isinstance(retrieval, Retrieval)
    for context, follows in (("<|im_start|>user\n4+1", "?<|im_end|>\n<|im_start|>assistant\n"), ("sky", " is blue.\n")):
        retrieval.begin(tokenizer.encode(context, add_special_tokens=False))
        wanted = tokenizer.encode(follows, add_special_tokens=False)
        assert retrieval.propose(len(wanted)) == wanted


def test_a_long_text_is_encoded_in_pieces_and_stays_one_document(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("mirror_mlx.cli.datastore._PIECE", 5)
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\nfour\nfive and six")
    out = str(tmp_path / "a.datastore")
    assert main(["datastore", "--model", str(folder), "--data", str(tmp_path / "a.txt"), "--out", out]) == 0
    store = Datastore.load(out)
    assert store.documents == 1
    assert load_tokenizer(folder / "target").decode(store.tokens[:-1].tolist()) == (tmp_path / "a.txt").read_text()


def test_mistakes_in_files(folder, chats, tmp_path, mistake):
    command = ["datastore", "--model", folder, "--out", tmp_path / "out", "--data"]
    assert "nowhere.jsonl not found: expected chats (.jsonl) or text" in mistake(*command, chats, "nowhere.jsonl")
    chats.write_text('{"text": "a"}\n\n{"txt": "a"}\n')
    assert "chats.jsonl, line 3: expected messages, prompt and completion" in mistake(*command, chats)
    (tmp_path / "empty").write_text("")
    assert "empty is empty" in mistake(*command, tmp_path / "empty")
    (tmp_path / "nothing.jsonl").write_text('{"text": ""}\n')
    assert "there is no token to build a datastore of" in mistake(*command, tmp_path / "nothing.jsonl")
    assert not (tmp_path / "out").exists()


def test_mistakes_in_flags(folder, chats, tmp_path, mistake):
    assert "--out" in mistake("datastore", "--data", chats)
    assert "--data" in mistake("datastore", "--out", tmp_path / "out")
    assert "cannot be written: it is a folder" in mistake("datastore", "--data", chats, "--out", tmp_path)
    nowhere = tmp_path / "no" / "out"
    assert "cannot be written: there is no folder" in mistake("datastore", "--data", chats, "--out", nowhere)
    command = ["datastore", "--data", chats, "--out", tmp_path / "out", "--model"]
    assert "there is no folder './nowhere'" in mistake(*command, "./nowhere")
    (tmp_path / "bare").mkdir()
    assert "has no usable tokenizer" in mistake(*command, tmp_path / "bare")


def test_chats_need_a_template_that_takes_them(chats, tmp_path, mistake):
    command = ["datastore", "--data", chats, "--out", tmp_path / "out", "--model"]
    bare = models.save_tiny(tmp_path / "bare", chat_template=None)
    assert "this model has no chat template, which chats need" in mistake(*command, bare)
    strict = models.save_tiny(tmp_path / "strict", chat_template="{{ raise_exception('no user first') }}")
    assert "chats.jsonl, example 1: the model's chat template refuses it (no user first)" in mistake(*command, strict)


@pytest.mark.parametrize("moment", ["mirror_mlx.lookup.suffixes.np.argsort", "pathlib.Path.replace"])
def test_ctrl_c_leaves_what_was_there(folder, chats, tmp_path, monkeypatch, capsys, moment):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    out = tmp_path / "out"
    out.write_text("before")
    monkeypatch.setattr(moment, interrupt)
    assert main(["datastore", "--model", str(folder), "--data", str(chats), "--out", str(out)]) == 130
    assert out.read_text() == "before"
    assert sorted(os.listdir(tmp_path)) == ["chats.jsonl", "out"]
    assert "Traceback" not in capsys.readouterr().err
