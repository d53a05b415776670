"""Where models are: a folder as it is, or a name on the Hugging Face hub."""

import os
import threading
from concurrent.futures import Future
from pathlib import Path

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError
from mlx_lm.utils import DEFAULT_ALLOW_PATTERNS, _download

from mirror_mlx.errors import DraftError, ModelError

PATTERNS = [
    *DEFAULT_ALLOW_PATTERNS, "tap.safetensors", "streams.safetensors", "*/model*.safetensors", "*/streams.safetensors",
]  # fmt: skip
"""mlx-lm's files of a model, and ours: a pair is one repository with its models in folders."""
_HUB_TIMEOUT = 6.0  # seconds until a silent hub is given up


def find(name: str | Path, error: type[ModelError] | type[DraftError]) -> Path:
    """The folder of a model: as it is, or downloaded from the hub by mlx-lm."""
    path = Path(name).expanduser()
    if path.exists():
        if not path.is_dir():
            raise error(f"{path} is a file: give the model's folder")
        return path
    text = str(name)
    if text.startswith(("/", "./", "../", "~")) or text.count("/") > 1 or not text.strip():
        raise error(f"there is no folder {text!r}: check the path")
    try:
        return _from_hub(text)
    except GatedRepoError:
        raise error(
            f"{text} is gated: accept its licence on huggingface.co, then run 'hf auth login' (or set HF_TOKEN)"
        ) from None
    except (RepositoryNotFoundError, HFValidationError):
        raise error(
            f"there is neither a folder nor a hub model {text!r}: check the name; a private model needs 'hf auth login'"
        ) from None
    except Exception as reason:  # the network, the hub and the disk have many ways to fail
        why = one_line(reason)
        raise error(
            f"{text} is no folder and cannot be fetched from the hub: check the name and the network ({why})"
        ) from reason


def _from_hub(name: str) -> Path:
    """A complete copy in the cache if it is the newest or the hub is out of reach, else what mlx-lm downloads."""
    if os.getenv("MLXLM_USE_MODELSCOPE", "False").lower() == "true":
        return _download(name, allow_patterns=PATTERNS)
    newest, failure = None, None
    try:
        newest = _newest_revision(name)
    except Exception as reason:
        failure = reason
    try:
        copy = Path(snapshot_download(name, local_files_only=True, allow_patterns=PATTERNS))
        if failure is not None or copy.name == newest:
            return copy
    except Exception:  # none, or half of one
        pass
    if failure is not None:
        raise failure
    return _download(name, allow_patterns=PATTERNS)


def _newest_revision(name: str) -> str | None:
    """What the hub has. Asked on a thread: neither the name look-up nor mlx-lm's download gives up on silence."""
    answer: Future[str | None] = Future()

    def ask() -> None:
        try:
            answer.set_result(HfApi().model_info(name, timeout=_HUB_TIMEOUT).sha)
        except BaseException as reason:
            answer.set_exception(reason)

    threading.Thread(target=ask, name="hub", daemon=True).start()
    try:
        return answer.result(_HUB_TIMEOUT)
    except TimeoutError:
        raise TimeoutError(f"no answer within {_HUB_TIMEOUT:.0f} s") from None


def one_line(reason: BaseException) -> str:
    """What an error says, in one line of at most 200 characters."""
    text = " ".join(str(reason).split())
    return (text[:197] + "…" if len(text) > 198 else text) or type(reason).__name__
