"""The specification of the quickstart; `test_wheel.py` runs it."""

from pathlib import Path

from explorer.cli import quickstart
from explorer.yaml_document import read_document


def test_the_specification_is_the_users_own(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    spec, documents = quickstart.specification(runs)
    content = read_document(spec).value
    assert (spec.parent / content["governance"]).resolve() == documents.resolve()
    changed = spec.read_bytes().replace(b"epochs: 0.75", b"epochs: 0.5")
    assert changed != spec.read_bytes()
    spec.write_bytes(changed)
    assert quickstart.specification(runs) == (spec, documents)
    assert spec.read_bytes() == changed, "a second call keeps what the user changed"
