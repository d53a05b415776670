"""How often threads take turns while a request is decoded, and not after it."""

import sys

import pytest
import zoo

from mirror_mlx import Engine
from mirror_mlx.draft import ScriptedDraft
from mirror_mlx.threads import brisk


@pytest.fixture(autouse=True)
def usual():
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield
    sys.setswitchinterval(before)


def test_turns_are_short_until_the_last_one_is_done():
    with brisk():
        assert sys.getswitchinterval() == pytest.approx(0.0005, rel=0.1)
        with pytest.raises(ValueError), brisk():
            raise ValueError
        assert sys.getswitchinterval() == pytest.approx(0.0005, rel=0.1)
    assert sys.getswitchinterval() == pytest.approx(0.005, rel=0.1)


def test_nobodys_shorter_turns_are_made_longer():
    sys.setswitchinterval(0.0001)
    with brisk():
        assert sys.getswitchinterval() == pytest.approx(0.0001, rel=0.1)


@pytest.mark.parametrize("tokens", [3, 20])
def test_an_engine_leaves_them_as_they_were_even_if_it_is_abandoned(tokens):
    with Engine(zoo.tiny("qwen3"), None, ScriptedDraft(lambda context: 0), mode="mirror") as engine:
        responses = engine.stream([1, 2, 3], max_tokens=20)
        for _ in range(tokens):
            next(responses)
            assert sys.getswitchinterval() == pytest.approx(0.0005, rel=0.1) or tokens == 20
        responses.close()
        assert sys.getswitchinterval() == pytest.approx(0.005, rel=0.1)
