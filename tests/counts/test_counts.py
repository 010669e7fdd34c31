"""The counts that come with the package: what they hold, and that the text gives them again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from posgeom.corpora.named import SST2_SHA256
from posgeom.counts.positions import COUNTS, load_counts
from posgeom.counts.tokens import VOCABULARY_SHA256

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "posgeom" / "data"
TEXT = Path(os.environ.get("POSGEOM_DATA", "")) / "sst2" / "train.tsv"
CLS, SEP = 101, 102


def test_sst2_in_the_papers_setting():
    counts = load_counts("sst2")
    assert (counts.n, counts.vocab_size) == (65, 30_522)
    assert counts.totals[0] == 67_349 and counts.totals[-1] == 2
    assert np.all(np.diff(counts.totals) <= 0)
    # Every phrase keeps its [SEP] and loses its [CLS].
    assert counts.counts[:, [SEP]].sum() == 67_349
    assert counts.counts[:, [CLS]].nnz == 0
    # No phrase is empty, and [SEP] closes whatever reaches the last position.
    assert counts.counts[0, SEP] == 0 and counts.counts[64, SEP] == 2
    # A phrase leaves after its [SEP]: what is missing at i + 1 ended at i.
    np.testing.assert_array_equal(-np.diff(counts.totals), counts.counts[:-1, [SEP]].toarray().ravel())


def test_b_sst2_is_balanced():
    counts = load_counts("b_sst2")
    assert (counts.n, counts.vocab_size) == (20, 30_522)
    assert counts.totals.tolist() == [4_027] * 20
    assert counts.counts[:, [CLS, SEP]].nnz == 0


def test_the_maximal_phrases_are_phrases_of_sst2():
    """Each is counted in SST-2 too, so B-SST2's counts cannot exceed SST-2's at any position."""
    assert (load_counts("sst2").counts[:20] - load_counts("b_sst2").counts).min() >= 0


def test_the_note_says_how():
    note = (DATA / "counts.md").read_text(encoding="utf-8")
    facts = (SST2_SHA256["train"], VOCABULARY_SHA256, "6,883 are maximal", "4,027\nhave at least 20 tokens")
    for fact in (*facts, *COUNTS.values()):
        assert fact in note


def test_every_file_is_named_with_the_command_that_writes_it():
    note = (DATA / "README.md").read_text(encoding="utf-8")
    rows = [line for line in note.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`([\w.]+\.(?:npz|json|md))`", row)}
    assert {path.name for path in DATA.iterdir()} - {"README.md"} == listed
    commands = [re.search(r"`(tools/\w+\.py)`", row)[1] for row in rows]
    assert all((ROOT / command).is_file() for command in commands)


@pytest.mark.skipif(
    not TEXT.is_file(), reason="the text of SST-2 is not at hand: POSGEOM_DATA/sst2/train.tsv"
)
def test_the_text_gives_the_same_counts(tmp_path):
    script = ROOT / "tools" / "make_counts.py"
    subprocess.run([sys.executable, script, "--output", tmp_path], check=True, capture_output=True)
    for file in COUNTS.values():
        with np.load(tmp_path / file) as made, np.load(DATA / file) as committed:
            assert set(made.files) == set(committed.files)
            for name in made.files:
                assert made[name].dtype == committed[name].dtype
                np.testing.assert_array_equal(made[name], committed[name])
    assert (tmp_path / "counts.md").read_text(encoding="utf-8") == (DATA / "counts.md").read_text(
        encoding="utf-8"
    )
