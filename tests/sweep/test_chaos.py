"""Ten rounds of `benchmarks/chaos.py`: every kind of disturbance that this machine permits, at both engines."""

from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="needs the extra `cluster`")
pytest.importorskip("moto", reason="moto is not installed: pip install 'explorer[peers]'")
pytest.importorskip("obstore", reason="obstore is not installed: pip install 'explorer[cloud]'")

from benchmarks.chaos import rounds

KINDS = {
    "place": ("stop", "cut", "disk", "preempt", "worker"),
    "dask": ("scheduler", "nanny", "driver", "kernel", "ingester"),
}


@pytest.mark.slow
def test_ten_rounds_change_nothing(tmp_path: Path):
    report = rounds(10, tmp_path, kinds=KINDS, patience=60.0)
    assert report.done.total() == 10
    permitted = {(engine, kind) for engine in KINDS for kind in KINDS[engine] if kind not in report.skipped}
    assert report.done.keys() == permitted, report.skipped
    assert (report.different, report.findings, report.tracebacks) == ([], 0, 0)
    # The controls: workers did lose runs, requests did fail, and one altered result is noticed in both ways.
    assert set(report.endings) - {"done"}, report.endings
    assert min(report.failures.values()) > 0
    in_files, *at_the_place = report.control
    assert in_files.endswith("result.json") and at_the_place == ["state_digest"]
