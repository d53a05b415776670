"""`results.jsonl`: what was stopped goes on, and results of other settings are not mixed in."""

import json
from dataclasses import replace

import pytest
from test_bench_spec_run import PLAN, QUESTIONS, Clock, Letters, Scripted

from mirror_mlx.bench.spec_log import NAME, Results
from mirror_mlx.bench.spec_questions import Question
from mirror_mlx.bench.spec_run import run
from mirror_mlx.errors import DataError, MirrorError, UsageError


class Stopped(Scripted):
    """Ctrl-C in the middle of its n-th answer."""

    left = 0

    def stream(self, *args):
        for token in super().stream(*args):
            yield token
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt


def test_what_was_stopped_goes_on(tmp_path):
    clock = Clock()
    settings = {"max_tokens": 20}
    dialogues = [Question("d", "writing", ("one", "two"), "mt_bench"), *QUESTIONS]
    plan = replace(PLAN, questions=dialogues, warmups=1)
    stopped = Stopped("stopped", clock)
    stopped.left = 8 * 5 + 3
    log = Results(tmp_path, settings)
    assert run(plan, [Scripted("plain", clock), stopped], Letters(), log, clock=clock) is False
    log.close()
    had = len(log.records)
    assert 0 < had < 24
    with (tmp_path / NAME).open("a") as file:
        file.write('{"temperature": 0.0, "run": 1, "ques')  # the machine stopped while it wrote
    log = Results(tmp_path, settings)
    assert (len(log.records), log.resumed) == (had, 1)
    told = []
    methods = [Scripted("plain", clock), Scripted("stopped", clock)]
    assert run(plan, methods, Letters(), log, lambda *said: told.append(said), clock=clock)
    assert told[-1] == (20, 20, "done")
    log.close()
    keys = [(r["run"], r["question"], r["turn"], r["method"]) for r in log.records]
    assert len(keys) == len(set(keys)) == 2 * 2 * 6
    lines = [json.loads(line) for line in (tmp_path / NAME).read_text().splitlines()]
    assert lines[0]["settings"] == settings
    assert len(lines) == 1 + 1 + len(keys)
    log = Results(tmp_path, settings)
    assert log.dialogues == 20
    silent = [Scripted("plain", clock), Scripted("stopped", clock)]
    assert run(plan, silent, Letters(), log, clock=clock)
    log.close()
    assert not [call for method in silent for call in method.calls if call[0] == "stream"]


def test_results_of_other_settings_are_refused(tmp_path):
    Results(tmp_path, {"max_tokens": 20, "temps": (0.0,), "limit": 3}).close()
    Results(tmp_path, {"limit": 3, "max_tokens": 20, "temps": [0.0]}).close()
    with pytest.raises(UsageError, match=r"other settings \(max_tokens was 20 and is 30\): choose another folder"):
        Results(tmp_path, {"max_tokens": 30, "temps": (0.0,), "limit": 3})
    file = tmp_path / NAME
    file.write_text(file.read_text() + '{"temperature": 0}\n{}\n')
    with pytest.raises(DataError, match=r"line 2: it is damaged"):
        Results(tmp_path, {"max_tokens": 20, "temps": [0.0], "limit": 3})
    with pytest.raises(MirrorError, match="cannot be written"):
        Results(file, {})
