"""The doctor, here and on a Mac that is not there: `fake_coreml`, with the bundled packages executed by MLX."""

import functools
import json
import shutil
import sys

import numpy as np
import pytest
from fake_coreml import FakeCoreML, Op, Spec

from mirror_mlx import hosting
from mirror_mlx.cli.main import main
from mirror_mlx.doctor import endurance, latency, limits, neural_engine, run
from mirror_mlx.doctor.finding import Finding, Trouble, attempt
from mirror_mlx.doctor.timeline import LEGEND, draw
from mirror_mlx.draft.package import child, compiled, find, trial
from mirror_mlx.draft.package.coremltools_host import features
from mirror_mlx.draft.package.manifest import FILE
from mirror_mlx.draft.package.program import Program
from mirror_mlx.errors import DraftError
from mirror_mlx.trace import Trace

HERE = [sys.executable, "-c"]


@pytest.fixture(autouse=True)
def short(monkeypatch, tmp_path):
    """No converted drafts of this machine's user, few repetitions."""
    monkeypatch.setattr(find, "CACHE", tmp_path / "nothing")
    monkeypatch.setattr(latency, "CALLS", 3)
    monkeypatch.setattr(endurance, "COUNT", 3)
    monkeypatch.setattr(run, "TOKENS", 32)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def mac(monkeypatch, tmp_path):
    """A Mac with PyObjC and a Neural Engine."""
    import coremltools as tools

    program_of, kept = functools.cache(Program), {}

    def predict(package, function, inputs, state):
        program = program_of(package)
        _, slots = kept.setdefault(id(state), (state, program.state()))  # kept: no other state gets its identity
        return {name: np.array(value) for name, value in program.run(function, inputs, slots).items()}

    @functools.cache
    def describe(package):
        state = {"kv": (program_of(package).state()["kv"].shape, np.dtype(np.float16))}
        return {name: Spec(*found, state=state) for name, found in features(tools, package).items()}

    fake = FakeCoreML(predict, describe=describe)
    fake.linger = 0.0
    fake.install()
    monkeypatch.setattr(hosting, "lacking", lambda: "")
    monkeypatch.setattr(hosting, "coreml_host", lambda: "coreml")
    monkeypatch.setattr(compiled, "default_cache", lambda: tmp_path / "compiled")
    monkeypatch.setattr(child, "ask", here(child.ask))
    monkeypatch.setattr(limits, "CONTEXTS", (256,))
    monkeypatch.setattr(limits, "ENOUGH", 256)
    monkeypatch.setattr(limits, "PRECISIONS", ("int8",))
    yield fake
    fake.remove()


def here(ask):
    """Questions for child processes are answered in this one: the fake is nowhere else."""
    mains = {trial.__name__: trial.main, endurance.__name__: endurance.main}

    def answered(command, limit):
        if command[2] not in mains:
            return ask(command, limit)
        file = f"{command[3]}/answer.json"
        mains[command[2]]([*command[3:], file])
        with open(file) as answer:
            value = json.load(answer)
        shutil.os.remove(file)
        return child.Answer(value, 0, "", 0.5)

    return answered


def report(capsys, *words):
    status = main(["doctor", "--json", *words])
    found = json.loads(capsys.readouterr().out)
    return status, {(line["group"], line["name"]): line for line in found["findings"]}


def statuses(found):
    return {line["status"] for line in found.values()}


def test_on_this_machine(capsys):
    if not hosting.lacking():
        pytest.skip("this machine has a Neural Engine")
    status, found = report(capsys)
    assert status == 0
    assert "failed" not in statuses(found)
    assert found["machine", "Neural Engine"]["status"] == "skipped"
    assert found["demo", "says what the draft says (reference)"]["figures"]["top1"] >= 0.99
    assert found["demo", "segment-2.mlpackage rollout: latency (reference)"]["figures"]["alone_ms"] > 0
    for name in neural_engine.NAMES:
        assert found["demo", name]["status"] == "skipped"
    assert found["limits of Core ML", "state length"]["status"] == "skipped"
    ran = found["mirror", "a run of demo"]["figures"]
    assert ran["draft_host"] == "reference: asked for"
    assert ran["timeline"][-1] == LEGEND


def test_as_a_table(capsys, tmp_path):
    assert main(["doctor", "--quick", "--trace", str(tmp_path / "run.json")]) == 0
    said = capsys.readouterr().out
    assert "\ndemo\n  ✓ manifest: draft: 2 packages, float16" in said
    assert "✓ a run of demo: tokens the target's own" in said
    assert "target █" in said
    assert "limits of Core ML" not in said
    assert said.strip().splitlines()[-1].startswith(f"{said.count('✓')} well")
    assert json.loads((tmp_path / "run.json").read_text())["traceEvents"]


def test_a_mac_where_all_is_well(mac, capsys):
    mac.plan = lambda package, function: [Op("ios18.conv", "q", weight=0.9)] * 19 + [Op("ios18.cast", "c", "cpu")]
    status, found = report(capsys)
    assert {line["name"]: line["said"] for line in found.values() if line["status"] == "failed"} == {}
    assert status == 0
    assert "skipped" not in statuses(found)
    assert found["demo", "says what the draft says (coreml)"]["figures"]["top1"] >= 0.99
    where = found["demo", "segment-1.mlpackage rollout: devices"]
    assert where["said"] == (
        "95% of 20 operations on the Neural Engine, 100% of the estimated cost; elsewhere: 1 cast (cpu)"
    )
    assert found["demo", "segment-2.mlpackage prefill: latency (coreml)"]["figures"]["busy_ms"] > 0
    assert found["demo", "3 predictions of segment-2.mlpackage"]["figures"]["changed"] == 0
    assert found["limits of Core ML", "state length"]["figures"]["slots"] == 256
    assert found["limits of Core ML", "int8 weights"]["status"] == "ok"
    assert found["mirror", "a run of demo"]["figures"]["draft_host"].startswith("coreml: converted")


def test_a_mac_that_says_something_else(mac, capsys):
    honest, calls = mac.predict, []

    def wrong(*arguments):
        calls.append(1)
        found = honest(*arguments)
        return {name: value + len(calls) % 7 if name in ("h", "max") else value for name, value in found.items()}

    mac.predict = wrong
    mac.plan = lambda package, function: [Op("ios18.conv", "q", "cpu", ("cpu",))]
    status, found = report(capsys, "--quick")
    assert status == 1
    bad = {name: line for (group, name), line in found.items() if line["status"] == "failed"}
    assert "--draft-host mlx" in bad["says what the draft says (coreml)"]["advice"]
    assert "0% of 1 operations" in bad["segment-1.mlpackage rollout: devices"]["said"]
    assert "1 conv (cpu, not supported)" in bad["segment-1.mlpackage rollout: devices"]["said"]
    assert "2 of 3 differ from the first" in bad["3 predictions of segment-1.mlpackage"]["said"]
    assert all(line["advice"] for line in bad.values())
    # What is emitted is the target's own all the same.
    assert found["mirror", "a run of demo"]["status"] == "ok"


@pytest.mark.parametrize("fault", ["compile", "load", "predict"])
def test_a_mac_that_does_not_load_a_package(mac, capsys, fault):
    mac.faults = {fault: "the reason"}
    status, found = report(capsys, "--quick")
    assert status == 1
    assert "the reason" in found["demo", "first use of segment-1.mlpackage"]["said"]
    assert ("demo", "says what the draft says (coreml)") not in found
    assert found["mirror", "a run of demo"]["status"] == "failed"


def test_plans_that_cannot_be_had(mac, capsys):
    mac.faults = {"plan": "no plan"}
    status, found = report(capsys, "--quick")
    assert status == 1
    assert "no plan" in found["demo", "segment-1.mlpackage: devices"]["said"]
    assert found["demo", "3 predictions of segment-2.mlpackage"]["status"] == "ok"


def spoil(what):
    """A copy of the bundled packages with something wrong."""
    folder = find.Path(find.NAME) / "spoilt"
    shutil.copytree(find.BUNDLED / "demo", folder)
    what(folder)


def edit(**changed):
    def work(folder):
        made = json.loads((folder / FILE).read_text())
        (folder / FILE).write_text(json.dumps(made | changed))

    return work


@pytest.mark.parametrize(
    ("what", "name", "said"),
    [
        (lambda folder: (folder / FILE).write_text("{"), "manifest", "is damaged"),
        (edit(format=7), "manifest", "has format 7, and this version reads 1: convert the draft again"),
        (edit(parity={}), "manifest", "never compared with its draft"),
        (lambda f: next(f.rglob("weight.bin")).write_bytes(b""), "files", "was changed after conversion: convert"),
        (lambda f: shutil.rmtree(f / "segment-2.mlpackage"), "files", "is missing: convert the draft again"),
    ],
)
def test_a_spoilt_draft_fails_and_the_others_are_examined(capsys, what, name, said):
    spoil(what)
    status, found = report(capsys, "--quick")
    assert status == 1
    assert said in found["spoilt", name]["said"]
    assert found["demo", "files"]["status"] == "ok"


def test_the_draft_of_a_package_must_be_named(capsys, tmp_path):
    made = json.loads((find.BUNDLED / "demo" / FILE).read_text())
    spoil(edit(draft=made["draft"] | {"weights": "of another draft"}))
    _, found = report(capsys, "--quick")
    line = found["spoilt", "says what the draft says (reference)"]
    assert (line["status"], line["advice"]) == ("skipped", "name its folder: mirror-mlx doctor DRAFT")


def test_mistakes_are_one_line(capsys):
    for words, said in ((["nowhere/at/all"], "nowhere/at/all"), (["--trace", "no/such/folder/x"], "--trace")):
        assert main(["doctor", *words]) == 2
        error = capsys.readouterr().err.strip()
        assert said in error
        assert error.count("\n") == 0


def test_whatever_is_raised_becomes_a_finding():
    def raises(error):
        def work():
            raise error

        return attempt("a", "b", work)

    assert attempt("a", "b", lambda: ("fine", {"n": 1})) == Finding("a", "b", "ok", "fine", figures={"n": 1})
    assert raises(DraftError("it is\nbroken: mend it")).said == "it is broken: mend it"
    assert raises(Trouble("slow", "wait", status="note")) == Finding("a", "b", "note", "slow", "wait")
    found = raises(ZeroDivisionError("oh"))
    assert (found.status, found.said) == ("failed", "ZeroDivisionError: oh")
    assert "report" in found.advice


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crashed (SIGSEGV)"),
        ("import sys; sys.exit('no luck')", "ended with code 1: no luck"),
        ("import sys; open(sys.argv[-1], 'w').write('{\"fault\": \"not loaded\"}')", "not loaded"),
        ("import sys; open(sys.argv[-1], 'w').write('{\"changed\": 2, \"cosine\": 1.0}')", "2 of 5 differ"),
        ("import sys; open(sys.argv[-1], 'w').write('{\"changed\": 0, \"cosine\": 0.6}')", "cosine 0.6000"),
        ("import time; time.sleep(600)", "no end after 1 s"),
    ],
)
def test_predictions_in_a_child(code, said, monkeypatch):
    from mirror_mlx.draft.package import manifest

    monkeypatch.setattr(endurance, "LIMIT", 1.0 if "sleep" in code else 60.0)
    made = manifest.read(find.BUNDLED / "demo")
    with pytest.raises(Trouble) as caught:
        endurance.examine(made, find.BUNDLED / "demo", 0, "coreml", count=5, command=[*HERE, code])
    assert said in str(caught.value)
    assert "--draft-host mlx" in caught.value.finding[2]


def test_a_timeline_without_steps_is_empty():
    assert draw(Trace()) == []


def test_a_timeline_shows_what_fills_most_of_a_column():
    trace = Trace()
    for step in range(6):
        trace.add("target", "verify", step, 100 * step, 100 * step + 80)
        trace.add("draft", "pass", step, 100 * step + 10, 100 * step + 50)
    scale, target, draft, _ = draw(trace, steps=2, width=10)
    assert scale == "0.0 ms"
    assert target == "target █████ ████"[:8] + target[8:]
    assert len(target) == len(draft) == len("target ") + 10
    assert set(draft[7:]) == {"▓", " "}
