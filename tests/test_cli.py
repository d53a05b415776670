"""The command line as it is started: real processes, pipes, a terminal, Ctrl-C."""

import codecs
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import models
import pytest

MIRROR = (sys.executable, "-m", "mirror_mlx.cli.main")
PATIENCE = 60  # seconds; a busy machine is slow, not wrong


def run(*argv, stdin=""):
    return subprocess.run([*MIRROR, *map(str, argv)], input=stdin, capture_output=True, text=True, timeout=PATIENCE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return models.pair(tmp_path_factory.mktemp("pair"), says="Yes, 42.")


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    folder = tmp_path_factory.mktemp("endless")
    return models.pair(folder, says="abcdefghi ", loops=True, max_position_embeddings=1 << 20)


@pytest.mark.parametrize("command", ["chat", "generate"])
def test_help_answers_at_once(command):
    times = []
    for _ in range(3):
        began = time.monotonic()
        done = run(command, "--help")
        times.append(time.monotonic() - began)
    assert done.returncode == 0
    assert "--num-draft-tokens" in done.stdout
    assert min(times) < 0.3


def test_nothing_heavy_is_imported_for_help():
    code = "import sys, mirror_mlx.cli.main as m\ntry: m.main(['chat', '-h'])\nexcept SystemExit: pass\n"
    code += "print(*{'mlx', 'mlx_lm', 'transformers', 'rich', 'numpy', 'huggingface_hub'} & set(sys.modules), '.')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.endswith("\n.\n")


def test_a_mistake_is_one_line(folder):
    done = run("generate", "--model", folder, "-p", "?", "--exit-layer", "9")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "mirror-mlx: --exit-layer is 9: this model has 4 layers, so it must be in 1 … 3\n"


def test_pipes_through_generate(folder):
    done = run("generate", "--model", folder, "--json", stdin="6 times 7?\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["text"] == "Yes, 42."


def test_pipes_through_chat(folder):
    done = run("chat", "--model", folder, stdin="6 times 7?\nq\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert "› 6 times 7?\nYes, 42.\n  9 tokens · " in done.stdout
    assert done.stdout.endswith("\n\n› q\n")
    assert not re.search(r"\x1b|\n\n\n| \n", done.stdout)


def test_a_reader_that_leaves_is_no_error(endless):
    argv = [*MIRROR, "generate", "--model", endless, "-p", "?", "--verbose", "F", "-m", "-1"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.read(10)
        process.stdout.close()
        assert process.wait(PATIENCE) == 0
        assert process.stderr.read() == b""


@contextmanager
def terminal(*argv):
    """A process on a terminal; yields it, what was read so far, and how to wait and type."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    process = subprocess.Popen(
        [*MIRROR, *map(str, argv)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env=environment,
    )
    os.close(theirs)
    seen, decoder = "", codecs.getincrementaldecoder("utf-8")()  # a character may arrive in parts

    def until(pattern):
        """Read until a pattern turns up; returns everything up to the end of it and forgets it."""
        nonlocal seen
        deadline = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, seen)):
            assert time.monotonic() < deadline, f"waited for {pattern!r}, saw {seen!r}"
            if select.select([ours], [], [], 0.2)[0]:
                try:
                    seen += decoder.decode(os.read(ours, 65536))
                except OSError as closed:
                    raise AssertionError(f"waited for {pattern!r}, saw {seen!r}") from closed
        text, seen = seen[: found.end()], seen[found.end() :]
        return text

    try:
        yield process, until, lambda text: os.write(ours, text.encode())
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_ctrl_c_in_a_chat(endless):
    with terminal("chat", "--model", endless, "-m", "-1") as (process, until, type_in):
        assert "loading" in until("\x1b\\[\\S*›\\S* ")
        type_in("Hi\n")
        until("abcdefghi abcd")
        process.send_signal(signal.SIGINT)
        assert "Traceback" not in until("stopped")
        until("› ?")
        type_in("Hi\n")
        until("abcdefghi abcd")
        process.send_signal(signal.SIGINT)
        until("stopped")
        until("›")
        time.sleep(0.2)  # readline sets the terminal up
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0


def test_ctrl_c_in_generate(endless):
    with terminal("generate", "--model", endless, "-p", "?", "-m", "-1") as (process, until, _):
        until("abcdefghi abcd")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        assert "Traceback" not in until("\r\n$")
