"""Mode "auto" of an engine: what is calibrated, and who decides from then on; and the fixed modes.

The governor is the engine's: what it learns in one request serves the next.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from mlx_lm.generate import wired_limit

from mirror_mlx import storage
from mirror_mlx.calibration import Found, Report, Wanted, kept, measure
from mirror_mlx.draft.protocol import Movable, joining, streaming, width_of
from mirror_mlx.messages import Predictor
from mirror_mlx.options import Options
from mirror_mlx.prompts import encode
from mirror_mlx.rendezvous import Rendezvous
from mirror_mlx.sampling import Sampling
from mirror_mlx.target import Target
from mirror_mlx.threads import brisk
from mirror_mlx.tuning.choice import Reach
from mirror_mlx.tuning.costs import Way
from mirror_mlx.tuning.governor import Governor
from mirror_mlx.tuning.moving import Moving
from mirror_mlx.tuning.policy import Fixed, Growing, Policy
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.worth import Worth

_LONGEST = 15  # proposals of a window, where nobody says otherwise
CHOSEN = ("num_draft_tokens", "max_roots", "exit_layer")
"""Options that are limits to what is chosen, rather than settings."""
_NEEDED = 96  # tokens that calibration decodes after its text
_TEXT = (
    "Speculative decoding asks a small model for a guess and a large one for a check. A farmer has 12 rows of 8 apple "
    "trees and sells 30 of them. How many trees are left? First find how many trees there were:"
)


class Auto:
    """Made with an engine; calibrates when it is first asked.

    draft      the draft itself, which the rendezvous drives; None: there is none
    tokenizer  the target's; None: any tokens will do
    backup     whether something proposes where the draft has nothing
    """

    def __init__(
        self,
        target: Target,
        rendezvous: Rendezvous | None,
        draft: Any,
        options: Options,
        max_roots: int,
        *,
        tokenizer: Any = None,
        backup: bool = False,
    ) -> None:
        self._target, self._rendezvous, self._draft, self._tokenizer = target, rendezvous, draft, tokenizer
        self._options, self._max_roots, self._backup = options, max_roots, backup
        self._found: Found | None = None
        self._governor: Governor | Moving | None = None
        self._file: Path | None = None
        self.refusal = ""

    def close(self) -> None:
        """A calibration that no longer holds is made anew next time."""
        if self._governor is not None and self._governor.drifted and self._file is not None:
            storage.forget(self._file)

    @property
    def policy(self) -> Policy:
        self.calibrate()
        assert self._governor is not None
        return self._governor

    @property
    def found(self) -> tuple[Found, Reach]:
        """What calibration found, and what there is to choose from."""
        self.calibrate()
        assert self._found is not None
        return self._found, self._reach(self._found)

    def calibrate(self, report: Report = lambda share: None, sampling: Sampling = Sampling()) -> None:
        """Unless that has been done, here or in an earlier process. sampling: how tokens are going to be chosen."""
        if self._found is not None:
            return
        sampling = replace(sampling, seed=0, logits_processors=())
        wanted = self._wanted()
        about = {"length": wanted.length, "roots": wanted.roots, "ways": list(wanted.ways), "exits": list(wanted.exits)}
        about |= {} if sampling.greedy else {"sampling": repr(sampling)}
        self._file = file = kept.file_for(self._target.model, self._draft, about)
        found = None if file is None else kept.read(file)
        if found is None:
            found = self._measured(wanted, report, sampling)
            if file is not None and not found.refusal:
                storage.write(file, found.as_dict())
        self._found, self.refusal = found, found.refusal
        self._governor = self._governed(found)

    def _measured(self, wanted: Wanted, report: Report, sampling: Sampling) -> Found:
        """With the draft where it belongs, or on the first host on which it works."""
        longest = self._target.context_length
        room = _NEEDED if longest is None else longest - _NEEDED
        text = self._text()
        text, tried = text[: max(2, min(len(text), room))], list[Found]()
        with wired_limit(self._target.model), brisk():
            for host in ("", *self._hosts[1:]):
                if host and self._rendezvous is not None:
                    self._rendezvous.use(*wanted.ways[0], host=host)
                tried.append(
                    replace(measure(self._target, self._rendezvous, text, wanted, report, sampling), host=host)
                )
                if not tried[-1].refusal:
                    return tried[-1]
        return tried[0]

    @property
    def _hosts(self) -> Sequence[str]:
        """Where the draft may be, where it belongs first; one that cannot be moved has none."""
        return self._draft.hosts if isinstance(self._draft, Movable) else ()

    def _governed(self, found: Found) -> Governor | Moving:
        governor = partial(Governor, found.costs, self._reach(found), found.holds, backup=self._backup)
        if len(self._hosts) < 2:
            return governor()
        here = found.host or self._hosts[0]
        # What it takes elsewhere is found out when that is of use: until then it is as here.
        return Moving({host: governor(known=host == here) for host in self._hosts}, here)

    def _text(self) -> list[int]:
        """Some tokens to begin with."""
        tokens = encode(self._tokenizer, _TEXT) if self._tokenizer else list(range(32))
        return [token % self._target.vocab_size for token in tokens]

    def _wanted(self) -> Wanted:
        draft, o = self._draft, self._options
        length = o.num_draft_tokens or _LONGEST
        return Wanted(
            length=length,
            roots=self._max_roots,
            kappa=o.kappa,
            ways=self._ways(),
            exits=self._exits(),
            width=lambda: None if draft is None else width_of(draft),
            joins=lambda: draft is not None and joining(draft, length + 1) is not None,
        )

    def _ways(self) -> Sequence[Way]:
        o, found = self._options, None if self._draft is None else streaming(self._draft)
        if found is None or not found.trained_streams:
            return [(0, False)]
        if o.streams is not None:
            return [(o.streams, o.stream_mode == "exact" and o.streams > 0)]
        return [(0, False), (found.trained_streams, False), (found.trained_streams, True)]

    def _exits(self) -> Sequence[int]:
        """The layers the tap was trained for, or some; none where there is no tap, or no use for one."""
        target, o = self._target, self._options
        if target.tap_refusal is not None or o.predictor == "draft" or self._draft is None:
            return []
        if o.exit_layer is not None:
            return [o.exit_layer]
        if target.adapter is not None:
            return sorted(target.adapter.layers)
        return sorted({max(1, target.num_layers * quarters // 4) for quarters in (1, 2, 3)} - {target.num_layers})

    def _reach(self, found: Found) -> Reach:
        wanted, o = self._wanted(), self._options
        if self._draft is not None and not found.costs.drafts:
            return Reach(0)  # a draft of which nothing is known
        predictors: list[Predictor] = [o.predictor] if o.predictor != "hybrid" else ["draft", "hybrid"]
        if not found.names:
            predictors = ["tap"]
        if not wanted.exits:
            predictors = [one for one in predictors if one == "draft"]
        return Reach(
            wanted.length, wanted.roots, predictors if found.costs.drafts else (), wanted.exits,
            waits=o.fallback == "jit",
        )  # fmt: skip


def fixed(
    target: Target, options: Options, max_roots: int, *, draft: Any, proposes: bool, worth: Worth | None
) -> tuple[Policy, str]:
    """What decodes in the mode asked for, and why if it is another. worth: see `policy.Fixed`."""
    o, mode, reason = options, options.mode, ""
    if mode != "ar" and draft is None:
        if not proposes:
            return Fixed(Setting("ar")), "there is no draft"
        mode = "sd"  # a proposal takes no time: there is nothing to do beside the target
    elif mode == "mirror" and o.predictor != "draft":
        if target.tap_refusal is not None:
            reason = f"draft predictor: {target.tap_refusal}"
        elif target.adapter_refusal is not None:
            reason = f"untrained tap: {target.adapter_refusal}"
    found = None if draft is None else streaming(draft)
    streams = 0 if found is None else o.streams if o.streams is not None else found.trained_streams or 0
    setting = Setting(
        "ar" if mode == "ar" else "sd" if mode == "sd" else "mirror", o.length, o.length, max_roots, o.predictor,
        target.exit_layer, (streams, o.stream_mode == "exact"),
    )  # fmt: skip
    both = o.predictor == "hybrid" and target.tap_refusal is None
    return (Growing if o.adaptive else Fixed)(setting, worth if both else None), reason
