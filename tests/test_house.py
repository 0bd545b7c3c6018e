"""The house stays in order: no circles or hidden imports, few thin modules, unique file names, plain words, reasons.

`python benchmarks/house.py --list` names the offenders. A limit falls as the number does, and never rises.
"""

from pathlib import Path

import pytest

from benchmarks import house

SINGLE_IMPORTERS = 15
HIDDEN_IMPORTS = 0
LARGEST_FOLDER = 40  # explorer/methods, which has a file for each method
REPEATED_NAMES = 0
COMMENTS = 15  # own-line comments a thousand lines, at least
# The rest is in records and enums whose docstrings and values are part of published schemas, which keep their bytes.
VAGUE_NAMES = 10
ABANDONED_WORDS = 26
FOREIGN_DOCSTRINGS = 36


@pytest.fixture(scope="module")
def tree() -> house.Tree:
    return house.Tree(house.ROOT)


def test_no_modules_import_each_other_in_a_circle(tree: house.Tree) -> None:
    assert house.circles(tree) == []


def test_few_modules_have_one_importer_in_their_own_folder(tree: house.Tree) -> None:
    assert_at_most(SINGLE_IMPORTERS, house.single_importers(tree))


def test_own_imports_are_not_hidden_in_functions(tree: house.Tree) -> None:
    assert_at_most(HIDDEN_IMPORTS, [f"{door.importer} -> {door.imported}" for door in house.hidden_imports(tree)])


def test_no_folder_is_crowded(tree: house.Tree) -> None:
    assert max(house.folder_files(tree).values()) <= LARGEST_FOLDER, house.folder_files(tree).most_common(3)


def test_a_file_name_is_used_once(tree: house.Tree) -> None:
    assert_at_most(REPEATED_NAMES, [f"{name}: {places}" for name, places in house.repeated_names(tree).items()])


@pytest.mark.slow
def test_names_and_texts_are_plain(tree: house.Tree) -> None:
    words = house.abandoned_words(tree)
    assert house.vague_names(tree) <= VAGUE_NAMES
    assert words.total() <= ABANDONED_WORDS, words
    assert house.foreign_docstrings(tree) <= FOREIGN_DOCSTRINGS


def test_reasons_are_in_comments(tree: house.Tree) -> None:
    assert house.own_line_comments(tree) * 1000 >= COMMENTS * sum(house.file_lines(tree))


def assert_at_most(limit: int, offenders: list[str]) -> None:
    assert len(offenders) <= limit, f"{len(offenders)}, at most {limit}:\n" + "\n".join(offenders)


def small(root: Path, files: dict[str, str]) -> house.Tree:
    """Write a package of these files and parse it."""
    for name, text in {"__init__.py": "", **files}.items():
        path = root / house.PACKAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return house.Tree(root)


def test_what_is_counted(tmp_path: Path) -> None:
    tree = small(
        tmp_path,
        {
            "a.py": "# a reason\nfrom explorer import b\nfrom explorer.c import C\nTABLE = [C, 1, 2, 3]\n",
            "b.py": 'def f(each):\n    """What it does beside."""\n    from explorer import a\n    return a\n',
            "c.py": "class C: ...\n",
            "part/__init__.py": "",
            "part/b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from explorer import c\n",
        },
    )
    assert house.circles(tree) == [["explorer.a", "explorer.b"]]
    assert house.single_importers(tree) == ["explorer.a", "explorer.b"]  # c is a line in a table, and has two importers
    assert [door.imported for door in house.hidden_imports(tree)] == ["explorer.a"]
    assert house.repeated_names(tree) == {"b.py": ["explorer", "explorer/part"]}
    assert house.own_line_comments(tree) == 1
    assert (house.vague_names(tree), house.foreign_docstrings(tree)) == (1, 1)
    assert house.abandoned_words(tree) == {"beside": 1}
    assert house.import_share(tree) == 5 / 12


def test_a_line_in_a_table_is_no_thin_module(tmp_path: Path) -> None:
    tree = small(tmp_path, {"a.py": "from explorer.c import C\nTABLE = (C, 1, 2, 3)\n", "c.py": "class C: ...\n"})
    assert house.single_importers(tree) == []
    tree = small(tmp_path, {"a.py": "from explorer.c import C\nPAIR = (C, 1)\n"})
    assert house.single_importers(tree) == ["explorer.c"]
