"""Expressions of Spark as text: the same on every run, without what differs in each session, and without secrets."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.decide.expressions import Node, parse_tree, render

Flat = list[dict[str, Any]]


def node(kind: str, *children: Flat, **says: Any) -> Flat:
    """A tree as Spark writes it."""
    head = {"class": f"org.apache.spark.sql.catalyst.expressions.{kind}", "num-children": len(children), **says}
    return [head, *(inner for child in children for inner in child)]


def column(name: str, identity: int) -> Flat:
    return node("AttributeReference", name=name, exprId={"id": identity, "jvmId": "x"}, dataType="long")


def literal(value: object, kind: str = "long") -> Flat:
    return node("Literal", value=str(value), dataType=kind)


def text(tree: Flat, columns: dict[int, str] | None = None) -> str:
    return render(parse_tree(tree, {}), columns or {})


def test_a_tree_is_read_from_its_flat_list() -> None:
    tree = parse_tree(node("Add", column("a", 1), node("Multiply", column("b", 2), literal(3))), {})
    assert [inner.kind for inner in tree.walk()] == [
        "Add",
        "AttributeReference",
        "Multiply",
        "AttributeReference",
        "Literal",
    ]
    assert tree.children[1].children[1].path == (1, 1)


def test_columns_stand_for_what_they_were_made_from_and_aliases_leave_no_trace() -> None:
    tree = node("Alias", node("Add", column("a", 0), column("b", 2)), name="c", exprId={"id": 9})
    assert text(tree, {0: "source 0.x"}) == "Add(source 0.x, b)"


@pytest.mark.parametrize("name", ["exprId", "resultId", "timeZoneId", "evalMode", "nullable", "qualifier"])
def test_what_says_nothing_of_the_meaning_is_left_out(name: str) -> None:
    assert text(node("Sum", column("a", 1), **{name: {"id": 7}})) == "Sum(a)"


def test_other_fields_count_and_objects_go_by_their_names() -> None:
    tree = node("Cast", column("a", 1), dataType="string", child=0)
    assert text(tree) == "Cast[dataType=string](a)"
    assert text(node("Trunc", mode_of={"object": "org.apache.spark.Modes$Update$"})) == "Trunc[mode_of=Update]()"
    assert text(node("GetStructField", column("a", 1), ordinal=0)) != text(
        node("GetStructField", column("a", 1), ordinal=1)
    )


def test_an_id_that_spark_makes_up_is_blanked() -> None:
    assert text(node("Tagged", tag="a1b2c3d4-0000-4000-8000-0123456789ab")) == "Tagged[tag=…]()"


def test_seeds_are_blanked() -> None:
    assert text(node("Rand", literal(5))) == text(node("Rand", literal(6))) == "Rand()"


def test_parameters_of_lambdas_are_numbered_anew() -> None:
    def doubled(name: str, identity: int) -> Flat:
        parameter = node("NamedLambdaVariable", name=name, exprId={"id": identity})
        return node("LambdaFunction", node("Add", parameter, parameter), parameter)

    assert text(doubled("x_1", 11)) == text(doubled("x_2", 35))


def test_the_same_expression_once_more_in_a_field_is_passed_over() -> None:
    branch = {"product-class": "scala.Tuple2", "_1": column("a", 1), "_2": literal(2)}
    assert text(node("CaseWhen", column("a", 1), literal(2), branches=[branch])) == "CaseWhen(a, '2':long)"


def test_the_plan_of_a_subquery_counts_with_all_that_it_says() -> None:
    def greatest(function: str) -> Flat:
        plan = node("Aggregate", node("Range"), aggregateExpressions=[node(function, column("a", 1))])
        plan[0]["class"] = "org.apache.spark.sql.catalyst.plans.logical.Aggregate"
        return node("ScalarSubquery", plan=plan)

    assert text(greatest("Max")) != text(greatest("Min"))


def plan(kind: str, *children: Flat, **says: Any) -> Flat:
    tree = node(kind, *children, **says)
    tree[0]["class"] = f"org.apache.spark.sql.catalyst.plans.logical.{kind}"
    return tree


def exists(condition: Flat, first: int = 7, second: int = 8) -> Flat:
    """A subquery that takes a column from outside, over two tables with a column of one name."""
    tables = [plan("Range", output=[column("id", each)], numSlices=first) for each in (first, second)]
    below = plan("Filter", plan("Join", *tables), condition=condition)
    return node("Exists", column("a", 1), plan=below, outerAttrs=[0], joinCond=[])


def outer(identity: int) -> Flat:
    return node("OuterReference", e=column("a", identity))


def test_the_plan_of_a_correlated_subquery_counts_too() -> None:
    equal = exists(node("EqualTo", column("id", 7), outer(1)))
    assert text(equal) != text(exists(node("GreaterThan", column("id", 7), outer(1))))
    assert text(equal) != text(exists(node("EqualTo", column("id", 8), outer(1))))
    assert text(equal, {1: "source 0.a"}) != text(equal, {1: "source 0.b"})


def test_a_correlated_subquery_is_the_same_in_another_session() -> None:
    again = exists(node("EqualTo", column("id", 70), outer(1)), 70, 80)
    assert text(exists(node("EqualTo", column("id", 7), outer(1)))) == text(again)


def test_every_node_is_found_in_the_plan_of_a_subquery_as_well() -> None:
    tree = parse_tree(exists(node("PythonUDF", column("id", 7), name="clean")), {})
    assert "PythonUDF" not in {inner.kind for inner in tree.walk()}
    assert "PythonUDF" in {inner.kind for inner in tree.walk_all()}


def test_a_zone_counts_where_it_is_said_to_matter() -> None:
    day = node("Cast", column("a", 1), dataType="date", timeZoneId="UTC", zone="UTC")
    assert text(day) == "Cast[dataType=date zone=UTC](a)"


def test_the_key_of_an_encryption_is_never_told() -> None:
    tree = node("AesEncrypt", column("a", 1), node("Cast", literal("hunter2", "string"), dataType="binary"))
    assert text(tree) == "AesEncrypt(a, …)"


def test_a_function_is_told_by_who_knows_its_body() -> None:
    tree = parse_tree(node("PythonUDF", column("a", 1), name="clean", func=None, evalType=100), {})
    assert render(tree, {}, lambda name: f"{name}@12") == "clean@12(a)"


def test_a_plain_aggregate_is_its_function_and_a_distinct_one_says_so() -> None:
    function = node("Count", column("a", 1))
    assert text(node("AggregateExpression", function, isDistinct=False)) == "Count(a)"
    assert (
        text(node("AggregateExpression", function, isDistinct=True)) == "AggregateExpression[isDistinct=true](Count(a))"
    )


def test_a_node_gives_the_expressions_in_its_fields() -> None:
    tree = parse_tree(node("Project", projectList=[column("a", 1), column("b", 2)], note="x"), {})
    assert [inner.says["name"] for inner in tree.trees("projectList")] == ["a", "b"]
    assert tree.trees("note") == tree.trees("nothing") == ()


def test_facts_are_added_where_they_belong() -> None:
    tree = parse_tree(node("Add", column("a", 1), column("b", 2)), {(1,): {"type": "long"}})
    assert isinstance(tree, Node)
    assert [dict(child.facts) for child in tree.children] == [{}, {"type": "long"}]
