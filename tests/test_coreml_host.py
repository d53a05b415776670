"""The Core ML hosts against a Core ML that enforces its rules, and their selectors against PyObjC's metadata."""

import ast
import gc
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
import weakref
from contextlib import nullcontext
from inspect import signature
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from fake_coreml import FakeCoreML, Spec, Violation, write_package

from mirror_mlx.draft.package import compiled, coreml_bridge, coreml_memory, coreml_packages, manifest, trial
from mirror_mlx.draft.package.coreml import CoreMLHost
from mirror_mlx.draft.package.coremltools_host import CoreMLToolsHost
from mirror_mlx.errors import DraftError

HERE = Path(__file__).parent
HALF, WIDTH = np.float16, 5
HIDDEN, POSITION = ((1, 4, 1, WIDTH), HALF), ((1,), np.int32)
BUCKETS = {"max": ((1, 2, 1, WIDTH), HALF), "arg": ((1, 2, 1, WIDTH), np.int32)}
STATE = {"kv": ((2, 1, 8, 2), HALF)}


def functions(stateful=True, heads=False):
    inputs = {"h": HIDDEN, "pos": POSITION} | ({} if stateful else STATE)
    state = STATE if stateful else {}
    outputs = {"h": HIDDEN} | ({} if stateful else {"k": ((1, 1, WIDTH, 2), HALF)})
    return {
        "prefill": Spec(inputs, outputs, state),
        "rollout": Spec(inputs, BUCKETS if heads else outputs, state),
    }


def compute(package, function, inputs, state):
    """Each call adds 1 to the slot at `pos`; `h` comes back with the sum of all slots added."""
    kv = state["kv"] if state else inputs["kv"].copy()
    kv[0, 0, inputs["pos"][0]] += 1
    hidden = inputs["h"] + kv.sum()
    return {"h": hidden, "max": hidden[:, :2], "arg": np.arange(10).reshape(1, 2, 1, 5), "k": kv[:1, :, :WIDTH]}


def converted(folder, stateful=True):
    """A converted draft of two packages in `folder`."""
    shapes = manifest.Shapes(
        hidden_size=4, vocab_size=8, head_size=8, streams=0, tracks=1, boundary=1, num_layers=2, head_dim=2, context=8,
        first=WIDTH, second=WIDTH, prefill=WIDTH, buckets=2,
    )  # fmt: skip
    packages = tuple(
        manifest.Package(
            file=f"segment-{n}.mlpackage", track=0, layers=(n - 1, n), expands=n == 2, heads=n == 2,
            state=STATE["kv"][0], functions=("prefill", "rollout"),
            contents=write_package(folder / f"segment-{n}.mlpackage", functions(stateful, n == 2)),
        )
        for n in (1, 2)
    )  # fmt: skip
    made = manifest.Manifest(
        name="tiny", draft=manifest.Source("d", "qwen3", "w", "t"), shapes=shapes, num_draft_tokens=2,
        frequencies=(1.0,), precision="float16", write="slice", stateful=stateful, packages=packages, versions={},
        parity={},
    )  # fmt: skip
    (folder / manifest.FILE).write_text(json.dumps(made.to_json()))
    return made


@pytest.fixture
def fake():
    made = FakeCoreML(compute)
    made.install()
    yield made
    made.remove()


@pytest.fixture
def draft(tmp_path, fake):
    """(manifest, folder, options of a host)."""
    return converted(tmp_path), tmp_path, {"cache": tmp_path / "cache", "tried": True}


@pytest.fixture
def host(draft):
    made = CoreMLHost(draft[0], draft[1], **draft[2])
    yield made
    made.close()


def given(value=1.0, position=0):
    return {"h": np.full(HIDDEN[0], value, HALF), "pos": np.array([position], np.int32)}


# Values


@pytest.mark.parametrize("aside", [False, True], ids=["into our memory", "into Core ML's"])
def test_values_come_through_padded_rows_and_both_functions_share_the_state(fake, host, aside):
    fake.aside = aside
    assert (host.call(0, "prefill", given(1.0, 3))["h"] == 3).all()  # two numbers in the slot, 1 each
    found = host.call(0, "rollout", given(0.5, 4))["h"]
    assert found.shape == HIDDEN[0]
    assert found.dtype == HALF
    assert (found == 4.5).all()
    assert found.strides[2] == 64
    buckets = host.call(1, "rollout", given())
    assert (buckets["max"] == 3).all()  # the other package's state began at 0
    assert buckets["arg"].dtype == np.int32
    assert (buckets["arg"].ravel() == np.arange(10)).all()
    assert host.refused()["segment-1.mlpackage rollout"] == (["h"] if aside else [])


def test_slots_of_a_stateless_draft_are_an_input_that_need_not_be_copied(tmp_path, fake):
    host = CoreMLHost(converted(tmp_path, stateful=False), tmp_path, cache=tmp_path / "cache", tried=True)
    slots = host.buffers(0, "rollout")["kv"]
    assert slots is host.buffers(0, "prefill")["kv"]
    slots[...] = 1
    found = host.call(0, "rollout", given(0.0) | {"kv": slots})
    assert (found["h"] == 34).all()
    assert (found["k"][0, 0, 0] == 2).all()
    assert (host.call(0, "rollout", given(0.0) | {"kv": np.zeros_like(slots)})["h"] == 2).all()
    host.close()


def test_a_real_package_computes_what_the_reference_says(tmp_path):
    tools = pytest.importorskip("coremltools")
    from mirror_mlx.draft.package.coremltools_host import features
    from mirror_mlx.draft.package.program import Program

    made = signature(tools.models.CompiledMLModel)  # what `CoreMLToolsHost` calls, as it calls it
    made.bind("path", tools.ComputeUnit.CPU_AND_NE, "prefill")
    signature(tools.models.CompiledMLModel.predict).bind(None, {}, None)
    signature(tools.models.CompiledMLModel.make_state).bind(None)
    signature(tools.models.utils.compile_model).bind("path")
    package = real_package(tools, tmp_path / "segment-1.mlpackage")
    programs = {}

    def run(package, function, inputs, state):
        program = programs.setdefault(package, Program(package))
        slots = programs.setdefault("state", program.state())
        return {name: np.array(value) for name, value in program.run(function, inputs, slots).items()}

    def describe(package):
        return {name: Spec(*found, state=STATE) for name, found in features(tools, package).items()}

    fake = FakeCoreML(run, describe=describe)
    fake.install()
    try:
        made = converted(tmp_path / "draft")
        one = manifest.Package(**{**vars(made.packages[0]), "contents": manifest.contents(package)})
        made = manifest.Manifest(**{**vars(made), "packages": (one,)})
        host = CoreMLHost(made, tmp_path, cache=tmp_path / "cache", tried=True)
        assert (host.call(0, "prefill", {"h": np.full((1, 4, 1, 32), 2, HALF)})["out"] == 2).all()
        assert (host.call(0, "rollout", {"h": np.full((1, 4, 1, 32), 3, HALF)})["out"] == 10).all()
        host.close()
    finally:
        fake.remove()


def real_package(tools, path):
    """Two functions on one state `kv`: prefill adds its input to it and gives the sum, rollout twice that."""
    descriptor = tools.utils.MultiFunctionDescriptor()
    for name, factor in (("prefill", 1), ("rollout", 2)):
        single = tools.convert(
            summing(tools, factor), minimum_deployment_target=tools.target.macOS15, skip_model_load=True,
            compute_precision=tools.precision.FLOAT16, compute_units=tools.ComputeUnit.CPU_AND_NE,
        )  # fmt: skip
        single.save(str(path.parent / f"{name}.mlpackage"))
        descriptor.add_function(str(path.parent / f"{name}.mlpackage"), "main", name)
    descriptor.default_function_name = "prefill"
    tools.utils.save_multifunction(descriptor, str(path))
    return path


def summing(tools, factor):
    from coremltools.converters.mil import Builder as mb  # noqa: N813
    from coremltools.converters.mil.mil import types

    shape = (1, 4, 1, 32)

    @mb.program(
        input_specs=[mb.TensorSpec(shape, types.fp16), mb.StateTensorSpec(shape, types.fp16)],
        opset_version=tools.target.iOS18,
    )
    def program(h, kv):
        total = mb.add(x=mb.read_state(input=kv), y=h)
        mb.coreml_update_state(state=kv, value=total)
        return mb.mul(x=total, y=np.float16(factor), name="out")

    return program


# One prediction at a time


def both(fake, host, second, package=0):
    """A prediction in flight, and `second(end)` beside it, where `end()` lets the first end.

    Returns the first's outputs, or nothing if it failed, and what the second raised.
    """
    began, ended, done, raised = threading.Event(), threading.Event(), [], None

    def slow(*arguments):
        fake.predict = compute
        began.set()
        ended.wait(60)
        return compute(*arguments)

    fake.predict = slow
    thread = threading.Thread(target=lambda: done.append(host.call(package, "prefill", given())["h"].copy()))
    thread.start()
    assert began.wait(60)
    try:
        second(ended.set)
    except BaseException as error:
        raised = error
    ended.set()
    thread.join()
    return done, raised


def test_two_threads_collide_with_an_error_and_spoil_nothing(fake, host):
    done, raised = both(fake, host, lambda _: host.call(0, "rollout", given(9.0)))
    assert isinstance(raised, RuntimeError)
    assert "two predictions at once on segment-1.mlpackage" in str(raised)
    assert (done[0] == 3).all()
    done, raised = both(fake, host, lambda _: host.call(1, "rollout", given()))  # another state: welcome
    assert raised is None
    assert (done[0] == 5).all()


def test_the_fake_would_have_noticed(fake, host, monkeypatch):
    monkeypatch.setitem(host._gates, 0, nullcontext())
    assert isinstance(both(fake, host, lambda _: host.call(0, "rollout", given()))[1], Violation)

    def meddle(*arguments):
        host.buffers(0, "rollout")["h"][...] = 7
        return compute(*arguments)

    fake.predict = meddle
    with pytest.raises(Violation, match="changed during"):
        host.call(0, "rollout", given())
    monkeypatch.setitem(host._states, 0, host._states[1])
    with pytest.raises(Violation, match="another package"):
        host.call(0, "rollout", given())


# Errors


@pytest.mark.parametrize("fault", ["compile", "load", "state"])
def test_what_core_ml_says_while_loading_is_a_draft_error(fake, draft, fault):
    fake.faults = {fault: "the\nreason"}
    with pytest.raises(DraftError, match="no reason given" if fault == "state" else "the reason") as caught:
        CoreMLHost(draft[0], draft[1], **draft[2])
    assert "--draft-host mlx" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_goes_wrong_in_a_prediction_is_a_draft_error(fake, host):
    fake.faults = {"predict": "out of luck"}
    with pytest.raises(DraftError, match=r"segment-1.mlpackage rollout cannot be predicted: out of luck"):
        host.call(0, "rollout", given())
    fake.faults = {}

    def raises(*_):
        raise ValueError("NSInvalidArgumentException - no")

    fake.predict = raises
    with pytest.raises(DraftError, match="ValueError: NSInvalid"):
        host.call(0, "rollout", given())
    fake.predict = compute
    with pytest.raises(DraftError, match="missing or unknown: pos"):
        host.call(0, "rollout", {"h": given()["h"]})
    for wrong in (given()["h"].astype(np.float32), given()["h"][..., :4]):
        with pytest.raises(DraftError, match="h is float16"):
            host.call(0, "rollout", given() | {"h": wrong})
    assert (host.call(0, "rollout", given())["h"] == 3).all()


def test_where_there_is_no_core_ml(fake, draft, monkeypatch):
    monkeypatch.setitem(sys.modules, "CoreML", None)
    with pytest.raises(DraftError, match=re.escape("pip install 'mirror-mlx[coreml]'")):
        CoreMLHost(draft[0], draft[1], **draft[2])
    for version, machine, text in (
        ("14.7", "arm64", "macOS 14.7"),
        ("15.1", "x86_64", "for x86_64"),
        ("", "", "linux"),
    ):
        fake.remove()
        fake.install(version, machine)
        coreml_bridge.sys.platform = "darwin" if version else "linux"
        for kind in (CoreMLHost, CoreMLToolsHost):
            with pytest.raises(DraftError, match=text):
                kind(draft[0], draft[1], **draft[2])


# Closing


def test_close_waits_for_a_prediction_and_is_idempotent(fake, host, monkeypatch):
    monkeypatch.setattr(coreml_packages, "_CLOSE", 60.0)

    def close(end):
        threading.Timer(0.1, end).start()
        host.close()

    done, raised = both(fake, host, close)
    assert raised is None
    assert (done[0] == 3).all()
    host.close()
    with pytest.raises(DraftError, match=r"segment-1.mlpackage is closed"):
        host.call(0, "rollout", given())


def test_a_prediction_that_does_not_end_keeps_its_memory_for_good(fake, host, monkeypatch):
    monkeypatch.setattr(coreml_packages, "_CLOSE", 0.01)
    monkeypatch.setattr(coreml_memory, "_kept", [])
    memory = host._functions[0]["prefill"].inputs["h"]
    done, raised = both(fake, host, lambda _: host.close())
    assert raised is None
    assert memory in coreml_memory._kept[0]
    assert (done[0] == 3).all()


def test_memory_outlives_the_host_while_core_ml_may_be_bound_to_it(fake, host, monkeypatch):
    host.call(0, "rollout", given())
    memory = weakref.ref(host._functions[0]["rollout"].inputs["h"].raw)
    host.close()
    gc.collect()
    fake.check_bound()
    monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + coreml_memory.LINGER + 1)
    coreml_memory.retire([])
    gc.collect()
    assert memory() is None


# The cache


def test_a_package_is_compiled_once(fake, draft):
    for _ in range(2):
        CoreMLHost(draft[0], draft[1], **draft[2]).close()
        assert fake.compiled == 2


def models(draft):
    return [compiled.Entry(draft[1] / p.file, p.contents, draft[2]["cache"]).model for p in draft[0].packages]


@pytest.mark.parametrize("damage", ["short", "gone", "wrong"])
def test_a_damaged_model_is_compiled_anew(fake, draft, damage):
    CoreMLHost(draft[0], draft[1], **draft[2]).close()
    file = models(draft)[0] / "source"
    text = file.read_text()
    {
        "short": lambda: file.write_text(text[:5]),
        "gone": file.unlink,
        "wrong": lambda: file.write_text("x" * len(text)),
    }[damage]()
    host = CoreMLHost(draft[0], draft[1], **draft[2])
    assert (host.call(0, "prefill", given())["h"] == 3).all()
    assert fake.compiled == 3
    host.close()


def test_one_that_never_loads_is_compiled_once_more_and_no_more(fake, draft):
    CoreMLHost(draft[0], draft[1], **draft[2]).close()
    fake.faults = {"load": "never"}
    with pytest.raises(DraftError, match="never"):
        CoreMLHost(draft[0], draft[1], **draft[2])
    assert fake.compiled == 3


def test_models_of_other_builds_go_and_another_process_may_be_faster(fake, draft, tmp_path):
    package = draft[0].packages[0]
    entry = compiled.Entry(draft[1] / package.file, package.contents, tmp_path / "cache")
    old = entry.folder.parent / "23A1" / "model"
    old.mkdir(parents=True)

    def make(path, inside=None):
        if inside:
            inside()
        made = tmp_path / f"made-{time.monotonic_ns()}.mlmodelc"
        made.mkdir()
        (made / "model.mil").write_text("code")
        return made

    assert entry.compiled(lambda path: make(path, lambda: entry.compiled(make))) == entry.model
    assert entry.is_whole()
    assert not old.exists()
    assert [path.name for path in entry.folder.iterdir()] == ["model"]


# The first use


def tried(draft, *command, limit=300.0, **options):
    return trial.require(
        draft[0], draft[1], 0, "coreml", cache=draft[2]["cache"], limit=limit, command=command or None, **options
    )


CHILD = [sys.executable, "-c"]
SAYS = "import json, sys; open(sys.argv[-1], 'w').write(json.dumps({{'fault': {!r}}}))"
FAKE_CHILD = (
    f"import sys; sys.path.insert(0, {str(HERE)!r}); import test_coreml_host as t; from fake_coreml import FakeCoreML; "
    "fake = FakeCoreML(t.compute); fake.install(); t.trial.main(sys.argv[1:]); fake.remove()"
)


def test_a_child_loads_and_predicts_first_and_that_is_remembered(fake, draft):
    told = []
    outcome = tried(draft, *CHILD, FAKE_CHILD, notify=told.append)
    assert outcome.fault is None
    assert len(told) == 1
    assert tried(draft, "/no/such/program") == outcome
    CoreMLHost(draft[0], draft[1], **draft[2], packages=[0]).close()
    assert fake.compiled == 0  # the child's compiled model is this process's too


def test_the_child_is_this_module(draft):
    with pytest.raises(DraftError, match=r"needs macOS 15|needs PyObjC|cannot be compiled"):
        tried(draft)


def test_the_child_answers_with_what_core_ml_said_and_dies_of_a_cache_that_cannot_be_written(fake, draft):
    folder = compiled.Entry(draft[1] / "segment-1.mlpackage", draft[0].packages[0].contents, draft[2]["cache"]).folder
    arguments = [str(draft[1]), "0", "coreml", str(draft[2]["cache"]), str(draft[1] / "answer")]
    for fault in ({"load": "the reason"}, {}):
        fake.faults = fault
        trial.main(arguments)
        said = json.loads((draft[1] / "answer").read_text())["fault"]
        assert ("the reason" in said) if fault else said is None
    assert fake.predictions == 2
    shutil.rmtree(folder.parent)
    folder.parent.write_text("in the way")
    with pytest.raises(compiled.NotKeptError, match="free some space"):
        trial.main(arguments)


def test_what_the_child_says_is_raised_and_remembered(fake, draft):
    with pytest.raises(DraftError, match=r"^the reason: use --draft-host mlx$"):
        tried(draft, *CHILD, SAYS.format("the reason"))
    with pytest.raises(DraftError, match=r"^the reason: use .*, or delete .*trial-coreml-\w+\.json to try again$"):
        tried(draft, "/no/such/program")


def test_a_crash_is_told_and_remembered(fake, draft):
    crash = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    for command in (crash, ""):
        with pytest.raises(
            DraftError, match=r"crashed on its first use of segment-1.mlpackage \(SIGSEGV\): use --draft"
        ):
            tried(draft, *CHILD, command)


def test_a_hang_is_ended_told_and_tried_again_with_more_time(fake, draft, tmp_path):
    for _ in range(2):
        with pytest.raises(DraftError, match=r"did not finish its first use of segment-1.mlpackage in 2 s"):
            tried(draft, "sh", "-c", f"echo $$ >> {tmp_path / 'pid'}; sleep 600", limit=2.0)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGCONT)
    assert tried(draft, *CHILD, SAYS.format(None)).fault is None


def test_a_child_that_does_not_get_to_core_ml_is_not_remembered(fake, draft):
    with pytest.raises(DraftError, match=r"ended with code 1 \(.*no_such_module"):
        tried(draft, *CHILD, "import no_such_module")
    assert tried(draft, *CHILD, SAYS.format(None)).fault is None


@pytest.mark.parametrize("kind", [CoreMLHost, CoreMLToolsHost])
def test_a_host_touches_nothing_before_the_trial_of_all(fake, tools, draft, monkeypatch, kind):
    asked = []

    def require(made, folder, index, name, **options):
        asked.append((index, name))
        if index == 1:
            raise DraftError("it hangs")

    monkeypatch.setattr(trial, "require", require)
    with pytest.raises(DraftError, match="it hangs"):
        kind(draft[0], draft[1], cache=draft[2]["cache"])
    assert asked == [(0, kind.name), (1, kind.name)]
    assert fake.compiled == 0


# coremltools


@pytest.fixture
def tools(fake, monkeypatch):
    """The module coremltools, with what we use of it. Inputs are let go of by another thread, a while later."""
    bound, flying = [], []

    class CompiledMLModel:
        def __init__(self, path, compute_units, function_name):
            assert compute_units == "NE"
            self.package, self.function = Path(path, "source").read_text(), function_name
            assert not fake._error("load"), "the reason"

        def make_state(self):
            return {name: np.zeros(shape, dtype) for name, (shape, dtype) in STATE.items()}

        def predict(self, data, state=None):
            assert not flying
            flying.append(1)
            assert all(array.dtype in (np.float32, np.int32) for array in data.values())
            bound.append([(weakref.ref(array), array.base) for array in data.values()])
            found = fake.predict(self.package, self.function, data, state)
            flying.clear()
            return {
                name: value.astype(np.float32 if value.dtype.kind == "f" else np.int32) for name, value in found.items()
            }

    def compile_model(path):
        made = fake_modules["CoreML"].MLModel.compileModelAtURL_error_(SimpleNamespace(_path=Path(path)), None)[0]
        return str(made.path())

    def feature(name, shape, dtype):
        code = {"float16": 65552, "float32": 65568, "int32": 131104}[str(np.dtype(dtype))]
        kind = SimpleNamespace(multiArrayType=SimpleNamespace(shape=shape, dataType=code))
        kind.WhichOneof = lambda _: "multiArrayType"
        return SimpleNamespace(name=name, type=kind)

    def load_spec(path):
        described = [
            SimpleNamespace(
                name=name,
                input=[feature(key, *found) for key, found in spec.inputs.items()],
                output=[feature(key, *found) for key, found in spec.outputs.items()],
            )
            for name, spec in fake.describe(Path(path)).items()
        ]
        return SimpleNamespace(description=SimpleNamespace(functions=described))

    fake_modules = sys.modules
    module = ModuleType("coremltools")
    module.ComputeUnit = SimpleNamespace(CPU_AND_NE="NE")
    module.models = SimpleNamespace(
        CompiledMLModel=CompiledMLModel, utils=SimpleNamespace(compile_model=compile_model, load_spec=load_spec)
    )
    monkeypatch.setitem(sys.modules, "coremltools", module)
    return SimpleNamespace(bound=bound)


def test_coremltools_gives_the_same_and_its_inputs_stay_alive(fake, tools, draft):
    host = CoreMLToolsHost(draft[0], draft[1], **draft[2])
    assert (host.call(0, "prefill", given(1.0, 3))["h"] == 3).all()
    found = host.call(0, "rollout", given(0.5, 4))["h"]
    assert found.dtype == HALF
    assert (found == 4.5).all()
    assert host.call(1, "rollout", host.blank(1, "rollout"))["arg"].dtype == np.int32
    first, second = tools.bound[:2]
    assert all(alive() is not None for alive, _ in first)
    assert not {id(alive()) for alive, _ in first} & {id(alive()) for alive, _ in second}  # each call lends its own
    done, raised = both(fake, host, lambda _: host.call(0, "rollout", given()))
    assert isinstance(raised, RuntimeError)
    assert len(done) == 1
    host.close()
    gc.collect()
    assert all(alive() is not None for alive, _ in first)
    with pytest.raises(DraftError, match="closed"):
        host.call(0, "rollout", given())


def test_coremltools_errors_are_draft_errors(fake, tools, draft, monkeypatch):
    fake.faults = {"load": "the reason"}
    with pytest.raises(DraftError, match=r"prefill of segment-1.mlpackage cannot be loaded: the reason"):
        CoreMLToolsHost(draft[0], draft[1], **draft[2])
    monkeypatch.setitem(sys.modules, "coremltools", None)
    with pytest.raises(DraftError, match=r"pip install 'mirror-mlx\[coreml\]'"):
        CoreMLToolsHost(draft[0], draft[1], **draft[2])


# Selectors

FACTS = HERE / "data" / "coreml_selectors.json"
CLASSES = {
    "CoreML": ("MLModel", "MLModelConfiguration", "MLModelDescription", "MLFeatureDescription", "MLMultiArray",
               "MLMultiArrayConstraint", "MLFeatureValue", "MLDictionaryFeatureProvider", "MLFeatureProvider",
               "MLPredictionOptions", "MLComputePlan", "MLComputePlanCost", "MLComputePlanDeviceUsage",
               "MLModelStructure", "MLModelStructureProgram", "MLModelStructureProgramFunction",
               "MLModelStructureProgramBlock", "MLModelStructureProgramOperation",
               "MLModelStructureProgramNamedValueType", "MLCPUComputeDevice", "MLGPUComputeDevice",
               "MLNeuralEngineComputeDevice"),
    "Foundation": ("NSURL", "NSString", "NSNumber", "NSMutableArray", "NSMutableDictionary", "NSDictionary", "NSError"),
}  # fmt: skip
EVERYWHERE = {"alloc", "init"}  # of NSObject, in the runtime and in no framework
PYTHON = {"absolute", "append", "dtype", "encode", "items", "join", "mac_ver", "machine", "split", "autorelease_pool"}


def uses():
    """What `coreml_bridge` asks of Objective-C: selectors, as Python spells them → what was seen of their calls (how
    many arguments, whether of a class), and names in frameworks."""
    tree = ast.parse(Path(coreml_bridge.__file__).read_text())
    selectors, names = {}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in (
            "self._coreml",
            "self._foundation",
            "CoreML",
        ):
            names.add(node.attr)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr not in PYTHON:
            owner = ast.unparse(node.func.value)
            if owner != "self":
                whose = "class" if re.fullmatch(r"self\._(coreml|foundation)\.\w+", owner) else "instance"
                selectors.setdefault(node.func.attr, set()).add((len(node.args), whose))
    return selectors, names


def test_every_selector_and_name_is_in_the_metadata_of_pyobjc():
    facts = json.loads(FACTS.read_text())
    selectors, names = uses()
    assert len(selectors) > 20
    assert names <= facts["constants"].keys() | {name for group in CLASSES.values() for name in group}
    for selector, calls in selectors.items():
        assert {count for count, _ in calls} == {selector.count("_")}, f"{selector} has another number of arguments"
        if selector in EVERYWHERE:
            continue
        assert selector in facts["selectors"], f"no class has {selector}"
        for owner, (whose, introduced, registered) in facts["selectors"][selector].items():
            assert {whose} == {of for _, of in calls}, f"{selector} is not a method of the {whose} {owner}"
            assert tuple(map(int, introduced.split("."))) <= (15, 0), f"{owner} {selector} is newer"
            assert ("error" in registered) == selector.endswith("error_"), f"{selector} gives one result, or two"
            assert ("buffer" in registered) == ("DataPointer" in selector)


def test_only_the_bridge_speaks_objective_c():
    for path in Path(coreml_bridge.__file__).parent.glob("coreml*.py"):
        if path.name != "coreml_bridge.py":
            spoken = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
            assert not [name for name in spoken if re.fullmatch(r"[a-z]\w*_", name)], path.name


def test_the_fake_has_the_constants_and_no_selector_that_core_ml_lacks(fake):
    facts = json.loads(FACTS.read_text())
    for name, value in facts["constants"].items():
        assert getattr(sys.modules["CoreML"], name) == value
    for module in ("CoreML", "Foundation"):
        for kind in vars(sys.modules[module]).values():
            for selector in getattr(kind, "__dict__", {}) if isinstance(kind, type) else ():
                assert selector.startswith("_") or selector in facts["selectors"], f"{kind.__name__} {selector}"
    with pytest.raises(AttributeError):
        sys.modules["CoreML"].MLModel.makeState()


@pytest.mark.slow
def test_the_facts_are_those_of_the_source_distributions():
    folder = os.environ.get("MIRROR_MLX_PYOBJC")
    if not folder:
        pytest.skip("set MIRROR_MLX_PYOBJC to a folder with pyobjc's CoreML and Cocoa source distributions, unpacked")
    assert facts_of(Path(folder)) == json.loads(FACTS.read_text())


def facts_of(folder):
    """What PyObjC knows of what we use: the SDK's headers as it has read them, and what it registers at run time.

    selectors  as Python spells them → class → [whose method, macOS it came with (10.0: always there), of its arguments:
               "error" for an NSError that comes back as a second result, "buffer" for memory that is not copied]
    """
    selectors, names = uses()
    found = {"sources": {}, "constants": {}, "selectors": {}}
    for framework, package, raw in (("CoreML", "coreml", "raw"), ("Foundation", "cocoa", "raw.Foundation")):
        (source,) = folder.glob(f"pyobjc_framework_{package}-*")
        read = json.loads(re.sub("(?m)^//.*", "", (source / "metadata" / raw / "arm64-26.5.fwinfo").read_text()))
        found["sources"][source.name] = f"{framework}, SDK {read['release']}"
        registered = registrations(source / "Lib" / framework / "_metadata.py")
        defined = read["definitions"]
        for name in sorted(names & defined["enum"].keys()):
            found["constants"][name] = defined["enum"][name]["value"]
        for owner in CLASSES[framework]:
            for method in (defined["classes"].get(owner) or defined["formal_protocols"][owner])["methods"]:
                spelled = method["selector"].replace(":", "_")
                if spelled in selectors and spelled not in EVERYWHERE:
                    found["selectors"].setdefault(spelled, {})[owner] = [
                        "class" if method["class_method"] else "instance",
                        method.get("introduced") or "10.0",
                        registered.get((owner, method["selector"]), ""),
                    ]
    return found


def registrations(file):
    """(class, selector) → "error" and "buffer", where an argument is registered so."""
    found = {}
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "r":
            owner, selector, what = (ast.unparse(argument) for argument in node.args)
            out = re.search(r"\{'type_modifier': b'o'\}", what) and "error"
            memory = re.search(r"'type_modifier': b'n', 'c_array_of_variable_length': True", what) and "buffer"
            found[ast.literal_eval(owner).decode(), ast.literal_eval(selector).decode()] = " ".join(
                filter(None, (out, memory))
            )
    return found


if __name__ == "__main__":
    parts = (
        f'"{part}": {{\n' + ",\n".join(f" {json.dumps(key)}: {json.dumps(facts[key])}" for key in sorted(facts)) + "\n}"
        for part, facts in facts_of(Path(sys.argv[1])).items()
    )
    FACTS.write_text("{\n" + ",\n".join(parts) + "\n}\n")
