"""Where a step's time went: the runtime's trace, and a submission that notes when prefix and tap were done."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from mirror_mlx.messages import HITS
from mirror_mlx.target.submission import Submission
from mirror_mlx.trace import Trace


class Parts:
    """A `Submission` that adds up how long prefix, tap and suffix took, ns.

    The split is known where the inner one waits for each layer. Where it submits all at once, as for a GPU, begin and
    finish together are the verification, and all of it counts as the suffix.
    """

    def __init__(self, inner: Submission) -> None:
        self.eager = inner.eager
        self._inner = inner
        self.clear()

    def clear(self) -> None:
        self.prefix = self.tap = self.suffix = 0

    def begin(self, prefix: Sequence[Any], tap: Sequence[mx.array], tokens: mx.array) -> None:
        began = time.perf_counter_ns()
        if not self.eager:
            self._inner.begin(prefix, tap, tokens)
            self.suffix += time.perf_counter_ns() - began
            return
        self._inner.begin(prefix, [], tokens)
        middle = time.perf_counter_ns()
        self.prefix += middle - began
        if tap:
            self._inner.begin([], tap, tokens)
            self.tap += time.perf_counter_ns() - middle

    def proceed(self, tokens: mx.array) -> None:
        began = time.perf_counter_ns()
        self._inner.proceed(tokens)
        self.suffix += time.perf_counter_ns() - began

    def finish(self, suffix: Sequence[Any], tokens: mx.array) -> None:
        began = time.perf_counter_ns()
        self._inner.finish(suffix, tokens)
        self.suffix += time.perf_counter_ns() - began

    def ahead(self, token: mx.array) -> Callable[[], int]:
        return self._inner.ahead(token)


def where(trace: Trace, parts: Parts) -> dict[str, float]:
    """ms in each of `spec_figures.PARTS`, over all steps of a run together.

    A step lasts from its verification to the next one's. Steps that were decoded plainly are verification whole. Of
    steps in mode "sd" all waiting is for the draft; of others that after a miss is the fallback.
    """
    starts = sorted(span.start for span in trace.spans if span.name == "verify")
    if not starts or not trace.steps:
        return {}
    total = starts[-1] - starts[0] + trace.steps[-1].busy
    plainly = {step.step for step in trace.steps if step.mode == "ar"}
    plain = sum(s.end - s.start for s in trace.spans if s.name == "verify" and s.step in plainly)
    waited = {
        kind: sum(step.waited for step in trace.steps if (step.mode == "sd" or step.next in HITS) is kind)
        for kind in (True, False)
    }
    found = {
        "prefix": parts.prefix, "tap": parts.tap, "verify": parts.suffix + plain,
        "draft": waited[True], "fallback": waited[False],
    }  # fmt: skip
    return {name: ns / 1e6 for name, ns in found.items()} | {"rest": max(0, total - sum(found.values())) / 1e6}
