"""The lab's instruments: what they change, and what they must not."""

import os
import threading
import time

import mlx.core as mx
import pytest
import zoo

from mirror_mlx.bench import lab
from mirror_mlx.bench.lab import ROW, Cores, Kept, Others, Pace, PacedDraft, PacedTarget, wait_until
from mirror_mlx.draft import Draft, ScriptedDraft
from mirror_mlx.messages import Root
from mirror_mlx.sampling import Sampler, Sampling
from mirror_mlx.target import Target
from mirror_mlx.target.submission import LayerByLayer


def tapped(model, **options):
    """What the tap sees of each row."""
    target = Target(model, **options)
    target.prefill([5, 9, 2], Sampler(Sampling()))
    tap = target.begin(7, [1, 3], [5, 9, 2, 7]).read()
    target.finish()
    target.close()
    return tap


def test_a_pace_waits_until_its_time_is_over():
    for seconds in (0.0003, 0.02):
        began = time.perf_counter()
        with Pace(seconds):
            pass
        assert time.perf_counter() - began >= seconds


def test_a_pace_adds_nothing_to_what_is_slower():
    pace = Pace(0.001)
    with pace:
        time.sleep(0.005)
        pace_over = time.perf_counter_ns()
    wait_until(pace_over)  # long past: returns at once
    pace.ns = 0
    with pace:
        pass


def test_it_is_told_whether_set_times_are_kept():
    kept, slow = Kept(), Kept()
    assert kept.share is None
    for _ in range(3):
        with Pace(0.05, kept):
            pass
        with Pace(0.001, slow):
            time.sleep(0.005)
        with Pace(0.0, slow):  # has none
            pass
    assert (kept.share, slow.share) == (1.0, 0.0)


class Clock(Pace):
    """A pace that counts the passes it is asked for."""

    def __init__(self):
        super().__init__()
        self.passes = 0

    def __enter__(self):
        self.passes += 1


@pytest.mark.parametrize(
    ("calls", "passes"),
    [
        ("prefill", 1),
        ("long prefill", 2),
        ("glue", 1),
        ("silent glue", 0),
        ("silent glue, commit", 1),
        ("silent glue, abandon", 0),
        ("silent glue, expand, advance, commit", 1),
        ("glue, expand, advance, advance, commit", 3),
        ("glue, commit, commit", 1),
        ("glue, abandon, rewind", 1),
    ],
)
def test_each_forward_pass_is_paced_and_nothing_else(calls, passes):
    clock = Clock()
    draft = PacedDraft(ScriptedDraft(lambda context: context[-1] + 1), clock)
    assert isinstance(draft, Draft)
    draft.begin(Sampling())
    do = {
        "prefill": lambda: draft.prefill([1, 2]),
        "long prefill": lambda: draft.prefill([1] * 2049),
        "glue": lambda: draft.glue([3, 4], 8),
        "silent glue": lambda: draft.glue([3, 4], 0),
        "expand": lambda: draft.expand([Root(1, 7)]),
        "advance": lambda: draft.advance([(1, 7)]),
        "commit": lambda: draft.commit(1),
        "abandon": lambda: draft.commit(0),
        "rewind": lambda: draft.rewind(0),
    }
    for call in calls.split(", "):
        do[call]()
    draft.close()
    assert clock.passes == passes


def test_a_paced_draft_proposes_what_the_draft_does():
    alone, paced = (ScriptedDraft(lambda context: sum(context) % 50) for _ in range(2))
    for draft in (alone, wrapped := PacedDraft(paced, Pace(1e-3))):
        draft.begin(Sampling())
        draft.prefill([1, 2])
    assert wrapped.glue([3, 4], 8) == alone.glue([3, 4], 8)
    for draft in (alone, wrapped):
        draft.expand([Root(0, 7), Root(1, 8)])
    assert wrapped.advance([(0, 7), (1, 8)]) == alone.advance([(0, 7), (1, 8)])
    assert wrapped.max_roots == alone.max_roots


needs_affinity = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="threads cannot be pinned here")


@needs_affinity
def test_each_device_has_its_core_for_a_while():
    cores, before, seen = Cores(), os.sched_getaffinity(0), {}

    def draft():
        with cores.for_draft():
            seen["draft"] = os.sched_getaffinity(0)
            mx.eval(mx.ones(3) + 1)

    thread = threading.Thread(target=draft)
    with cores.for_target():
        seen["target"] = os.sched_getaffinity(0)
        thread.start()
        thread.join()
    assert os.sched_getaffinity(0) == before
    if len(before) > 1:
        assert len(seen["target"]) == len(seen["draft"]) == 1
        assert seen["target"] != seen["draft"]
        assert str(cores) == f"target on core {cores.target}, draft on core {cores.draft}"


@needs_affinity
def test_one_core_is_shared_and_said_so(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    cores = Cores()
    assert "one core" in str(cores)
    with cores.for_target():
        mx.eval(mx.ones(3) + 1)


def test_a_system_that_does_not_pin_is_said_so(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    cores = Cores()
    assert "does not pin" in str(cores)
    with cores.for_draft():
        mx.eval(mx.ones(3) + 1)


def test_other_programs_are_noticed(monkeypatch, tmp_path):
    stat = tmp_path / "stat"
    clock = iter([0.0, 10.0])
    monkeypatch.setattr(lab, "Path", lambda name: stat)
    monkeypatch.setattr(lab.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(lab.time, "process_time", lambda: 1.0)
    monkeypatch.setattr(os, "sysconf", lambda name: 100, raising=False)
    stat.write_text("cpu  100 0 0 5000 0 0 0 0 0 0\ncpu0 1 2 3\n")
    others = Others()
    stat.write_text("cpu  400 100 50 5000 0 0 0 50 0 0\ncpu0 1 2 3\n")
    assert others.cores() == pytest.approx(0.5)


def test_a_system_that_does_not_tell_of_other_programs(monkeypatch, tmp_path):
    monkeypatch.setattr(lab, "Path", lambda name: tmp_path / "nothing")
    assert Others().cores() is None


def test_a_paced_target_says_what_it_says_alone():
    model = zoo.tiny("qwen3")
    assert tapped(model, submission=PacedTarget(LayerByLayer(), 1e-3, len(model.layers))) == tapped(model)


def test_a_paced_targets_device_does_one_forward_after_another(monkeypatch):
    """Times are those of a clock that only waiting moves."""
    now = 0

    def wait(moment):
        nonlocal now
        now = max(now, moment)

    monkeypatch.setattr(lab, "wait_until", wait)
    monkeypatch.setattr(lab.time, "perf_counter_ns", lambda: now)
    paced = PacedTarget(LayerByLayer(), 10e-6, 4)
    token, rows = mx.array([3]), mx.zeros(5)
    first, second = paced.ahead(token), paced.ahead(token)
    assert (first(), now) == (3, 10_000)
    assert (second(), now) == (3, 20_000)
    now = 50_000
    paced.begin([rows], [], rows)
    assert now == 50_000 + round(10_000 * (1 + 4 * ROW) / 4)
    paced.finish([rows, rows, rows], rows)
    assert now == 50_000 + round(10_000 * (1 + 4 * ROW))
