"""A converted draft as the streaming draft's segments, on whatever host."""

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import groupby

import numpy as np

from mirror_mlx.draft.package.host import Host
from mirror_mlx.draft.package.inputs import as_columns, as_rows, columns, expansion
from mirror_mlx.draft.package.manifest import Manifest
from mirror_mlx.draft.package.parts import Parts
from mirror_mlx.draft.streaming.layout import Columns, Layout
from mirror_mlx.draft.streaming.predictions import Buckets
from mirror_mlx.errors import DraftError


class PackageSegments:
    """Segments whose layers are the packages of a manifest, and whose embeddings are `kept` on this side."""

    def __init__(self, manifest: Manifest, host: Host, kept: Parts) -> None:
        shapes, ids = manifest.shapes, kept.head_ids
        self.vocab_size, self.streams, self.context_length = shapes.vocab_size, shapes.streams, None
        self.columns = (shapes.first, shapes.second)
        self.rows = None
        self._manifest, self._host, self._kept, self._used = manifest, host, kept, 0
        rows = np.arange(shapes.head_size) if ids is None else ids
        self._rows = np.append(rows, np.zeros(-len(rows) % shapes.buckets, rows.dtype))
        self._bucket = np.full(shapes.vocab_size, -1, np.int32)
        self._bucket[rows] = np.arange(len(rows)) % shapes.buckets
        # The slots of a draft without state on the device, of each package.
        self._slots = {
            n: np.zeros(package.state, np.float16)
            for n, package in enumerate(manifest.packages)
            if package.state is not None and not manifest.stateful
        }
        # By depth: all tracks' packages of the same layers, then the head where it is a package of its own.
        numbered = sorted(enumerate(manifest.packages), key=lambda item: item[1].layers)
        self._stages = [[n for n, _ in stage] for _, stage in groupby(numbered, key=lambda item: item[1].layers)]

    @property
    def identity(self) -> str:
        """Changes with what is in the packages."""
        return blake2b(json.dumps(self._manifest.to_json(), sort_keys=True).encode(), digest_size=12).hexdigest()

    @property
    def used(self) -> int:
        return self._used

    @property
    def full(self) -> bool:
        shapes = self._manifest.shapes
        return self._used + max(shapes.first, shapes.second) > shapes.context

    def prefill(self, tokens: Sequence[int]) -> None:
        self.read(tokens)

    def read(self, tokens: Sequence[int]) -> np.ndarray:
        """Append tokens to the trunk; the hidden states they end with, before the final norm [R, C]."""
        width, found = self._manifest.shapes.prefill, []
        for start in range(0, len(tokens), width):
            chunk = list(tokens[start : start + width])
            self._need(width)
            positions = np.arange(self._used, self._used + len(chunk), dtype=np.int32)
            mask = np.arange(self._used + len(chunk))[None] <= positions[:, None]
            shared = columns(Columns(positions, mask), self._used, width, self._manifest)
            hidden = [as_columns(table[chunk], width) for table in self._kept.embeddings]
            ends = self._through("prefill", hidden, shared, shared, None)
            rows = np.arange(len(chunk))
            found.append(np.concatenate([as_rows(end, "h", rows) for end in ends], axis=1))
            self._used += len(chunk)
        return np.concatenate(found) if found else np.zeros((0, self._manifest.shapes.hidden_size), np.float16)

    def run(self, layout: Layout, wanted: Sequence[int]) -> Buckets:
        shapes = self._manifest.shapes
        self._need(max(shapes.first, shapes.second))
        first = columns(layout.first, layout.used, shapes.first, self._manifest)
        second = columns(layout.second, layout.used, shapes.second, self._manifest)
        tokens = [as_columns(table[layout.tokens], shapes.first) for table in self._kept.embeddings]
        (said,) = self._through("rollout", tokens, first, second, layout)
        self._used = layout.used + len(layout.tokens)
        rows = np.array(list(wanted), dtype=np.intp)
        best, sums = as_rows(said, "max", rows), as_rows(said, "sumexp", rows)
        places = as_rows(said, "arg", rows).astype(np.int64) * shapes.buckets + np.arange(shapes.buckets)
        return Buckets(self._rows[places], best.astype(np.float32), sums.astype(np.float32), self._bucket)

    def cut(self, length: int) -> None:
        self._used = min(self._used, length)

    def close(self) -> None:
        self._host.close()

    def _through(
        self, function: str, hidden: list[np.ndarray], first: Mapping[str, np.ndarray],
        second: Mapping[str, np.ndarray], layout: Layout | None,
    ) -> list[dict[str, np.ndarray]]:  # fmt: skip
        """One pass through all packages: what the last one gives, or in a prefill the last one of each track."""
        packages, shared, outputs = self._manifest.packages, first, [{"h": h} for h in hidden]
        for stage in self._stages:
            package = packages[stage[0]]
            if package.layers[0] == package.layers[1]:
                if function == "rollout":
                    parts = [found["y"] for found in outputs]
                    whole = sum(parts[1:], parts[0]) if self._kept.factored else np.concatenate(parts, axis=1)
                    outputs = [dict(self._host.call(stage[0], function, {"y": whole}))]
                continue
            gathered = None
            if package.expands:
                shared = second
                if len(stage) > 1:
                    gathered = np.concatenate([found["h"] for found in outputs], axis=1)
            said = []
            for number, found in zip(stage, outputs, strict=True):
                given = {"x": found["h"] if gathered is None else gathered, **shared}
                if package.expands and layout is not None:
                    given |= expansion(layout, self._kept.stream_embeddings[packages[number].track], self._manifest)
                said.append(self._call(number, function, given))
            outputs = said
        return outputs

    def _call(self, number: int, function: str, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if number not in self._slots:
            return dict(self._host.call(number, function, given))
        slots, layers = self._slots[number], self._slots[number].shape[0] // 2
        found = dict(self._host.call(number, function, given | {"kv": slots}))
        keys, values = found.pop("k"), found.pop("v")
        written = slice(self._used, self._used + keys.shape[2])
        slots[:layers, :, written], slots[layers:, :, written] = keys, values
        return found

    def _need(self, width: int) -> None:
        if self._used + width > self._manifest.shapes.context:
            raise DraftError(
                f"the text and its branches have filled the draft's {self._manifest.shapes.context} slots: "
                "convert it with a larger --context"
            )
