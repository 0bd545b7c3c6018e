"""What every notebook engine promises, on real runs; and what is refused before anything starts."""

import os
import random
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import nbformat
import psutil
import pytest
import torch
from jupyter_core.utils import run_sync
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from explorer import run_files, rundir
from explorer.errors import RunError, SweepError
from explorer.sweep import kernels
from explorer.sweep.execute import NOTEBOOK
from explorer.sweep.kernels import KernelEngine
from explorer.sweep.notebooks import NotebookError, check_notebook
from explorer.sweep.work import ENGINES, Job, make_engine, perform
from tests.sweep.sweeps import outcomes, plan

pytestmark = pytest.mark.notebook

KERNELS = ("cold", "warm")


def write(path: Path, *sources: str) -> Path:
    cells = [new_code_cell("word = 'none'", metadata={"tags": ["parameters"]}), *map(new_code_cell, sources)]
    notebook = new_notebook(cells=[new_markdown_cell("# title"), *cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, path)
    return path


def outputs(path: Path) -> list[list[tuple]]:
    """The outputs of the executed code cells, as plain values."""
    executed = nbformat.read(path, as_version=4)
    nbformat.validate(executed)
    return [[_plain(output) for output in cell.outputs] for cell in executed.cells if cell.cell_type == "code"]


def _plain(output):
    if output.output_type == "stream":
        return output.name, output.text
    if output.output_type == "error":
        return "error", output.ename, output.evalue
    return output.output_type, dict(output.data)


@pytest.fixture(scope="module")
def engines():
    """One engine of each kind for the whole file: they are made to be used again."""
    made = {name: make_engine(name, threads=1) for name in ENGINES}
    yield made
    for engine in made.values():
        engine.close()


# A cold kernel starts Python for every test: it takes its turn in the slow run.
@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.slow] * (name == "cold")) for name in ENGINES])
def engine(request, engines):
    return engines[request.param]


class TestEveryEngine:
    def test_outputs_are_what_jupyter_shows(self, engine, tmp_path):
        source = write(
            tmp_path / "in.ipynb",
            "import sys\nprint(word)\nprint('more')\nprint('wrong', file=sys.stderr)\n6 * 7",
            "from IPython.display import HTML, display\nshown = display('old', display_id=True)\n"
            "shown.update('new')\ndisplay(HTML('<b>x</b>'))\nNone",
            "_",
            "7;",
        )
        engine.run(source, {"word": "given"}, tmp_path / "out.ipynb")
        assert outputs(tmp_path / "out.ipynb") == [
            [],
            [],
            [("stdout", "given\nmore\n"), ("stderr", "wrong\n"), ("execute_result", {"text/plain": "42"})],
            [
                ("display_data", {"text/plain": "'new'"}),
                ("display_data", {"text/html": "<b>x</b>", "text/plain": "<IPython.core.display.HTML object>"}),
            ],
            [("execute_result", {"text/plain": "42"})],
            [],
        ]

    def test_runs_do_not_see_each_other(self, engine, tmp_path):
        source = write(
            tmp_path / "in.ipynb",
            "import os, random, warnings\n"
            "print('left' in globals(), os.environ.get('LEFT'), os.getcwd(), random.random())\n"
            "print([one for one in warnings.filters if one[2] is BytesWarning and one[0] == 'always'])\n"
            "left = 1; os.environ['LEFT'] = 'x'; os.chdir('/'); random.seed(5)\n"
            "warnings.simplefilter('always', BytesWarning)",
            "len(Out), 'left' in globals()",
            "os.getpid()",
        )
        directory = Path.cwd()
        engine.run(source, {"word": "w"}, tmp_path / "one.ipynb")
        state, filters = random.getstate(), list(warnings.filters)  # IPython adds filters when it is first imported
        engine.run(source, {"word": "w"}, tmp_path / "two.ipynb")
        first, second = outputs(tmp_path / "one.ipynb"), outputs(tmp_path / "two.ipynb")
        assert first[2][0][1].startswith(f"False None {directory} ")
        if first[-1] == second[-1]:  # a fresh kernel has a fresh seed
            assert first == second
        else:
            assert isinstance(engine, KernelEngine)
        assert (random.getstate(), Path.cwd(), list(warnings.filters)) == (state, directory, filters)
        assert "LEFT" not in os.environ

    def test_an_exception_is_raised_and_shown(self, engine, tmp_path):
        source = write(tmp_path / "in.ipynb", "1", "raise ValueError('bad luck')", "print('never')")
        with pytest.raises(NotebookError, match="ValueError: bad luck") as caught:
            engine.run(source, {"word": "w"}, tmp_path / "out.ipynb")
        assert caught.value.fault == "exception"
        executed = nbformat.read(tmp_path / "out.ipynb", as_version=4)
        assert executed.metadata.explorer == {"state": "exception", "message": "ValueError: bad luck"}
        assert executed.metadata.papermill["exception"]
        assert outputs(tmp_path / "out.ipynb")[2:] == [
            [("execute_result", {"text/plain": "1"})],
            [("error", "ValueError", "bad luck")],
            [],
        ]

    def test_it_can_be_used_after_a_failure(self, engine, tmp_path):
        source = write(tmp_path / "in.ipynb", "if word == 'bad':\n    raise ValueError\nprint(word)")
        with pytest.raises(NotebookError):
            engine.run(source, {"word": "bad"}, tmp_path / "bad.ipynb")
        engine.run(source, {"word": "good"}, tmp_path / "good.ipynb")
        assert outputs(tmp_path / "good.ipynb")[-1] == [("stdout", "good\n")]
        assert nbformat.read(tmp_path / "good.ipynb", as_version=4).metadata.explorer["state"] == "complete"

    def test_a_disk_that_refuses(self, engine, tmp_path):
        source = write(tmp_path / "in.ipynb", "1")
        (tmp_path / "file").write_text("in the way")
        with pytest.raises(RunError, match="cannot write"):
            engine.run(source, {"word": "w"}, tmp_path / "file" / "out.ipynb")


@pytest.mark.slow
def test_results_are_the_same_bits_in_every_engine(engines, tmp_path):
    found = {}
    for name in ENGINES:
        runs = tmp_path / name
        for run in plan(runs).missing[: 1 if name == "cold" else 4]:
            run_files.write(run.directory / rundir.RUN, run.record)
            job = Job(
                directory=run.directory,
                notebook=NOTEBOOK,
                engine=name,
                threads=1,
                data=None,
                contended=False,
                timeout=None,
            )
            assert perform(job).fault is None
        found[name] = outcomes(runs)
    assert found["warm"] == found["inline"]
    assert len(found["warm"]) == 4
    assert len(found["cold"]) == 1
    assert found["cold"].items() <= found["warm"].items()
    assert len({state for _, state, _ in found["warm"].values()}) == 4  # different runs differ


@pytest.mark.parametrize("name", KERNELS)
def test_a_killed_kernel_does_not_look_like_success(engines, tmp_path, name):
    source = write(
        tmp_path / "in.ipynb", "print('so far', flush=True)", "import os; os.kill(os.getpid(), 9)", "print(1)"
    )
    with pytest.raises(NotebookError, match="the kernel died") as caught:
        engines[name].run(source, {"word": "w"}, tmp_path / "out.ipynb")
    assert caught.value.fault == "dead kernel"
    executed = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert executed.metadata.explorer["state"] == "dead kernel"
    assert executed.metadata.papermill["exception"] is True
    code = [cell.metadata.papermill["status"] for cell in executed.cells if cell.cell_type == "code"]
    assert code == ["completed", "completed", "completed", "failed", "pending"]
    assert "did not finish: the kernel died" in executed.cells[0].source


@pytest.mark.slow
def test_a_timeout_is_one(tmp_path):
    engine = make_engine("warm", threads=1, timeout=1)
    source = write(tmp_path / "in.ipynb", "import time; time.sleep(60)")
    with pytest.raises(NotebookError, match="a cell took longer than 1 s") as caught:
        engine.run(source, {"word": "w"}, tmp_path / "out.ipynb")
    assert caught.value.fault == "timeout"
    with pytest.raises(SweepError, match="'inline' cannot stop a run after a timeout"):
        make_engine("inline", threads=1, timeout=1)


def interrupt_when(ready, engine):
    while not ready():
        time.sleep(0.05)
    engine.interrupt()


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["while its kernel starts", "in a cell"])
def test_an_interrupted_notebook_says_so(engines, tmp_path, monkeypatch, moment):
    cell = f"import pathlib, time; pathlib.Path({str(tmp_path / 'begun')!r}).touch(); time.sleep(600)"
    source = write(tmp_path / "in.ipynb", cell)
    engine = engines["warm"]
    if moment == "in a cell":
        ready = (tmp_path / "begun").exists
    else:
        engine.close()
        # The first request of a fresh kernel, so it is still starting.
        monkeypatch.setattr(kernels, "BEGIN", "import time; time.sleep(600)")

        def ready():
            return engine._kernel is not None

    threading.Thread(target=interrupt_when, args=(ready, engine), daemon=True).start()
    with pytest.raises(NotebookError, match="interrupted; run again to resume") as caught:
        engine.run(source, {"word": "w"}, tmp_path / "out.ipynb")
    assert caught.value.fault == "interrupted"


@pytest.mark.parametrize("changed", [False, True])
def test_a_notebook_stopped_while_it_imported_says_so(engines, tmp_path, monkeypatch, changed):
    """An interrupt in the middle of an import leaves modules of which another import fails."""
    torch.use_deterministic_algorithms(changed)  # which imports the compiler, where a run would first need it
    try:
        for half in ("torch._inductor", "torch._inductor.config"):
            monkeypatch.setitem(sys.modules, half, None)
        with pytest.raises(ModuleNotFoundError):  # the control
            torch.use_deterministic_algorithms(not changed)
        source = write(tmp_path / "in.ipynb", "raise KeyboardInterrupt")
        with pytest.raises(NotebookError, match="interrupted; run again to resume"):
            engines["inline"].run(source, {"word": "w"}, tmp_path / "out.ipynb")
        monkeypatch.undo()
        change = f"import torch; torch.use_deterministic_algorithms({not changed})"
        engines["inline"].run(write(tmp_path / "in.ipynb", change), {"word": "w"}, tmp_path / "out.ipynb")
        assert torch.are_deterministic_algorithms_enabled() is changed, "what a notebook changed is put back"
    finally:
        torch.use_deterministic_algorithms(False)


async def error_of(client, request):
    """Return the name of the exception in the outputs of a request; None where they show none."""
    name = None
    while True:
        message = await client.get_iopub_msg(timeout=300)
        if message["parent_header"].get("msg_id") == request:
            if message["msg_type"] == "error":
                name = message["content"]["ename"]
            elif message["content"].get("execution_state") == "idle":
                return name


@pytest.mark.slow
def test_a_kernel_replies_however_often_it_is_interrupted():
    """On a loaded machine a second interrupt comes while ipykernel still deals with the first."""
    kernel = kernels.Kernel.start(threads=1)
    assert kernel.is_clear()
    ended = threading.Event()

    def interrupt():
        while not ended.wait(0.0005):
            kernel.process.send_signal(signal.SIGINT)

    try:
        requests = [kernel.client.execute("import time; time.sleep(600)", stop_on_error=False) for _ in range(20)]
        threading.Thread(target=interrupt, daemon=True).start()
        for request in requests:
            reply = run_sync(kernel.client.get_shell_msg)(timeout=300)  # raises Empty where there is none
            assert (reply["parent_header"]["msg_id"], reply["content"]["ename"]) == (request, "KeyboardInterrupt")
            assert run_sync(error_of)(kernel.client, request) == "KeyboardInterrupt"
    finally:
        ended.set()
        kernel.stop()


@pytest.mark.slow
def test_a_kernel_that_died_while_idle_is_replaced(tmp_path):
    engine = KernelEngine(threads=1, runs_per_kernel=10)
    source = write(tmp_path / "in.ipynb", "import os; print(os.getpid())")
    engine.run(source, {"word": "w"}, tmp_path / "one.ipynb")
    first = psutil.Process(int(outputs(tmp_path / "one.ipynb")[-1][0][1]))
    first.kill()
    time.sleep(0.2)
    engine.run(source, {"word": "w"}, tmp_path / "two.ipynb")
    assert int(outputs(tmp_path / "two.ipynb")[-1][0][1]) != first.pid
    engine.close()


@pytest.mark.slow
def test_kernels_are_replaced_after_their_runs_and_when_they_grow(tmp_path):
    def pids(engine, *words):
        source = write(
            tmp_path / "in.ipynb",
            "import os; print(os.getpid())\nimport sys\nsys.modules['held' + word] = bytearray(int(word))",
        )
        found = []
        for word in words:
            engine.run(source, {"word": word}, tmp_path / "out.ipynb")
            found.append(outputs(tmp_path / "out.ipynb")[-1][0][1])
        engine.close()
        return found

    first, second, third = pids(KernelEngine(threads=1, runs_per_kernel=2), "1", "2", "3")
    assert first == second != third
    first, second, third = pids(KernelEngine(threads=1, runs_per_kernel=9, max_growth=2**26), "1", str(2**27), "3")
    assert first == second != third


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose path leaves room for a socket's name, which pytest's own, with its counters, may not."""
    with tempfile.TemporaryDirectory(prefix="t") as directory:
        yield Path(directory)


def test_sockets_are_private_and_removed(tmp_path, short, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(short))
    engine = KernelEngine(threads=2, runs_per_kernel=10)
    source = write(tmp_path / "in.ipynb", "import os; print(os.environ['OMP_NUM_THREADS'])")
    engine.run(source, {"word": "w"}, tmp_path / "out.ipynb")
    assert outputs(tmp_path / "out.ipynb")[-1] == [("stdout", "2\n")]
    (directory,) = short.glob("explorer-*")
    assert directory.stat().st_mode & 0o077 == 0
    assert (directory / "k.json").exists()
    engine.close()
    assert not directory.exists()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"wrod": "x"}, "unknown parameter 'wrod'; did you mean 'word'? known: word"),
        ({"word": (1, 2)}, r"parameter 'word': found \(1, 2\); expected a value that JSON preserves"),
        ({"word": float("nan")}, "parameter 'word': found nan"),
        ({"word": b"x"}, "parameter 'word': found b'x'"),
    ],
)
def test_parameters_are_checked_before_anything_starts(tmp_path, parameters, message):
    source = write(tmp_path / "in.ipynb", "1")
    check_notebook(source, {"word": ["x", None, 1.5]})
    with pytest.raises(SweepError, match=message.replace("?", r"\?")):
        check_notebook(source, parameters)


def test_damaged_notebooks_are_refused(tmp_path):
    def refused(content: bytes) -> str:
        (tmp_path / "bad.ipynb").write_bytes(content)
        with pytest.raises(SweepError) as caught:
            check_notebook(tmp_path / "bad.ipynb", {"word": "x"})
        return str(caught.value)

    whole = write(tmp_path / "in.ipynb", "1").read_bytes()
    assert "damaged: not a notebook" in refused(whole[:200])
    assert "damaged: not a notebook" in refused(b"\xff\xfe")
    assert "damaged: not a notebook" in refused(b"[]")
    assert "damaged: not a notebook" in refused(b"{}")
    assert "found no cell tagged 'parameters'" in refused(whole.replace(b'"parameters"', b'"other"'))
    with pytest.raises(SweepError, match="No such file"):
        check_notebook(tmp_path / "absent.ipynb", {})


def test_the_run_notebook_shows_and_reproduces_its_run(engines, tmp_path):
    (run, *_) = plan(tmp_path).missing
    run_files.write(run.directory / rundir.RUN, run.record)
    parameters = {"directory": str(run.directory), "data": None, "contended": True}
    check_notebook(NOTEBOOK, parameters)
    engines["inline"].run(NOTEBOOK, parameters, run.directory / rundir.NOTEBOOK)
    text = (run.directory / rundir.NOTEBOOK).read_text()
    for expected in (run.record.run_id, "image/png", "forward pass", "accuracy", "no measure of cost", "explorer run "):
        assert expected in text
    assert not [line for line in text.splitlines() if '"output_type": "error"' in line]


def test_signals_still_reach_earlier_handlers(engines, tmp_path):
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append("sweep"))
    try:
        (run, *_) = plan(tmp_path).missing
        run_files.write(run.directory / rundir.RUN, run.record)
        source = write(
            tmp_path / "in.ipynb",
            "import os, signal; directory = data = contended = 0",
            "os.kill(os.getpid(), signal.SIGINT)",
        )
        job = Job(
            directory=run.directory,
            notebook=source,
            engine="inline",
            threads=1,
            data=None,
            contended=False,
            timeout=None,
        )
        assert perform(job).fault == "interrupted"
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == ["sweep"]
