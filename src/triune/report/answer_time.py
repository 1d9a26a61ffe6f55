"""What the records of training time say, with how far they can be trusted."""

from triune.evaluation.comparing import REFERENCE, one_matrix_among
from triune.report.gather import Gathered
from triune.report.statement import Statement, percent_range, statement


def time_statement(found: Gathered) -> Statement:
    saved: dict[str, list[tuple[float, float]]] = {}  # by operator: percent of time and of arithmetic, a task each
    rounds: set[int] = set()
    for record in found["time"]:
        operators = {one["model"]: one["operator"] for one in record["contestants"]}
        if operators.get(record["reference"]) != REFERENCE:
            continue
        rounds.update(len(one["seconds"]) for one in record["contestants"])
        for one in record["contestants"]:
            if one["model"] != record["reference"]:
                pair = 100 * (1 - one["ratio"]), 100 * (1 - one["flop_ratio"])
                saved.setdefault(one["operator"], []).append(pair)
    if (shared := one_matrix_among(saved)) is None:
        models = [one["model"] for record in found["time"] for one in record["contestants"]]
        command = "triune time --task cola,mnli,mrpc,qnli,rte,qqp --out OUT"
        return statement("Training time", [], "figure-3", command, models=models)
    ours = saved.pop(shared)
    time, arithmetic = ([pair[which] for pair in ours] for which in (0, 1))
    epochs = " or ".join(map(str, sorted(rounds)))
    text = (
        f"An epoch with {shared} attention is {percent_range(time)} shorter than with standard (medians of {epochs} "
        f"epoch{'' if epochs == '1' else 's'}, {len(ours)} task{'' if len(ours) == 1 else 's'}"
        f"{'; below 0 is longer' if min(time) < 0 else ''}); its arithmetic is {percent_range(arithmetic)} less."
    )
    if beyond := sum(one > bound for one, bound in ours):
        text += f" On {beyond} the saving is more than arithmetic gives: the excess is overhead or noise."
    excess = {name: pairs for name, pairs in saved.items() if any(one > bound for one, bound in pairs)}
    if excess:
        said = (
            f"{name} {percent_range([one for one, _ in pairs])} (arithmetic {percent_range([one for _, one in pairs])})"
            for name, pairs in excess.items()
        )
        text += f" Read it with care: others save more than arithmetic gives, {', '.join(said)}."
    return Statement("Training time", text, "figure-3", "fact")
