"""Every test gets an artifacts folder of its own: none touches the reader's ledger."""

import pytest


@pytest.fixture(autouse=True)
def own_artifacts(tmp_path, monkeypatch):
    for name in ("LABKIT_RUN_KEY", "LABKIT_BATCH_KEY", "LABKIT_HEADLESS", "LABKIT_STRICT", "LABKIT_DEVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LABKIT_ARTIFACTS", str(tmp_path / "artifacts"))
    return tmp_path / "artifacts"
