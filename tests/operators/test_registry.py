"""Operators from outside the package, and what happens when a name or a setting is wrong."""

import subprocess
import sys
import textwrap
from dataclasses import dataclass
from typing import Literal

import pytest
import torch

import triune
from triune import TriuneError, operators
from triune.operators.standard import StandardAttention
from triune.testing import check_operator, small_config

PLUGIN = """
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from transformers import initialization as init

from triune.operators import Operator, Roles, register
from triune.operators.formula import Costs, d


@dataclass
class RolledSettings:
    roll: Literal["query", "none"] = "query"


@register("rolled-test")
class RolledAttention(Operator):
    Settings = RolledSettings
    summary = "queries are the projection of the next head"
    scores = "roll(S)·Sᵀ"
    decoder_cache = "S"

    def __init__(self, shape, settings, folded=False):
        super().__init__(shape, settings, folded)
        self.shared = self.projection()
        self.gain = nn.Parameter(torch.empty(shape.width))

    def initialize(self, std):
        init.ones_(self.gain)

    def forward(self, hidden_BTd, rotate):
        shared = self.split_heads(self.shared(hidden_BTd) * self.gain)
        turned = rotate(shared)
        query = turned.roll(1, dims=1) if self.settings.roll == "query" else turned
        return Roles(query, turned, shared, self.shape.default_scale)

    @classmethod
    def costs(cls, settings):
        return Costs(weights=d**2 + d, biases=d, role_flops=2 * d**2 + d, cached=d)
"""


@pytest.fixture
def plugin(tmp_path):
    path = tmp_path / "my_operator.py"
    path.write_text(PLUGIN)
    return path


@pytest.fixture
def rolled(plugin):
    operators.load_plugin(str(plugin))
    yield "rolled-test"
    del operators.registry._OPERATORS["rolled-test"]


def test_outside_operator_passes_every_check(rolled):
    check_operator(rolled)


def test_outside_operator_in_configuration_and_auto_classes(rolled, tmp_path):
    from transformers import AutoModelForMaskedLM

    config = small_config(rolled, operator_settings={"roll": "none"})
    triune.TriuneForMaskedLM(config).save_pretrained(tmp_path / "model")
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path / "model")
    assert loaded.config.operator == rolled
    assert loaded.config.operator_settings == {"roll": "none"}


def test_outside_operator_on_the_command_line(plugin):
    command = [sys.executable, "-m", "triune.cli", "--plugin", str(plugin), "params", "--config", "tiny"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "rolled-test" in shown
    assert "d² + d" in shown


def test_a_wrong_declaration_is_caught(rolled):
    operator = operators.get(rolled)
    operator.costs = classmethod(lambda cls, settings: operators.get("standard").costs(settings))
    with pytest.raises(AssertionError, match="declared"):
        check_operator(rolled)


def test_a_false_symmetry_is_caught(rolled):
    operators.get(rolled).symmetric_scores = True
    with pytest.raises(AssertionError):
        check_operator(rolled)


def test_name_taken_by_another():
    with pytest.raises(TriuneError, match="'shared' is already registered by triune"):

        @operators.register("shared")
        class Mine(operators.Operator):
            pass

    assert operators.get("shared").__name__ == "SharedAttention"


def test_running_a_cell_again_replaces_its_own(plugin, rolled):
    first = operators.get(rolled)
    operators.load_plugin(str(plugin))
    assert operators.get(rolled) is not first


def test_another_file_of_the_same_name_does_not_replace(plugin, rolled, tmp_path):
    first = operators.get(rolled)
    other = tmp_path / "elsewhere" / plugin.name
    other.parent.mkdir()
    other.write_text(PLUGIN.replace("roll(1", "roll(2"))
    with pytest.raises(TriuneError, match=f"already registered by RolledAttention of '{plugin}': choose another name"):
        operators.load_plugin(str(other))
    assert operators.get(rolled) is first
    operators.load_plugin(str(other.parent / ".." / plugin.name))  # the first one, by another path
    assert operators.get(rolled) is not first
    assert operators.registering_module(rolled) == plugin.stem


def test_an_operator_has_the_checksum_of_the_file_that_was_loaded(plugin, rolled):
    first = operators.operator_sources(["shared", rolled, "unknown"])
    assert list(first) == [rolled]
    plugin.write_text(PLUGIN.replace("roll(1", "roll(2"))
    assert operators.operator_sources([rolled]) == first  # what runs is what was loaded
    operators.load_plugin(str(plugin))
    assert operators.operator_sources([rolled]) != first
    plugin.write_text(PLUGIN)
    operators.load_plugin(str(plugin))
    assert operators.operator_sources([rolled]) == first


def test_an_operator_of_ours_leaves_identities_alone():
    assert all(operators.get(name).source_sha256 is None for name in operators.names())
    described = {"recipe": {}}
    assert operators.with_operator_sources(described, operators.names()) == described


def test_a_base_in_another_file_counts(rolled, tmp_path):
    inner = operators.get(rolled)
    derived = type("Derived", (inner,), {"__module__": __name__, "Settings": inner.Settings})
    before = operators.source.source_sha256(derived)
    sys.modules[inner.__module__].__file__ = str(tmp_path / "other.py")
    (tmp_path / "other.py").write_text("# edited")
    assert operators.source.source_sha256(derived) != before


SESSION = """
import sys
text = open(sys.argv[1]).read()
for old, new in [change.split("=>") for change in sys.argv[2:]]:
    assert old in text
    text = text.replace(old, new)
del __file__  # as in a notebook
for _ in range(2):  # a cell that is run again
    exec(compile(text, "<cell>", "exec"), globals())
    from triune import operators
    print(operators.operator_sources(["rolled-test"])["rolled-test"])
register("rolled-test")(RolledAttention)
print(operators.operator_sources(["rolled-test"])["rolled-test"])
"""


def test_an_operator_of_a_notebook_has_the_checksum_of_its_code(plugin, tmp_path):
    (tmp_path / "session.py").write_text(SESSION)

    def checksum(*changes):
        command = [sys.executable, str(tmp_path / "session.py"), str(plugin), *changes]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        assert len(shown) == 3
        assert len(set(shown)) == 1
        return shown[0]

    edited = [
        [],
        ["roll(1=>roll(2"],
        ['"query" else=>"none" else'],
        ['] = "query"=>] = "none"'],
        ["biases=d=>biases=2 * d"],
    ]
    assert len({checksum(*changes) for changes in edited}) == len(edited)
    assert checksum() == checksum("import torch=>import torch  # not what runs")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import no_such_module", "ModuleNotFoundError"),
        ("def broken(:", "SyntaxError"),
        (textwrap.dedent('from triune import register\n@register("shared")\nclass X: pass'), "already registered"),
    ],
)
def test_broken_plugin_is_one_line(tmp_path, text, says):
    path = tmp_path / "broken.py"
    path.write_text(text)
    with pytest.raises(TriuneError, match=says) as caught:
        operators.load_plugin(str(path))
    assert "\n" not in str(caught.value)


BASE = """
from dataclasses import dataclass, field
from typing import Literal
from triune.operators import Operator, Roles, register
from triune.operators.formula import Costs, d

class Base(Operator):
    summary, scores, decoder_cache = "a", "b", "c"
    def forward(self, hidden_BTd, rotate): ...
    @classmethod
    def costs(cls, settings): return Costs(d**3 - d, 0, d, 0)
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('@register("x-test")\nclass X: pass', "must be a subclass of triune.Operator"),
        ('@register("x-test")\nclass X(Operator): pass', "must say its summary"),
        ('@register("x-test")\nclass X(Operator): summary = scores = decoder_cache = "a"', "must implement forward"),
        ('@register("x-test")\nclass X(Base): is_one_tensor = True', "must implement one_tensor"),
        ('@register("x-test")\nclass X(Base): Settings = dict', "must be a dataclass"),
        ('@dataclass\nclass S: size: int\n@register("x-test")\nclass X(Base): Settings = S', "'size' needs a default"),
        ('@register("x-test")\n@register("y-test")\nclass X(Base): pass', "registered as 'y-test' already"),
    ],
)
def test_incomplete_operators_are_refused_when_they_register(text, says, tmp_path):
    path = tmp_path / "incomplete.py"
    path.write_text(BASE + text)
    try:
        with pytest.raises(TriuneError, match=says):
            operators.load_plugin(str(path))
        assert "x-test" not in operators.names()
    finally:
        operators.registry._OPERATORS.pop("y-test", None)


def test_unusual_settings_and_formulas_can_be_described(tmp_path):
    from triune.operators.describe import describe
    from triune.operators.formula import evaluate
    from triune.report.parameters import operators_table, settings_table

    path = tmp_path / "unusual.py"
    settings = "rank: Literal[1, 2, 4] = 2\n    sizes: list = field(default_factory=list)"
    path.write_text(f'{BASE}@dataclass\nclass S:\n    {settings}\n@register("x-test")\nclass X(Base): Settings = S')
    try:
        operators.load_plugin(str(path))
        described = describe("x-test")
        assert (described["weights"], described["biases"], described["cached"]) == ("d³ - d", "0", "0")
        assert described["settings"]["sizes"]["default"] == []
        assert operators_table([described]).to_markdown()
        assert "2, 1, 4" in settings_table([described]).to_markdown()
        assert evaluate(operators.get("x-test").costs(None).biases, operators.AttentionShape(4, 2)) == 0
    finally:
        operators.registry._OPERATORS.pop("x-test", None)


def test_registering_often_does_not_pile_up(plugin, rolled):
    for _ in range(3):
        operators.load_plugin(str(plugin))
    wrapped = operators.NoSettings.__init__
    operators.register("standard")(operators.get("standard"))
    assert operators.NoSettings.__init__ is wrapped


def test_missing_plugin():
    with pytest.raises(TriuneError, match="does not exist"):
        operators.load_plugin("nowhere/at_all.py")


def test_unknown_operator_lists_those_there_are():
    with pytest.raises(TriuneError) as caught:
        small_config("sharde")
    message = str(caught.value)
    assert "did you mean 'shared'?" in message
    assert all(name in message for name in operators.names())


@pytest.mark.parametrize(
    ("operator", "settings", "says"),
    [
        ("standard", {"role_start": "ones"}, "'standard' has no setting 'role_start': there are none"),
        ("shared", {"role_strat": "ones"}, "did you mean 'role_start'"),
        ("shared", {"role_start": "zeros"}, "role_start"),
        ("shared", {"role_spread": "wide"}, "role_spread"),
        ("shared", {"role_vectors": "none", "role_start": "signed"}, "no vector to sign"),
        ("shared", {"role_spread": 0.3}, "applies to role_start='normal' only"),
        ("pairwise", {"role_vectors": "none"}, "there are pair_start"),
    ],
)
def test_settings_that_do_not_apply(operator, settings, says):
    with pytest.raises(TriuneError, match=says) as caught:
        small_config(operator, operator_settings=settings)
    assert "\n" not in str(caught.value)
    assert operator in str(caught.value)


def test_settings_are_written_out():
    config = small_config("shared", operator_settings={"role_start": "signed"})
    chosen = {"role_vectors": "separate", "role_start": "signed", "role_spread": 0.1, "score_sign": "free"}
    assert config.operator_settings == chosen
    assert torch.equal(
        triune.TriuneModel(config).encoder.layer[0].attention.self.query_scale.abs(), torch.ones(config.hidden_size)
    )


def test_operators_that_came_later_leave_the_reproduced_study_alone(rolled, tmp_path):
    """Its record names the paper's operators, the controls and those of a plugin: older records stay current."""
    from triune.benchmarks.parameters import parameter_cell

    cell = parameter_cell(tmp_path / "parameters.json")
    paper_and_controls = ["standard", "symmetric", "pairwise", "shared", "kv-tied", "qkv-tied"]
    assert list(cell.run(**cell.arguments)["operators"]) == [*paper_and_controls, rolled]
    operators.get(rolled).in_reproduction = False
    assert parameter_cell(tmp_path / "other.json").identity != cell.identity
    del operators.get(rolled).in_reproduction
    assert parameter_cell(tmp_path / "other.json").identity == cell.identity


def test_a_start_of_a_plugin_is_its_own(tmp_path):
    """Whatever it is called and can be: for counting, starts at one are asked of Triune's role vectors alone."""
    from triune.benchmarks.parameters import parameter_cell

    @dataclass
    class Settings:
        role_start: Literal["here", "there"] = "here"

    try:
        operators.register("mine")(type("Mine", (StandardAttention,), {"Settings": Settings}))
        cell = parameter_cell(tmp_path / "parameters.json")
        assert "mine" in cell.run(**cell.arguments)["operators"]
    finally:
        operators.registry._OPERATORS.pop("mine", None)
