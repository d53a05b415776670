"""Does a converted draft say what the draft says? The saved packages, executed, against the MLX draft, in a script."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_map
from mlx_lm.tokenizer_utils import load as load_tokenizer
from mlx_lm.utils import dequantize_model

from mirror_mlx import blas, memory
from mirror_mlx.convert.options import MAX_SIZE
from mirror_mlx.convert.script import Own, Said, play
from mirror_mlx.draft import streaming
from mirror_mlx.draft.package import parts
from mirror_mlx.draft.package.manifest import Manifest
from mirror_mlx.draft.package.program import Precision
from mirror_mlx.draft.package.reference import ReferenceHost, lean_programs
from mirror_mlx.draft.package.segments import PackageSegments
from mirror_mlx.errors import DraftError

TEXT = """\
Tom has 3 boxes with 12 pencils in each of them. He gives 7 pencils to his sister and buys 2 more boxes of the same kind
at $4 a box. How many pencils does he have now, and how much money did he spend? First, Tom has 3*12 = 36 pencils. He
gives away 7 of them: 36-7 = 29 pencils are left. Two more boxes hold 2*12 = 24 pencils, so he has 29+24 = 53 pencils.
The boxes cost 2*4 = $8. The answer is 53 pencils and $8. Thank you! Can you write a function that does this? Sure:
def pencils(boxes, each): return boxes * each
"""
HIDDEN = 1e-3
"""Bound on the error of hidden states, as a share of their largest value, for fp32 execution of fp16 weights."""
TIE = 1e-4
"""Two logits as near as this, as a share of the largest one, are equally likely: which of them a sum in another order
makes the larger is chance."""
TOP1 = {"float32": 0.999, "float16": 0.99, "int8": 0.97, "lut6": 0.9, "lut4": 0.75}
"""Least share of rows whose likeliest token is the draft's: by execution, then by precision of the weights."""

_PRECISIONS: tuple[Precision, ...] = ("float32", "float16")


@dataclass(frozen=True)
class Figures:
    """hidden and logits: largest errors, as a share of the largest value; top1: share of the rows with the same
    likeliest token."""

    hidden: float
    logits: float
    top1: float
    rows: int


@blas.every_core()
def check(
    manifest: Manifest, folder: Path, draft: Path, *, report: Callable[[str], None] = lambda what: None
) -> dict[str, float]:
    """Figures for a manifest. Raises DraftError where they are out of bounds. Memory: the draft in fp16, twice."""
    report("parity, the draft")
    text, expected = tokens(draft, manifest), wanted(draft, manifest)
    memory.release()
    programs = lean_programs(manifest, folder)
    kept = parts.read(draft, manifest.shapes)
    found: dict[str, float] = {}
    for precision in _PRECISIONS:
        report(f"parity, {precision}")
        host = ReferenceHost(manifest, folder, precision=precision, programs=programs)
        # What rounding does, it does in the first step already.
        said = play(PackageSegments(manifest, host, kept), manifest, text, to_the_end=precision == "float32")
        figures = compared(expected, said)
        found |= {f"{precision}_{name}": getattr(figures, name) for name in ("hidden", "logits", "top1")}
        least = TOP1[precision if manifest.precision == "float16" else manifest.precision]
        if figures.top1 < least:
            raise DraftError(
                f"the converted draft's likeliest token is the draft's in {figures.top1:.1%} of rows ({precision}), "
                f"less than {least:.1%}: it is not kept; take another --precision"
            )
        if manifest.precision == "float16" and precision == "float32" and figures.hidden > HIDDEN:
            raise DraftError(
                f"the converted draft's hidden states are off by {figures.hidden:.1e}, more than {HIDDEN:.0e}: it is "
                "not kept; this is a fault of the conversion, please report it"
            )
    return {name: float(f"{value:.3g}") for name, value in found.items()}


def wanted(draft: Path, manifest: Manifest) -> Said:
    """What the draft itself says."""
    return play(Own(load(draft, manifest), manifest.shapes), manifest, tokens(draft, manifest))


def load(draft: Path, manifest: Manifest) -> streaming.StreamingModel:
    """The draft as it was converted: dequantised, its matrices in fp16; all else, and so what is computed, in fp32."""
    if streaming.is_streaming(draft):
        model = dequantize_model(streaming.load(draft, lazy=True))
    else:
        model = streaming.from_dense(draft, boundary=manifest.shapes.boundary, streams=0, lazy=True)
    model.update(tree_map(_rounded, model.parameters()))
    for _, array in tree_flatten(model.parameters()):  # one by one: of each there are two for a moment
        mx.eval(array)
    for track in model.tracks:
        track.model.embed_tokens.as_linear = partial(_logits, track.model.embed_tokens)
    return model


def _logits(embedding: Any, x: mx.array) -> mx.array:
    """A tied head, some rows at a time: widened to fp32 as a whole it would be half of the draft once more."""
    rows = embedding.weight
    parts = [x @ rows[start : start + MAX_SIZE].T for start in range(0, len(rows), MAX_SIZE)]
    return mx.concatenate(parts, axis=-1)


def _rounded(array: Any) -> Any:
    if not mx.issubdtype(array.dtype, mx.floating):
        return array
    half = array.astype(mx.float16)
    return half if array.ndim > 1 else half.astype(mx.float32)  # a norm's: what comes out of the first one is fp32


def tokens(draft: Path, manifest: Manifest) -> list[int]:
    """TEXT in the draft's own tokens; random ones where it has no tokenizer. A draft knows nothing of such, and every
    rounding changes its mind there."""
    try:
        encoded = list(load_tokenizer(draft).encode(TEXT))
    except Exception:  # whatever transformers says of a folder: the runtime will say it to the user
        encoded = []
    return encoded or np.random.default_rng(0).integers(0, manifest.shapes.vocab_size, 128).tolist()


def compared(expected: Said, said: Said) -> Figures:
    """One against the other, as far as `said` goes."""
    count = len(said.best)
    peaks = np.array(expected.peaks[:count])
    short = peaks.max(axis=1) - peaks[np.arange(count), said.buckets]  # by how much their choice is not the largest
    ties = short <= TIE * np.abs(peaks[np.isfinite(peaks)]).max()
    top1 = np.equal(expected.best[:count], said.best) | ties
    return Figures(
        _error(said.hidden, expected.hidden), _error(np.array(said.peaks), peaks),
        float(np.mean(top1)), count,
    )  # fmt: skip


def _error(given: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, as a share of the largest value; of −∞, which pads buckets, nothing is said."""
    given, expected = given.astype(np.float32), expected.astype(np.float32)
    given, expected = given[np.isfinite(expected)], expected[np.isfinite(expected)]
    error = float(np.abs(given - expected).max() / max(np.abs(expected).max(), 1e-6))
    return error if np.isfinite(error) else np.inf
