"""Names that Python has removed, under `staging-tf1 run`."""

from __future__ import annotations

import importlib.util
import json
import pickle
import random
from pathlib import Path

import pytest
from legacy_support import Run, last_json

from staging_tf1.legacy.shim import old_names
from staging_tf1.legacy.shim.origin import Origin
from staging_tf1.legacy.shim.tables import PYTHON

# What a program evaluates -> what Python 3.7 gives.
VALUES = {
    "threading.Thread().isAlive()": "False",
    "time.clock() >= 0": "True",
    "issubclass(dict, collections.Mapping)": "True",
    "fractions.gcd(6, 4)": "2",
    "base64.decodestring(base64.encodestring(b'ab'))": "b'ab'",
    "configparser.SafeConfigParser().sections()": "[]",
    "read(configparser.ConfigParser())": "'1'",
    "array.array('B', [1]).tostring()": "b'\\x01'",
    "filled(array.array('B'))": "[97]",
    "[e.tag for e in root.getchildren()]": "['b']",
    "[e.tag for e in root.getiterator()], root.copy().tag": "(['a', 'b'], 'a')",
    "[e.tag for e in xml.etree.ElementTree.ElementTree(root).getiterator('b')]": "['b']",
    "html.parser.HTMLParser().unescape('&lt;')": "'<'",
    "sorted(random.sample({1, 2, 3}, 3))": "[1, 2, 3]",
    "random.Random(0).sample(frozenset([7]), 1)": "[7]",
    "shuffled(random)": "[2, 3, 1]",
    "shuffled(random.Random(0))": "[2, 3, 1]",
    "json.loads('[1]', encoding='utf-8')": "[1]",
    "open(__file__, 'rU').read(3)": "'imp'",
    "io.open(__file__, mode='U').read(3)": "'imp'",
    "codecs.open(__file__, 'rU', 'utf-8').read(3)": "'imp'",
    "locale.format('%d', 3)": "'3'",
    "inspect.getargspec(shuffled)[0]": "['source']",
    "inspect.formatargspec(['a', 'b'], 'c', None, (1,))": "'(a, b=1, *c)'",
    "tarfile.filemode(0o100644)": "'-rw-r--r--'",
    "plistlib.readPlistFromString(plistlib.writePlistToString({'a': 1}))": "{'a': 1}",
    "platform.popen('echo a').read()": "'a\\n'",
    "unittest.makeSuite(Case).countTestCases()": "2",
    "ran(Case)": "[]",
    "loaded().x": "5",
    "imp.reload(json) is json": "True",
    "imp.new_module('new').__name__": "'new'",
    "imp.load_module('found', *imp.find_module('found', ['.'])).x": "6",
}
PROGRAM = """import array, base64, codecs, collections, configparser, fractions, html.parser, imp, inspect, io, json
import locale, platform, plistlib, random, tarfile, threading, time, unittest, warnings, xml.etree.ElementTree
import tensorflow as tf
warnings.simplefilter("ignore")
root = xml.etree.ElementTree.fromstring("<a><b/></a>")
def shuffled(source):
    x = [1, 2, 3]
    source.shuffle(x, lambda: 0.1)
    return x
def read(parser):
    parser.readfp(io.StringIO("[a]\\nb=1"))
    return parser.get("a", "b")
def filled(numbers):
    numbers.fromstring("a")
    return list(numbers)
class Case(tf.test.TestCase):
    def test_all(self):
        self.assertEquals(1, 1)
        self.assertNotEquals(1, 2)
        self.assertItemsEqual([1, 2], [2, 1])
        self.assertRegexpMatches("a", "a")
        self.assertAlmostEquals(1.0, 1.0)
        self.assertDictContainsSubset({}, {})
        with self.assertRaisesRegexp(ValueError, "x"):
            raise ValueError("x")
def ran(case):
    result = unittest.TestResult()
    unittest.makeSuite(case).run(result)
    return result.errors + result.failures
def loaded():
    with open("loaded.py", "w") as file:
        file.write("x = 5")
    return imp.load_source("loaded", "loaded.py")
with open("found.py", "w") as file:
    file.write("x = 6")
def shown(text):
    try:
        return repr(eval(text))
    except Exception as error:
        return repr(error)
print(json.dumps({text: shown(text) for text in json.load(open("texts.json"))}))
"""


def test_programs_find_what_python_removed(legacy_run: Run, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"import os; os.chdir({str(tmp_path)!r})\n{PROGRAM}")
    (tmp_path / "texts.json").write_text(json.dumps(sorted(VALUES)))
    assert last_json(legacy_run(program)) == VALUES


def test_a_module_that_is_gone_says_where_it_is(legacy_run: Run, tmp_path: Path) -> None:
    gone = [name for name, what in PYTHON.modules.items() if not what.homes and not _is_installed(name)]
    assert {"binhex", "formatter", "symbol"} & set(gone)
    program = tmp_path / "program.py"
    ways = ["import {}", "from {} import x", "__import__('{}', fromlist=['x'])"]
    lines = [
        f"try: {way.format(name)}\nexcept ImportError as error: said.setdefault('{name}', []).append(str(error))"
        for way in ways
        for name in gone
    ]
    program.write_text("import json\nsaid = {}\n" + "\n".join(lines) + "\nprint(json.dumps(said))\n")
    assert last_json(legacy_run(program)) == {
        name: [f"No module named {name!r}: Python has removed its own. {PYTHON.modules[name].advice}"] * len(ways)
        for name in gone
    }


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of tkinter
        return False


def test_a_changed_function_is_pickled_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    origin = Origin()
    origin.admit((), (), old_names=True)
    monkeypatch.setattr(random, "sample", random.sample)
    old_names._offer_attributes("random", {"sample": PYTHON.changed["random"]["sample"]}, origin, True)
    assert pickle.loads(pickle.dumps(random.sample)) is random.sample


def test_every_entry_has_a_home_or_advice() -> None:
    tables = (PYTHON.names, PYTHON.attributes, PYTHON.changed)
    entries = [(owner, *entry) for table in tables for owner, names in table.items() for entry in names.items()]
    assert len(entries) > 80
    for owner, name, home in entries:
        if home.startswith("!"):
            assert home[1].isupper() and home.endswith("."), (owner, name)
        elif _is_installed(home.partition(":")[0].partition(".")[0]):
            assert old_names.value_at(home), (owner, name)
