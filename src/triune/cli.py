"""The `triune` command. Heavy imports live inside the verbs, so that help answers at once."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from triune.errors import TriuneError, one_line
from triune.version import __version__

app = typer.Typer(
    name="triune",
    help="One weight matrix, three roles: transformers whose queries, keys and values come from one shared projection.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"triune {__version__}")
        raise typer.Exit


@app.callback()
def root(
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            help="Python file or module that registers operators of your own; may be given several times.",
            metavar="FILE|MODULE",
            envvar="TRIUNE_PLUGIN",
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if plugin:
        from triune.operators import load_plugin

        for where in plugin:
            load_plugin(where)


@app.command("operators")
def list_operators(as_json: JsonOption = False) -> None:
    """List the attention operators there are: scores, formulas, decoder cache, what folding does, settings."""
    from triune.operators.describe import describe_all

    described = describe_all()
    if as_json:
        print(json.dumps(described, indent=2, ensure_ascii=False))
        return
    from triune.report.parameters import operators_table, settings_table

    _show([operators_table(described), settings_table(described)])


@app.command()
def params(
    config: Annotated[
        str,
        typer.Option(
            help="tiny, mini, small, medium, base or large (also as bert-base, …), or the path of a configuration "
            "in JSON or of a folder that holds config.json.",
            metavar="SIZE|PATH",
        ),
    ] = "base",
    head: Annotated[
        list[str] | None,
        typer.Option(
            help="masked-lm, classification, question-answering, token-classification, multiple-choice or none; may be "
            "given several times. [default: masked-lm and classification]",
            show_default=False,
        ),
    ] = None,
    operator: Annotated[
        list[str] | None,
        typer.Option(help="Operators to count; may be given several times. [default: all]", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Count parameters and bytes of every operator, on real modules, beside the paper's Tables 3 and 4."""
    from triune.benchmarks.paper import TABLE_4_HEADS
    from triune.benchmarks.parameters import study
    from triune.models.presets import config_from

    result = study(config_from(config), head or TABLE_4_HEADS, operator)
    if as_json:
        print(json.dumps(result, indent=2, ensure_ascii=False))
        return
    from triune.report.parameters import parameter_tables

    _show(parameter_tables(result))


@app.command()
def fold(
    model: Annotated[Path, typer.Argument(help="Folder of a saved Triune model.")],
    out: Annotated[Path, typer.Argument(help="Folder to write the folded model to; must not exist.")],
) -> None:
    """Merge a model's role vectors for inference and save the result."""
    from triune.models.folding import fold_folder

    fold_folder(model, out)


@app.command()
def reproduce(
    out: Annotated[Path, typer.Option(help="Folder for records and tables.")] = Path("results"),
) -> None:
    """Run the studies of the paper that there are so far: the parameter study (Tables 3 and 4)."""
    from triune.benchmarks.paper import TABLE_4_HEADS
    from triune.benchmarks.parameters import study
    from triune.files import write_text
    from triune.models.presets import preset
    from triune.report.parameters import parameter_tables

    result = study(preset("base"), TABLE_4_HEADS)
    tables = parameter_tables(result)
    _show(tables)
    record, page = out / "parameters.json", out / "parameters.md"
    write_text(record, json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    write_text(page, "# Parameter study\n\n" + "\n".join(table.to_markdown() for table in tables))
    print(f"written: {record} and {page}")


def _show(tables: list[Any]) -> None:
    from rich.console import Console

    # A pipe has no width of its own: give tables room there rather than fold them at 80 columns.
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    for table in tables:
        table.print_to(console)


def main() -> None:
    """Entry point: a user's mistake is one line on standard error and exit status 2."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # formulas need more than ASCII, whatever the locale says
            stream.reconfigure(encoding="utf-8", errors="replace")
    try:
        status = app(standalone_mode=False)
    except TriuneError as error:
        _fail(one_line(error))
    except typer.Abort:
        _fail("aborted")
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone (triune … | head): nothing to say, and no traceback at exit
        sys.exit(1)
    except Exception as error:
        # A mistake on the command line itself; typer brings its own exception classes or click's.
        if not hasattr(error, "format_message"):
            raise
        if message := " ".join(error.format_message().split()):  # empty where help has been printed already
            context = getattr(error, "ctx", None)
            _fail(f"{message} (see '{context.command_path if context else 'triune'} --help')")
        sys.exit(2)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(message: str) -> None:
    print(f"triune: error: {message}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
