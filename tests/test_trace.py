import json

from hypothesis import given
from hypothesis import strategies as st

from mirror_mlx.messages import Outcome, Window
from mirror_mlx.trace import StepTrace, Trace, overlap, summarise


def intervals():
    return st.lists(st.integers(0, 60), max_size=12, unique=True).map(
        lambda points: list(zip(*[iter(sorted(points))] * 2, strict=False))
    )


@given(intervals(), intervals())
def test_overlap_equals_counting_moments(spans, others):
    inside = {t for a, b in spans for t in range(a, b)} & {t for a, b in others for t in range(a, b)}
    assert overlap(spans, others) == len(inside)


def run_of_two_steps():
    trace = Trace()
    trace.add("target", "verify", 0, 0, 10_000_000)
    trace.add("draft", "glue", 0, 1_000_000, 3_000_000)
    trace.add("draft", "pass", 0, 3_000_000, 12_000_000)
    trace.add("target", "collect", 0, 11_000_000, 12_020_000)
    trace.add("target", "verify", 1, 12_100_000, 22_100_000)
    both = {"roots": 4, "mode": "mirror"}
    trace.steps += [
        StepTrace(0, Window((1, 2), "jit"), Outcome(2, 5), next="hit", busy=12_020_000, waited=1_020_000, **both),
        StepTrace(1, Window((3, 4), "hit"), Outcome(0, 5), next="jit", busy=10_000_000, **both),
    ]
    trace.exchanges.append(30_000)
    return trace


def test_stats_come_from_the_timeline():
    stats = summarise(run_of_two_steps(), tokens=4, reason="")
    assert (stats.steps, stats.tokens_per_step, stats.drafted, stats.accepted) == (2, 2.0, 4, 2)
    assert stats.hit_rate == 0.5
    assert stats.windows_by_length == {2: 2}
    assert stats.hit_rate_by_row == (0.0, None, 1.0)
    assert (stats.draft_ms, stats.hidden_draft_ms, stats.verify_ms) == (11.0, 9.0, 10.0)
    assert stats.rendezvous_us == 50.0


def test_the_timeline_file_has_two_lanes(tmp_path):
    run = run_of_two_steps()
    run.taps.append(run.spans[0].start + 3_000_000)
    run.write(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["tid"] for event in events if event["ph"] == "X"} == {1, 2}
    verify = next(e for e in events if e["name"] == "verify")
    assert verify["dur"] == 10_000
    assert verify["args"]["accepted"] == 2
    tap = next(e for e in events if e["name"] == "tap")
    assert tap["ts"] - min(e["ts"] for e in events if e["ph"] == "X") == 3000


def test_an_empty_run_has_stats_too():
    assert summarise(Trace(), tokens=0, reason="").steps == 0
