"""Where a recorder's settings come from."""

from __future__ import annotations

import pytest

from afterpass.core.errors import ConfigError
from afterpass.core.paths import Home
from afterpass.hooks.settings import Settings, load


def test_settings_argument_over_variable_over_file(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    home.config.write_text(
        "[store]\nqueue_rows = 5\nqueue_bytes = 6\nsegment_age = '2m'\ndurability = 'record'\nsettle = '1s'\n"
    )
    said = {"AFTERPASS_STORE__QUEUE_ROWS": "7", "AFTERPASS_STORE__SEGMENT_BYTES": "many"}
    settings = load(home, said, queue_bytes=8)
    assert settings == Settings(durability="record", queue_rows=7, queue_bytes=8, segment_age=120.0)
    assert "segment_bytes='many'" in caplog.text


@pytest.mark.parametrize("text", ["not toml [", "store = 3\n", "[store]\nqueue_rows = -1\n"])
def test_a_wrong_file_stops_no_agent(home: Home, text: str, caplog: pytest.LogCaptureFixture) -> None:
    home.config.write_text(text)
    assert load(home, {}) == Settings()
    assert text == "store = 3\n" or str(home.config) in caplog.text


def test_a_wrong_argument_is_said_at_once(home: Home) -> None:
    with pytest.raises(ConfigError, match="queue_rows"):
        load(home, {}, queue_rows=0)
