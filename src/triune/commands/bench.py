"""The verbs of `triune bench`: everything side by side in one run, on the same inputs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from triune.commands.finetuning import SetOption

bench = typer.Typer(
    help="Measure side by side: attention alone, the training step, fine-tuning, inference.", no_args_is_help=True
)


def _folder(out: Path | None) -> Path | None:
    """Said before anything is measured, not after."""
    from triune.errors import TriuneError

    if out is not None and out.exists() and not out.is_dir():
        raise TriuneError(f"--out '{out}' is not a folder: give one that is, or that is still to be made")
    return out


OutOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder for NAME.json with every figure, and for NAME-roofline.svg.",
        callback=_folder,
    ),
]
OnlyOption = Annotated[
    str | None,
    typer.Option(
        help="Contestants to measure: those whose name contains one of these texts, with commas. (default: all)",
        metavar="TEXT[,TEXT…]",
    ),
]


def add_to(app: typer.Typer) -> None:
    app.add_typer(bench, name="bench")


@bench.command()
def attention(
    tokens: Annotated[int | None, typer.Option(help="In one call. (default: 65536; on a CPU 512)")] = None,
    lengths: Annotated[
        str | None,
        typer.Option(help="Of sequences, with commas. (default: 64,128,256,512,1024,4096; on a CPU 32,128)"),
    ] = None,
    heads: Annotated[int | None, typer.Option(help="(default: 12; on a CPU 2)")] = None,
    head_width: Annotated[int, typer.Option(help="Width of a head.")] = 64,
    dtype: Annotated[
        str | None, typer.Option(help="bfloat16, float16 or float32. (default: bfloat16; on a CPU float32)")
    ] = None,
    causal: Annotated[bool, typer.Option("--causal", help="No token sees a later one.")] = False,
    dropout: Annotated[float, typer.Option(help="Of attention weights.")] = 0.0,
    packed: Annotated[
        bool, typer.Option("--packed", help="Texts of different lengths: packed against padded ones.")
    ] = False,
    repeats: Annotated[int, typer.Option(help="Samples of each contestant.", min=1)] = 10,
    out: OutOption = None,
) -> None:
    """Attention alone: PyTorch's on separate queries, keys and values against the kernel on one tensor."""
    from triune.benchmarks.attention import AttentionSettings, bench_attention
    from triune.benchmarks.contestants import numbers_of
    from triune.benchmarks.tables import attention_tables

    large = _on_cuda()
    chosen: tuple[int, ...] = ()
    if lengths is not None:
        chosen = numbers_of(lengths, "--lengths")
    elif not packed:
        chosen = (64, 128, 256, 512, 1024, 4096) if large else (32, 128)
    settings = AttentionSettings(
        tokens=(65536 if large else 512) if tokens is None else tokens,
        lengths=chosen,
        heads=(12 if large else 2) if heads is None else heads,
        head_width=head_width,
        dtype=dtype or ("bfloat16" if large else "float32"),
        causal=causal,
        dropout=dropout,
        packed=packed,
        repeats=repeats,
    )
    _finish(bench_attention(settings), attention_tables, out)


@bench.command()
def step(
    recipe: Annotated[
        str | None,
        typer.Argument(help="A recipe of `triune pretrain`, or a .yaml. (default: sprint; on a CPU pocket)"),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder made by `triune prepare`. (default: random token ids)")
    ] = None,
    operator: Annotated[str, typer.Option(help="Operators of ours, with commas.")] = "standard,shared",
    steps: Annotated[int, typer.Option(help="Steps of each contestant to measure.", min=1)] = 50,
    length: Annotated[int | None, typer.Option(help="Tokens of a sequence. (default: the recipe's)", min=1)] = None,
    tokens: Annotated[int | None, typer.Option(help="Tokens of a step. (default: the recipe's)", min=1)] = None,
    compile_: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="(default: as the recipe says)")
    ] = None,
    library: Annotated[bool, typer.Option("--library/--no-library", help="transformers' own BERT too.")] = True,
    only: OnlyOption = None,
    out: OutOption = None,
) -> None:
    """The whole masked-LM training step: transformers' BERT against our operators, through SDPA and our kernel."""
    from triune.benchmarks import timing
    from triune.benchmarks.contestants import list_of, operator_names
    from triune.benchmarks.step import StepSettings, bench_step
    from triune.benchmarks.tables import step_tables
    from triune.training.recipe import read_recipe

    texts = [] if only is None else list_of(only, "--only")
    name = recipe or ("sprint" if _on_cuda() else "pocket")
    settings = StepSettings(name, tuple(operator_names(operator)), steps, length, tokens, compile_, library)
    with timing.only(texts):
        record = bench_step(settings, read_recipe(name), data)
    record["settings"]["only"] = texts or None
    _finish(record, step_tables, out)


@bench.command()
def finetune(
    tokenizer: Annotated[str, typer.Option(help="Folder or hub name of a tokenizer.")],
    task: Annotated[str, typer.Option(help="Tasks of whole texts, with commas.")] = "cola,mrpc,rte",
    data_dir: Annotated[Path | None, typer.Option(help="As for `triune finetune`.")] = None,
    size: Annotated[str, typer.Option(help="Size of the models: tiny, mini, small, medium, base, large.")] = "base",
    operator: Annotated[str, typer.Option(help="Operators of ours, with commas.")] = "standard,shared",
    rows: Annotated[int | None, typer.Option(help="Of the training split, at most.")] = None,
    rounds: Annotated[int, typer.Option(help="Warm epochs of each, in turn.", min=1)] = 3,
    set_: SetOption = None,
    out: OutOption = None,
) -> None:
    """A warm epoch of fine-tuning against transformers' Trainer with its own BERT."""
    from triune.benchmarks.contestants import list_of, operator_names
    from triune.benchmarks.finetune import bench_finetune
    from triune.benchmarks.tables import finetune_tables
    from triune.training.finetune_recipe import load_finetune_recipe

    chosen = load_finetune_recipe("strong", set_)
    tasks, operators = list_of(task, "--task"), operator_names(operator)
    record = bench_finetune(tasks, data_dir, tokenizer, size, operators, chosen, rows, rounds)
    _finish(record, finetune_tables, out)


@bench.command()
def inference(
    size: Annotated[
        str | None, typer.Option(help="tiny, mini, small, medium, base, large. (default: base; on a CPU tiny)")
    ] = None,
    batches: Annotated[
        str | None, typer.Option(help="Sequences at once, with commas. (default: 1,32; on a CPU 1,4)")
    ] = None,
    lengths: Annotated[
        str | None, typer.Option(help="Tokens of a sequence, with commas. (default: 128,512; on a CPU 32)")
    ] = None,
    operator: Annotated[str, typer.Option(help="The operator of ours beside standard.")] = "shared",
    dtype: Annotated[
        str | None, typer.Option(help="bfloat16, float16 or float32. (default: bfloat16; on a CPU float32)")
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            help="How models are compiled, all alike: default, reduce-overhead (CUDA graphs) or none. "
            "(default: reduce-overhead; on a CPU none)"
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Samples of each contestant.", min=1)] = 20,
    only: OnlyOption = None,
    out: OutOption = None,
) -> None:
    """The encoder's forward pass: transformers' BERT against our standard, and shared folded."""
    from triune.benchmarks import timing
    from triune.benchmarks.contestants import list_of, numbers_of, operator_names
    from triune.benchmarks.inference import InferenceSettings, bench_inference
    from triune.benchmarks.tables import inference_tables
    from triune.errors import TriuneError

    operators = operator_names(operator)
    if len(operators) > 1:
        raise TriuneError(f"--operator takes one here, which is measured beside standard, not {', '.join(operators)}")
    texts = [] if only is None else list_of(only, "--only")
    large = _on_cuda()
    settings = InferenceSettings(
        size=size or ("base" if large else "tiny"),
        batches=numbers_of(batches or ("1,32" if large else "1,4"), "--batches"),
        lengths=numbers_of(lengths or ("128,512" if large else "32"), "--lengths"),
        dtype=dtype or ("bfloat16" if large else "float32"),
        mode=mode or ("reduce-overhead" if large else "none"),
        operator=operators[0],
        repeats=repeats,
    )
    with timing.only(texts):
        record = bench_inference(settings)
    record["settings"]["only"] = texts or None
    _finish(record, inference_tables, out)


def _on_cuda() -> bool:
    """Whether default sizes are those of a large device."""
    import torch

    return torch.cuda.is_available()


def _finish(record: dict[str, Any], tables: Any, out: Path | None) -> None:
    from triune.benchmarks.record import write_results
    from triune.commands.show import show

    show(tables(record))
    if out is not None:
        print(f"written: {' and '.join(str(path) for path in write_results(record, out))}")
