"""SpecBench's arithmetic, on logs whose figures are known by hand."""

import pytest

from mirror_mlx.bench import spec_figures, spec_tables
from mirror_mlx.bench.spec_figures import summarise


def record(method, question, tokens, seconds, **given):
    """An answer. retokenised: as a tokenizer that puts nothing at the beginning has it."""
    lengths = given.pop("lengths", [1] * tokens)
    return {
        "temperature": 0.0, "run": 0, "question": question, "category": "qa", "task": "qa", "turn": 0, "turns": 1,
        "method": method, "new_tokens": tokens, "retokenised": tokens - 1, "steps": len(lengths),
        "accept_lengths": lengths, "seconds": seconds, "decode_tokens": tokens - lengths[0], "decode_seconds": seconds,
        "ended": True, "hits": None, "predicted": None, "mode": "ar", "reason": "", "where": None, "others": None,
        "own_noise": False, "tokens_hash": f"{question}/{given.get('turn', 0)}", "equal": True, "differs_at": None,
    } | given  # fmt: skip


PLAIN = [
    record("plain", "1", 10, 2.0),
    record("plain", "2", 4, 0.5, turns=2),
    record("plain", "2", 16, 1.5, turn=1, turns=2),
]
FAST = [
    record("fast", "1", 10, 1.0, lengths=[4, 4, 2], hits=1, predicted=2),
    record("fast", "2", 4, 0.1, turns=2, lengths=[4], hits=0, predicted=0),
    record("fast", "2", 16, 0.4, turn=1, turns=2, lengths=[8, 8], hits=1, predicted=1),
]


def overall(records, method, **kwargs):
    found = summarise(records, ["plain", method], **kwargs)[0]
    return next(row for row in found["methods"] if row["method"] == method)


def test_the_official_metric_and_the_corrected_one():
    """fast: 10 and 20 ÷ 0.5 = 40 tokens/s, mean 25. plain: 5 and 10, mean 7.5; anew 9 ÷ 2 and 18 ÷ 2, mean 6.75."""
    cell = overall(PLAIN + FAST, "fast")["tasks"]["overall"]
    assert cell["tokens_per_second"] == {"mean": 25, "min": 25, "max": 25}
    assert cell["speedup"]["mean"] == pytest.approx(25 / 7.5)  # of the means: not (2 + 4) / 2
    assert cell["official_speedup"]["mean"] == pytest.approx(25 / 6.75)
    plain = overall(PLAIN, "plain")["tasks"]["overall"]
    assert plain["speedup"]["mean"] == 1
    assert plain["official_speedup"]["mean"] == pytest.approx(7.5 / 6.75)  # it gains by being counted twice


def test_steps_and_hits_are_pooled():
    cell = overall(PLAIN + FAST, "fast")["tasks"]["overall"]
    assert cell["tokens_per_step"] == pytest.approx((4 + 4 + 2 + 4 + 8 + 8) / 6)
    assert cell["hit_rate"] == pytest.approx(2 / 3)
    assert (cell["questions"], cell["new_tokens"]) == (2, 30)
    plain = overall(PLAIN, "plain")["tasks"]["overall"]
    assert (plain["tokens_per_step"], plain["hit_rate"]) == (1, None)


def test_decoding_alone_leaves_out_the_first_step():
    """fast: 6 ÷ 1 and (0 + 8) ÷ 0.5; plain: 9 ÷ 2 and (3 + 15) ÷ 2."""
    cell = overall(PLAIN + FAST, "fast")["tasks"]["overall"]
    assert cell["decode_tokens_per_second"]["mean"] == (6 + 16) / 2
    assert cell["decode_speedup"]["mean"] == pytest.approx(11 / ((4.5 + 9) / 2))


def test_runs_have_a_mean_and_a_spread():
    records = [*PLAIN, *FAST]
    for run, slower in ((1, 2), (2, 4)):
        records += [r | {"run": run} for r in PLAIN]
        records += [r | {"run": run, "seconds": r["seconds"] * slower} for r in FAST]
    spread = overall(records, "fast")["tasks"]["overall"]["speedup"]
    ratio = 25 / 7.5
    assert spread == pytest.approx({"mean": ratio * (1 + 1 / 2 + 1 / 4) / 3, "min": ratio / 4, "max": ratio})


def test_a_run_counts_the_questions_that_plain_has_too():
    """As after Ctrl-C: the second question of run 0 is fast's alone, and run 1 has none of plain's."""
    records = [PLAIN[0], *FAST, FAST[0] | {"run": 1}]
    cell = overall(records, "fast")["tasks"]["overall"]
    assert cell["speedup"] == {"mean": 2, "min": 2, "max": 2}
    assert cell["tokens_per_second"]["max"] == 25


def test_tasks_in_the_order_of_speed_py():
    tasks = ["rag", "problems", "qa", "mt_bench", "translation"]
    records = [record(method, task, 10, 1.0, task=task) for task in tasks for method in ("plain", "fast")]
    records += [record("fast", "9", 10, 0.1, task="rag"), record("plain", "9", 10, 0.5, task="rag")]
    found = summarise(records, ["plain", "fast"])[0]
    assert found["tasks"] == ["mt_bench", "translation", "qa", "rag", "problems", "overall"]
    row = found["methods"][1]["tasks"]
    assert row["qa"]["speedup"]["mean"] == 1
    assert row["rag"]["speedup"]["mean"] == pytest.approx((10 + 100) / 2 / ((10 + 20) / 2))
    assert row["overall"]["questions"] == 6


def test_the_best_of_a_family_and_the_fastest():
    times = {"plain": 1.0, "mlx-sd@2": 0.9, "mlx-sd@4": 0.7, "mlx-sd@7": 0.8, "sd-ar": 0.5, "ar": 1.1}
    found = summarise([record(m, "1", 10, t) for m, t in times.items()], list(times))[0]
    assert found["best"] == {"mlx-sd": {"method": "mlx-sd@4", "speedup": pytest.approx(1 / 0.7)}}
    assert found["fastest"] == "sd-ar"
    assert summarise([record("plain", "1", 10, 1.0)], ["plain"])[0]["fastest"] is None


def test_temperatures_stand_apart():
    records = [r | {"temperature": t, "seconds": r["seconds"] * (1 + t)} for t in (0.0, 1.0) for r in PLAIN]
    found = summarise(records, ["plain"])
    assert [at["temperature"] for at in found] == [0.0, 1.0]
    speeds = [at["methods"][0]["tasks"]["overall"]["tokens_per_second"]["mean"] for at in found]
    assert speeds[0] == 2 * speeds[1]


def test_equality_is_by_hash_and_own_noise_is_no_no():
    other = FAST[0] | {"tokens_hash": "other", "differs_at": 7}
    assert overall([*PLAIN, *FAST], "fast")["identical"] == {"same": 3, "of": 3, "first": None, "reason": None}
    assert overall([*PLAIN, other, *FAST[1:]], "fast")["identical"] == {
        "same": 2, "of": 3, "first": 7, "reason": None,
    }  # fmt: skip
    drawn = [r | {"own_noise": True, "tokens_hash": "?"} for r in FAST]
    assert overall([*PLAIN, *drawn], "fast")["identical"]["reason"] == "own noise"
    assert overall(FAST, "fast")["identical"]["reason"] == "not compared"
    assert overall(FAST, "fast")["tasks"]["overall"]["speedup"] is None


def test_where_a_step_went_is_a_mean_over_steps():
    parts = {"prefix": 30.0, "tap": 3.0, "verify": 15.0, "draft": 6.0, "fallback": 0.0, "rest": 6.0}
    records = [FAST[0] | {"where": parts}, FAST[2] | {"where": {**parts, "fallback": 10.0}}]  # 3 steps and 2
    where = overall([*PLAIN, *records], "fast")["where"]
    assert where == pytest.approx(
        {"prefix": 12, "tap": 1.2, "verify": 6, "draft": 2.4, "fallback": 2, "rest": 2.4, "step": 26}
    )
    assert set(where) == {*spec_figures.PARTS, "step"}
    assert overall(PLAIN, "plain")["where"] is None


def test_what_a_reader_has_to_know():
    records = [
        *PLAIN,
        FAST[0] | {"reason": "draft died: boom", "mode": "ar", "others": 0.5},
        FAST[1] | {"others": 0.0, "ended": False},  # the second turn had no room
    ]
    row = overall(records, "fast")
    assert row["reasons"] == {"draft died: boom": 1}
    assert (row["cut_short"], row["ended"]) == (1, 0.5)
    assert row["other_programs_cores"] == pytest.approx(0.5 * 1.0 / 1.1)


def found(records, methods, **given):
    return {
        "setup": {
            "model": "demo", "draft_model": "draft-ar", "streaming_draft": None, "params": 10**8, "pass_ms": 10.0,
            "target_parameters": 10**8, "dtype": "float32", "asked_by_category": {"qa": 2}, "max_tokens": 9, "runs": 1,
            "warmups": 3, "warmup_tokens": 9, "options": {"kappa": 4, "exit_layer": None}, "python": "3.11",
            "machine": "x86_64, Device(cpu, 0)", "blas": "one BLAS thread", "versions": {"mlx": "0.32"},
        },
        "left_out": {"methods": {"rest": "there is no datastore"}, "questions": 12},
        "methods": {name: f"what {name} is" for name in methods},
        "temperatures": summarise(records, methods), "finished": True, "answers": {"had": 4, "wanted": 4}, "resumed": 0,
    } | given  # fmt: skip


def test_tables_and_what_they_cannot_say():
    drawn = [r | {"method": "mlx-sd@4", "own_noise": True, "temperature": 1.0} for r in FAST]
    warm = [r | {"temperature": 1.0} for r in PLAIN]
    parts = dict.fromkeys(spec_figures.PARTS, 6.0) | {"tap": 0.0}  # three answers, six steps
    records = [*PLAIN, *(r | {"where": parts, "task": f"task {r['question']}"} for r in FAST), *warm, *drawn]
    page = spec_tables.markdown(found(records, ["plain", "fast", "mlx-sd@4"]))
    assert "| fast | 25.0 | 3.33 | 3.70 | 1.63 | 5.00 | 67% | yes | 30 |" in page
    assert "| fast | 3.0 | – | 3.0 | 3.0 | 3.0 | 3.0 | 15.0 |" in page
    assert "own noise" in page
    assert "task 1" in page
    assert "best mlx-sd: mlx-sd@4" in page
    for line in (
        "left out: rest: there is no datastore", "left out: 12 longer than the target's context",
        "draws its own random numbers", "a draft pass takes 10 ms", "one run: nothing is known of the spread",
        "costs what a large one does", "a forward more than it has tokens", "Medusa", "target demo, 100 M parameters",
    ):  # fmt: skip
        assert line in page
    assert "not finished" not in page


def test_what_went_wrong_is_said():
    bad = [r | {"tokens_hash": "x", "differs_at": 4, "reason": "draft died", "others": 1.0} for r in FAST]
    lines = "\n".join(spec_tables.remarks(found([*PLAIN, *bad], ["plain", "fast"], finished=False, resumed=2)))
    for said in (
        "not finished: 4 of 4 dialogues", "stopped 2× and resumed", "3 answers: draft died",
        "3 answers are not plain decoding's, the first at token 5",
        "other programs took from 0.00 cores, beside plain, to 1.00, beside fast",
    ):  # fmt: skip
        assert said in lines
