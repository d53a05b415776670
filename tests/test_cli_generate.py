"""`mirror-mlx generate`, in this process. Its mistakes are in test_cli_mistakes."""

import argparse
import io
import json
import re
import sys
from dataclasses import fields

import models
import pytest

import mirror_mlx
from mirror_mlx.cli.flags import add_decoding
from mirror_mlx.cli.main import main
from mirror_mlx.cli.report import explain_lines, stats_line, verbose_lines
from mirror_mlx.options import Options
from mirror_mlx.trace import Stats


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return models.pair(tmp_path_factory.mktemp("pair"), says="Yes, 42.")


@pytest.fixture
def generate(capsys, folder):
    def run(*argv):
        assert main(["generate", "--model", str(folder), *argv]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return run


def test_what_a_person_sees(generate):
    out = re.sub(r"\d+\.\d+", "#", generate("-p", "6 times 7?", "--mode", "mirror"))
    out = re.sub(r"on mlx: .*", "on mlx: …", out)  # why there, depends on the machine
    assert re.sub(r"rate \d+ %", "rate # %", out) == (
        "==========\n"
        "Yes, 42.\n"
        "==========\n"
        "Prompt: 29 tokens, # tokens-per-sec\n"
        "Generation: 9 tokens, # tokens-per-sec\n"
        "Peak memory: # GB\n"
        "Speculation: # tokens per step, hit rate # %, draft hidden # of # ms\n"
        "Draft on mlx: …\n"
        "Mode: mirror\n"
    )


def test_modes(generate):
    assert generate("-p", "?", "--mode", "ar").endswith(" GB\nMode: ar\n")
    out = generate("-p", "?", "--mode", "sd")
    assert re.search(r"\nSpeculation: \d\.\d tokens per step\nDraft on mlx: .*\nMode: sd\n$", out)


def test_a_target_alone_says_so(capsys, folder):
    main(["generate", "-p", "?", "--model", str(folder / "target")])
    assert capsys.readouterr().out.endswith("Mode: ar: there is no draft\n")


@pytest.mark.parametrize("word", ["F", "False", "false"])
def test_the_answer_alone(generate, word):
    assert generate("-p", "?", "--verbose", word) == "Yes, 42.\n"


def test_json_is_one_object(generate, folder):
    result = json.loads(generate("-p", "6 times 7?", "--json", "--mode", "mirror"))
    assert list(result) == ["text", "tokens", "stats"]
    assert result["text"] == "Yes, 42."
    assert result["tokens"][-1] == models.END
    assert result["stats"]["tokens"] == len(result["tokens"]) == 9
    assert result["stats"]["mode"] == "mirror"
    with mirror_mlx.load(folder) as engine:
        assert set(result["stats"]) == set(engine.stats.as_dict())


def test_nothing_else_gets_into_the_json(generate, monkeypatch, folder):
    load = mirror_mlx.load

    def chatty(*args, **kwargs):
        print("[WARNING] this model is large")
        return load(*args, **kwargs)

    monkeypatch.setattr("mirror_mlx.loading.load", chatty)
    with pytest.raises(AssertionError, match="this model is large"):  # on stderr, where this fixture wants nothing
        generate("-p", "?", "--json")


def test_every_option_is_a_flag(generate, monkeypatch):
    load, given = mirror_mlx.load, {}

    def told(*args, **options):
        given.update(options)
        return load(*args, **options)

    monkeypatch.setattr("mirror_mlx.loading.load", told)
    words = {
        "num-draft-tokens": 3, "kappa": 2, "max-roots": 4, "exit-layer": 1, "fan-out": "geometric", "accept": "reject",
        "downweight": 0.5, "draft-timeout": 30.0, "mode": "mirror", "predictor": "draft", "fallback": "lookup",
    }  # fmt: skip
    flags = [str(word) for flag, value in words.items() for word in (f"--{flag}", value)]
    found = json.loads(generate("-p", "?", "--json", "--temp", "0.5", *flags))
    assert found["text"] == "Yes, 42."
    assert {flag.replace("-", "_"): value for flag, value in words.items()}.items() <= given.items()
    parser = argparse.ArgumentParser()
    add_decoding(parser)
    assert {field.name for field in fields(Options)} - {"trace"} <= vars(parser.parse_args([])).keys()


def test_the_trace(generate, tmp_path):
    generate("-p", "?", "--mode", "mirror", "--trace", str(tmp_path / "run.json"))
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    assert {"glue", "verify"} <= {event["name"] for event in events}


@pytest.mark.parametrize("argv", [[], ["-p", "-"]], ids=["nothing", "dash"])
def test_standard_input(generate, monkeypatch, argv):
    monkeypatch.setattr(sys, "stdin", io.StringIO("6 times 7?\n"))
    assert json.loads(generate("--json", *argv))["stats"]["prompt_tokens"] == 29


def test_a_prompt_file(generate, tmp_path):
    (tmp_path / "prompt.txt").write_text("6 times 7?\n")
    out = generate("--json", "--prompt-file", str(tmp_path / "prompt.txt"))
    assert json.loads(out)["stats"]["prompt_tokens"] == 29


def test_prompts_as_mlx_lm_reads_them(generate):
    def length(*argv):
        return json.loads(generate("--json", *argv))["stats"]["prompt_tokens"]

    plain = length("-p", "ab")
    assert length("-p", "a\\nb") == plain + 1
    assert length("-p", "ab", "--ignore-chat-template") == 2
    assert length("-p", "ab", "--system-prompt", "cd") == plain + len("..system.cd.")
    assert length("-p", "ab", "--prefill-response", "Ye") == plain + 2


def test_an_answer_that_was_begun(generate):
    assert generate("-p", "?", "--prefill-response", "Ye", "--verbose", "F") == "s, 42.\n"


def test_ends(generate):
    assert generate("-p", "?", "--verbose", "F", "--extra-eos-token", "4", ",") == "Yes\n"
    assert generate("-p", "?", "--verbose", "F", "-m", "2") == "Ye\n"
    assert generate("-p", "?", "--verbose", "F", "-m", "-1") == "Yes, 42.\n"


def test_the_same_seed_the_same_text(generate):
    def sampled(*argv):
        return json.loads(generate("-p", "?", "--json", "--temp", "4", "-m", "12", *argv))["tokens"]

    first = sampled("--seed", "1")
    assert first == sampled("--seed", "1", "--mode", "ar")
    assert first != sampled("--seed", "2")
    assert sampled() == sampled("--seed", "0")


def test_the_default_template(capsys, tmp_path):
    plain = models.save_tiny(tmp_path, says="Yes, 42.", chat_template=None)
    count = []
    for flags in ([], ["--use-default-chat-template"]):
        main(["generate", "-p", "6 times 7?", "--json", "--model", str(plain), *flags])
        count.append(json.loads(capsys.readouterr().out)["stats"]["prompt_tokens"])
    assert count == [10, 29]


def test_an_answer_of_nothing(generate):
    out = generate("-p", "?", "--ignore-chat-template", "--extra-eos-token", "Y", "--mode", "ar")
    assert out.startswith("==========\n\n==========\n")


def test_slow_blas_is_one_line(capsys, monkeypatch, folder):
    mx = pytest.importorskip("mlx.core")
    if mx.default_device() != mx.Device(mx.cpu):
        pytest.skip("no BLAS is used on this device")
    monkeypatch.setattr("mirror_mlx.blas.missing", lambda: "MLX runs on reference BLAS here")
    assert main(["generate", "--model", str(folder), "-p", "?", "--verbose", "F"]) == 0
    assert capsys.readouterr() == ("Yes, 42.\n", "mirror-mlx: MLX runs on reference BLAS here\n")


def test_the_line_of_a_run():
    stats = Stats(
        tokens=128, drafted=90, generation_tps=41.23, tokens_per_step=3.1, hit_rate=0.92, hit_rate_by_row=(0.92,)
    )
    mirror = {"draft_ms": 4.3, "hidden_draft_ms": 4.1, "mode": "mirror"}
    values = {**stats.as_dict(), **mirror}
    assert stats_line(Stats(**values)) == (
        "128 tokens · 41.2 tok/s · 3.1 tokens/step · hit rate 92 % · draft hidden 4.1 of 4.3 ms · mirror"
    )
    assert stats_line(Stats(**{**values, "mode": "ar", "reason": "draft died: boom"})).endswith(
        "4.3 ms · ar: draft died: boom"
    )
    assert stats_line(Stats(tokens=1)) == "1 token · ar"
    assert verbose_lines(Stats(), 0.5)[-2:] == ["Peak memory: 0.500 GB", "Mode: ar"]


def test_what_was_decided_is_said_line_by_line():
    stats = Stats(
        tokens=20, drafted=13, accepted=9, hit_rate=0.75, draft_ms=20.0, hidden_draft_ms=18.0, exposed_draft_ms=0.5,
        tokens_by_mode={"ar": 6, "mirror": 14}, windows_by_length={3: 1, 5: 2}, gain=2.5, setting="mirror of 5",
        tried=("mirror of 3: 2.10 × plain expected", "mirror of 5: 2.40 × plain expected"),
    )  # fmt: skip
    assert explain_lines(stats) == [
        "tokens by mode: ar 6, mirror 14",
        "last: mirror of 5",
        "measured: 2.50 × plain decoding",
        "of 13 proposals 9 held; 75 % of outcomes were prepared for; of 20.0 ms of drafting a step 18.0 were hidden, "
        "and the target waited 0.5",
        "windows by proposals: of 3 1, of 5 2",
        "decided: mirror of 3: 2.10 × plain expected",
        "decided: mirror of 5: 2.40 × plain expected",
    ]
    assert explain_lines(Stats(reason="draft died: boom")) == [
        "tokens by mode: none",
        "last: ",
        "why: draft died: boom",
    ]


def test_explanations_are_no_part_of_the_answer(capsys, folder):
    assert main(["generate", "--model", str(folder), "-p", "?", "--verbose", "F", "--explain", "--mode", "mirror"]) == 0
    out, err = capsys.readouterr()
    assert out == "Yes, 42.\n"
    assert err.startswith("tokens by mode: mirror ")
    assert "windows by proposals: of " in err
