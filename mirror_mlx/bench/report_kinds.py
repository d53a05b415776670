"""What a JSON file is: which measurement wrote it. Recognised by its keys; pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Kind:
    """title    what was measured
    command  what writes such a file
    has      whether an object is one
    """

    title: str
    command: str
    has: Callable[[Any], bool]


def _keys(*names: str) -> Callable[[Any], bool]:
    return lambda data: isinstance(data, Mapping) and all(name in data for name in names)


def _rows(*names: str) -> Callable[[Any], bool]:
    has = _keys(*names)
    return lambda data: isinstance(data, list) and bool(data) and all(has(row) for row in data)


KINDS = {
    "trace": Kind(
        "Timeline of the two devices",
        "mirror-mlx generate --trace",
        lambda data: _keys("traceEvents")(data) or _rows("ph", "pid")(data),
    ),
    "law": Kind("Latency law", "mirror-mlx bench law --json", _keys("step_over_verify", "verify_ms", "lab")),
    "sweep": Kind("Latency law, predicted", "mirror-mlx bench law --sweep --json", _keys("points", "worst_error")),
    "spec": Kind("SpecBench", "mirror-mlx bench spec", _keys("temperatures", "methods", "setup", "left_out")),
    "tap": Kind("Foreseen outcomes", "mirror-mlx bench tap --json", _keys("temperatures", "kappas", "exit_layer")),
    "variants": Kind("Serial and Mirror, by draft", "mirror-mlx bench variants --json", _keys("variants", "setup")),
    "hosts": Kind("The draft's hosts", "mirror-mlx bench hosts --json", _keys("hosts", "setup")),
    "contend": Kind("Beside other programs", "mirror-mlx bench contend --json", _keys("loads", "setup")),
    "through": Kind(
        "A load that comes and goes", "mirror-mlx bench contend --through --json", _keys("through", "setup")
    ),
    "auto": Kind("Mode auto beside plain decoding", "mirror-mlx bench auto --json", _keys("drafts", "setup")),
    "choices": Kind(
        "Mode auto beside fixed settings", "mirror-mlx bench auto --sweep --json", _keys("settings", "worst_share")
    ),
    "plan": Kind("What to expect", "mirror-mlx plan --json", _keys("modes", "about")),
    "convert": Kind("Cost of converting", "mirror-mlx bench convert --json", _keys("conversions", "draft")),
    "training": Kind(
        "Cost of training", "mirror-mlx bench training --json", _rows("kind", "batch_size", "tokens_per_second")
    ),
    "problems": Kind("Word problems", "mirror-mlx bench problems --json", _keys("asked", "right", "ended_share")),
}
"""The order is the one that they are tried in."""


def recognise(data: Any) -> str | None:
    """The name of its kind, or None.

    >>> recognise({"traceEvents": []}), recognise({"hosts": [], "setup": {}}), recognise({"hello": 1})
    ('trace', 'hosts', None)
    """
    return next((name for name, kind in KINDS.items() if kind.has(data)), None)
