"""`mirror-mlx bench contend`: what is measured under which load, and that no load outlives its measurement."""

import json
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import models
import pytest

from mirror_mlx.bench import contend, through
from mirror_mlx.bench.contend import Load, Settings, loads, measure, started
from mirror_mlx.bench.lab import Cores
from mirror_mlx.cli.main import main
from mirror_mlx.errors import MirrorError, UsageError

PATIENCE = 20  # seconds
FIGURES = {
    "load", "kind", "plain_tokens_per_second", "tokens_per_second", "speed", "speed_min_max", "step_ms", "verify_ms",
    "draft_ms", "pass_ms", "hit_rate", "hidden_share", "tokens_per_step", "steps", "identical", "load_cores",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return models.pair(tmp_path_factory.mktemp("pair"), draft={"seed": 1})


def tiny(folder, **more):
    return Settings(
        model=str(folder), params=0, pass_ms=1.0, limit=2, rounds=1, max_tokens=12, num_draft_tokens=3, max_roots=16,
        **more,
    )  # fmt: skip


def fake(log, fails=None):
    @contextmanager
    def start(load):
        log.append(("begins", load.name))
        try:
            if load.name == fails:
                raise KeyboardInterrupt
            yield
        finally:
            log.append(("ends", load.name))

    return start


def test_every_load_has_its_row_and_ends_before_the_next_begins(folder):
    log, told = [], []
    found = measure(tiny(folder), lambda done, what: told.append((done, what)), fake(log))
    names = [load.name for load in loads(Cores())]
    assert [row["load"] for row in found["loads"]] == names
    assert (names[0], names[-1]) == ("none", "none again")
    assert log == [(what, name) for name in names for what in ("begins", "ends")]
    assert all(row.keys() == FIGURES for row in found["loads"])
    assert all(row["identical"] and row["tokens_per_second"] > 0 and row["speed"] > 0 for row in found["loads"])
    assert all(row["pass_ms"] >= 1 for row in found["loads"])
    assert told[-1] == (len(names) * 2 * 2, "done")
    assert found["setup"]["asked"] == 2
    assert found["setup"]["model"] == folder.name
    json.dumps(found)


def test_plain_and_mirror_take_turns(folder):
    told = []
    measure(tiny(folder), lambda done, what: told.append(what), fake([]))
    ways = [what.partition(": ")[2] for what in told if what.startswith("none: ")]
    assert sorted(ways[:2]) == sorted(ways[2:4]) == ["mirror", "plain"]
    assert ways[:2] == ways[2:4][::-1]


def test_a_load_ends_when_the_measurement_is_stopped(folder):
    log, last = [], loads(Cores())[1].name
    with pytest.raises(KeyboardInterrupt):
        measure(tiny(folder), start=fake(log, fails=last))
    assert log[-1] == ("ends", last)


def test_loads_know_the_cores(monkeypatch):
    cores = Cores()
    cores.target, cores.draft = 4, 5
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {4, 5, 6, 7}, raising=False)
    assert [(load.kind, load.cores) for load in loads(cores)] == [
        ("none", ()), ("spin", (4,)), ("spin", (5,)), ("memory", (6, 7)), ("none", ()),
    ]  # fmt: skip
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {4, 5}, raising=False)
    assert loads(cores)[3].cores == (4, 5)
    cores.target = cores.draft = None
    assert [load.kind for load in loads(cores)] == ["none", "spin", "memory", "none"]


@pytest.mark.parametrize("load", [Load("a core", "spin"), Load("memory bus", "memory", (), 8)])
def test_a_real_load_works_and_ends(load):
    with started(load) as process:
        assert process.poll() is None
        before = _seconds(process.pid)
        deadline = time.monotonic() + PATIENCE
        while before is not None and _seconds(process.pid) <= before:
            assert time.monotonic() < deadline, "it uses no core"
            time.sleep(0.02)
    assert process.poll() is not None


def _seconds(pid):
    """What a process has used of its cores, in ticks; None where the system does not tell."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return None
    fields = stat.read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_a_load_stays_on_its_core():
    if not hasattr(os, "sched_getaffinity"):
        pytest.skip("this system does not pin threads")
    core = max(os.sched_getaffinity(0))
    with started(Load("a core", "spin", (core,))) as process:
        assert os.sched_getaffinity(process.pid) == {core}


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_load_ends_with_an_error(error):
    with pytest.raises(error), started(Load("a core", "spin")) as process:
        raise error
    assert process.poll() is not None


def test_a_load_ends_by_itself_when_its_program_is_killed(tmp_path):
    """It is not this process's child then: another program starts it and goes without a word."""
    import signal
    import subprocess

    code = (
        "import time; from mirror_mlx.bench.contend import Load, started\n"
        "with started(Load('a core', 'spin')) as process:\n    print(process.pid, flush=True)\n    time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE
    while _alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _alive(pid):
    """A process that has ended and that nobody has asked for its status is not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z" if stat.parent.parent.exists() else True
    except OSError:
        return False


def test_a_load_that_cannot_start_or_last_is_an_error(monkeypatch):
    monkeypatch.setattr(contend, "_PROGRAM", "raise MemoryError")
    with pytest.raises(MirrorError, match="memory bus did not start: are 16 MiB of memory free"):
        started(Load("memory bus", "memory", (), 8)).__enter__()
    monkeypatch.setattr(contend, "_PROGRAM", "import os; os.write(1, b'.')")
    with pytest.raises(MirrorError, match="ended by itself"), started(Load("a core", "spin")) as process:
        process.wait()


LAB = ["--params", "0", "--pass-ms", "1", "--limit", "1", "--rounds", "1", "--max-tokens", "10"]


def test_the_command(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(contend, "started", fake([]))
    asked = tmp_path / "asked.txt"
    asked.write_text("What is 6 times 7?\n")
    words = ["bench", "contend", "--model", str(folder), *LAB, "--num-draft-tokens", "3", "--prompts", str(asked)]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["loads"][0].keys() == FIGURES
    assert found["setup"]["prompts"] == "asked.txt"
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "mirror tok/s" in out
    assert "none again" in out
    assert "at worst" in out


def test_mistakes_are_one_line(folder, capsys):
    for words, said in (
        (["--limit", "0"], "--limit is 0: it must be 1 or more"),
        (["--rounds", "0"], "--rounds is 0"),
        (["--pass-ms", "-1"], "--pass-ms is -1.0"),
        (["--kappa", "0"], "--kappa is 0"),
        (["--model", "/nowhere"], "there is no folder '/nowhere'"),
        (["--prompts", "nowhere.txt", "--model", str(folder)], "there is no file 'nowhere.txt'"),
    ):
        assert main(["bench", "contend", *words]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    with pytest.raises(UsageError):
        Settings(max_tokens=0)


def test_a_load_comes_and_goes_within_each_answer(folder):
    log = []

    @contextmanager
    def start(load):
        log.append(("begins", load.name))
        yield
        log.append(("ends", load.name))

    found = through.measure(tiny(folder), start=start)
    names = [row["load"] for row in found["through"]]
    assert len(names) == len(set(names)) >= 2
    for row in found["through"]:
        assert row["identical"]
        assert set(row["rates"]) == {"ar", "auto"}
        assert all(rate > 0 for rates in row["rates"].values() for rate in rates.values())
        assert 0 < row["least_under_load"] <= row["under_load"]
        assert row["recovered"] > 0
    events = [event for event in log if event[1] != "none"]
    assert names[0] == "none"
    assert len(events) == 2 * 2 * 2 * (len(names) - 1)  # beginning and end, prompts, ways
    assert all(a[0] == "begins" and b == ("ends", a[1]) for a, b in zip(events[::2], events[1::2], strict=True))


def test_an_answer_that_does_not_fit_is_said(folder):
    with pytest.raises((UsageError, MirrorError), match="max_tokens is 100000"):
        through.measure(Settings(model=str(folder), params=0, pass_ms=0, limit=1, rounds=1, max_tokens=100_000))
