"""No regret, measured: mode "auto" beside plain decoding, with hostile drafts. Every token is compared."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from mirror_mlx import blas
from mirror_mlx.bench import turns
from mirror_mlx.bench.hostile import KINDS, Dying, hostile
from mirror_mlx.bench.lab import Others
from mirror_mlx.bench.turns import Answer, Lab, Report, Settings, Until

_UNTIL = Until(precise=0.01, most=120.0)
"""What is lost where nothing pays is a per cent or two: two plain engines are as far apart in half a minute."""


def hostile_rows(settings: Settings, report: Report = lambda done, what: None) -> dict[str, Any]:
    """`drafts`: for each kind of hostile draft, on the lab's pair and on the pair as it is, how "auto" compares with
    plain decoding. speed: auto's tokens a second ÷ plain decoding's, and its standard error; the rest is of single
    answers."""
    blas.set_threads(1)
    rows, done = [], 0
    asked = settings.params, settings.target_ms
    for size, forward in dict.fromkeys((asked, (0, 0.0))):
        pace = settings.pass_ms if size or forward else 0.0
        lab = Lab(replace(settings, params=size, target_ms=forward, pass_ms=pace))
        with lab.cores.for_target(), lab.engine(None, mode="ar") as plain:
            for kind in KINDS:
                draft = hostile(kind, lab.draft(), plain.target.vocab_size)
                with lab.engine(draft, mode="auto") as auto:
                    began, others = time.perf_counter(), Others()
                    if isinstance(draft, Dying):  # where it dies before it has begun, it is left alone from then on
                        draft.mortal = False
                    auto.calibrate()
                    calibrated = time.perf_counter() - began
                    if isinstance(draft, Dying):
                        draft.mortal = True
                    turns.warm((plain, auto), lab)
                    engines, said = {"ar": plain, "auto": auto}, turns.told(report, done, kind)
                    found = turns.in_turn(engines, lab, settings.rounds, said, against="auto", until=_UNTIL)
                    done += settings.rounds * len(lab.first) * 2
                    rows.append(
                        {"params": lab.params, "target_ms": forward, "draft": kind, "calibration_s": calibrated}
                        | _compared(found) | {"other_programs_cores": others.cores()}
                    )  # fmt: skip
    return {"setup": turns.setup(settings), "drafts": rows}


def _compared(found: Mapping[str, Sequence[Answer]]) -> dict[str, Any]:
    plain, auto = found["ar"], found["auto"]
    ratios = [one.seconds / other.seconds for one, other in zip(plain, auto, strict=True)]
    return {
        "plain_tokens_per_second": turns.rate(plain), "tokens_per_second": turns.rate(auto),
        "speed": turns.times_as_fast(auto, plain), "speed_error": turns.uncertainty(auto, plain),
        "median_speed": median(ratios), "speed_min_max": [min(ratios), max(ratios)],
        "tokens": sum(a.tokens for a in auto), "identical": turns.identical(found),
    }  # fmt: skip
