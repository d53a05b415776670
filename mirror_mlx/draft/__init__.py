"""The models that guess: the `Draft` protocol and its implementations."""

from mirror_mlx.draft.autoregressive import AutoregressiveDraft
from mirror_mlx.draft.protocol import Draft
from mirror_mlx.draft.scripted import ScriptedDraft
from mirror_mlx.draft.streaming import StreamingDraft

__all__ = ["AutoregressiveDraft", "Draft", "ScriptedDraft", "StreamingDraft"]
