"""Tables of the parameter study."""

from typing import Any

from triune.report.tables import Table


def operators_table(described: list[dict[str, Any]]) -> Table:
    table = Table(
        "Operators",
        [
            "operator",
            "scores",
            "weights",
            "biases",
            "FLOPs a token",
            "decoder cache",
            "symmetric",
            "when folded",
        ],
        text_columns=8,
        notes=[
            "Each a layer. d: width, m: heads, D = d/m, T: tokens; a multiply-add is two FLOPs; the output projection "
            "is the same for all (d² + d) and left out."
        ],
    )
    for operator in described:
        table.rows.append(
            [
                operator["name"],
                operator["scores"],
                operator["weights"],
                operator["biases"],
                operator["flops"],
                f"{operator['decoder_cache']}: {operator['cached']}",
                "yes" if operator["symmetric_scores"] else "no",
                operator["fold_note"],
            ]
        )
    return table


def parameter_tables(study: dict[str, Any]) -> list[Table]:
    tables = [_layer_table(study), *(_model_table(study, head) for head in study["heads"])]
    if study["paper"] and study["paper"]["table_4"]:
        tables.append(_paper_table(study))
    for table in tables:
        table.link(study.get("file"))
    return tables


def _layer_table(study: dict[str, Any]) -> Table:
    model = study["model"]
    table = Table(
        f"Attention (Table 3), {model['layers']} layers of width {model['width']} with {model['heads']} heads",
        ["operator", "a layer", "weights", "biases", "saved ¹", "all layers", "block, all layers", "saved ²"],
        text_columns=2,
        notes=[
            "saved: against standard; ¹ without biases, as the paper counts; ² of the whole attention block (operator, "
            "output projection and its norm). all layers: weights and biases of the operator alone."
        ],
    )
    for name, row in study["operators"].items():
        table.rows.append(
            [
                name,
                f"{row['formula']['weights']}, biases {row['formula']['biases']}",
                f"{row['layer']['weights']:,}",
                f"{row['layer']['biases']:,}",
                _percent(row["saved"]["attention_without_biases"]),
                f"{row['attention']:,}",
                f"{row['attention_block']:,}",
                _percent(row["saved"]["attention_block"]),
            ]
        )
    return table


def _model_table(study: dict[str, Any], head: str) -> Table:
    title = {"none": "encoder without a head"}.get(head, f"{head} head")
    if head in ("classification", "token-classification"):
        title += f", {study['model']['labels']} labels"
    table = Table(
        f"Whole model (Table 4), {title}",
        ["operator", "parameters", "saved", "float32", "bfloat16", "training with Adam"],
        notes=["training with Adam: weights, gradients and two moments in float32, activations not counted."],
    )
    for name, row in study["operators"].items():
        count = row["model"][head]
        table.rows.append(
            [
                name,
                f"{count['parameters']:,}" + (" ¹" if count["printed_in_paper"] else ""),
                _percent(row["saved"]["model"][head]),
                _mebibytes(count["bytes_float32"]),
                _mebibytes(count["bytes_bfloat16"]),
                _mebibytes(count["bytes_training_adam"]),
            ]
        )
    if any(row["model"][head]["printed_in_paper"] for row in study["operators"].values()):
        table.notes.insert(0, "¹ the figure that the paper's Table 4 prints for this operator.")
    return table


def _paper_table(study: dict[str, Any]) -> Table:
    table = Table(
        "Beside the paper's Table 4",
        ["operator", "head of that figure", "printed", "ours", "equal"],
        text_columns=2,
        notes=study["paper"]["notes"],
    )
    for name, row in study["paper"]["table_4"].items():
        table.rows.append(
            [name, row["head"], f"{row['printed']:,}", f"{row['ours']:,}", "yes" if row["equal"] else "NO"]
        )
    return table


def _percent(share: float) -> str:
    return f"{share:.2f} %"


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB"


def settings_table(described: list[dict[str, Any]]) -> Table:
    table = Table("Settings", ["operator", "what it is", "setting", "values (the default first)"], text_columns=4)
    for operator in described:
        settings = operator["settings"] or {"": {"default": "", "values": ""}}
        for number, (name, setting) in enumerate(settings.items()):
            about = [operator["name"], operator["summary"]] if number == 0 else ["", ""]
            table.rows.append([*about, name, _choices(setting)])
    return table


def _choices(setting: dict[str, Any]) -> str:
    default, values = setting["default"], setting["values"]
    if isinstance(values, list):
        return ", ".join(str(value) for value in [default, *(value for value in values if value != default)])
    return f"{default}" + (f" ({values})" if values else "")
