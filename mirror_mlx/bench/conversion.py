"""What converting a draft costs: seconds and peak memory of `mirror-mlx convert`, with each precision.

Each conversion has a process of its own, `python -m mirror_mlx.bench.conversion REQUEST`, which tells its progress and
then its figures as lines of JSON.
"""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from mirror_mlx.bench.checks import at_least
from mirror_mlx.errors import DraftError, MirrorError, UsageError

Report = Callable[[int, str], None]
LIMIT = 1_000_000_000
"""Bytes of a package: larger ones leave the Neural Engine."""
STEPS = 100
"""Of progress: for making the draft, and for each conversion."""
_CHUNK = 1 << 20  # weights in memory while a draft is made


@dataclass(frozen=True)
class Shape:
    """Sizes of a Qwen3 model of random weights; those of Qwen3-0.6B where nothing else is said.

    untied   the head has weights of its own
    """

    layers: int = 28
    hidden_size: int = 1024
    intermediate_size: int = 3072
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 128
    vocab_size: int = 151_936
    untied: bool = False

    def check(self) -> None:
        """Raise UsageError for sizes that no draft has."""
        sizes = [one.name for one in fields(self) if one.name != "untied"]
        at_least(self, **{name: 2 if name == "layers" else 1 for name in sizes})  # a draft is cut in two
        if self.heads % self.kv_heads:
            raise UsageError(f"heads is {self.heads}: it must be a multiple of kv_heads, which is {self.kv_heads}")

    def config(self) -> dict[str, Any]:
        """The contents of config.json."""
        return {
            "model_type": "qwen3", "num_hidden_layers": self.layers, "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size, "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads, "head_dim": self.head_dim, "vocab_size": self.vocab_size,
            "tie_word_embeddings": not self.untied, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
            "max_position_embeddings": 40_960,
        }  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """What to measure.

    draft        a folder, or the shape of a draft to be made
    precisions   one conversion for each
    parity       also execute the packages and compare them with the draft, as `mirror-mlx convert` does
    """

    draft: Path | Shape = field(default_factory=Shape)
    precisions: tuple[str, ...] = ("float16", "int8")
    parity: bool = False


def measure(plan: Plan, report: Report = lambda done, what: None) -> dict[str, Any]:
    """`draft`: what was converted, and how large it is; `conversions`: figures for each precision.

    seconds                  from the start of the process to its last package
    peak_bytes               the most it had in memory at once, pages of files included
    baseline_bytes           of that, what it had before it opened the draft: Python and its libraries
    peak_ratio               peak_bytes in units of the draft's own size in float16; `_above_baseline`: without that
    packages                 how many; `largest_package_bytes` of them, and whether that is `below_limit`
    head_parts               convolutions the head is made of; `head_part_rows` of the largest
    parity                   its figures, none where it was not asked for

    All is done in a temporary folder, which is gone afterwards. Raises UsageError for a shape that no draft has,
    DraftError for a draft that cannot be made or converted.
    """
    if isinstance(plan.draft, Shape):
        _check(plan.draft)
    with tempfile.TemporaryDirectory(prefix="mirror-mlx-") as name:
        scratch = Path(name)
        if isinstance(plan.draft, Shape):
            folder = scratch / "draft"
            about: dict[str, Any] = {"name": "random weights"} | asdict(plan.draft)
            write(plan.draft, folder, lambda share: report(int(STEPS * share), "making a draft"))
        else:
            folder, about = plan.draft, {"name": plan.draft.resolve().name}
        parameters = _parameters(folder)
        rows = []
        for number, precision in enumerate(plan.precisions, start=1):

            def tell(share: float, what: str, begun: int = number, precision: str = precision) -> None:
                report(int(STEPS * (begun + share)), f"{precision}, {what}")

            figures = _converted(folder, scratch, {"precision": precision, "parity": plan.parity}, tell)
            rows.append({"precision": precision} | _rated(figures, 2 * parameters))
    return {"draft": about | {"parameters": parameters, "float16_bytes": 2 * parameters}, "conversions": rows}


def write(shape: Shape, folder: Path, report: Callable[[float], None] = lambda share: None) -> None:
    """A draft of random weights (bfloat16) as mlx-lm has it, written piece by piece. Raises DraftError."""
    from mlx.utils import tree_flatten
    from mlx_lm.models import qwen3

    config = shape.config()
    model = qwen3.Model(qwen3.ModelArgs.from_dict(config))  # its weights are never computed
    shapes = {name: value.shape for name, value in tree_flatten(model.parameters())}
    header, end = {}, 0
    for name, sizes in shapes.items():
        begin, end = end, end + 2 * prod(sizes)
        header[name] = {"dtype": "BF16", "shape": sizes, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    random, done = np.random.default_rng(0), 0
    try:
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        with (folder / "model.safetensors").open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for sizes in shapes.values():
                for start in range(0, prod(sizes), _CHUNK):
                    count = min(_CHUNK, prod(sizes) - start)
                    file.write(_bfloat16(random, count, norm=len(sizes) == 1))
                    done += 2 * count
                    report(done / end)
            file.flush()
            os.fsync(file.fileno())  # or the disk would still be busy with it while the first conversion is timed
    except OSError as reason:
        raise DraftError(
            f"the draft, {end / 1e6:.0f} MB, was not written to {folder.parent} ({reason.strerror}): "
            "set TMPDIR to a folder with more space"
        ) from None


def _bfloat16(random: np.random.Generator, count: int, *, norm: bool) -> bytes:
    values = np.ones(count, np.float32) if norm else random.standard_normal(count, np.float32) * np.float32(0.02)
    return (values.view(np.uint32) >> 16).astype("<u2").tobytes()


def _check(shape: Shape) -> None:
    """Whatever can be known to fail before a draft is made."""
    from mirror_mlx.convert.options import Build
    from mirror_mlx.draft.streaming import StreamingConfig

    shape.check()
    Build().check_draft(StreamingConfig.of(shape.config() | {"mirror": {"boundary": shape.layers // 2, "streams": 0}}))


def _parameters(folder: Path) -> int:
    """How many weights the draft has, read lazily."""
    from mlx_lm.utils import get_total_parameters

    from mirror_mlx.draft.streaming.weights import is_streaming, load, load_dense

    model: Any = load(folder, lazy=True) if is_streaming(folder) else None
    return int(get_total_parameters(model or load_dense(folder, boundary=None, streams=0, lazy=True)[0]))


def _rated(figures: dict[str, Any], size: int) -> dict[str, Any]:
    """With what follows from them; size: of the draft in float16, bytes."""
    peak, baseline = figures["peak_bytes"], figures["baseline_bytes"]
    return figures | {
        "peak_ratio": peak / size,
        "peak_ratio_above_baseline": (peak - baseline) / size,
        "below_limit": figures["largest_package_bytes"] < LIMIT,
    }


def _converted(
    folder: Path, scratch: Path, request: dict[str, Any], tell: Callable[[float, str], None]
) -> dict[str, Any]:
    """The figures of one conversion, in a child process. Raises DraftError where it fails."""
    out, said = scratch / "converted", scratch / "said.txt"
    asked = json.dumps(request | {"draft": str(folder), "out": str(out), "began": time.monotonic()})
    last: dict[str, Any] = {}
    with said.open("wb") as errors:
        child = subprocess.Popen(
            [sys.executable, "-m", __name__, asked],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
        )  # fmt: skip
        try:
            assert child.stdout is not None
            for line in child.stdout:
                last = json.loads(line)
                if "what" in last:
                    tell(last["share"], last["what"])
            code = child.wait()
        finally:
            _end(child)
    if "error" in last:
        raise DraftError(last["error"])
    if code or "figures" not in last:
        heard = (said.read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        how = "it was killed: is there too little memory?" if code == -signal.SIGKILL else heard[-200:]
        raise DraftError(f"converting with {request['precision']} ended with code {code} ({how})")
    shutil.rmtree(out)
    figures: dict[str, Any] = last["figures"]
    return figures


def _end(child: "subprocess.Popen[bytes]") -> None:
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    if child.stdout is not None:
        child.stdout.close()


def main(arguments: Sequence[str]) -> None:
    """In the child: REQUEST, a JSON object."""
    request = json.loads(arguments[0])
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # what libraries print is no answer

        def tell(**answer: Any) -> None:
            print(json.dumps(answer), file=answers, flush=True)

        try:
            tell(figures=_figures(request, lambda done, total, what: tell(share=done / total, what=what)))
        except MirrorError as reason:
            tell(error=str(reason))


def _figures(request: dict[str, Any], report: Callable[[int, int, str], None]) -> dict[str, Any]:
    from mirror_mlx import memory
    from mirror_mlx.convert import checks, parity
    from mirror_mlx.convert.convert import convert
    from mirror_mlx.convert.options import Build

    baseline, out = _peak(), Path(request["out"])
    memory.reuse()  # as the command does
    check = parity.check if request["parity"] else None
    made = convert(Path(request["draft"]), out, Build(precision=request["precision"]), report=report, check=check)
    seconds, peak = time.monotonic() - request["began"], _peak()
    sizes = [sum(file.stat().st_size for file in (out / one.file).rglob("*")) for one in made.packages]
    heads = checks.head_parts(out / made.packages[-1].file)
    return {
        "seconds": seconds, "peak_bytes": peak, "baseline_bytes": baseline, "packages": len(sizes),
        "largest_package_bytes": max(sizes), "head_parts": len(heads), "head_part_rows": max(heads),
        "parity": dict(made.parity),
    }  # fmt: skip


def _peak() -> int:
    """Bytes, the most that this process had in memory."""
    try:
        # On Linux a process's ru_maxrss begins with that of the process which started it.
        found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        found = None
    if found:
        return int(found[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    main(sys.argv[1:])
