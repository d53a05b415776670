"""How the target's work reaches its device: when the prefix, the tap and the suffix are submitted."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import mlx.core as mx

from mirror_mlx.target.stages import arrays


class Submission(Protocol):
    """`begin` returns once the prefix and the tap are on their way, and all the rest where there is no tap; `proceed`
    once the rest is, too; `finish` once the tokens are there. `ahead` puts a step of plain decoding on its way, and
    returns what waits for its token."""

    eager: bool
    """Whether one layer is in flight at a time, in the prompt too: the tap's values are there when `begin` returns."""

    def begin(self, prefix: Sequence[Any], tap: Sequence[mx.array], tokens: mx.array) -> None: ...
    def proceed(self, tokens: mx.array) -> None: ...
    def finish(self, suffix: Sequence[Any], tokens: mx.array) -> None: ...
    def ahead(self, token: mx.array) -> Callable[[], int]: ...


class _Plain:
    """Plain decoding is the same on all devices: a step is one piece."""

    def ahead(self, token: mx.array) -> Callable[[], int]:
        mx.async_eval(token)
        return lambda: int(token.item())


class Whole(_Plain):
    """For a GPU: everything is submitted at once. A wait between layers would leave the device idle.

    In between, who waits for the tap has to begin to: submission takes most of a forward's time, as MLX commits a
    command buffer for every 20 to 50 operations or 40 to 50 MB of weights, and has ten of them in flight at most.
    """

    eager = False

    def begin(self, prefix: Sequence[Any], tap: Sequence[mx.array], tokens: mx.array) -> None:
        if tap:
            mx.async_eval(*tap)
        else:
            self.proceed(tokens)

    def proceed(self, tokens: mx.array) -> None:
        mx.async_eval(tokens)

    def finish(self, suffix: Sequence[Any], tokens: mx.array) -> None:
        mx.eval(tokens)


class LayerByLayer(_Plain):
    """For the CPU: MLX allows ten tasks in flight over all streams together, so a graph that is queued whole starves
    the draft's stream (docs/log.md). One layer is in flight at a time."""

    eager = True

    def begin(self, prefix: Sequence[Any], tap: Sequence[mx.array], tokens: mx.array) -> None:
        for output in prefix:
            mx.eval(arrays(output))
        mx.eval(*tap)

    def proceed(self, tokens: mx.array) -> None:
        pass

    def finish(self, suffix: Sequence[Any], tokens: mx.array) -> None:
        for output in suffix:
            mx.eval(arrays(output))
        mx.eval(tokens)


def for_device() -> Submission:
    """The policy of the default device."""
    return LayerByLayer() if mx.default_device() == mx.Device(mx.cpu) else Whole()
