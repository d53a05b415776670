"""What a pass over a layout is in numbers: the fixed-width arrays that packages take. Pure numpy.

Slots are the layout's own: a pass of S columns writes slots used … used+S−1, its mains first; what lies behind the
mains is overwritten by the next pass. Columns without a row see one slot, and nobody reads what they say.
"""

from collections.abc import Mapping

import numpy as np

from mirror_mlx.draft.package.manifest import Manifest
from mirror_mlx.draft.streaming.layout import Columns, Layout

MASKED = -1e4  # −inf is not safe in fp16 on the device


def columns(rows: Columns, used: int, width: int, manifest: Manifest) -> dict[str, np.ndarray]:
    """`cos`, `sin`, `mask`, and `pos` or `write`, of one segment's rows in `width` columns."""
    context, count = manifest.shapes.context, len(rows.positions)
    mask = np.full((width, context), MASKED, np.float16)
    mask[:count, : rows.mask.shape[1]][rows.mask] = 0
    mask[count:, used] = 0
    angles = np.zeros((width, len(manifest.frequencies)))
    angles[:count] = np.outer(rows.positions, manifest.frequencies)
    angles = np.concatenate([angles, angles], axis=1)
    made = {"cos": np.cos(angles), "sin": np.sin(angles), "mask": mask}
    arrays = {name: value.astype(np.float16)[None, None] for name, value in made.items()}
    if manifest.write == "slice":
        return arrays | {"pos": np.array([used], np.int32)}
    write = np.zeros((1, 1, width, context), np.float16)
    write[0, 0, np.arange(width), used + np.arange(width)] = 1
    return arrays | {"write": write}


def expansion(layout: Layout, streams: np.ndarray, manifest: Manifest) -> dict[str, np.ndarray]:
    """`sel` and `stream_add`: which main each column of the second segment starts from, and what is added there.

    streams  [s, c] the stream embeddings of this track
    """
    shapes, count = manifest.shapes, len(layout.source)
    chosen = np.zeros((shapes.first, shapes.second), np.float16)
    chosen[layout.source, np.arange(count)] = 1
    added = np.zeros((shapes.second, streams.shape[1] if streams.size else shapes.hidden_size // shapes.tracks))
    lookahead = layout.stream > 0
    if lookahead.any():
        added[:count][lookahead] = streams[layout.stream[lookahead] - 1]
    return {"sel": chosen[None, None], "stream_add": as_columns(added, shapes.second)}


def as_columns(rows: np.ndarray, width: int) -> np.ndarray:
    """Rows [R, C] as fp16 columns (1, C, 1, width), zeros behind them."""
    made = np.zeros((1, rows.shape[1], 1, width), np.float16)
    made[0, :, 0, : len(rows)] = rows.T
    return made


def as_rows(outputs: Mapping[str, np.ndarray], name: str, rows: np.ndarray) -> np.ndarray:
    """Of an output (1, C, 1, S) these columns, as rows [R, C]."""
    return np.asarray(outputs[name])[0, :, 0][:, rows].T
