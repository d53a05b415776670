"""From names to an engine: the only place that knows which backends there are."""

import json
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map
from mlx_lm.tokenizer_utils import TokenizerWrapper
from mlx_lm.tokenizer_utils import load as load_tokenizer
from mlx_lm.utils import dequantize_model
from mlx_lm.utils import load as load_with_mlx_lm

from mirror_mlx import blas, hosting
from mirror_mlx.auto import CHOSEN
from mirror_mlx.draft import AutoregressiveDraft, Draft, StreamingDraft, streaming
from mirror_mlx.draft.hosted import Hosted
from mirror_mlx.engine import Engine
from mirror_mlx.errors import DraftError, ModelError, UsageError
from mirror_mlx.hub import find, one_line
from mirror_mlx.limits import context_length
from mirror_mlx.lookup import NAMES, Proposer, by_name, fingerprint
from mirror_mlx.messages import DRAFT_HOSTS
from mirror_mlx.options import Options
from mirror_mlx.target import TapAdapter, tap

DEMO = Path(__file__).parent / "demo"


def load(
    model: str | Path = "demo",
    draft_model: "str | Path | Draft | None" = None,
    *,
    mode: str = "auto",
    draft_host: str = "auto",
    adapter_path: str | None = None,
    trust_remote_code: bool = False,
    tokenizer_config: dict[str, Any] | None = None,
    extra_eos_token: Sequence[str] = (),
    notify: Callable[[str], None] = lambda line: None,
    report: Callable[[float], None] = lambda share: None,
    **options: Any,
) -> Engine:
    """An engine for a target and, where there is one, a draft.

    model            hub id, folder, or "demo" for the bundled pair
    draft_model      the same, a Draft object, or None for the pair's own (a folder that holds `target` and `draft`);
                     "lookup", "recycle", "lookahead" or "retrieve" for one without a model: see `mirror_mlx.lookup`
    draft_host       where the draft runs: "coreml" or "coremltools" (converted, on the Neural Engine), "reference"
                     (converted, executed by MLX), "mlx" (its own MLX model), or "auto": see `hosting.choose`
    extra_eos_token  tokens, as text or id, that end an answer too
    notify           told in a line what takes long: a converted draft's first use on a machine
    report           told which share of the calibration is done, for mode "auto", which is made once on a machine
    options          see `mirror_mlx.options.Options`

    A trained tap is `tap.safetensors`, in the pair's folder or else in the target's own.

    Raises ModelError for a target and DraftError for a draft that cannot be had or used, UsageError for options.
    """
    if draft_host not in DRAFT_HOSTS:
        raise UsageError(f"draft_host is {draft_host!r}: choose from {', '.join(DRAFT_HOSTS)}")
    if blas.missing() is not None and _on_cpu():
        warnings.warn(blas.missing() or "", stacklevel=2)
    folder = whole = find(DEMO if str(model) == "demo" else model, ModelError)
    if (folder / "target").is_dir() and not (folder / "config.json").exists():
        draft_model = folder / "draft" if draft_model is None and (folder / "draft").is_dir() else draft_model
        known = _pair_options(folder)
        if mode == "auto":  # which finds these out
            known = {name: value for name, value in known.items() if name not in CHOSEN}
        options = known | {name: value for name, value in options.items() if value is not None}
        folder = folder / "target"
    target, tokenizer = _read(folder, ModelError, adapter_path, trust_remote_code, tokenizer_config)
    for token in extra_eos_token:
        _also_ends(tokenizer, token)
    draft: Draft | Proposer | None = (
        None
        if draft_model is None or mode == "ar"
        else by_name(str(draft_model), datastore=options.get("datastore"), tokenizer=fingerprint(tokenizer.get_vocab()))
        if str(draft_model) in NAMES
        else _movable(
            partial(load_draft, draft_model, target, tokenizer, trust_remote_code=trust_remote_code, notify=notify),
            draft_host,
            mode,
        )
    )
    options = {name: value for name, value in options.items() if value is not None}
    adapter = None if draft is None else load_tap(whole) or load_tap(folder)
    engine = Engine(target, tokenizer, draft, mode=mode, draft_work=own_stream, tap=adapter, **options)
    engine.calibrate(report)
    return engine


def _movable(opened: Callable[..., Draft], host: str, mode: str) -> Draft:
    """The draft on its host; one that may choose hosts can be moved to the target's device."""
    draft = opened(host=host)
    name = str(getattr(draft, "host", "")).partition(":")[0]
    if mode != "auto" or host != "auto" or name in ("", "mlx"):
        return draft
    return Hosted(name, draft, {"mlx": lambda: opened(host="mlx")})


def load_tap(folder: Path) -> TapAdapter | None:
    """The trained tap in a folder, as the device likes it, or None. Raises ModelError for a damaged one."""
    adapter = tap.load(folder)
    if adapter is not None:
        _as_the_device_likes(adapter)
    return adapter


def _pair_options(folder: Path) -> dict[str, Any]:
    """What a pair's `pair.json` says of how to run it best; what the caller says goes before. It may hold more."""
    file = folder / "pair.json"
    if not file.exists():
        return {}
    try:
        options = json.loads(file.read_text(encoding="utf-8")).get("options", {})
        Options.of(options)
    except (OSError, ValueError, AttributeError, TypeError) as reason:
        raise ModelError(f"{file} is damaged ({one_line(reason)}): repair it, or remove it for the defaults") from None
    return dict(options)


def load_draft(
    source: "str | Path | Draft",
    target: nn.Module,
    tokenizer: TokenizerWrapper,
    *,
    host: str = "auto",
    trust_remote_code: bool = False,
    notify: Callable[[str], None] = lambda line: None,
    main_stream: bool = False,
) -> Draft:
    """A draft for a loaded target: from a hub id, a folder, or "demo"; a Draft object is taken as it is.

    main_stream: of a streaming draft only that, which is an autoregressive draft, on MLX.
    Raises DraftError for one that cannot be had, or whose tokenizer or context does not fit the target's.
    """
    if isinstance(source, Draft):
        return source
    folder = find(DEMO / "draft" if str(source) == "demo" else source, DraftError)
    choice = hosting.choose("mlx" if main_stream else host, folder)
    made: StreamingDraft | AutoregressiveDraft
    reach = None
    if choice.package is not None:
        check_tokenizers(tokenizer, _tokenizer(folder))
        made = StreamingDraft(hosting.segments(choice, folder, notify))
    elif streaming.is_streaming(folder) and not main_stream:
        check_tokenizers(tokenizer, _tokenizer(folder))
        streaming_model = streaming.load(folder)
        _as_the_device_likes(streaming_model, may_change=True)
        made, reach = StreamingDraft(streaming.MlxSegments(streaming_model)), streaming_model.config.context_length
    else:
        model, own = _read(folder, DraftError, None, trust_remote_code, None)
        check_tokenizers(tokenizer, own)
        made, reach = AutoregressiveDraft(model), context_length(model)
    made.host = str(choice)
    needed = context_length(target)
    if reach is not None and needed is not None and reach < needed:
        raise DraftError(
            f"the draft's context is {reach} tokens and the target's {needed}: choose a draft that reaches as far"
        )
    return made


def _tokenizer(folder: Path) -> TokenizerWrapper:
    try:
        return load_tokenizer(folder)
    except Exception as reason:
        raise DraftError(f"{folder} has no usable tokenizer: {one_line(reason)}") from reason


def check_tokenizers(target: TokenizerWrapper, draft: TokenizerWrapper) -> None:
    """Raise DraftError unless both give every shared id the same text. One may be longer at its tail (padding)."""
    ours, theirs = ({i: text for text, i in t.get_vocab().items()} for t in (target, draft))
    shared = min(max(ours), max(theirs)) + 1
    for i in range(shared):
        a, b = ours.get(i), theirs.get(i)
        if a != b and a is not None and b is not None:
            raise DraftError(
                f"the draft has another tokenizer: token {i} is {b!r} there and {a!r} in the target; "
                "choose a draft from the target's family"
            )
    if abs(max(ours) - max(theirs)) > max(1024, shared // 8):
        raise DraftError(
            f"the draft has another tokenizer: {max(theirs) + 1} tokens, the target {max(ours) + 1}; "
            "choose a draft from the target's family"
        )


def _also_ends(tokenizer: TokenizerWrapper, token: str) -> None:
    if token not in tokenizer.get_vocab() and not token.isdecimal():
        raise UsageError(f"extra_eos_token is {token!r}: this model's tokenizer has no such token")
    tokenizer.add_eos_token(token)


def _read(
    folder: Path,
    error: type[ModelError] | type[DraftError],
    adapter_path: str | None,
    trust_remote_code: bool,
    tokenizer_config: dict[str, Any] | None,
) -> tuple[nn.Module, TokenizerWrapper]:
    """mlx-lm's model and tokenizer from a folder."""
    if not (folder / "config.json").exists():
        raise error(f"{folder} has no config.json: it is not a model folder")
    if not any(folder.glob("model*.safetensors")):
        raise error(f"{folder} has no model*.safetensors: the weights are missing, fetch or convert the model again")
    if adapter_path is not None and not Path(adapter_path).exists():
        raise error(f"there is no adapter {adapter_path!r}: check --adapter-path")
    try:
        model, tokenizer = load_with_mlx_lm(
            str(folder),
            tokenizer_config={"trust_remote_code": trust_remote_code, **(tokenizer_config or {})},
            adapter_path=adapter_path,
            trust_remote_code=trust_remote_code,
        )
    except json.JSONDecodeError as reason:
        raise error(
            f"{folder} has a damaged JSON file ({one_line(reason)}): fetch or convert the model again"
        ) from None
    except Exception as reason:  # whatever mlx-lm, transformers or safetensors say of a folder, the user needs one line
        raise error(f"{folder} cannot be loaded: {one_line(reason)}") from reason
    _as_the_device_likes(model, may_change=error is DraftError)
    return model, tokenizer


def _as_the_device_likes(model: nn.Module, *, may_change: bool = False) -> None:
    """On the CPU in fp32, the only type its kernels are fast in; a model that `may_change` by rounding is dequantised
    too, since it counts what a draft says soon, and not what it says to the last bit."""
    if _on_cpu():
        if may_change:
            dequantize_model(model)
        model.update(tree_map(_as_float32, model.parameters()))
        mx.eval(model.parameters())


def _as_float32(array: Any) -> Any:
    return array.astype(mx.float32) if array.dtype in (mx.float16, mx.bfloat16) else array


def _on_cpu() -> bool:
    return bool(mx.default_device() == mx.Device(mx.cpu))


def own_stream() -> Any:
    """The draft's stream; made inside the draft's thread, to which it belongs."""
    return mx.stream(mx.new_stream(mx.default_device()))
