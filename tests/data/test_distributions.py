"""Declared licences, and installed files: listed exactly, and read only as shipped. Metadata may be hostile."""

import base64
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from explorer.data.distributions import (
    FAMILIES,
    MAX_FILE_BYTES,
    MIXED,
    PATHS,
    Family,
    PythonFile,
    declared,
    installed,
    read,
)
from explorer.errors import DataError
from explorer.provenance.taxonomy import read_taxonomy
from explorer.yaml_document import read_document
from tests.data.site import install, line

# --- licences --------------------------------------------------------------------------------------------------------

TAXONOMY = Path(__file__).parents[2] / "notebooks" / "policies" / "licences.taxonomy.yaml"


def of(expression: str | None = None, *classifiers: str, text: str | None = None) -> str | None:
    return declared(expression=expression, classifiers=[f"License :: {each}" for each in classifiers], text=text)


EXPRESSIONS = {
    "MIT": "open/permissive/mit",
    "mit": "open/permissive/mit",
    "MIT-0 OR MIT": "open/permissive/mit",
    "BSD-2-Clause AND BSD-3-Clause": "open/permissive/bsd",
    "Apache-2.0 WITH LLVM-exception": "open/permissive/apache",
    "(Apache-2.0 WITH LLVM-exception) AND Apache-2.0": "open/permissive/apache",
    "GPL-2.0-or-later WITH Classpath-exception-2.0": "open/copyleft/gpl",
    "LGPL-2.1+": "open/copyleft/lgpl",
    "AGPL-3.0-only": "open/copyleft/agpl",
    "CC0-1.0 OR Unlicense": "open/unconditional",
    "Apache-2.0 OR BSD-2-Clause": MIXED,
    "MPL-2.0 AND MIT": MIXED,
    "BSD-3-Clause AND (MIT OR (Zlib AND ISC))": MIXED,
    "LicenseRef-Proprietary": None,
    "MIT AND LicenseRef-Proprietary": None,  # one that nobody knows makes the whole unknown
    "MIT BSD-3-Clause": None,
    "MIT AND": None,
    "AND": None,
    "": None,
    "MIT XOR ISC": None,
    "MIT" + " OR MIT" * 1000: None,
}


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=lambda expression: expression[:40])
def test_expressions(expression: str) -> None:
    assert of(expression) == EXPRESSIONS[expression]


TEXTS = {
    "MIT": "open/permissive/mit",
    "MIT License": "open/permissive/mit",
    "The MIT License (MIT)\n\nCopyright (c) 2019": "open/permissive/mit",
    "BSD 3-Clause License\n\nCopyright": "open/permissive/bsd",
    "new BSD": "open/permissive/bsd",
    "3-Clause BSD License": "open/permissive/bsd",
    "Apache License, Version 2.0": "open/permissive/apache",
    "Apache Software License": "open/permissive/apache",
    "ISC license": "open/permissive/isc",
    "PSFL": "open/permissive/psf",
    "MPL-2.0 AND MIT": MIXED,
    "UNKNOWN": None,
    "Copyright (c) 2001, somebody. MIT": None,
    "not the MIT License": None,
    "": None,
    "x" * 10_000: None,
}


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:40])
def test_texts(text: str) -> None:
    assert of(text=text) == TEXTS[text]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.path)
def test_every_name_of_a_family_is_found_and_belongs_to_no_other(family: Family) -> None:
    others = [each for each in FAMILIES if each is not family]
    for name in family.identifiers.split():
        assert of(name) == of(f"{name}-or-later") == family.path
        assert not any(name in other.identifiers.split() for other in others)
    for name in family.classifiers.split("; "):
        assert of(None, f"OSI Approved :: {name}") == family.path
        assert not any(name in other.classifiers.split("; ") for other in others)
    for name in family.names.split("; "):
        assert of(text=name) == family.path
        assert not any(name in other.names.split("; ") for other in others)


def test_the_expression_decides_then_the_classifiers_then_the_text() -> None:
    assert of("ISC", "OSI Approved :: MIT License", text="BSD") == "open/permissive/isc"
    assert of("Nobody-Knows", "OSI Approved :: MIT License", text="BSD") is None  # and not what is said less exactly
    assert of(None, "OSI Approved :: MIT License", text="BSD") == "open/permissive/mit"
    assert of(None, "OSI Approved", text="BSD") == "open/permissive/bsd"
    assert of(None, text="BSD") == "open/permissive/bsd"


def test_several_classifiers_are_mixed_and_one_that_is_not_open_decides() -> None:
    assert of(None, "OSI Approved :: MIT License", "OSI Approved :: BSD License") == MIXED
    assert of(None, "OSI Approved :: BSD License", "OSI Approved") == "open/permissive/bsd"
    assert of(None, "OSI Approved :: MIT License", "Other/Proprietary License") is None
    assert of(None, "MIT License") is None  # no classifier: the part "OSI Approved" is missing


def test_the_shipped_taxonomy_has_every_class() -> None:
    classes = read_taxonomy(read_document(TAXONOMY)).codes
    assert [path for path in PATHS if path not in classes] == []
    assert len(set(PATHS)) == len(PATHS)


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "site-packages"


def test_a_distribution_and_its_python_files(root: Path) -> None:
    files = {
        "six.py": b"print(6)\n",
        "six_data/__init__.py": b"1",
        "six_data/table.bin": b"\0",
        "six_data/empty.py": b"",
    }
    install(root, "six", files, version="1.17.0")
    (six,) = installed([root])
    assert (six.name, six.version, six.licence) == ("six", "1.17.0", "open/permissive/mit")  # headers, not the body
    assert [(file.path, file.size) for file in six.files] == [("six.py", 9), ("six_data/__init__.py", 1)]
    assert [read(six, file) for file in six.files] == [b"print(6)\n", b"1"]


def test_each_name_once_however_it_is_written_and_the_first_in_the_search_path(tmp_path: Path) -> None:
    for place, name in (("a", "Foo.Bar"), ("b", "foo_bar"), ("b", "zoo"), ("a", "Ant")):
        install(tmp_path / place, name, {f"{name}.py": place.encode()})
    found = installed([tmp_path / "nowhere", tmp_path / "a", tmp_path / "b"])
    assert [each.name for each in found] == ["Ant", "Foo.Bar", "zoo"]
    assert [each.name for each in installed([tmp_path / "b", tmp_path / "a"])] == ["Ant", "foo_bar", "zoo"]


def test_the_licence_of_old_metadata(root: Path) -> None:
    directory = install(root, "old", {"old.py": b"1"}, licence=None)
    head = "Name: old\r\nVersion: 1.0\r\nLicense: BSD\r\n"
    (directory / "METADATA").write_text(f"{head}Classifier: License :: OSI Approved :: ISC License (ISCL)\r\n\r\nMIT")
    assert installed([root])[0].licence == "open/permissive/isc"
    (directory / "METADATA").write_text(f"{head}\r\nClassifier: License :: OSI Approved :: MIT License")
    assert installed([root])[0].licence == "open/permissive/bsd"
    (directory / "METADATA").write_text("Name: old\nVersion: 1.0\n")
    assert installed([root])[0].licence is None


def test_what_has_no_metadata_or_no_list_of_files_is_not_read(root: Path) -> None:
    (root / "~alf.dist-info").mkdir(parents=True)
    os.mkfifo((install(root, "piped", {"piped.py": b"1"}) / "RECORD").with_name("PIPE"))
    directory = install(root, "listless", {"listless.py": b"1"})
    (directory / "RECORD").unlink()
    os.mkfifo(directory / "RECORD")  # would be waited for
    assert [each.name for each in installed([root])] == ["piped"]


def test_an_editable_installation_gives_no_file(root: Path) -> None:
    install(root, "mine", {"__editable___mine_finder.py": b"1", "__editable__.mine.pth": b"/home/me"})
    assert installed([root])[0].files == ()


SECRET = b"not yours"
OUTSIDE = {
    "above": "../secret.py",
    "further above": "six/../../secret.py",
    "absolute": "/etc/secret.py",
    "backslashes": "..\\secret.py",
    "control characters": '"six/\x1b[31m.py"',
    "long": f"{'d/' * 200}secret.py",
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_list_that_names_files_outside_reaches_none(root: Path, name: str) -> None:
    install(root, "six", {"six.py": b"1"}, lines=(line(OUTSIDE[name], SECRET),))
    (root.parent / "secret.py").write_bytes(SECRET)
    assert [file.path for file in installed([root])[0].files] == ["six.py"]


ODD = {
    "no digest": "a.py,,9",
    "no size": line("a.py", SECRET).rpartition(",")[0] + ",",
    "another digest": "a.py,md5=MTIzNDU2Nzg5MDEyMzQ1Ng,9",
    "no base64": f"a.py,sha256={'*' * 43},9",
    "no ASCII": f"a.py,sha256={'é' * 43},9",
    "a negative size": "a.py,sha256=" + "A" * 43 + ",-1",
    "a size without end": "a.py,sha256=" + "A" * 43 + "," + "9" * 5000,
    "too large": line("a.py", SECRET, size=MAX_FILE_BYTES + 1),
    "too few columns": "a.py,9",
    "too many columns": "a.py,sha256=" + "A" * 43 + ",9,9",
}


@pytest.mark.parametrize("name", ODD)
def test_a_line_without_a_digest_and_a_size_in_bounds_is_no_file_to_read(root: Path, name: str) -> None:
    install(root, "six", {"six.py": b"1"}, lines=(ODD[name],))
    assert [file.path for file in installed([root])[0].files] == ["six.py"]


def changed(path: Path) -> None:
    path.write_bytes(b"2")


def grown(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(2**34)  # sparse: only the beginning is read


def linked(path: Path) -> None:
    path.unlink()
    (path.parent.parent.parent / "private.py").write_bytes(b"1")
    path.symlink_to(path.parent.parent.parent / "private.py")


def linked_above(path: Path) -> None:
    elsewhere = path.parent.parent.parent / "elsewhere"
    path.parent.rename(elsewhere)
    path.parent.symlink_to(elsewhere)


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


FAULTS: dict[Callable[[Path], None], str] = {
    Path.unlink: "cannot read .*six.py, which six 1.0 lists: No such file",
    changed: "changed since six 1.0 was installed; reinstall six",
    grown: "changed since six 1.0 was installed",
    linked: "leads out of the directory in which six 1.0 is installed",
    linked_above: "leads out of the directory in which six 1.0 is installed",
    piped: "six.py, which six 1.0 lists: not a file; reinstall six",
    a_directory: "six.py, which six 1.0 lists: not a file; reinstall six",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_file_is_read_as_it_was_shipped_or_not_at_all(root: Path, fault: Callable[[Path], None]) -> None:
    install(root, "six", {"six/six.py": b"1"})
    (six,) = installed([root])
    assert read(six, six.files[0]) == b"1"
    fault(root / "six" / "six.py")
    with pytest.raises(DataError, match=FAULTS[fault]):
        read(six, six.files[0])


def test_a_path_that_leads_out_is_not_opened_even_if_somebody_lists_it(root: Path) -> None:
    install(root, "six", {"six.py": b"1"})
    (root.parent / "secret.py").write_bytes(SECRET)
    (six,) = installed([root])
    digest = base64.urlsafe_b64decode(line("", SECRET).split("=")[1].split(",")[0] + "=").hex()
    forged = PythonFile(path="../secret.py", digest=digest, size=len(SECRET))
    with pytest.raises(DataError, match="leads out of the directory"):
        read(replace(six, files=(forged,)), forged)


@pytest.mark.parametrize("head", ["", "Name: six\n", "Name: ../six\nVersion: 1\n", "Name: six\nVersion: <b>\n"])
def test_metadata_without_a_proper_name_and_version_is_damaged(root: Path, head: str) -> None:
    directory = install(root, "six", {"six.py": b"1"})
    (directory / "METADATA").write_text(f"{head}\n")
    with pytest.raises(DataError, match=r"six-1\.0\.dist-info: damaged: found name"):
        installed([root])


def test_lists_and_metadata_are_bounded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = install(root, "six", {"six.py": b"1"})
    monkeypatch.setattr("explorer.data.distributions.MAX_RECORD_BYTES", 20)
    with pytest.raises(DataError, match="RECORD: too large: at most 20 bytes"):
        installed([root])
    monkeypatch.undo()
    (directory / "RECORD").write_bytes(b'"' + b"x" * 200_000)
    with pytest.raises(DataError, match="RECORD: damaged: not a list of files"):
        installed([root])
    (directory / "RECORD").write_bytes(b"\xff\xfe\0,\x00")
    assert installed([root])[0].files == ()
