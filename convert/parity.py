"""Does a converted draft say what the draft says? The saved packages, executed, against the MLX draft.

A text is read in chunks; then steps as the runtime makes them, each on the same layouts for both: glue, the branches
of several roots with their streams for as many passes as a window takes, a rewind to what was accepted, until the slots
are nearly full.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import mlx.core as mx
import numpy as np
from mlx_lm.tokenizer_utils import load as load_tokenizer
from mlx_lm.utils import dequantize_model

from mirror_mlx.draft import streaming
from mirror_mlx.draft.package import parts
from mirror_mlx.draft.package.manifest import Manifest
from mirror_mlx.draft.package.reference import ReferenceHost
from mirror_mlx.draft.package.segments import PackageSegments
from mirror_mlx.draft.streaming.layout import Feed, Layout, lay_out, packed
from mirror_mlx.draft.streaming.model import whole
from mirror_mlx.errors import DraftError
from mirror_mlx.messages import Key

TEXT = """\
Tom has 3 boxes with 12 pencils in each of them. He gives 7 pencils to his sister and buys 2 more boxes of the same kind
at $4 a box. How many pencils does he have now, and how much money did he spend? First, Tom has 3*12 = 36 pencils. He
gives away 7 of them: 36-7 = 29 pencils are left. Two more boxes hold 2*12 = 24 pencils, so he has 29+24 = 53 pencils.
The boxes cost 2*4 = $8. The answer is 53 pencils and $8. Thank you! Can you write a function that does this? Sure:
def pencils(boxes, each): return boxes * each
"""
ROOTS = 8
HIDDEN = 1e-3
"""Bound on the error of hidden states, as a share of their largest value, for fp32 execution of fp16 weights."""
TOP1 = {"float32": 0.999, "float16": 0.99, "int8": 0.97, "lut6": 0.9, "lut4": 0.75}
"""Least share of rows whose likeliest token is the draft's: by execution, then by precision of the weights."""


@dataclass
class Figures:
    """hidden and logits: largest errors, as a share of the largest value; top1: one entry for each row compared."""

    hidden: float = 0.0
    logits: float = 0.0
    top1: list[bool] = field(default_factory=list)

    @property
    def share(self) -> float:
        return float(np.mean(self.top1)) if self.top1 else 0.0


def check(
    manifest: Manifest, folder: Path, draft: Path, *, report: Callable[[str], None] = lambda what: None
) -> dict[str, float]:
    """Figures for a manifest. Raises DraftError where they are out of bounds."""
    model = load(draft, manifest)
    found: dict[str, float] = {}
    for precision in ("float32", "float16"):
        report(f"parity, {precision}")
        figures = compare(model, manifest, folder, draft, precision)
        found |= {f"{precision}_hidden": figures.hidden, f"{precision}_logits": figures.logits}
        found[f"{precision}_top1"] = figures.share
        least = TOP1[precision if manifest.precision == "float16" else manifest.precision]
        if figures.share < least:
            raise DraftError(
                f"the converted draft's likeliest token is the draft's in {figures.share:.1%} of rows ({precision}), "
                f"less than {least:.1%}: it is not kept; take another --precision"
            )
        if manifest.precision == "float16" and precision == "float32" and figures.hidden > HIDDEN:
            raise DraftError(
                f"the converted draft's hidden states are off by {figures.hidden:.1e}, more than {HIDDEN:.0e}: it is "
                "not kept; this is a fault of the conversion, please report it"
            )
    return {name: float(f"{value:.3g}") for name, value in found.items()}


def load(draft: Path, manifest: Manifest) -> streaming.StreamingModel:
    """The draft as it was converted, its weights dequantised, rounded to fp16 and then held in fp32."""
    shapes = manifest.shapes
    if streaming.is_streaming(draft):
        model = dequantize_model(streaming.load(draft))
    else:
        model = streaming.from_dense(draft, boundary=shapes.boundary, streams=0)
    model.set_dtype(mx.float16)
    model.set_dtype(mx.float32)
    return model


def compare(
    model: streaming.StreamingModel, manifest: Manifest, folder: Path, draft: Path,
    precision: Literal["float32", "float16"], *, seed: int = 0,
) -> Figures:  # fmt: skip
    """Both through the same script; see the module."""
    shapes = manifest.shapes
    host = ReferenceHost(manifest, folder, precision=precision)
    theirs = PackageSegments(manifest, host, parts.read(draft, shapes))
    ours = streaming.MlxSegments(model)
    random = np.random.default_rng(seed)
    figures = Figures()
    try:
        length, window = shapes.prefill + shapes.prefill // 2, manifest.num_draft_tokens + 1
        text = np.resize(_tokens(draft, shapes.vocab_size, random), length + _STEPS * window).tolist()
        prompt, rest = text[:length], text[length:]
        wanted = _hidden(model, prompt)
        _worst(figures, "hidden", theirs.read(prompt), wanted)
        ours.prefill(prompt)
        for step in range(_STEPS):
            base = ours.used
            if step == _STEPS - 1:  # the last one close to the end of the slots
                room = shapes.context - base - _needed(manifest)
                ahead = np.resize(text, max(room, 0)).tolist()
                theirs.read(ahead)
                ours.prefill(ahead)
                base = ours.used
            rows = rest[step * window : (step + 1) * window]
            for layout in _layouts(rows, base, shapes.streams, theirs, random, text):
                _compared(figures, ours, theirs, layout, model)
            accepted = int(random.integers(0, len(rows)))
            for segments in (ours, theirs):
                segments.cut(base + accepted + 1)
    finally:
        ours.close()
        theirs.close()
    return figures


_STEPS = 3


def _tokens(draft: Path, vocab_size: int, random: np.random.Generator) -> list[int]:
    """TEXT in the draft's own tokens; random ones where it has no tokenizer. A draft knows nothing of random
    tokens, and every rounding changes its mind there."""
    try:
        return list(load_tokenizer(draft).encode(TEXT))
    except Exception:  # whatever transformers says of a folder: the runtime will say it to the user
        return random.integers(0, vocab_size, 128).tolist()


def _needed(manifest: Manifest) -> int:
    """Slots that a step takes at most: its glue, its branches' mains, and one pass."""
    shapes = manifest.shapes
    passes = -(-manifest.num_draft_tokens // (1 + shapes.streams))
    mains = manifest.num_draft_tokens + 1 + ROOTS * (1 + (passes - 1) * (1 + shapes.streams))
    return mains + max(shapes.first, shapes.second, shapes.prefill)


def _layouts(
    rows: list[int], base: int, streams: int, segments: PackageSegments, random: np.random.Generator, text: list[int]
) -> Iterator[Layout]:
    """Glue, then the passes of ROOTS branches that leave it at different rows, of tokens that occur in `text`. Each is
    laid out when it is asked for, since slots go by what has been computed."""
    yield lay_out([Feed(base, [], rows, "none")], segments.used, 0)
    branches: dict[Key, Feed] = {}
    for number in range(ROOTS):
        row = number % len(rows)
        branches[row, number] = Feed(base + row + 1, [], random.choice(text, 1).tolist())
    for _ in range(-(-(len(rows) - 1) // (1 + streams))):
        for group in packed(list(branches.items()), streams, segments.columns):
            layout = lay_out([feed for _, feed in group], segments.used, streams)
            yield layout
            for place, (key, feed) in enumerate(group):
                assert key is not None
                slots = [*feed.slots, *layout.slots(place)]
                branches[key] = Feed(feed.trunk, slots, random.choice(text, 1 + streams).tolist())


def _compared(
    figures: Figures, ours: streaming.MlxSegments, theirs: PackageSegments, layout: Layout,
    model: streaming.StreamingModel,
) -> None:  # fmt: skip
    wanted = list(range(len(layout.source)))
    said, given = ours.run(layout, wanted), theirs.run(layout, wanted)
    logits = np.array(whole(said.logits, model.token_ids, ours.vocab_size))
    _worst(figures, "logits", given.logits, np.take_along_axis(logits, given.ids, axis=-1))
    best = np.take_along_axis(given.ids, given.logits.argmax(-1)[:, None], -1)[:, 0]
    figures.top1 += (best == logits.argmax(-1)).tolist()


def _worst(figures: Figures, name: str, given: np.ndarray, wanted: np.ndarray) -> None:
    given, wanted = given.astype(np.float32), wanted.astype(np.float32)
    error = float(np.abs(given - wanted).max() / max(np.abs(wanted).max(), 1e-6))
    setattr(figures, name, max(getattr(figures, name), error if np.isfinite(error) else np.inf))


def _hidden(model: streaming.StreamingModel, tokens: Sequence[int]) -> np.ndarray:
    mains, _ = model.hidden(mx.array([list(tokens)]), 0)
    return np.concatenate([np.array(track[0]) for track in mains], axis=-1)
