"""The API: it says what the pages say, and its description knows every address of it."""

from __future__ import annotations

from typing import Any

import pytest

from dashboard.conftest import Client
from holdfast.dashboard.app import PROGRAMS
from holdfast.dashboard.openapi import description


def test_every_address_for_programs_is_described_and_no_other() -> None:
    served = {
        (route.path, method.lower())
        for route in PROGRAMS
        for method in route.methods or ()
        if method not in ("HEAD", "OPTIONS")
    }
    described = {(path, method) for path, methods in description()["paths"].items() for method in methods}
    assert served == described


def test_every_reference_in_the_description_leads_somewhere() -> None:
    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [found for inner in value.values() for found in references(inner)]
        if isinstance(value, list):
            return [found for inner in value for found in references(inner)]
        return []

    found = references(description())
    assert found
    known = description()["components"]["schemas"]
    assert {reference.removeprefix("#/components/schemas/") for reference in found} <= set(known)


def agrees(schema: dict[str, Any], value: Any, where: str = "") -> None:
    """Whether a value has the shape that a schema tells, as far as we use them."""
    schemas = description()["components"]["schemas"]
    if "$ref" in schema:
        agrees(schemas[schema["$ref"].rpartition("/")[2]], value, where)
    elif "anyOf" in schema:
        for option in schema["anyOf"]:
            try:
                return agrees(option, value, where)
            except AssertionError:
                continue
        raise AssertionError(f"{where}: {value!r} is none of {schema['anyOf']}")
    elif "enum" in schema:
        assert value in schema["enum"], where
    elif "type" in schema:
        kinds = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}
        kinds["null"] = type(None)
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        assert any(isinstance(value, kinds[name]) for name in names), f"{where}: {value!r} is no {names}"
        if isinstance(value, list) and "items" in schema:
            for index, inner in enumerate(value):
                agrees(schema["items"], inner, f"{where}[{index}]")
        if isinstance(value, dict):
            for name, inner in value.items():
                told = schema.get("properties", {}).get(name)
                if told is not None:
                    agrees(told, inner, f"{where}.{name}")
                elif isinstance(schema.get("additionalProperties"), dict):
                    agrees(schema["additionalProperties"], inner, f"{where}.{name}")
            assert set(schema.get("required", ())) <= set(value), where
    return None


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("/api/pipelines", "/api/pipelines?size=3"),
        ("/api/pipelines/{name}", "/api/pipelines/orders"),
        ("/api/pipelines/{name}", "/api/pipelines/inventory"),
        ("/api/pipelines/{name}/checkpoints", "/api/pipelines/orders/checkpoints?which=abandoned"),
        ("/api/pipelines/{name}/checkpoints", "/api/pipelines/inventory/checkpoints"),
        ("/api/pipelines/{name}/checkpoints/{slot}", "/api/pipelines/orders/checkpoints/3-12"),
        ("/api/pipelines/{name}/checkpoints/{slot}/diff", "/api/pipelines/orders/checkpoints/3-12/diff"),
        ("/api/pipelines/{name}/courses", "/api/pipelines/orders/courses"),
        ("/api/pipelines/{name}/generations", "/api/pipelines/orders/generations?size=2"),
    ],
)
def test_what_the_api_gives_is_what_its_description_says(fleet: Client, path: str, address: str) -> None:
    answer = fleet.get(address)
    assert answer.status == 200
    schema = description()["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    agrees(schema, answer.document, path)


def test_the_description_is_served(fleet: Client) -> None:
    assert fleet.get("/openapi.json").document == description()


def test_pages_of_pipelines_do_not_overlap(fleet: Client) -> None:
    first, second = (fleet.get(f"/api/pipelines?size=4&page={page}").document for page in (0, 1))
    names = [one["name"] for one in first["pipelines"] + second["pipelines"]]
    assert len(names) == len(set(names)) == first["total"] == 7


def test_a_difference_is_with_the_one_before_unless_another_is_asked_for(fleet: Client) -> None:
    where = "/api/pipelines/orders/checkpoints/3-0/diff"
    assert fleet.get(where).document["before"] == "orders@slot:2-15"
    assert fleet.get(f"{where}?with=before-upgrade").document["before"] == "orders@slot:1-9"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/pipelines/nope", 404, "HF-3003"),
        ("/api/pipelines/orders/checkpoints?which=all", 400, "HF-6004"),
        ("/api/pipelines/orders/checkpoints/7-7", 404, "HF-3004"),
        ("/api/jobs/nope", 404, "HF-3004"),
    ],
)
def test_errors_are_json_with_their_code(fleet: Client, path: str, status: int, code: str) -> None:
    answer = fleet.get(path)
    assert (answer.status, answer.document["error"]["code"]) == (status, code)


def test_an_address_that_is_not_there_is_json_too(fleet: Client) -> None:
    assert fleet.get("/api/nope").document == {"error": {"message": "Not Found"}}


def test_healthz_answers(fleet: Client) -> None:
    assert fleet.get("/healthz").text == "ok\n"
