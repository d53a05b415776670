"""Core ML that is not there: modules `CoreML`, `Foundation` and `objc` with the selectors we use, and its rules.

Core ML leaves undefined what breaks a rule; here it is a `Violation`, which no `except Exception` swallows:

- one prediction in flight on a state, and a state serves only the package it was made for;
- nobody writes into inputs during a prediction, and memory lives as long as an array over it is bound, which is a while
  longer than the prediction;
- what Core ML keeps is a native object, and every call has an autorelease pool;
- a completion handler is called on another thread, without a pool: it asks nothing, returns None and never raises.

    fake = FakeCoreML(predict)
    fake.install()
    …
    fake.remove()

`predict(package, function, inputs, state) -> outputs` computes; it may change the arrays of `state`.
"""

import ctypes
import json
import shutil
import sys
import tempfile
import threading
import time
import weakref
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import numpy as np

from mirror_mlx.draft.package import coreml_bridge
from mirror_mlx.draft.package.manifest import contents

TYPES = {65552: np.dtype(np.float16), 65568: np.dtype(np.float32), 131104: np.dtype(np.int32)}
CODES = {dtype: code for code, dtype in TYPES.items()}
MODULES = ("CoreML", "Foundation", "objc")
PAGE = 4096


class Violation(BaseException):
    """A rule of Core ML's was broken: on a Mac, anything could have happened."""


@dataclass
class Spec:
    """One function: name → (shape, dtype)."""

    inputs: dict
    outputs: dict
    state: dict = field(default_factory=dict)


@dataclass
class Op:
    """One operation of a plan. device: "neural engine", "gpu", "cpu" or "npu" (a new kind); None: no usage is given."""

    operator: str
    output: str | None = None
    device: str | None = "neural engine"
    supported: tuple[str, ...] = ("cpu", "neural engine")
    weight: float | None = None


def write_package(package: Path, functions: dict[str, Spec]) -> dict[str, str]:
    """A package that `FakeCoreML` can read; its contents for the manifest."""
    package.mkdir(parents=True)
    parts = {
        name: {
            part: {key: [list(shape), str(np.dtype(dtype))] for key, (shape, dtype) in getattr(spec, part).items()}
            for part in ("inputs", "outputs", "state")
        }
        for name, spec in functions.items()
    }
    (package / "fake.json").write_text(json.dumps(parts))
    return contents(package)


def read_package(package: Path) -> dict[str, Spec]:
    def features(parts):
        return {name: (tuple(shape), np.dtype(dtype)) for name, (shape, dtype) in parts.items()}

    written = json.loads((package / "fake.json").read_text())
    return {name: Spec(**{part: features(found) for part, found in parts.items()}) for name, parts in written.items()}


class FakeCoreML:
    """See the module.

    describe  package → its functions
    linger    seconds that a prediction's arrays stay bound
    aside     outputs go to arrays of Core ML's own, whose strides it reports as zeros
    faults    "compile", "load", "predict", "state", "plan": text of the NSError given instead
    plan      (package, function) → its operations, those of a plan
    silent    handlers of plans are not called, but kept in `unanswered`
    """

    def __init__(self, predict: Callable, *, describe: Callable = read_package) -> None:
        self.predict, self.describe = predict, describe
        self.linger, self.aside = 1.0, False
        self.faults: dict[str, str] = {}
        self.compiled = self.predictions = self.plans = 0
        self.plan: Callable = lambda package, function: [Op(f"ios18.{function}", "out")]
        self.silent = False
        self.unanswered: list[Callable] = []
        self.bound: list = []
        self._broken: list[BaseException] = []
        self._flying: set[int] = set()
        self._pools = threading.local()
        self._lock = threading.Lock()
        self._before: dict = {}
        self._folders: list[Path] = []

    def install(self, version: str = "15.5", machine: str = "arm64") -> None:
        """Take the place of PyObjC, on a Mac of this version."""
        self._before = {name: sys.modules.get(name) for name in MODULES}
        self._require = coreml_bridge.platform, coreml_bridge.sys
        coreml_bridge.platform = ModuleType("platform")
        coreml_bridge.platform.mac_ver = lambda: (version, ("", "", ""), machine)
        coreml_bridge.platform.machine = lambda: machine
        coreml_bridge.sys = ModuleType("sys")
        coreml_bridge.sys.platform = "darwin"
        sys.modules.update(_modules(self))

    def remove(self) -> None:
        coreml_bridge.platform, coreml_bridge.sys = self._require
        for name, module in self._before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)
        if self._broken:
            raise Violation("a handler raised, or returned something") from self._broken[0]

    def check_bound(self) -> None:
        """Raise Violation if memory is gone that a prediction's arrays are still bound to."""
        with self._lock:
            self.bound = [(until, arrays) for until, arrays in self.bound if until > time.monotonic()]
            for _, arrays in self.bound:
                for array in arrays:
                    array._memory()

    def _error(self, what: str):
        return None if what not in self.faults else NSError(self.faults[what])

    def _need_pool(self, what: str) -> None:
        if not getattr(self._pools, "depth", 0):
            raise Violation(f"{what} outside an autorelease pool")

    def _answer_plan(self, handler, plan, error):
        """On a thread of Core ML's."""

        def call():
            try:
                assert handler(plan, error) is None
            except BaseException as reason:
                self._broken.append(reason)

        self.unanswered.append(call)
        if not self.silent:
            threading.Thread(target=self.unanswered.pop(), name="fake-coreml").start()

    def _run(self, model, provider, state, options):
        """(features, error), as a prediction gives them."""
        self._need_pool("a prediction")
        if error := self._error("predict"):
            return None, error
        spec, given = model.spec, provider._values
        if given.keys() != spec.inputs.keys():
            return None, NSError(f"inputs {sorted(given)} are not {sorted(spec.inputs)}")
        arrays = {str(name): value._array for name, value in given.items()}
        for name, (shape, dtype) in spec.inputs.items():
            if (arrays[name]._shape, arrays[name]._dtype) != (shape, dtype):
                return None, NSError(f"{name} is not allowed")
        if spec.state and (state is None or state.package != model.package):
            raise Violation("no state, or one of another package")
        with self._lock:
            if id(state) in self._flying and state is not None:
                raise Violation("two predictions in flight on one state")
            self._flying.add(id(state))
        try:
            before = {name: array._sum() for name, array in arrays.items()}
            inputs = {name: array._view().copy() for name, array in arrays.items()}
            outputs = self.predict(model.package, model.function, inputs, {} if state is None else state.arrays)
            if before != {name: array._sum() for name, array in arrays.items()}:
                raise Violation("an input changed during a prediction")
            return self._answer(spec, outputs, options, arrays)
        finally:
            self._flying.discard(id(state))

    def _answer(self, spec, outputs, options, arrays):
        self.predictions += 1
        found = {}
        for name, (shape, dtype) in spec.outputs.items():
            offered = options._backings.get(name)
            if offered is not None and (offered._shape, offered._dtype) != (shape, dtype):
                return None, NSError(f"the backing of {name} is not allowed")
            value = np.asarray(outputs[name], dtype).reshape(shape)
            if offered is None or self.aside:
                found[name] = MLFeatureValue(MLMultiArray._own(value))
                continue
            offered._memory()[:] = 0x7F  # what lies between the rows means nothing
            offered._view()[...] = value
            found[name] = MLFeatureValue(offered)
        with self._lock:
            self.bound.append((time.monotonic() + self.linger, [*arrays.values(), *options._backings.values()]))
        return MLDictionaryFeatureProvider._of(found), None


def _native(value, kind):
    if not isinstance(value, kind):
        raise Violation(f"{value!r} is a Python object that Core ML would keep")
    return value


class _Object:
    @classmethod
    def alloc(cls):
        return cls.__new__(cls)

    def init(self):
        return self


class NSString(str):
    @classmethod
    def stringWithUTF8String_(cls, text: bytes):  # noqa: N802
        return cls(text.decode())


class NSNumber(int):
    @classmethod
    def numberWithLongLong_(cls, value):  # noqa: N802
        return cls(value)


class NSMutableArray(list):
    @classmethod
    def arrayWithCapacity_(cls, count):  # noqa: N802
        return cls()

    def addObject_(self, value):  # noqa: N802
        self.append(_native(value, (NSNumber, NSString)))


class NSMutableDictionary(dict):
    @classmethod
    def dictionaryWithCapacity_(cls, count):  # noqa: N802
        return cls()

    def setObject_forKey_(self, value, key):  # noqa: N802
        self[_native(key, NSString)] = _native(value, _Object)

    def objectForKey_(self, key):  # noqa: N802
        return self.get(key)


class NSURL(_Object):
    @classmethod
    def fileURLWithPath_(cls, text):  # noqa: N802
        made = cls()
        made._path = Path(_native(text, NSString))
        return made

    def path(self):
        return NSString(self._path)


class NSError(_Object):
    def __init__(self, text: str) -> None:
        self._text = text

    def localizedDescription(self):  # noqa: N802
        return NSString(self._text)


class MLMultiArray(_Object):
    def initWithDataPointer_shape_dataType_strides_deallocator_error_(  # noqa: N802
        self, pointer, shape, dtype, strides, deallocator, error
    ):
        buffer = memoryview(pointer)  # TypeError for an address, as PyObjC
        if not buffer.c_contiguous or buffer.readonly or deallocator is not None:
            raise Violation("not one writable piece, or a deallocator in Python")
        self._owner, self._size = weakref.ref(pointer), buffer.nbytes
        self._address = np.frombuffer(pointer, np.uint8).ctypes.data
        if self._address % PAGE:
            raise Violation("memory is not page-aligned")
        self._shape, self._dtype = tuple(_native(shape, NSMutableArray)), TYPES[dtype]
        self._strides = tuple(n * self._dtype.itemsize for n in _native(strides, NSMutableArray))
        last = sum((n - 1) * step for n, step in zip(self._shape, self._strides, strict=True))
        if last + self._dtype.itemsize > self._size:
            raise Violation("the array is longer than its memory")
        return self, None

    @classmethod
    def _own(cls, value):
        made = cls()
        made._kept, made._shape, made._dtype, made._strides = value.copy(), value.shape, value.dtype, None
        return made

    def _memory(self):
        if self._strides is None:
            return self._kept.reshape(-1).view(np.uint8)
        if self._owner() is None:
            raise Violation("the memory of an array is gone")
        return np.frombuffer((ctypes.c_char * self._size).from_address(self._address), np.uint8)

    def _view(self):
        memory = self._memory()
        return self._kept if self._strides is None else np.ndarray(self._shape, self._dtype, memory, 0, self._strides)

    def _sum(self):
        return zlib.crc32(self._view().tobytes())

    def transferToMultiArray_(self, other):  # noqa: N802
        if self._shape != other._shape:
            raise ValueError("NSInvalidArgumentException - shapes differ")
        other._view()[...] = self._view()


class MLFeatureValue(_Object):
    def __init__(self, array) -> None:
        self._array = array

    @classmethod
    def featureValueWithMultiArray_(cls, array):  # noqa: N802
        return cls(_native(array, MLMultiArray))

    def multiArrayValue(self):  # noqa: N802
        return self._array


class MLDictionaryFeatureProvider(_Object):
    def initWithDictionary_error_(self, values, error):  # noqa: N802
        self._values = _native(values, NSMutableDictionary)
        return self, None

    @classmethod
    def _of(cls, values):
        made = cls()
        made._values = values
        return made

    def featureValueForName_(self, name):  # noqa: N802
        return self._values.get(_native(name, NSString))


class MLPredictionOptions(_Object):
    def setOutputBackings_(self, backings):  # noqa: N802
        self._backings = dict(_native(backings, NSMutableDictionary))


class MLModelConfiguration(_Object):
    def setComputeUnits_(self, units):  # noqa: N802
        self.units = units

    def setFunctionName_(self, name):  # noqa: N802
        self.function = _native(name, NSString)


class _Feature(_Object):
    """MLFeatureDescription and its MLMultiArrayConstraint."""

    def __init__(self, feature) -> None:
        self._feature = feature

    def multiArrayConstraint(self):  # noqa: N802
        return self if self._feature else None

    def shape(self):
        return NSMutableArray(map(NSNumber, self._feature[0]))

    def dataType(self):  # noqa: N802
        return CODES[self._feature[1]]


class _Description(_Object):
    def __init__(self, spec: Spec) -> None:
        self._spec = spec

    def inputDescriptionsByName(self):  # noqa: N802
        features = {**self._spec.inputs, **dict.fromkeys(self._spec.state)}
        return NSMutableDictionary((NSString(name), _Feature(found)) for name, found in features.items())

    def outputDescriptionsByName(self):  # noqa: N802
        return NSMutableDictionary((NSString(name), _Feature(found)) for name, found in self._spec.outputs.items())


class _State(_Object):
    def __init__(self, package, spec) -> None:
        self.package = package
        self.arrays = {name: np.zeros(shape, dtype) for name, (shape, dtype) in spec.state.items()}


class MLNeuralEngineComputeDevice(_Object):
    pass


class MLGPUComputeDevice(_Object):
    pass


class MLCPUComputeDevice(_Object):
    pass


DEVICES = {"neural engine": MLNeuralEngineComputeDevice, "gpu": MLGPUComputeDevice, "cpu": MLCPUComputeDevice}


class _Pooled(_Object):
    """What a plan is made of: nothing of it is asked outside an autorelease pool."""

    def __init__(self, fake, **values) -> None:
        self._fake, self._values = fake, values

    def _get(self, name):
        self._fake._need_pool(name)
        return self._values[name]


class _Usage(_Pooled):
    """MLComputePlanDeviceUsage."""

    def preferredComputeDevice(self):  # noqa: N802
        return self._get("preferred")

    def supportedComputeDevices(self):  # noqa: N802
        return self._get("supported")


class _Cost(_Pooled):
    def weight(self):
        return self._get("weight")


class _Structure(_Pooled):
    """MLModelStructure and its parts: programs, functions, blocks, operations and their outputs."""

    def program(self):
        return self._get("program")

    def functions(self):
        return self._get("functions")

    def block(self):
        return self._get("block")

    def operations(self):
        return self._get("operations")

    def operatorName(self):  # noqa: N802
        return self._get("operatorName")

    def outputs(self):
        return self._get("outputs")

    def name(self):
        return self._get("name")


def _structure(fake, functions):
    """MLModelStructure of function → operations."""
    made = NSMutableDictionary()
    for name, operations in functions.items():
        listed = [
            _Structure(
                fake,
                op=op,
                function=name,
                operatorName=NSString(op.operator),
                outputs=[] if op.output is None else [_Structure(fake, name=NSString(op.output))],
            )
            for op in operations
        ]
        made[NSString(name)] = _Structure(fake, block=_Structure(fake, operations=listed))
    return _Structure(fake, program=_Structure(fake, functions=made) if functions else None)


def _modules(fake: FakeCoreML) -> dict[str, ModuleType]:
    class MLModel(_Object):
        @classmethod
        def compileModelAtURL_error_(cls, url, error):  # noqa: N802
            if found := fake._error("compile"):
                return None, found
            fake.compiled += 1
            fake._folders.append(Path(tempfile.mkdtemp(prefix="fake-coreml-")))
            made = fake._folders[-1] / "model.mlmodelc"
            shutil.copytree(url._path, made)
            (made / "source").write_text(str(url._path))
            return NSURL.fileURLWithPath_(NSString(made)), None

        @classmethod
        def modelWithContentsOfURL_configuration_error_(cls, url, configuration, error):  # noqa: N802
            if found := fake._error("load"):
                return None, found
            made = cls()
            try:
                made.package = Path((url._path / "source").read_text())
                made.function = str(configuration.function)
                made.spec = fake.describe(made.package)[made.function]
            except (OSError, ValueError, KeyError) as reason:
                return None, NSError(f"the model is damaged: {reason!r}")
            if configuration.units != 3:
                raise Violation("not for the Neural Engine")
            return made, None

        def modelDescription(self):  # noqa: N802
            return _Description(self.spec)

        def newState(self):  # noqa: N802
            return None if "state" in fake.faults else _State(self.package, self.spec)

        def predictionFromFeatures_options_error_(self, provider, options, error):  # noqa: N802
            return fake._run(self, provider, None, options)

        def predictionFromFeatures_usingState_options_error_(self, provider, state, options, error):  # noqa: N802
            return fake._run(self, provider, _native(state, _State), options)

    class MLComputePlan(_Object):
        """Lists the operations of all functions, and has devices for those of the one that was named."""

        @classmethod
        def loadContentsOfURL_configuration_completionHandler_(cls, url, configuration, handler):  # noqa: N802
            fake._need_pool("loading a plan")
            fake.plans += 1
            if configuration.units != 3:
                raise Violation("not for the Neural Engine")
            if not (url._path / "source").is_file():
                raise Violation("a plan of what is no compiled model ends the process")
            if error := fake._error("plan"):
                return fake._answer_plan(handler, None, error)
            made, package = cls(), Path((url._path / "source").read_text())
            made._function = str(configuration.function)
            functions = {name: fake.plan(package, name) for name in fake.describe(package)}
            made._structure = _structure(fake, {name: found for name, found in functions.items() if found is not None})
            return fake._answer_plan(handler, made, None)

        def modelStructure(self):  # noqa: N802
            fake._need_pool("the structure of a plan")
            return self._structure

        def _of(self, operation):
            fake._need_pool("a plan")
            op = _native(operation, _Structure)._values["op"]
            return op if operation._values["function"] == self._function and op.device else None

        def computeDeviceUsageForMLProgramOperation_(self, operation):  # noqa: N802
            if (op := self._of(operation)) is None:
                return None
            preferred, *supported = (DEVICES.get(name, _Object)() for name in (op.device, *op.supported))
            return _Usage(fake, preferred=preferred, supported=supported)

        def estimatedCostOfMLProgramOperation_(self, operation):  # noqa: N802
            op = self._of(operation)
            return None if op is None or op.weight is None else _Cost(fake, weight=op.weight)

    class autorelease_pool:  # noqa: N801
        def __enter__(self):
            fake._pools.depth = getattr(fake._pools, "depth", 0) + 1

        def __exit__(self, *_):
            fake._pools.depth -= 1

    coreml, foundation, objc = map(ModuleType, MODULES)
    for thing in (MLModel, MLMultiArray, MLFeatureValue, MLDictionaryFeatureProvider, MLPredictionOptions,
                  MLModelConfiguration, MLComputePlan, *DEVICES.values()):  # fmt: skip
        setattr(coreml, thing.__name__, thing)
    for thing in (NSString, NSNumber, NSMutableArray, NSMutableDictionary, NSURL):
        setattr(foundation, thing.__name__, thing)
    coreml.MLComputeUnitsCPUAndNeuralEngine = 3
    coreml.MLMultiArrayDataTypeFloat16, coreml.MLMultiArrayDataTypeFloat32, coreml.MLMultiArrayDataTypeInt32 = TYPES
    objc.autorelease_pool = autorelease_pool
    return {"CoreML": coreml, "Foundation": foundation, "objc": objc}
