"""Every text decoder of mlx-lm: speculation equals plain decoding, past its windows, with rows rejected on the way."""

import random

import pytest
import zoo

from mirror_mlx import Engine, Sampling
from mirror_mlx.draft import ScriptedDraft

PROMPT = [(i * 37 + 5) % zoo.VOCAB for i in range(21)]
COUNT = 44  # more than twice past every window and chunk of the zoo

PEOPLE_RUN = (
    "llama qwen2 qwen3 qwen3_moe qwen3_next qwen3_5 gemma3 gemma3n gemma4 exaone4 mistral3 ministral3 phi3 "
    "glm4_moe deepseek_v3 deepseek_v32 nemotron_h granitemoehybrid lfm2 mamba2 rwkv7 jamba kimi_linear llama4 gpt_oss"
)

# Where the tap cannot work the draft's own predictor does; the reason is in `engine.stats`.
WITHOUT_TAP = {"afm7", "iquestloopcoder"}
# mlx-lm's forward of these is not causal over several tokens: no window is verified, decoding is plain.
WITHOUT_WINDOWS = {"phi3small"}


def test_the_zoo_has_the_families_people_run():
    wanted = set(PEOPLE_RUN.split())
    assert wanted <= set(zoo.names())
    assert len(zoo.names()) >= 100


@pytest.mark.parametrize("kind", zoo.names())
def test_speculation_equals_plain_decoding(kind):
    model = zoo.tiny(kind)
    for temperature in (0.0, 1.0):
        sampling = Sampling(temperature=temperature, seed=1)
        with Engine(model, mode="ar") as engine:
            expected = [r.token for r in engine.stream(PROMPT, max_tokens=COUNT, sampling=sampling)]

        def often_right(context, expected=expected):
            rng = random.Random(f"{kind} {context}")  # the same whoever asks first, and however often
            place = len(context) - len(PROMPT)
            on_track = 0 <= place < COUNT and context[len(PROMPT) :] == expected[:place]
            return expected[place] if on_track and rng.random() < 0.75 else rng.randrange(zoo.VOCAB)

        with Engine(model, None, ScriptedDraft(often_right), num_draft_tokens=5, kappa=4) as engine:
            tokens = [r.token for r in engine.stream(PROMPT, max_tokens=COUNT, sampling=sampling)]
            stats = engine.stats
        assert tokens == expected
        assert len(set(expected)) > 5, "a model that says the same token over and over tests nothing"
        if kind in WITHOUT_WINDOWS:
            assert stats.mode == "ar"
            assert "see those after it" in stats.reason
        else:
            assert 0 < stats.accepted < stats.drafted, "rows must have been accepted and rejected"
            assert (stats.reason != "") == (kind in WITHOUT_TAP)
