import pytest


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has said how wide a terminal is, whatever an earlier test of this process left in its environment."""
    monkeypatch.delenv("COLUMNS", raising=False)
