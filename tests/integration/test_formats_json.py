"""What is JSON and what is not, a document a line, after the categories of nst/JSONTestSuite.

y_ must be parsed: the record then only lacks a text. n_ must not be. i_ may be either. Nothing may crash, and
no line may take its neighbours along. The suite itself is run in test_formats_traces where it is at hand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from afterpass.core.types import Item
from afterpass.store.formats import Bad, read

YES = [
    b"{}", b"[]", b"[[]   ]", b'[""]', b"[null, 1, \"1\", {}]", b"[1,null,null,null,2]", b"[0e+1]", b"[0e1]",
    b"[ 4]", b"[-0.000000000000000000000000000000000000000000000000000000000000000000000000000001]",
    b"[20e1]", b"[-0]", b"[-123]", b"[1E22]", b"[1E-2]", b"[1E+2]", b"[123e45]", b"[123.456e78]", b"[1e-2]",
    b"[123.456789]", b'{"a":"b","a":"c"}', b'{"a":"b","a":"b"}', b'{"":0}', b'{"foo\\u0000bar": 42}',
    b'{"min": -1.0e+28}', b'{"a":[]}', b'{"title":"\\u041f\\u043e"}',
    b'{"x":[{"id": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}]}', b'["\\u0060\\u012a\\u12AB"]',
    b'["\\uD801\\udc37"]', b'["\\ud83d\\ude39\\ud83d\\udc8d"]', b'["\\"\\\\\\/\\b\\f\\n\\r\\t"]',
    b'["\\\\u0000"]', b'["\\""]', b'["a/*b*/c/*d//e"]', b'["\\\\a"]', b'["\\\\n"]', b'["\\u0012"]',
    b'["\\uFFFF"]', '["\uffff"]'.encode(), b'[ "asd"]', '["\U0010ffff"]'.encode(), b'["new\\u00A0line"]',
    b'["\\uDBFF\\uDFFF"]', '["\u2028"]'.encode(), '["\u2029"]'.encode(), b'["\\u0000"]',
    b'["\\uD834\\uDd1e"]', '["€𝄞"]'.encode(), b'["\x7f"]', b'["\\u200B"]', b'["\\u2064"]', b'["\\uFDD0"]',
    b'["\\uFFFE"]', b'["\\u0022"]', b'"asd"', b"42", b"-0.1", b"null", b'""', b"true", b"[true]", b" [] ",
    b'["a"]\t', b"[1]\r",
]  # fmt: skip

NO = [
    b"[1 true]", b"[a\xe5]", b'["": 1]', b'[""],', b"[,1]", b"[1,,2]", b'["x",,]', b'["x"]]', b'["",]',
    b'["x"', b"[x", b"[3[4]]", b"[\xff]", b"[1:2]", b"[,]", b"[-]", b"[   , \"\"]", b"[1,]", b"[1,,]",
    b'["\x0ba"\\f]', b"[*]", b"[fals]", b"[nul]", b"[tru]", b"123\x00", b"[++1234]", b"[+1]", b"[+Inf]",
    b"[-01]", b"[-1.0.]", b"[-2.]", b"[-NaN]", b"[.-1]", b"[.2e-3]", b"[0.1.2]", b"[0.3e+]", b"[0.3e]",
    b"[0.e1]", b"[0E+]", b"[0e]", b"[1.0e+]", b"[1 000.0]", b"[1eE2]", b"[2.e+3]", b"[9.e+]", b"[Inf]",
    b"[NaN]", "[\uff11]".encode(), b"[1+2]", b"[0x1]", b"[0x42]", b"[Infinity]", b"[0e+-1]",
    b"[-123.123foo]", b"[123\xe5]", b"[1e1\xe5]", b"[0\xe5]", b"[-Infinity]", b"[-foo]", b"[- 1]", b"[-012]",
    b"[-.123]", b"[-1x]", b"[1ea]", b"[1e\xe5]", b"[1.]", b"[.123]", b"[1.2a-3]",
    b"[1.8011670033376514H-308]", b"[012]", b'["x", truth]', b'{[: "x"}', b'{"x", null}', b'{"x"::"b"}',
    "{🇨🇭}".encode(), b'{"a":"a" 123}', b"{key: 'value'}", b'{"\xb9":"0",}', b'{"a" b}', b'{:"b"}',
    b'{"a" "b"}', b'{"a":', b'{"a"', b"{1:1}", b"{9999E9999:1}", b"{null:null,null:null}", b'{"id":0,,,,,}',
    b"{'a':0}", b'{"id":0,}', b'{"a":"b"}/**/', b'{"a":"b"}//', b'{"a":"b"}/', b'{"a":"b",,"c":"d"}',
    b'{a: "b"}', b'{"a":"a', b'{ "foo" : "bar", "a" }', b'{"a":"b"}#', b" {", b'["\\uD800\\"]',
    b'["\\uD800\\u"]', b'["\\uD800\\u1"]', b'["\\uD800\\u1x"]', "[é]".encode(), b'["\\\x00"]', b'["\\x00"]',
    b'["\\\\\\"]', b'["\\\t"]', "[\"\\🌀\"]".encode(), b'["\\"]', b'["\\u00A"]', b'["\\uD834\\uDd"]',
    b'["\\uD800\\uD800\\x"]', b'["\\u\xe5"]', b'["\\a"]', b'["\\uqqqq"]', b'["\\\xe5"]', b"[\\u0020\"asd\"]",
    b"[\\n]", b'"', b"['single quote']", b"abc", b'["\\', b'["a\x00a"]', b'["new\x0bline"]', b'["\t"]',
    b'"\\UA66D"', b'""x', "[\u2060]".encode(), b"\xef\xbb\xbf{ \x00", b"<.>", b"[<null>]", b"[1]x", b"[1]]",
    b'["asd]', "aå".encode(), b"[True]", b"1]", b'{"x": true,', b"[][]", b"]", b"\xef\xbb{}", b"\xe5", b"[",
    b"2@", b"{}}", b'{"":', b'{"a":/*comment*/"b"}', b'{"a": true} "x"', b"['", b"[,", b"[{", b'["a',
    b'["a"', b"{", b"{]", b"{,", b"{[", b'{"a', b"{'a'", b'["\\{["\\{["\\{["\\{', b"\xe9", b"*",
    b'{"a":"b"}#{}', b"[\\u000A\"\"]", b"[1", b"[ false, nul", b"[ true, fals", b"[ false, tru",
    b'{"asd":"asd"', "å".encode(), "[\u2060]".encode(), b"[\x0c]", b"[" * 100_000, b'[{"":' * 50_000,
]  # fmt: skip

EITHER = [
    b"[123.456e-789]", b"[0.4e00669999999999999999999999999999999999999999999999999999999999]",
    b"[-1e+9999]", b"[1.5e+9999]", b"[-123123e100000]", b"[123123e100000]", b"[123123e-10000000]",
    b"[" + b"9" * 5000 + b"]", b"[100000000000000000000]", b'{"\\uDFAA":0}', b'["\\uDADA"]',
    b'["\\uD888\\u1234"]', b'["\xe6\x97\xa5\xd1\x88\xfa"]', b'["\xed\xa0\x80"]', b'["\\uD800\\n"]',
    b'["\\uDd1ea"]', b'["\\uD800\\uD800\\n"]', b'["\\ud800"]', b'["\\ud800abc"]', b'["\xff"]',
    b'["\\uDd1e\\uD834"]', b'["\xe9"]', b'["\\uDFAA"]', b'["\x81"]', b'["\xf4\xbf\xbf\xbf"]',
    b'["\xc0\xaf"]', b'["\xfc\x83\xbf\xbf\xbf\xbf"]', b'["\xfc\x80\x80\x80\x80\x80"]', b'["\xe0\xff"]',
    b"[" * 500 + b"]" * 500, b"\xef\xbb\xbf{}", '["é"]'.encode("utf-16"), '["é"]'.encode("utf-16-be"),
    '["é"]'.encode("utf-16-le"),
]  # fmt: skip


def alone(tmp_path: Path, document: bytes) -> set[str]:
    """Why a file of this one line gives no item."""
    path = tmp_path / "one.jsonl"
    path.write_bytes(document + b"\n")
    return {found.reason if isinstance(found, Bad) else type(found).__name__ for found in read(path)}


def test_documents_that_are_json_only_lack_a_text(tmp_path: Path) -> None:
    assert {document for document in YES if alone(tmp_path, document) != {"no_text"}} == set()


def test_documents_that_are_none_are_quarantined_as_such(tmp_path: Path) -> None:
    told = {
        document[:60]: why for document in NO if not (why := alone(tmp_path, document)) or "no_text" in why
    }
    assert told == {}


@pytest.mark.parametrize("documents", [YES, NO, EITHER], ids=["y", "n", "i"])
def test_no_document_takes_its_neighbours_along(tmp_path: Path, documents: list[bytes]) -> None:
    # UTF-16 has line feeds of two bytes: such a file is a file of its own.
    lines = [document for document in documents if b"\0" not in document]
    path = tmp_path / "all.jsonl"
    neighbour = b'{"text": "neighbour", "query": "q"}'
    path.write_bytes(b"\n".join(part for document in lines for part in (neighbour, document)) + b"\n")
    found = list(read(path))
    assert [one.text for one in found if isinstance(one, Item)] == ["neighbour"] * len(lines)
    for document in documents:
        alone(tmp_path, document)
