"""One parser under atheris, a coverage-guided fuzzer: the part of `fuzz.py` that needs a process of its own.

    python benchmarks/fuzz_guided.py PARSER SECONDS

The package is imported under instrumentation, so that atheris sees which branches an input reaches.
"""

import argparse
import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

atheris: Any = importlib.import_module("atheris")  # of the extra `bench`, which a type checker may not have
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

with atheris.instrument_imports(include=["explorer"], enable_loader_override=False):
    from explorer.errors import ExplorerError
    from tests.fuzz.mutate import MAX_INPUT
    from tests.fuzz.parsers import parsers


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("parser")
    options.add_argument("seconds", type=int)
    given = options.parse_args()
    name, seconds = given.parser, given.seconds
    with tempfile.TemporaryDirectory() as scratch:
        parser = parsers(Path(scratch) / "file")[name]
        corpus = Path(scratch) / "corpus"
        corpus.mkdir()
        for number, seed in enumerate(parser.seeds):
            (corpus / str(number)).write_bytes(seed)

        def one(content: bytes) -> None:
            try:
                parser.read(content)
            except ExplorerError:
                return

        limits = [f"-max_total_time={seconds}", f"-max_len={MAX_INPUT}", "-rss_limit_mb=4096", "-timeout=10"]
        atheris.Setup([sys.argv[0], *limits, str(corpus)], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
