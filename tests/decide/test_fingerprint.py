from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decide.fingerprint import JSON, Fingerprint, callable_source, differences, fingerprint
from holdfast.errors import BadValue


def test_the_digest_is_pinned_for_ever() -> None:
    # A change of these digits means that no stored checkpoint fits its pipeline any more.
    made = fingerprint(sources={"orders": {"format": "kafka", "topics": ["a", "b"]}}, version=3, note="ü", none=None)
    assert made.parts == {
        "none": "null",
        "note": '"\\u00fc"',
        "sources": '{"orders":{"format":"kafka","topics":["a","b"]}}',
        "version": "3",
    }
    assert made.digest == "95ab5a6db552ac399ea96c08156b50da07095b8ce2e3d7b596e17f05993def23"


def test_the_digest_is_the_same_under_other_hash_seeds() -> None:
    program = (
        "from holdfast.decide.fingerprint import fingerprint\n"
        "print(fingerprint(**{w: {w: 1, w[::-1]: 2} for w in {'orders', 'clicks', 'users'}}).digest)"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(digests) == 1


def test_the_order_of_parts_and_keys_does_not_count_but_that_of_lists_does() -> None:
    assert fingerprint(a={"x": 1, "y": 2}, b=1).digest == fingerprint(b=1, a={"y": 2, "x": 1}).digest
    assert fingerprint(a=["x", "y"]).digest != fingerprint(a=["y", "x"]).digest
    assert fingerprint(a=("x", "y")) == fingerprint(a=["x", "y"])


def test_a_long_part_is_kept_as_its_digest_and_a_short_one_as_it_is() -> None:
    made = fingerprint(short="x" * 198, long="x" * 199)
    assert made.parts["short"] == '"' + "x" * 198 + '"'
    assert made.parts["long"].startswith("sha256:")
    assert len(made.parts["long"]) == len("sha256:") + 64


def test_a_stored_fingerprint_has_the_digest_it_was_made_with() -> None:
    made = fingerprint(a="x" * 500, b=[1, 2.5, None, True])
    assert Fingerprint(dict(reversed(made.parts.items()))).digest == made.digest


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object(), b"bytes", {1: "a"}, [[{"a": {3}}]]])
def test_what_has_no_stable_text_is_refused_with_the_part_s_name(value: JSON) -> None:
    with pytest.raises(BadValue, match="'options'"):
        fingerprint(options=value)


@pytest.mark.parametrize(
    "key",
    [
        "password", "PASSWORD", "dbPassword", "PGPASSWORD", "ssl.key.password", "passwd", "passphrase", "pwd",
        "secret", "clientSecret", "fs.s3a.secret.key", "token", "sas_token", "AuthToken", "session-token",
        "credential", "credentials", "aws_access_key_id", "fs.s3a.access.key", "accessKey", "account_key",
        "AccountKey", "api_key", "apikey", "X-API-Key", "private_key", "privatekey", "sas", "SAS", "sasUrl",
        "fs.azure.sas.container", "kafka.sasl.jaas.config", "Authorization", "connection_string",
        "connectionString", "auth", "basic_auth", "sig",
    ],
)  # fmt: skip
def test_the_value_of_a_secret_key_leaves_no_trace_at_any_depth(key: str) -> None:
    def made(**secret: JSON) -> list[Fingerprint]:
        return [
            fingerprint(options={"user": "me", **secret}),
            fingerprint(options={"deep": [{"er": {"user": "me", **secret}}]}),
            fingerprint(user="me", **secret),
        ]

    assert made(**{key: "hunter2"}) == made(**{key: {"other": ["hunter3"]}}) == made()


@pytest.mark.parametrize(
    "key",
    ["user", "topic", "key", "key_columns", "keystore_type", "sasl.mechanism", "tokenizer", "tokenise", "secretary",
     "passengers", "author", "significance", "kansas", "path", "partition_key"],
)  # fmt: skip
def test_a_key_that_only_resembles_a_secret_still_counts(key: str) -> None:
    assert fingerprint(options={key: "a"}) != fingerprint(options={key: "b"})


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("postgresql://me:hunter2@db:5432/shop", "postgresql://db:5432/shop"),
        ("jdbc:postgresql://db/shop?user=me&password=hunter2&ssl=true", "jdbc:postgresql://db/shop?user=me&ssl=true"),
        ("jdbc:postgresql://db/shop?password=hunter2", "jdbc:postgresql://db/shop"),
        ("jdbc:sqlserver://db;user=me;password=hunter2;encrypt=true", "jdbc:sqlserver://db;user=me;encrypt=true"),
        ("https://hunter2@host/repo", "https://host/repo"),
        ("https://me:hunter2@with-at@host/repo", "https://host/repo"),
        ("a://u:hunter2@x,b b://u:hunter2@y/p", "a://x,b b://y/p"),
        ("https://account/container?sv=2026&sig=hunter2%3D&se=9", "https://account/container?sv=2026&se=9"),
        ("https://host/?a=1&token=hunter2&api_key=hunter2", "https://host/?a=1"),
        ("host=db password=hunter2 dbname=shop", "host=db dbname=shop"),
        ("host=db password = 'hunter2 hunter2' dbname=shop", "host=db dbname=shop"),
        ("retries=3,password=hunter2", "retries=3,"),
        ('user=me password="a token=b hunter2" x=1', "user=me x=1"),
        ('options="user=me password=hunter2"', 'options="user=me'),
        ("AccountName=shop;AccountKey=aHVudGVyMg==;Suffix=net", "AccountName=shop;Suffix=net"),
        ('required username="me" password="hunter2";', 'required username="me"'),
        ('{"user": "me", "password": "hunter2", "limit": NaN}', '{"limit":"NaN","user":"me"}'),
        ("-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----", ""),
    ],
)  # fmt: skip
def test_secrets_inside_a_text_are_taken_out(text: str, cleaned: str) -> None:
    assert fingerprint(place=text) == fingerprint(place=cleaned)
    assert "hunter2" not in fingerprint(place=text).parts["place"]


@pytest.mark.parametrize(
    "text",
    [
        "abfss://container@account.dfs.core.windows.net/path",
        "s3://bucket/a?b=c&d=e;",
        "http://host:8080/path?user=me",
        "select a = b, c as token from t where x@y",
        "{not json",
        "ends with a question?",
    ],
)
def test_a_text_without_secrets_stays_as_it_is(text: str) -> None:
    assert json_text(fingerprint(place=text)) == text


def json_text(made: Fingerprint) -> str:
    assert made.parts["place"][0] == made.parts["place"][-1] == '"'
    return made.parts["place"][1:-1]


def test_a_long_text_is_cleaned_before_it_is_hashed() -> None:
    def url(password: str) -> str:
        return f"postgresql://me:{password}@db/" + "x" * 300

    assert fingerprint(place=url("one")) == fingerprint(place=url("two"))


def test_differences_are_told_part_by_part() -> None:
    old = fingerprint(gone=1, changed="a", long="x" * 300, same=[1], gone_long="y" * 300)
    new = fingerprint(new={"b": 2}, changed="b", long="x" * 301, same=[1], new_long="y" * 300)
    assert differences(old, new) == [
        'changed changed from "a" to "b"',
        "gone was removed: 1",
        "gone_long was removed",
        "long changed",
        'new was added: {"b":2}',
        "new_long was added",
    ]


def test_a_part_that_grew_long_is_said_to_have_changed() -> None:
    assert differences(fingerprint(a="x"), fingerprint(a="x" * 300)) == ["a changed"]


texts = st.text(alphabet="aZ0é€\ud800 :/@?&;=,.-_\"'{}[]\n", max_size=60)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
part_maps = st.dictionaries(st.sampled_from(["sources", "sinks", "operators", "query"]), json_values)


@given(part_maps, part_maps)
def test_there_are_differences_exactly_when_the_digests_differ(old: dict[str, JSON], new: dict[str, JSON]) -> None:
    before, after = fingerprint(**old), fingerprint(**new)
    assert (differences(before, after) == []) == (before.digest == after.digest)
    assert differences(before, before) == []


@given(json_values)
def test_any_json_has_a_small_fingerprint(value: JSON) -> None:
    assert all(len(text) <= 200 for text in fingerprint(part=value).parts.values())


def total(amount: int) -> int:
    return amount + 1


def test_comments_docstrings_and_layout_do_not_change_a_function_s_text(tmp_path: Path) -> None:
    plain = "def total(amount):\n    def inner(x):\n        return x\n    return inner(amount + 1)\n"
    dressed = (
        'import os\n\n\ndef total(amount):  # adds\n    """Add one."""\n\n    def inner(x):\n        "Same."\n'
        "        return x\n\n    return inner(\n        amount\n        + 1,\n    )\n"
    )
    changed = plain.replace("+ 1", "+ 2")
    texts = [callable_source(load(tmp_path / f"{i}.py", s)["total"]) for i, s in enumerate([plain, dressed, changed])]
    assert texts[0] == texts[1] != texts[2]


def load(path: Path, source: str) -> dict[str, object]:
    path.write_text(source)
    names: dict[str, object] = {}
    exec(compile(source, str(path), "exec"), names)
    return names


def test_a_function_s_text_is_pinned_for_ever() -> None:
    assert callable_source(total) == (
        "FunctionDef(name='total',args=arguments(args=[arg(arg='amount',annotation=Name(id='int',),),],),"
        "body=[Return(value=BinOp(left=Name(id='amount',),op=Add(),right=Constant(value=1,),),),],"
        "returns=Name(id='int',),)"
    )


def logged(fn: object) -> object:
    @functools.wraps(fn)  # type: ignore[arg-type]
    def wrapper(*args: object) -> object:
        return fn(*args)  # type: ignore[operator]

    return wrapper


@logged
def decorated(x: int) -> int:
    return x * 3


class Shop:
    def price(self, x: int) -> int:
        return x * 5

    async def later(self) -> int:
        return 7


def test_decorated_functions_methods_and_coroutines_give_their_own_source() -> None:
    assert "Name(id='logged'" in callable_source(decorated)
    assert "Constant(value=3" in callable_source(decorated)
    assert callable_source(Shop().price) == callable_source(Shop.price)
    assert "Constant(value=5" in callable_source(Shop.price)
    assert callable_source(Shop().later).startswith("AsyncFunctionDef(")


def test_a_lambda_in_the_middle_of_a_call_is_found() -> None:
    functions = {
        "plus": lambda x: x + 11,
        "times": lambda x: x * 13,
    }
    assert "Constant(value=11" in callable_source(functions["plus"])
    assert "Constant(value=13" not in callable_source(functions["plus"])


@pytest.mark.parametrize("fn", [len, functools.partial(total, 1), Shop, eval("lambda: 1")])
def test_what_has_no_source_is_refused(fn: object) -> None:
    with pytest.raises(BadValue, match="source"):
        callable_source(fn)  # type: ignore[arg-type]


def test_a_file_that_changed_under_the_running_program_is_noticed(tmp_path: Path) -> None:
    loaded = load(tmp_path / "job.py", "\n\n\ndef total(x):\n    return x\n")["total"]
    (tmp_path / "job.py").write_text("a = 1\nb = 2\nc = 3\nd = 4\n")
    with pytest.raises(BadValue, match="changed since"):
        callable_source(loaded)  # type: ignore[arg-type]
