"""Which device runs what: plans of a Core ML that enforces its rules, through both hosts."""

import ast
import json
import os
import sys
from dataclasses import asdict
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from fake_coreml import FakeCoreML, Op, Violation
from test_coreml_host import compute, converted, real_package

from mirror_mlx.draft.package import compiled, coreml_bridge, coreml_plan, trial
from mirror_mlx.draft.package.coreml_bridge import Bridge
from mirror_mlx.draft.package.coreml_plan import Operation, Residency, in_child, residency
from mirror_mlx.errors import DraftError

FIRST, SECOND = "segment-1.mlpackage", "segment-2.mlpackage"
PREFILL = [
    Op("const", "weight", None),
    Op("ios18.constexpr_blockwise_shift_scale", "unpacked", "cpu", ("cpu",), weight=9.0),
    Op("ios18.conv", "q", weight=0.3),
    Op("ios18.slice_update", "kv", "cpu", weight=0.1),
    Op("ios18.gather", "rows", "gpu", ("gpu", "cpu"), weight=0.1),
    Op("coreml_update_state", None, None),
    Op("ios18.matmul", "h"),
]


@pytest.fixture
def fake():
    made = FakeCoreML(compute)
    made.install()
    yield made
    made.remove()


@pytest.fixture
def draft(tmp_path, fake):
    """(manifest, folder, options of `residency`)."""
    return converted(tmp_path), tmp_path, {"cache": tmp_path / "cache", "tried": True}


def asked(draft, **options) -> list[Residency]:
    return residency(draft[0], draft[1], **{**draft[2], **options})


def fails(draft, **options) -> str:
    with pytest.raises(DraftError) as caught:
        asked(draft, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# What a plan comes to


def test_every_function_of_every_package_with_devices_costs_and_what_runs_elsewhere(fake, draft):
    fake.plan = lambda package, function: PREFILL if (package.name, function) == (FIRST, "prefill") else [Op("a", "b")]
    first, *others = asked(draft)
    assert [(one.file, one.function) for one in (first, *others)] == [
        (FIRST, "prefill"), (FIRST, "rollout"), (SECOND, "prefill"), (SECOND, "rollout"),
    ]  # fmt: skip
    assert first.operations == {"neural engine": 2, "gpu": 1, "cpu": 1, "other": 0}
    assert (first.total, first.constants, first.unplaced) == (4, 2, 1)
    assert first.share == 0.5
    assert first.costs == pytest.approx({"neural engine": 0.6, "gpu": 0.2, "cpu": 0.2, "other": 0.0})
    assert first.cost_share == pytest.approx(0.6)
    assert first.elsewhere == (
        Operation("ios18.slice_update", "kv", "cpu", True, pytest.approx(0.2)),
        Operation("ios18.gather", "rows", "gpu", False, pytest.approx(0.2)),
    )
    for one in others:  # of the function that was asked for, and of no other
        assert (one.share, one.total, one.elsewhere, one.cost_share) == (1.0, 1, (), 0.0)
    assert fake.plans == 4
    assert fake.compiled == 2
    assert json.loads(json.dumps(asdict(first)))["elsewhere"][1]["operator"] == "ios18.gather"


def test_a_package_that_falls_back_to_the_cpu_wholly(fake, draft):
    fake.plan = lambda *_: [Op(f"ios18.op{n}", f"out{n}", "cpu", ("cpu",), 0.25) for n in range(4)]
    found = asked(draft, packages=[0])[0]
    assert (found.share, found.cost_share) == (0.0, 0.0)
    assert found.costs["cpu"] == 1.0
    assert [one.output for one in found.elsewhere] == ["out0", "out1", "out2", "out3"]
    assert not any(one.supported for one in found.elsewhere)


def test_operations_without_usage_do_not_count_and_a_new_kind_of_device_is_another(fake, draft):
    fake.plan = lambda *_: [Op("const", "w", None), Op("ios18.mystery", "m", None), Op("ios18.conv", "c", "npu")]
    found = asked(draft, packages=[0])[0]
    assert (found.total, found.constants, found.unplaced) == (1, 1, 1)
    assert found.operations["other"] == 1
    assert found.elsewhere[0].device == "other"


def test_a_plan_without_any_device_is_no_share_of_zero(fake, draft):
    fake.plan = lambda *_: [Op("const", "w", None), *(Op("ios18.mul", "x", None) for _ in range(3))]
    said = fails(draft)
    assert f"no device for any of the 3 operations of {FIRST} prefill" in said
    assert "e5bundlecache" in said


# Faults


def test_what_core_ml_says_is_a_draft_error(fake, draft):
    fake.faults = {"plan": "the\nreason"}
    assert fails(draft) == f"{FIRST} prefill cannot be planned: the reason: use --draft-host mlx"
    fake.faults = {"compile": "the reason"}
    (draft[1] / "cache").rename(draft[1] / "old")
    assert "cannot be compiled: the reason" in fails(draft)


def test_a_plan_of_another_kind_of_model_or_without_the_function(fake, draft):
    for plan in (lambda *_: None, lambda package, function: None if function == "rollout" else [Op("a")]):
        fake.plan = plan
        assert "Core ML finds no function" in fails(draft)


def test_a_hang_ends_at_the_limit_and_an_answer_that_comes_later_does_no_harm(fake, draft):
    fake.silent = True
    assert fails(draft, limit=0.05) == (
        f"Core ML has not said in 0.05 s where {FIRST} prefill runs: restart the Mac and try again, "
        "or use --draft-host mlx"
    )
    assert fake.plans == 1
    fake.silent = False
    for call in fake.unanswered:
        call()
    assert asked(draft)[0].share == 1.0


def test_the_fake_would_have_noticed(fake, draft, tmp_path):
    package = draft[0].packages[0]
    bridge = Bridge()
    model = compiled.Entry(draft[1] / FIRST, package.contents, tmp_path / "cache").compiled(bridge.compile)
    plans = []
    for wrong in (lambda plan, error: plan.modelStructure(), lambda plan, error: 1, lambda plan, error: 1 / 0):
        fake.silent = True
        bridge.plan(model, "prefill", wrong)
        fake.unanswered.pop()()
        with pytest.raises(Violation, match="a handler raised"):
            fake.remove()
        fake._broken.clear()
        fake.install()
    bridge.plan(model, "prefill", lambda plan, error: plans.append(plan))
    fake.unanswered.pop()()
    with pytest.raises(Violation, match="outside an autorelease pool"):
        plans[0].modelStructure()
    with pytest.raises(Violation, match="no compiled model"):
        bridge.plan(draft[1] / FIRST, "prefill", lambda plan, error: None)


def test_nothing_is_planned_before_its_first_use_was_tried(fake, draft, monkeypatch):
    told = []

    def require(made, folder, index, name, *, cache, notify):
        assert cache == draft[2]["cache"]
        notify(f"{name} {index}")
        if index == 1:
            raise DraftError("it hangs")

    monkeypatch.setattr(trial, "require", require)
    assert fails(draft, tried=False, notify=told.append, limit=7) == "it hangs"
    assert told == ["coreml 0", f"asking Core ML where {FIRST} runs: up to 7 s for each function", "coreml 1"]
    assert fake.plans == 2
    assert len(asked(draft, tried=False, packages=[0])) == 2


def test_where_there_is_no_core_ml(fake, draft, monkeypatch):
    monkeypatch.setitem(sys.modules, "CoreML", None)
    monkeypatch.setattr(coreml_plan, "find_spec", lambda name: None)
    for host in ("coreml", "coremltools"):
        assert "pip install 'mirror-mlx[coreml]'" in fails(draft, host=host)
    coreml_bridge.sys.platform = "linux"
    for host in ("coreml", "coremltools"):
        assert "needs macOS 15" in fails(draft, host=host)


# coremltools

CHILD = [sys.executable, "-c"]


def test_coremltools_plans_each_function_as_a_package_of_its_own(fake, draft, monkeypatch):
    calls = []

    def planned(package, function, limit):
        calls.append((package, function, limit))
        return [("ios18.conv", "q", "neural engine", ("cpu", "neural engine"), 0.5), ("ios18.add", "", "cpu", (), 0.5)]

    monkeypatch.setattr(coreml_plan, "in_child", planned)
    found = asked(draft, host="coremltools", limit=9.0, packages=[1])
    assert calls == [(draft[1] / SECOND, "prefill", 9.0), (draft[1] / SECOND, "rollout", 9.0)]
    assert [one.function for one in found] == ["prefill", "rollout"]
    assert (found[0].share, found[0].elsewhere[0].output) == (0.5, "")
    assert fake.compiled == 0


def test_a_child_answers_fails_crashes_and_hangs(tmp_path):
    package = tmp_path / FIRST

    def child(code, limit=60.0):
        return in_child(package, "prefill", limit, [*CHILD, f"import os, sys, time; {code}"])

    def said(code, limit=60.0):
        with pytest.raises(DraftError) as caught:
            child(code, limit)
        return str(caught.value)

    row = ["ios18.conv", "q", "cpu", ["cpu"], 0.5]
    assert child(f"open(sys.argv[3], 'w').write({json.dumps(row)!r}.join('[]'))") == [(*row[:3], ("cpu",), 0.5)]
    assert said("assert sys.argv[1:3] == 1, 'no'") == (
        f"{FIRST} prefill cannot be planned: AssertionError: no: use --draft-host mlx"
    )
    assert "coremltools ended with code -6" in said("print('loading', flush=True); os.abort()")
    assert f"has not said in 1 s where {FIRST} prefill runs" in said("time.sleep(600)", 1.0)


@pytest.fixture
def planning(monkeypatch):
    """The real coremltools, with a Core ML under it that puts what it can on the Neural Engine, and adds on the CPU."""
    tools = pytest.importorskip("coremltools")
    plans = tools.models.compute_plan

    def device(name):
        kind = getattr(tools.models.compute_device, f"ML{name}ComputeDevice")
        return kind.__new__(kind)

    def compile_model(model, destination_path):
        Path(destination_path).mkdir()
        assert (Path(model) / "Manifest.json").is_file()
        return destination_path

    class Plan:
        def __init__(self, package):
            program = tools.models.utils.load_spec(str(package)).mlProgram
            self.functions = {}
            for name, function in program.functions.items():
                (block,) = function.block_specializations.values()
                operations = [
                    plans.MLModelStructureProgramOperation(
                        {}, one.type, [plans.MLModelStructureProgramNamedValueType(o.name, None) for o in one.outputs],
                        [], None,
                    )
                    for one in block.operations
                ]  # fmt: skip
                block = plans.MLModelStructureProgramBlock([], operations, [])
                self.functions[name] = plans.MLModelStructureProgramFunction([], block)
            self.model_structure = plans.MLModelStructure(None, plans.MLModelStructureProgram(self.functions), None)

        def get_compute_device_usage_for_mlprogram_operation(self, operation):
            if operation.operator_name == "const":
                return None
            both = [device("CPU"), device("NeuralEngine")]
            return plans.MLComputePlanDeviceUsage(both[operation.operator_name != "add"], both)

        def get_estimated_cost_for_mlprogram_operation(self, operation):
            return plans.MLComputePlanCost(0.25) if operation.operator_name == "add" else None

    def load_from_path(path, compute_units):
        assert compute_units == tools.ComputeUnit.CPU_AND_NE
        return Plan(Path(path).with_suffix(".mlpackage"))

    for owner, name, made in (
        (tools.models.utils, "compile_model", compile_model),
        (plans.MLComputePlan, "load_from_path", load_from_path),
    ):
        signature(getattr(owner, name)).bind("here", "there")
        monkeypatch.setattr(owner, name, made)
    for name in vars(Plan):
        if name.startswith("get_"):
            assert str(signature(getattr(plans.MLComputePlan, name))).startswith("(self, operation")
    return tools


def test_one_function_of_a_real_package_alone(planning, tmp_path):
    from mirror_mlx.draft.package.program import Program

    package = real_package(planning, tmp_path / FIRST)
    for function, factor in (("prefill", 1), ("rollout", 2)):
        scratch = tmp_path / function
        scratch.mkdir()
        coreml_plan.main([str(package), function, str(scratch / "answer.json")])
        found = coreml_plan.summary(FIRST, function, json.loads((scratch / "answer.json").read_text()))
        assert [(one.operator, one.supported, one.cost) for one in found.elsewhere] == [("add", True, 1.0)]
        assert (found.total, found.constants, found.unplaced) == (5, 1, 0)  # read, add, write, read, mul
        alone = Program(scratch / FIRST)
        taken = alone.run("main", {"h": np.full((1, 4, 1, 32), 3, np.float16)}, alone.state())
        assert (np.array(taken["out"]) == 3 * factor).all()


def test_the_child_is_this_module(tmp_path):
    pytest.importorskip("coremltools")
    with pytest.raises(DraftError, match=rf"{FIRST} prefill cannot be planned: ValueError: invalid model_path"):
        in_child(tmp_path / FIRST, "prefill", 300.0)


# PyObjC


@pytest.mark.slow
def test_the_handler_is_a_block_in_the_metadata_of_pyobjc():
    folder = os.environ.get("MIRROR_MLX_PYOBJC")
    if not folder:
        pytest.skip("set MIRROR_MLX_PYOBJC to a folder with pyobjc's CoreML source distribution, unpacked")
    (file,) = Path(folder).glob("pyobjc_framework_coreml-*/Lib/CoreML/_metadata.py")
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "r":
            owner, selector, what = map(ast.literal_eval, node.args)
            if (owner, selector) == (b"MLComputePlan", b"loadContentsOfURL:configuration:completionHandler:"):
                block = what["arguments"][4]["callable"]
                assert block["retval"]["type"] == b"v"
                assert [block["arguments"][n]["type"] for n in (1, 2)] == [b"@", b"@"]
                return
    raise AssertionError("not registered")
