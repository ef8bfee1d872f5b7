"""Names, values and parameters as MLflow takes them."""

from __future__ import annotations

import math

import pytest

from memcon_platform.tracking.metrics import MAX_PARAMETER, finite, flat_parameters, metric_name, safe_name


@pytest.mark.parametrize("name", ["success", "stream-000/success", "a.b c:d_e"])
def test_a_name_that_mlflow_takes_is_kept(name: str) -> None:
    assert safe_name(name) == name


@pytest.mark.parametrize("name", ["f1(a,b)", "recall@10", "../up", "/root", "a//b", "", ".", "ü", "x" * 400])
def test_a_name_that_mlflow_refuses_is_changed_into_one_that_it_takes(name: str) -> None:
    validation = pytest.importorskip("mlflow.utils.validation")

    changed = safe_name(name)

    assert changed != name
    assert len(changed) <= 250
    validation._validate_metric_name(changed)
    validation._validate_param_name(changed)


def test_two_names_never_fall_together() -> None:
    assert safe_name("a(b") != safe_name("a)b")


def test_the_stream_is_in_the_name_only_when_there_are_several() -> None:
    assert metric_name("success", 0, 1) == "success"
    assert metric_name("success", 3, 8) == "stream-003/success"


def test_values_that_are_no_numbers_are_left_out() -> None:
    assert finite({"a": 1, "b": None, "c": math.nan, "d": -math.inf}) == {"a": 1.0}


def test_parameters_are_flat_and_long_ones_are_cut_with_a_hash() -> None:
    flat = flat_parameters({"memory": {"name": "metagpt", "ks": [1, 2]}, "empty": {}, "text": "y" * 9000, "none": None})

    assert flat["memory.name"] == "metagpt"
    assert flat["memory.ks"] == "[1, 2]"
    assert (flat["empty"], flat["none"]) == ("{}", "null")
    assert len(flat["text"]) <= MAX_PARAMETER
    assert "blake2b" in flat["text"]
    assert flat["text"] != flat_parameters({"text": "y" * 9001})["text"]
