"""What record writes, to the run's file and to the page."""

import json

import numpy as np
import pytest
from IPython.testing.globalipapp import start_ipython

from posbook.record import record


def test_values_reach_the_file_as_plain_json(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "run.json"
    monkeypatch.setenv("POSGEOM_RECORDS", str(path))
    record("stress", np.float64(0.25), unit="share", tol=1e-3)
    record("rank", np.int64(64))
    record("model", "minilm")
    record("holds", np.bool_(True))
    record("rank", 65)
    assert json.loads(path.read_text()) == {
        "stress": {"value": 0.25, "unit": "share", "tol": 1e-3},
        "rank": {"value": 65, "unit": None, "tol": None},
        "model": {"value": "minilm", "unit": None, "tol": None},
        "holds": {"value": True, "unit": None, "tol": None},
    }
    assert [p.name for p in path.parent.iterdir()] == ["run.json"]


def test_without_a_run_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.delenv("POSGEOM_RECORDS", raising=False)
    monkeypatch.chdir(tmp_path)
    assert record("stress", 1.0) is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "value", "options", "words"),
    [
        ("Stress", 1.0, {}, "lower-case Python identifier"),
        ("two words", 1.0, {}, "lower-case Python identifier"),
        ("x", float("nan"), {}, "value of 'x' is nan"),
        ("x", np.zeros(2), {}, "must be a number"),
        ("x", None, {}, "must be a number"),
        ("x", 1.0, {"tol": -1.0}, "tol of 'x'"),
    ],
)
def test_what_no_page_can_quote_is_refused(name, value, options, words):
    with pytest.raises(ValueError, match=words):
        record(name, value, **options)


def test_the_page_gets_what_myst_nb_glues(capsys):
    shell = start_ipython()
    from IPython.utils.capture import capture_output

    with capture_output() as captured:
        shell.run_cell("from posbook.record import record\nrecord('stress', 0.25)")
    (output,) = captured.outputs
    assert output.data == {"application/papermill.record/text/plain": "0.25"}
    assert output.metadata["scrapbook"] == {"name": "stress", "mime_prefix": "application/papermill.record/"}
