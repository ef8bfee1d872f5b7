"""Ports for programs that must be told theirs."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from memcon_policy_server.serving import free_ports as ports_module
from memcon_policy_server.serving.free_ports import free_ports


def given_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    path = tmp_path / "range"
    path.write_text(text)
    monkeypatch.setattr(ports_module, "_RANGE", path)


def test_they_are_free_differ_and_are_none_that_the_system_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_from(tmp_path, monkeypatch, "32768\t60999\n")
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert all(20_000 <= port < 32_768 for port in ports)
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_one_on_which_somebody_listens_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given_from(tmp_path, monkeypatch, "32768 60999")
    (taken,) = free_ports(1)
    drawn = iter([taken - 20_000, taken - 20_000, 7])
    monkeypatch.setattr("secrets.randbelow", lambda _: next(drawn))
    with socket.create_server(("127.0.0.1", taken)):
        assert free_ports(1) == [20_007]


@pytest.mark.parametrize("text", ["1024 65535", "20500 60999"])
def test_where_the_system_gives_nearly_all_any_free_one_will_do(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_from(tmp_path, monkeypatch, text)
    assert min(free_ports(3)) >= 1024


@pytest.mark.parametrize("text", ["", "none"])
def test_a_system_that_does_not_say_is_taken_for_the_usual_one(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_from(tmp_path, monkeypatch, text)
    assert all(20_000 <= port < 32_768 for port in free_ports(3))
