"""The README, held against the code."""

import re
from pathlib import Path

from explorer.document import parse_document
from explorer.recipes import catalogue
from explorer.sweep.spec import read_spec

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_table_of_methods_is_the_generated_one() -> None:
    start, end = (
        "<!-- methods: written by `explorer methods --markdown` and checked by a test -->\n",
        "<!-- end of methods",
    )
    table = README.partition(start)[2].partition(end)[0]
    assert table == catalogue.markdown()


def test_the_specification_shown_is_valid() -> None:
    text = re.search(r"```yaml\n(.*?)```", README, re.S)
    assert text is not None
    spec = read_spec(parse_document(text[1], where="README.md"))
    assert spec.name == "mine"
    assert len(spec.recipes) > 3


def test_every_picture_and_page_it_names_is_there() -> None:
    root = Path(__file__).parents[1]
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (root / target).exists(), target


def test_the_python_shown_imports() -> None:
    for block in re.findall(r"```python\n(.*?)```", README, re.S):
        exec(compile(block, "README.md", "exec"), {})
