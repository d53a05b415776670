"""`mirror-mlx chat`, in this process: whole conversations as they are read."""

import io
import json
import re
import signal
import sys

import models
import pytest

from mirror_mlx import __version__
from mirror_mlx.cli import chat as module
from mirror_mlx.cli.main import main
from mirror_mlx.cli.terminal import Stop, Terminal


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return models.pair(tmp_path_factory.mktemp("here") / "tiny", says="Yes, 42.")


@pytest.fixture
def chat(capsys, monkeypatch, folder, tmp_path):
    """Types lines; returns what was read, with figures masked, from the first question on."""
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.chdir(folder.parent)

    def run(typed, *argv, greeting=False):
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        assert main(["chat", "--model", "tiny", "--mode", "mirror", *argv]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert "\x1b" not in out
        out = re.sub(r" \d+(\.\d)?(?= (tok/s|tokens/step|%|of|ms))", " #", out)
        return out if greeting else out.partition("─" * 70 + "\n")[2]

    return run


LINE = "  9 tokens · # tok/s · # tokens/step · hit rate # % · draft hidden # of # ms · mirror\n"


def test_a_conversation(chat):
    typed = '6 times 7?\nAnd again?\nr\n"""\ntwo\nlines"""\n\n/model\n/nope\nq\nnot read\n'
    assert re.sub(r"on mlx: .*", "on mlx: …", chat(typed, greeting=True)) == (
        f"mirror-mlx {__version__} ".ljust(70, "─") + "\n"
        "  target  tiny · qwen3 · 4 layers · 385.3 k parameters · context 512\n"
        "  draft   the pair's own · qwen3 · 385.3 k parameters · on mlx: …\n"
        "  mode    mirror: the draft prepares the next tokens while the target checks these\n"
        "  q quits · r starts anew · h helps\n" + "─" * 70 + "\n"
        "› 6 times 7?\n"
        "Yes, 42.\n" + LINE + "\n"
        "› And again?\n"
        "Yes, 42.\n" + LINE + "\n"
        "› r\n"
        "  a new conversation\n"
        '› """\n'
        "… two\n"
        '… lines"""\n'
        "Yes, 42.\n" + LINE + "\n"
        "› \n"
        "› /model\n"
        "  target  tiny · qwen3 · 4 layers · 385.3 k parameters · context 512\n"
        "  draft   the pair's own · qwen3 · 385.3 k parameters · on mlx: …\n"
        "  mode    mirror: the draft prepares the next tokens while the target checks these\n"
        "› /nope\n"
        "  there is no /nope: h lists what there is\n"
        "› q\n"
    )


def test_the_end_of_input_quits(chat):
    assert chat("") == ""
    assert chat("Hi") == "› Hi\nYes, 42.\n" + LINE


def test_help(chat):
    assert chat("h\n") == chat("/help\n").replace("› /help", "› h")
    out = chat("h\n")
    for command in ("q", "r, /clear", "h, /help", "/model", "/save FILE", '"""', "Ctrl-C"):
        assert f"\n  {command} " in out
    assert "word problems" not in out
    assert all(question in chat("h\n", "--model", "demo") for question in module.TRY)


def saved(tmp_path, name="talk.json"):
    return json.loads((tmp_path / name).read_text())


def test_history_is_a_message_list(chat, tmp_path):
    chat(f"6 times 7?\nSure?\n/save {tmp_path}/talk.json\n", "--system-prompt", "Be brief.")
    assert saved(tmp_path) == {
        "model": "tiny",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "6 times 7?"},
            {"role": "assistant", "content": "Yes, 42."},
            {"role": "user", "content": "Sure?"},
            {"role": "assistant", "content": "Yes, 42."},
        ],
    }


@pytest.mark.parametrize("reset", ["r", "/clear"])
def test_a_reset_keeps_the_system_prompt(chat, tmp_path, reset):
    chat(f"6 times 7?\n{reset}\n/save {tmp_path}/talk.json\n", "--system-prompt", "Be brief.")
    assert saved(tmp_path)["messages"] == [{"role": "system", "content": "Be brief."}]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ('"""one line"""', "one line"),
        ('"""\n  a\n\n  b\n"""', "  a\n\n  b"),
        ("/home is where the heart is", None),
        ("/ is a slash", "/ is a slash"),
        ("q?", "q?"),
        ("  indented", "  indented"),
    ],
)
def test_messages(chat, tmp_path, typed, message):
    chat(f"{typed}\n/save {tmp_path}/talk.json\n")
    expected = [] if message is None else [message, "Yes, 42."]
    assert [m["content"] for m in saved(tmp_path)["messages"]] == expected


def test_the_end_of_input_ends_a_message_too(chat):
    assert chat('"""a\nb') == '› """a\n… b\nYes, 42.\n' + LINE


def test_saving(chat, tmp_path):
    (tmp_path / "there").touch()
    out = chat(f"/save\n/save {tmp_path}/there\n/save {tmp_path}/no/where\nHi\n/save {tmp_path}/new\n")
    assert "  a file name is missing: /save FILE\n" in out
    assert f"  {tmp_path}/there exists: choose another name\n" in out
    assert f"  {tmp_path}/no/where cannot be written: No such file or directory\n" in out
    assert f"  2 messages saved to {tmp_path}/new\n" in out


def test_an_overlong_conversation_goes_on(chat):
    out = chat(f"{'x' * 600}\nHi\n")
    assert (
        "  the prompt has 619 tokens and the model's context is 512: shorten the prompt, or start anew with r\n"
        "\n› Hi\nYes, 42.\n"
    ) in out


def test_an_answer_at_the_end_of_the_context(chat):
    out = chat(f"{'x' * 490}\n")
    assert out.endswith("  the model's context is full: start anew with r\n")
    assert "Yes\n" in out


def test_an_answer_cut_short(chat):
    out = chat("Hi\n", "-m", "3")
    assert "\nYes\n  3 tokens" in out
    assert out.endswith("  the answer was cut after 3 tokens: --max-tokens allows more\n")


def test_a_template_that_refuses_is_one_line(capsys, monkeypatch, tmp_path):
    template = "{% if messages[-1]['content'] == 'no' %}{{ raise_exception('not that') }}{% endif %}x"
    models.save_tiny(tmp_path, says="Yes, 42.", chat_template=template)
    monkeypatch.setattr(sys, "stdin", io.StringIO("no\nyes\n"))
    assert main(["chat", "--model", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "the model's chat template refuses these messages: not that, or start anew with r\n" in out
    assert "› yes\nYes, 42.\n" in out


def test_a_draft_that_fails_is_said(chat, monkeypatch):
    def fails(*_args):
        raise RuntimeError("boom")

    monkeypatch.setattr("mirror_mlx.draft.autoregressive.AutoregressiveDraft.glue", fails)
    assert "Yes, 42.\n" in (out := chat("Hi\n"))
    assert out.endswith(" · ar: draft died: RuntimeError: boom\n")


class Interrupting(Terminal):
    """Ctrl-C after the first pieces of an answer, or instead of the next line."""

    pieces = 0

    def write(self, text):
        super().write(text)
        if text in ("Y", "e"):
            self.pieces += 1
            if self.pieces == 2:
                signal.raise_signal(signal.SIGINT)

    def ask(self, prompt="›"):
        line = super().ask(prompt)
        if line == "^C":
            raise KeyboardInterrupt
        return line


def test_ctrl_c_stops_an_answer_and_keeps_it(chat, monkeypatch, tmp_path):
    monkeypatch.setattr("mirror_mlx.cli.terminal.Terminal", Interrupting)
    out = chat(f"Hi\n/save {tmp_path}/talk.json\nMore?\n")
    assert out.startswith("› Hi\nYe\n  stopped\n\n› /save")
    assert out.endswith("› More?\nYes, 42.\n" + LINE)
    assert [m["content"] for m in saved(tmp_path)["messages"]] == ["Hi", "Ye"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_while_the_prompt_is_processed(chat, monkeypatch, tmp_path):
    real = module.Chat._responses
    calls = []

    def interrupted(self, stop):
        calls.append(1)
        if len(calls) == 1:
            signal.raise_signal(signal.SIGINT)
        return real(self, stop)

    monkeypatch.setattr(module.Chat, "_responses", interrupted)
    out = chat(f"Hi\n/save {tmp_path}/talk.json\nMore?\n")
    assert out.startswith("› Hi\n\n  stopped\n")
    assert saved(tmp_path)["messages"] == []
    assert out.endswith("› More?\nYes, 42.\n" + LINE)


def test_ctrl_c_at_the_prompt_quits(chat, monkeypatch):
    monkeypatch.setattr("mirror_mlx.cli.terminal.Terminal", Interrupting)
    assert chat("Hi\n^C\nnot read\n").endswith("› ^C\n\n")


def test_a_second_ctrl_c_is_the_usual_one():
    with Stop() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.wished
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_every_conversation_draws_anew(capsys, monkeypatch, folder):
    """Sampled answers differ after a reset, and are the same when the chat is started again."""
    outs = []
    for _ in range(2):
        monkeypatch.setattr(sys, "stdin", io.StringIO("Hi\nr\nHi\n"))
        main(["chat", "--model", str(folder), "--temp", "4", "-m", "12"])
        said = re.findall(r"› Hi\n(.*?)\n  \d+ token", capsys.readouterr().out, re.DOTALL)
        assert said[0] != said[1]
        outs.append(said)
    assert outs[0] == outs[1]


def test_what_the_draft_is(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("q\n"))
    assert main(["chat", "--mode", "mirror", "--draft-host", "mlx"]) == 0
    said = capsys.readouterr().out
    assert "the pair's own · qwen3 · 1.7 M parameters · 2 streams · on mlx" in said
