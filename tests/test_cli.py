"""The command as a user meets it."""

import errno
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from triune import cli
from triune.testing import small_model


@pytest.fixture
def triune(capsys, monkeypatch):
    """Runs the command in this process: its exit status and what it printed."""
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["triune", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main()
        printed = capsys.readouterr()
        return SimpleNamespace(returncode=stop.value.code, stdout=printed.out, stderr=printed.err)

    return run


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_help_imports_nothing_heavy():
    loaded = python(
        "import sys\nfrom triune.cli import main\nsys.argv = ['triune', '--help']\n"
        "try: main()\nexcept SystemExit as stop: assert stop.code == 0\n"
        "print(sorted({'torch', 'transformers', 'sympy', 'numpy'} & set(sys.modules)))"
    )
    assert loaded.endswith("[]")


def test_the_installed_command():
    """Once as a real process: the entry point, its status and standard error."""
    command = Path(sys.executable).with_name("triune")
    if not command.exists():
        pytest.skip("triune is not installed as a command here")
    result = subprocess.run([command, "params", "--config", "huge"], capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("triune: error: configuration 'huge'")
    assert result.stderr.count("\n") == 1


def test_a_gpu_without_memory_is_one_line(triune, monkeypatch):
    def run_out(*ignored, **also):
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 9 GiB")

    monkeypatch.setattr("triune.operators.describe.describe_all", run_out)
    result = triune("operators")
    assert result.returncode == 2
    assert result.stderr.startswith("triune: error: the GPU has no memory left: free some, take fewer --workers")
    assert result.stderr.endswith("CUDA out of memory. Tried to allocate 9 GiB\n")
    assert result.stderr.count("\n") == 1


def test_import_is_light():
    """`import triune` brings in neither torch nor any of transformers' models."""
    assert python("import sys, triune; print('torch' in sys.modules, 'transformers' in sys.modules)") == "False False"
    assert python("import sys, torch, transformers, triune; print('transformers.models' in sys.modules)") == "False"


@pytest.mark.parametrize(
    "imports",
    [
        "import triune; from transformers import AutoConfig, AutoModel",
        "import triune; from transformers import AutoModel, AutoConfig",
        "import triune; import transformers.models.auto.modeling_auto; from transformers import AutoModel, AutoConfig",
        "import triune; from transformers import AutoModelForMaskedLM, pipeline, AutoModel, AutoConfig",
        "from triune import TriuneConfig; from transformers import AutoModel, AutoConfig",
        "import triune, importlib.util as u; u.find_spec('transformers.models.auto.configuration_auto'); "
        "from transformers import AutoModel, AutoConfig",
        "from transformers import AutoConfig, AutoModel; import triune",
        "from triune import TriuneForMaskedLM; from transformers import AutoConfig, AutoModel",
        "import triune; from transformers import Trainer, AutoConfig, AutoModel",
        "from transformers import BertModel; import triune; from transformers import AutoConfig, AutoModel",
    ],
)
def test_registration_in_any_order_of_imports(imports):
    made = "AutoModel.from_config(AutoConfig.for_model('triune', num_hidden_layers=1, vocab_size=9))"
    assert python(f"{imports}; print(type({made}).__name__)") == "TriuneModel"


def test_unknown_attribute():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        import_module("triune").nothing  # noqa: B018


def test_every_exported_name_resolves():
    import triune as package

    for name in package.__all__:
        assert getattr(package, name) is not None


def test_version(triune):
    from triune import __version__

    assert triune("--version").stdout == f"triune {__version__}\n"


def test_params_of_the_base_model(triune):
    result = triune("params", "--json")
    study = json.loads(result.stdout)
    expected = {
        "masked-lm": {
            "standard": 109_514_298,
            "symmetric": 102_427_194,
            "pairwise": 103_017_018,
            "shared": 95_367_738,
        },
        "classification": {
            "standard": 109_483_778,
            "symmetric": 102_396_674,
            "pairwise": 102_986_498,
            "shared": 95_337_218,
        },
    }
    marked = set()
    for head, counts in expected.items():
        for operator, count in counts.items():
            ours = study["operators"][operator]["model"][head]
            assert ours["parameters"] == count
            assert ours["bytes_float32"] == 4 * count
            assert ours["bytes_bfloat16"] == 2 * count
            assert ours["bytes_training_adam"] == 16 * count
            if ours["printed_in_paper"]:
                marked.add((operator, head))
    assert marked == {
        ("standard", "masked-lm"),
        ("symmetric", "masked-lm"),
        ("pairwise", "masked-lm"),
        ("shared", "classification"),
    }
    saved = study["operators"]["shared"]["saved"]
    assert round(saved["attention_without_biases"], 3) == 66.536
    assert round(saved["model"]["masked-lm"], 2) == 12.92
    assert len(study["paper"]["notes"]) == 2


@pytest.mark.parametrize(
    "change", [{"folded": True}, {"operator_settings": {"role_vectors": "none"}}, {"tie_word_embeddings": False}]
)
def test_params_of_other_models_than_the_papers(triune, change, tmp_path):
    """Folded, ablated or untied, a base model is not the paper's: no mark, no note, and counts of what was asked."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "triune", "operator": "shared", **change}))
    study = json.loads(triune("params", "--config", tmp_path, "--json").stdout)
    if change == {"folded": True}:  # counted as it is trained, which is the paper's model
        assert study["operators"]["shared"]["model"]["masked-lm"]["parameters"] == 95_367_738
    else:
        assert study["paper"] is None
        assert not study["operators"]["standard"]["model"]["masked-lm"]["printed_in_paper"]


def test_params_of_the_papers_model_whatever_its_start(triune, tmp_path):
    described = {"model_type": "triune", "operator": "shared", "operator_settings": {"role_start": "signed"}}
    (tmp_path / "config.json").write_text(json.dumps(described))
    study = json.loads(triune("params", "--config", tmp_path, "--json").stdout)
    assert study["paper"]["table_4"]["shared"]["equal"]


def test_bare_command_is_help(triune):
    result = triune()
    assert "Usage" in result.stdout + result.stderr
    assert "error" not in result.stderr


def test_ascii_terminal():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "triune.cli", "operators"]
    assert subprocess.run(command, capture_output=True, env=environment).returncode == 0


def test_params_as_tables(triune):
    shown = triune("params", "--config", "bert-large", "--head", "question-answering", "--operator", "shared").stdout
    assert "question-answering head" in shown
    assert "24 layers of width 1024 with 16 heads" in shown
    assert "paper" not in shown.replace("as the paper counts", "")  # its figures are of the base model


def test_params_of_a_configuration_file(triune, tmp_path):
    config = {"hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 64}
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "bert", "vocab_size": 100}))
    for where in (tmp_path, tmp_path / "config.json"):
        study = json.loads(triune("params", "--config", where, "--json").stdout)
        assert study["model"]["width"] == 64
        assert study["operators"]["standard"]["attention"] == 3 * 64**2 + 3 * 64
        assert study["paper"] is None


def test_operators(triune):
    described = {row["name"]: row for row in json.loads(triune("operators", "--json").stdout)}
    assert described["shared"]["cached"] == "d"
    assert described["shared"]["settings"]["role_start"]["values"] == [
        "ones",
        "normal",
        "signed",
        "signed-pairs",
        "product",
        "halves",
    ]
    shown = triune("operators").stdout
    for row in described.values():
        assert row["scores"] in shown


def test_fold_of_a_saved_model(triune, tmp_path):
    import torch

    from triune import TriuneForMaskedLM

    model = small_model("shared")
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "vocab.txt").write_text("[PAD]\n")
    result = triune("fold", tmp_path / "model", tmp_path / "folded")
    assert "15,203 -> 15,075" in result.stdout
    folded = TriuneForMaskedLM.from_pretrained(tmp_path / "folded")
    assert folded.config.folded
    assert (tmp_path / "folded" / "vocab.txt").is_file()
    ids = torch.arange(5, 15)[None]
    torch.testing.assert_close(folded(ids).logits, model(ids).logits, rtol=1e-5, atol=1e-5)


def test_fold_takes_the_name_of_a_model_that_comes_with_triune(triune, tmp_path, monkeypatch):
    small_model("shared").save_pretrained(tmp_path / "models" / "smallest")
    monkeypatch.setenv("TRIUNE_MODELS", str(tmp_path / "models"))
    result = triune("fold", "smallest", tmp_path / "folded")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "folded" / "config.json").is_file()
    assert "width 32 with 4 heads" in triune("params", "--config", "smallest").stdout


def test_fold_takes_the_folder_of_a_run(triune, tmp_path):
    small_model("shared").save_pretrained(tmp_path / "run" / "model")
    assert triune("fold", tmp_path / "run", tmp_path / "folded").returncode == 0
    assert (tmp_path / "folded" / "config.json").is_file()
    result = triune("fold", tmp_path, tmp_path / "other")
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "neither config.json nor model/config.json" in result.stderr


def test_a_folder_that_python_takes_for_a_module_is_no_plugin(triune, tmp_path, monkeypatch):
    (tmp_path / "my_operators").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    result = triune("--plugin", "my_operators", "operators")
    assert result.returncode == 2
    assert "'my_operators' is a folder: give the Python file in it" in result.stderr
    (tmp_path / "elsewhere" / "others").mkdir(parents=True)  # not where Python looks for modules
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert "'others' is a folder: give the Python file in it" in triune("--plugin", "others", "operators").stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["params", "--config", "bse"], "'bse' is neither a size"),
        (["params", "--head", "nose"], "unknown head 'nose'"),
        (["params", "--operator", "sharde"], "did you mean 'shared'?"),
        (["params", "--no-such-option"], "--no-such-option"),
        (["params", "--plugin", "mine.py"], "--plugin goes before the command, as in: triune --plugin FILE"),
        (["nothing"], "nothing"),
        (["params", "--config", "{tmp}/list.json"], "must hold a JSON object"),
        (["params", "--config", "{tmp}/broken.json"], "not valid JSON"),
        (["params", "--config", "{tmp}/binary.json"], "not valid JSON"),
        (["params", "--config", "{tmp}/typed.json"], "hidden_size"),
        (["params", "--config", "{tmp}/odd.json"], "not divisible"),
        (["params", "--config", "{tmp}/gpt2.json"], "model type 'gpt2'"),
        (["params", "--config", "{tmp}/unread.json"], "/unread.json': a value cannot be read"),
        (["params", "--config", "{tmp}/slip.json"], "did you mean 'hidden_size'?"),
        (["params", "--config", ""], "neither a size"),
        (["pocket", "--out", ""], "--out is empty: name a folder"),
        (["finetune", "{tmp}/listed", "--task", "cola", "--out", "{tmp}/out", "--data-dir="], "--data-dir is empty"),
        (["report", ""], "an argument is empty: name a file or folder"),
        (["records", "{tmp}/empty", ""], "an argument is empty: name a file or folder"),
        (["--plugin", "{tmp}/odd.json", "operators"], "must end in .py"),
        (["fold", "{tmp}/damaged", "{tmp}/out"], "configuration '{tmp}/damaged/config.json': it is not valid JSON"),
        (["fold", "{tmp}/listed", "{tmp}/out"], "configuration '{tmp}/listed/config.json': it must hold a JSON object"),
        (["fold", "{tmp}/slipped", "{tmp}/out"], "configuration '{tmp}/slipped/config.json': unknown"),
        (["fold", "{tmp}/strange", "{tmp}/out"], "unknown architecture 'BertForMaskedLM'"),
        (["params", "--config", "{tmp}/empty"], "config.json"),
        (["--plugin", "nowhere.py", "operators"], "'nowhere.py' does not exist"),
        (["--plugin", "no_such_module", "operators"], "No module named 'no_such_module'"),
        (["--plugin", "{tmp}/empty", "operators"], "is a folder: give the Python file in it"),
        (["fold", "{tmp}/nowhere", "{tmp}/out"], "there is no model folder"),
        (["fold", "{tmp}/bert", "{tmp}"], "exists already"),
        (["fold", "{tmp}/bert", "{tmp}/out"], "type 'bert'"),
        (["reproduce", "--out", "{tmp}/broken.json"], "is not a folder"),
    ],
)
def test_mistakes_are_one_line_and_status_2(triune, arguments, says, tmp_path):
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "typed.json").write_text('{"hidden_size": "wide"}')
    (tmp_path / "unread.json").write_text('{"id2label": 3}')
    (tmp_path / "odd.json").write_text('{"hidden_size": 30, "num_attention_heads": 4}')
    (tmp_path / "gpt2.json").write_text('{"model_type": "gpt2", "n_embd": 64}')
    (tmp_path / "slip.json").write_text('{"hiden_size": 64}')
    (tmp_path / "empty").mkdir()
    for name, text in {
        "damaged": "{",
        "listed": "[]",
        "slipped": '{"model_type": "triune", "hiden_size": 64}',
        "strange": '{"model_type": "triune", "architectures": ["BertForMaskedLM"]}',
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "config.json").write_text('{"model_type": "bert"}')
    result = triune(*(argument.format(tmp=tmp_path) for argument in arguments))
    assert result.returncode == 2, result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("triune: error: ")
    assert says.format(tmp=tmp_path) in lines[0]


def test_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    from triune import TriuneError
    from triune.files import write_text

    target = tmp_path / "record.json"
    write_text(target, "old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TriuneError, match="No space left on device; nothing was changed"):
        write_text(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("inside", ["x", "x/y"])
def test_a_file_in_place_of_a_folder_is_named(tmp_path, inside):
    from triune import TriuneError
    from triune.data.folders import replaced_folder
    from triune.files import alone_at, write_text

    taken = tmp_path / "readme.py"
    taken.write_text("precious")
    with pytest.raises(TriuneError, match=f"'{taken}' is a file, not a folder"):
        write_text(taken / inside, "new")
    with pytest.raises(TriuneError, match=f"'{taken}' is a file, not a folder"), alone_at(taken / inside):
        pass
    with pytest.raises(TriuneError, match=f"'{taken}' is a file, not a folder"), replaced_folder(taken / inside):
        pass
    assert taken.read_text() == "precious"


def test_what_is_no_file_is_written_into_and_stays(tmp_path):
    """As root, a rename would have put a file in the place of /dev/null."""
    from triune.files import write_text

    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)  # as /dev/stdout is one
    for target in (pipe, link):
        with ThreadPoolExecutor() as beside:
            read = beside.submit(pipe.read_text)
            write_text(target, "text" * 50_000)  # more than a pipe holds
            assert read.result(10) == "text" * 50_000
    assert pipe.is_fifo()
    assert link.is_symlink()


def test_a_reader_who_has_gone_is_no_mistake(tmp_path):
    from triune.files import text_in_place

    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor() as beside:
        reader = beside.submit(lambda: (tmp_path / "pipe").open("rb").close())
        with text_in_place(tmp_path / "pipe") as write:
            reader.result(10)
            with pytest.raises(BrokenPipeError):
                write("text")


def test_a_folder_that_may_not_be_entered_is_one_line(tmp_path, monkeypatch):
    from triune import TriuneError
    from triune.files import write_text

    def may_not(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", may_not)
        patch.setattr("triune.files.tempfile.mkstemp", may_not)
        with pytest.raises(TriuneError, match=r"cannot write '.*record.json': Permission denied"):
            write_text(tmp_path / "record.json", "text")


def test_a_link_to_itself_is_written_over(tmp_path):
    from triune.files import write_text

    (tmp_path / "loop").symlink_to("loop")
    write_text(tmp_path / "loop", "text")
    assert (tmp_path / "loop").read_text() == "text"


def test_a_link_stays_one(tmp_path):
    from triune.files import write_text

    there, new = tmp_path / "folder" / "there", tmp_path / "folder" / "new"
    there.parent.mkdir()
    there.write_text("old")
    for target in (there, new):
        (tmp_path / "link").symlink_to(target)
        write_text(tmp_path / "link", "text")
        assert (tmp_path / "link").is_symlink()
        assert target.read_text() == "text"
        (tmp_path / "link").unlink()
    assert sorted(there.parent.iterdir()) == [new, there]


def test_too_little_memory_is_one_line(triune, monkeypatch):
    def full():
        raise MemoryError("Unable to allocate 182. TiB")

    monkeypatch.setattr("triune.operators.describe.describe_all", full)
    result = triune("operators")
    assert result.returncode == 2
    said = "triune: error: the machine has not the memory for that: ask for less at once (Unable to allocate 182. TiB)"
    assert result.stderr.splitlines() == [said]


def test_readable_by_others(tmp_path):
    from triune.files import write_text

    write_text(tmp_path / "a.txt", "text")
    Path(tmp_path / "b.txt").write_text("text")
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "b.txt").stat().st_mode


@pytest.mark.parametrize(("arguments", "status"), [(["tasks"], 0), (["tasks", "nonsense"], 2)])
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_nobody_need_listen(arguments, status, closed):
    line = f'"$0" -m triune.cli {" ".join(arguments)} {closed}'
    result = subprocess.run(["sh", "-c", line, sys.executable], stderr=subprocess.PIPE, text=True)
    assert result.returncode == status
    assert "Traceback" not in result.stderr
