"""Core ML through PyObjC: every Objective-C call of the package, and nothing else.

What PyObjC does, read in the sources of pyobjc-core 12.2.2:

- It releases the GIL around every call (`libffi_support.m`), so a prediction does not hold up other Python threads.
- An `NSError **` argument is passed as None, and comes back as the second of two results.
- `initWithDataPointer:` takes any contiguous buffer and hands its address over; it does not keep the buffer.
- Python strings, numbers, lists and dicts would reach Core ML as proxies, which take the GIL whenever they are looked
  at, in the middle of a prediction too. So everything that Core ML keeps is made a native object first.
- Two Python objects for the same Objective-C object are one object while the first lives: `is` compares identity.
- Outside the main thread nobody drains autoreleased objects: each call has a pool of its own.
- A Python function given as a block is called with the GIL, on whatever thread Core ML likes. If it raises, or returns
  anything but None, an Objective-C exception goes up that thread, which nobody catches there.

`tests/data/coreml_selectors.json` lists what is used here, as PyObjC's published metadata has it.
"""

import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mirror_mlx.draft.package.coreml_features import Features
from mirror_mlx.draft.package.coreml_memory import Block
from mirror_mlx.errors import DraftError

Device = Literal["neural engine", "gpu", "cpu", "other"]
Planned = tuple[str, str, Device | None, tuple[Device, ...], float]
"""One operation of a plan: operator, name of its first output ("": none), the device that Core ML prefers (None: it
gives no usage), those that could run it, and its estimated cost, a share of the whole (0: Core ML gives none)."""


class Bridge:
    """Core ML, Foundation and what we ask of them. Raises DraftError where they are missing, and for every NSError."""

    def __init__(self) -> None:
        require_mac("the Core ML host")
        try:
            CoreML, Foundation, objc = map(import_module, ("CoreML", "Foundation", "objc"))  # noqa: N806
        except ImportError:
            raise DraftError(
                "the Core ML host needs PyObjC: pip install 'mirror-mlx[coreml]', or use --draft-host mlx"
            ) from None
        self._coreml: Any = CoreML
        self._foundation: Any = Foundation
        self._objc: Any = objc
        self._texts: dict[str, Any] = {}
        self._types: dict[int, np.dtype[Any]] = {
            CoreML.MLMultiArrayDataTypeFloat16: np.dtype(np.float16),
            CoreML.MLMultiArrayDataTypeFloat32: np.dtype(np.float32),
            CoreML.MLMultiArrayDataTypeInt32: np.dtype(np.int32),
        }
        self._codes = {dtype: code for code, dtype in self._types.items()}

    def compile(self, package: Path) -> Path:
        """A compiled model, in a temporary folder of Core ML's. Writes to standard output: Core ML's compiler does."""
        with self._asking(f"{package.name} cannot be compiled"):
            made, error = self._coreml.MLModel.compileModelAtURL_error_(self._url(package), None)
            self._check(made, error)
            return Path(str(made.path()))

    def load(self, model: Path, function: str) -> Any:
        """One function of a compiled model, on the Neural Engine where Core ML agrees: an MLModel."""
        with self._asking(f"{function} of {model.stem} cannot be loaded"):
            loaded, error = self._coreml.MLModel.modelWithContentsOfURL_configuration_error_(
                self._url(model), self._configuration(function), None
            )
            self._check(loaded, error)
            return loaded

    def features(self, model: Any) -> tuple[Features, Features]:
        """Inputs and outputs of an MLModel, states not among them."""
        with self._asking("the model cannot be described"):
            described = model.modelDescription()
            return (
                self._features(described.inputDescriptionsByName()),
                self._features(described.outputDescriptionsByName()),
            )

    def array(self, block: Block) -> Any:
        """An MLMultiArray over memory of ours, which must outlive it."""
        with self._asking("memory cannot be shared with Core ML"):
            made, error = (
                self._coreml.MLMultiArray.alloc().initWithDataPointer_shape_dataType_strides_deallocator_error_(
                    block.raw,
                    self._numbers(block.array.shape),
                    self._codes[block.array.dtype],
                    self._numbers(block.strides),
                    None,
                    None,
                )
            )
            self._check(made, error)
            return made

    def provider(self, arrays: Mapping[str, Any]) -> Any:
        """Inputs: name → MLMultiArray. One serves all predictions: the memory behind it is what changes."""
        with self._asking("inputs cannot be given to Core ML"):
            values = {
                name: self._coreml.MLFeatureValue.featureValueWithMultiArray_(array) for name, array in arrays.items()
            }
            made, error = self._coreml.MLDictionaryFeatureProvider.alloc().initWithDictionary_error_(
                self._dictionary(values), None
            )
            self._check(made, error)
            return made

    def options(self, backings: Mapping[str, Any]) -> Any:
        """Where outputs should go: name → MLMultiArray."""
        with self._asking("outputs cannot be given to Core ML"):
            made = self._coreml.MLPredictionOptions.alloc().init()
            made.setOutputBackings_(self._dictionary(backings))
            return made

    def state(self, model: Any) -> Any:
        """A new MLState of a model, zeros."""
        with self._asking("no state can be made"):
            made = model.newState()
            self._check(made, None)
            return made

    def predict(
        self, model: Any, provider: Any, state: Any, options: Any, names: Iterable[str], where: str
    ) -> dict[str, Any]:
        """One prediction: name → MLMultiArray, the one that was offered or another. The GIL is free meanwhile."""
        with self._asking(f"{where} cannot be predicted"):
            if state is None:
                result, error = model.predictionFromFeatures_options_error_(provider, options, None)
            else:
                result, error = model.predictionFromFeatures_usingState_options_error_(provider, state, options, None)
            self._check(result, error)
            found = {name: result.featureValueForName_(self._text(name)) for name in names}
            if missing := [name for name, value in found.items() if value is None]:
                raise DraftError(f"Core ML gave no {', '.join(missing)}: convert the draft again")
            return {name: value.multiArrayValue() for name, value in found.items()}

    def transfer(self, source: Any, target: Any) -> None:
        """Copy an MLMultiArray of Core ML's into another, whatever the strides and the type of either.

        Core ML copies: strides that it reports for its own arrays can be wrong (zeros, in john-rocky/CoreML-LLM).
        """
        with self._asking("an output cannot be read"):
            source.transferToMultiArray_(target)

    def plan(self, model: Path, function: str, answer: Callable[[Any, Any], None]) -> None:
        """Have Core ML plan one function of a compiled model, and return at once.

        `answer` gets what `planned` takes, an MLComputePlan or an NSError and None, on a thread of Core ML's: once, or
        never. It must not raise, nor ask anything of Core ML.
        """
        with self._asking(f"{function} of {model.stem} cannot be planned"):
            self._coreml.MLComputePlan.loadContentsOfURL_configuration_completionHandler_(
                self._url(model), self._configuration(function), answer
            )

    def planned(self, plan: Any, error: Any, function: str, where: str) -> list[Planned]:
        """What a plan has for the function that it was made for, in the order of the program. Blocks inside operations
        (of loops and conditions) are passed over."""
        with self._asking(f"{where} cannot be planned"):
            self._check(plan, error, "use --draft-host mlx")
            program = plan.modelStructure().program()
            found = None if program is None else program.functions().objectForKey_(self._text(function))
            if found is None:
                raise DraftError(f"Core ML finds no function {function} in it: convert the draft again")
            made: list[Planned] = []
            for operation in found.block().operations():
                usage = plan.computeDeviceUsageForMLProgramOperation_(operation)
                cost = plan.estimatedCostOfMLProgramOperation_(operation)
                outputs = [str(output.name()) for output in operation.outputs()]
                device = None if usage is None else self._device(usage.preferredComputeDevice())
                supported = () if usage is None else tuple(map(self._device, usage.supportedComputeDevices()))
                weight = 0.0 if cost is None else float(cost.weight())
                made.append((str(operation.operatorName()), outputs[0] if outputs else "", device, supported, weight))
            return made

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """Whatever goes wrong inside is a DraftError that begins with `what`."""
        try:
            with self._objc.autorelease_pool():
                yield
        except DraftError as reason:
            raise DraftError(f"{what}: {reason}") from None
        except Exception as reason:  # Objective-C exceptions come as many types
            raise DraftError(
                f"{what}: {one_line(f'{type(reason).__name__}: {reason}')}: run mirror-mlx doctor"
            ) from reason

    def _check(self, result: Any, error: Any, advice: str = "run mirror-mlx doctor, or use --draft-host mlx") -> None:
        if result is None:
            said = "no reason given" if error is None else str(error.localizedDescription())
            raise DraftError(f"{one_line(said)}: {advice}")

    def _configuration(self, function: str) -> Any:
        made = self._coreml.MLModelConfiguration.alloc().init()
        made.setComputeUnits_(self._coreml.MLComputeUnitsCPUAndNeuralEngine)
        made.setFunctionName_(self._text(function))
        return made

    def _device(self, device: Any) -> Device:
        if isinstance(device, self._coreml.MLNeuralEngineComputeDevice):
            return "neural engine"
        if isinstance(device, self._coreml.MLGPUComputeDevice):
            return "gpu"
        return "cpu" if isinstance(device, self._coreml.MLCPUComputeDevice) else "other"

    def _features(self, described: Any) -> Features:
        found = {}
        for name in described:
            tensor = described.objectForKey_(name).multiArrayConstraint()
            if tensor is not None:
                shape = tuple(int(size) for size in tensor.shape())
                found[str(name)] = (shape, self._types[int(tensor.dataType())])
        return found

    def _url(self, path: Path) -> Any:
        return self._foundation.NSURL.fileURLWithPath_(self._text(str(path.absolute())))

    def _text(self, text: str) -> Any:
        if text not in self._texts:
            self._texts[text] = self._foundation.NSString.stringWithUTF8String_(text.encode())
        return self._texts[text]

    def _numbers(self, values: Sequence[int]) -> Any:
        made = self._foundation.NSMutableArray.arrayWithCapacity_(len(values))
        for value in values:
            made.addObject_(self._foundation.NSNumber.numberWithLongLong_(value))
        return made

    def _dictionary(self, items: Mapping[str, Any]) -> Any:
        made = self._foundation.NSMutableDictionary.dictionaryWithCapacity_(len(items))
        for name, item in items.items():
            made.setObject_forKey_(item, self._text(name))
        return made


def require_mac(who: str) -> None:
    """Raise DraftError on anything but macOS 15 or newer on Apple silicon: states and functions came with it."""
    version, machine = platform.mac_ver()[0], platform.machine()
    if sys.platform != "darwin" or int(version.split(".")[0] or 0) < 15:
        here = f"macOS {version}" if sys.platform == "darwin" else sys.platform
        raise DraftError(f"{who} needs macOS 15 or newer, and this is {here}: use --draft-host mlx")
    if machine != "arm64":
        raise DraftError(f"{who} needs a Python for Apple silicon, and this one is for {machine}: use --draft-host mlx")


def one_line(text: str) -> str:
    """Without line breaks, at most 300 characters."""
    text = " ".join(text.split())
    return text if len(text) <= 300 else text[:297] + "…"
