"""Checks that hold for every operator, run by registration alone.

Our own tests run `ONCE` and `PER_FORM` over all registered operators. In those of an operator of your own:

    triune.testing.check_operator("mine")
"""

import itertools
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from triune import operators
from triune.kernels.one_tensor.reference import one_tensor_reference
from triune.kernels.reference import reference_attention
from triune.kernels.rotary import rotary_tables, rotate
from triune.models.configuration import TriuneConfig
from triune.models.heads import TriuneForMaskedLM
from triune.operators import AttentionShape, Operator, Roles
from triune.operators.describe import describe
from triune.operators.formula import evaluate

# Every check is made on both: BERT's own form, and the form with both settings beyond BERT.
FORMS: dict[str, dict[str, str]] = {
    "post-absolute": {"norm_position": "post", "position": "absolute"},
    "pre-rotary": {"norm_position": "pre", "position": "rotary"},
}


def small_config(operator: str, **overrides: Any) -> TriuneConfig:
    """Small enough for any test, with no dropout so that runs can be compared."""
    small = {
        "vocab_size": 67,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "max_position_embeddings": 24,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    return TriuneConfig(operator=operator, **{**small, **overrides})


def small_model(operator: str, **overrides: Any) -> TriuneForMaskedLM:
    """A masked-LM model moved off its starting point: role vectors at one or zero would hide mistakes with them."""
    torch.manual_seed(1)
    model = TriuneForMaskedLM(small_config(operator, **overrides)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def small_batch(rows: int = 3, tokens: int = 11) -> dict[str, torch.Tensor]:
    """Rows of different length, each shorter than the one before, with labels on some of their tokens."""
    generator = torch.Generator().manual_seed(2)
    input_ids = torch.randint(5, 67, (rows, tokens), generator=generator)
    attention_mask = torch.ones_like(input_ids)
    for row in range(1, rows):
        attention_mask[row, max(1, tokens - 3 * row) :] = 0
    labelled = (torch.rand(input_ids.shape, generator=generator) < 0.4) & attention_mask.bool()
    labels = torch.where(labelled, input_ids, -100)
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def attend(roles: Roles, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Reference attention over roles, (B, T, N, D), with the factor on the output applied."""
    output, _ = reference_attention(
        torch.nn.Identity().eval(), roles.query_BNTD, roles.key_BNTD, roles.value_BNTD, mask, roles.scale
    )
    return output if roles.output_scale_ND is None else output * roles.output_scale_ND


def _tiny_operator(operator: str, settings: dict[str, Any] | None = None) -> Operator:
    torch.manual_seed(3)
    built = operators.build(operator, AttentionShape(width=8, heads=2), settings).double()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return built


def check_gradients(operator: str) -> None:
    """Analytic gradients of input and parameters against finite differences, in float64."""
    built = _tiny_operator(operator)
    names = [name for name, _ in built.named_parameters()]
    hidden = torch.randn(2, 3, 8, dtype=torch.float64, requires_grad=True)
    values = [parameter.detach().clone().requires_grad_() for parameter in built.parameters()]

    cos, sin = rotary_tables(torch.arange(3)[None], built.shape.head_width, 100.0)
    mask = torch.tensor([[True, True, True], [True, True, False]])[:, None, None, :]

    def run(hidden: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        given = dict(zip(names, parameters, strict=True))
        turn = partial(rotate, cos=cos.double(), sin=sin.double())
        return attend(torch.func.functional_call(built, given, (hidden, turn)), mask)

    assert torch.autograd.gradcheck(run, (hidden, *values))


def check_one_tensor_equals_roles(operator: str) -> None:
    """Where an operator says that it is one tensor: the attention of its roles and its gradients, in all settings."""
    if not operators.get(operator).is_one_tensor:
        return
    hidden = torch.randn(2, 3, 8, dtype=torch.float64)
    cos, sin = (table.double() for table in rotary_tables(torch.arange(3).expand(2, 3), 4, 100.0))
    turns = [(_unchanged, None), (partial(rotate, cos=cos, sin=sin), (cos.flatten(0, 2), sin.flatten(0, 2)))]
    for given, folded, (turn, rotary) in itertools.product(setting_choices(operator), (False, True), turns):
        built = _tiny_operator(operator, given)
        if folded:
            built.fold(torch.nn.Linear(8, 8).double())
        one = built.one_tensor(hidden)
        shared_MND = one.shared_BTND.flatten(0, 1)
        assert shared_MND.data_ptr() == one.shared_BTND.data_ptr(), "one_tensor must give a view"
        scales = (one.score_scale_ND, one.value_scale_ND)
        context = one_tensor_reference(shared_MND, *scales, max_length=3, rotary=rotary).view(2, 3, 2, 4)
        parameters = list(built.parameters())
        got, expected = (
            [output, *torch.autograd.grad(output.sin().sum(), parameters)]
            for output in (context, attend(built(hidden, turn)))
        )
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11)
        assert built.bfloat16().one_tensor(hidden.bfloat16()).score_scale_ND.dtype == torch.float32


def _unchanged(x: torch.Tensor) -> torch.Tensor:
    return x


def check_sdpa_equals_reference(operator: str, form: str) -> None:
    """Loss, logits and every gradient, padded rows included, in float64."""
    batch = small_batch()
    results = {}
    for implementation in ("eager", "sdpa"):
        model = small_model(operator, **FORMS[form]).double()
        model.set_attn_implementation(implementation)
        assert model.attention_core.name == {"eager": "reference", "sdpa": "sdpa"}[implementation]
        output = model(**batch)
        output.loss.backward()
        results[implementation] = [output.logits, *(parameter.grad for parameter in model.parameters())]
    for eager, sdpa in zip(results["eager"], results["sdpa"], strict=True):
        torch.testing.assert_close(sdpa, eager, rtol=1e-9, atol=1e-11)


def check_padding_changes_nothing(operator: str, form: str) -> None:
    """A row gives the same logits alone as padded in a batch; a row of padding only gives finite ones."""
    model = small_model(operator, **FORMS[form])
    batch = small_batch()
    padded = model(batch["input_ids"], batch["attention_mask"]).logits
    for row, length in enumerate(batch["attention_mask"].sum(dim=1).tolist()):
        alone = model(batch["input_ids"][row : row + 1, :length]).logits[0]
        torch.testing.assert_close(padded[row, :length], alone, rtol=1e-4, atol=1e-5)

    batch["attention_mask"][1] = 0
    output = model(**batch)
    output.loss.backward()
    assert output.logits.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)


def check_values_are_not_rotated(operator: str) -> None:
    """Whatever the rotation does, it does to queries and keys only."""
    built = _tiny_operator(operator)
    hidden = torch.randn(2, 3, 8, dtype=torch.float64)
    plain, turned = built(hidden, _unchanged), built(hidden, lambda x: -3 * x)
    torch.testing.assert_close(turned.value_BNTD, plain.value_BNTD)
    scores = [roles.query_BNTD @ roles.key_BNTD.transpose(-1, -2) for roles in (plain, turned)]
    torch.testing.assert_close(scores[1], 9 * scores[0])


def check_declared_parameters(operator: str) -> None:
    """The formulas give what the modules have, weights and biases apart, under every choice of every setting."""
    shape = AttentionShape(width=24, heads=3)
    for given in setting_choices(operator):
        costs = operators.get(operator).costs(operators.settings_for(operator, given))
        counted = {"weights": 0, "biases": 0}
        for name, parameter in operators.build(operator, shape, given).named_parameters():
            counted["biases" if name.endswith("bias") else "weights"] += parameter.numel()
        declared = {"weights": evaluate(costs.weights, shape), "biases": evaluate(costs.biases, shape)}
        assert declared == counted, f"declared {declared}, counted {counted} with {given}"


def setting_choices(operator: str) -> list[dict[str, Any]]:
    """The defaults, and each other value of each setting that lists its values."""
    choices: list[dict[str, Any]] = [{}]
    for name, setting in describe(operator)["settings"].items():
        if isinstance(setting["values"], list):
            choices += [{name: value} for value in setting["values"] if value != setting["default"]]
    return choices


def check_symmetric_scores(operator: str, form: str) -> None:
    """Where an operator declares symmetric scores, it has them, with rotary positions too."""
    if not operators.get(operator).symmetric_scores:
        return
    model = small_model(operator, **FORMS[form])
    seen: list[Roles] = []
    for module in model.modules():
        if isinstance(module, Operator):
            module.register_forward_hook(lambda module, inputs, roles: seen.append(roles))
    model(small_batch()["input_ids"])
    assert len(seen) == model.config.num_hidden_layers
    for roles in seen:
        scores = roles.query_BNTD @ roles.key_BNTD.transpose(-1, -2)
        torch.testing.assert_close(scores, scores.transpose(-1, -2))


def check_folded_equals_unfolded(operator: str, form: str) -> None:
    """Same logits, no more parameters, and a folded model saves and loads."""
    model = small_model(operator, **FORMS[form])
    batch = small_batch()
    with torch.no_grad():
        before = model(**batch).logits
        folded = model.fold()
        after = folded(**batch).logits
        torch.testing.assert_close(model(**batch).logits, before, rtol=0, atol=0)
    torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-5)
    assert folded.num_parameters() <= model.num_parameters()
    _check_reload(folded)


def check_saved_equals_loaded(operator: str, form: str) -> None:
    _check_reload(small_model(operator, **FORMS[form]))


def _check_reload(model: TriuneForMaskedLM) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loaded = TriuneForMaskedLM.from_pretrained(folder)
    assert loaded.config.operator_settings == model.config.operator_settings
    batch = small_batch()
    with torch.no_grad():
        torch.testing.assert_close(loaded(**batch).logits, model(**batch).logits, rtol=0, atol=0)


def check_compiles_whole(operator: str, form: str) -> None:
    """Compiled without a graph break: the same loss and gradients."""
    batch = small_batch()
    plain, compiled = (small_model(operator, **FORMS[form]) for _ in range(2))
    torch._dynamo.reset()
    whole = torch.compile(compiled, fullgraph=True, backend="aot_eager")
    for model, run in ((plain, plain), (compiled, whole)):
        loss = run(**batch).loss
        loss.backward()
        model.loss_seen = loss.detach()
    torch.testing.assert_close(compiled.loss_seen, plain.loss_seen)
    for one, other in zip(compiled.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-6)


def check_overfits_small_batch(operator: str, form: str) -> None:
    """It learns: the masked words of a few rows by heart, from words that are all hidden alike."""
    torch.manual_seed(4)
    model = TriuneForMaskedLM(small_config(operator, masked_only_loss=True, **FORMS[form])).train()
    batch = small_batch()
    # Without positions in the input, a row whose every word is hidden could not be learnt: its first word stays.
    batch["labels"][:, 0] = -100
    batch["input_ids"] = torch.where(batch["labels"] >= 0, 4, batch["input_ids"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.0)
    loss = torch.tensor(float("inf"))
    for _ in range(300):
        optimizer.zero_grad()
        loss = model(**batch).loss
        if loss.item() < 0.02:
            return
        loss.backward()
        optimizer.step()
    raise AssertionError(f"'{operator}' did not learn a small batch by heart: loss {loss.item():.3f} after 300 steps")


ONCE: list[Callable[[str], None]] = [
    check_gradients,
    check_one_tensor_equals_roles,
    check_values_are_not_rotated,
    check_declared_parameters,
]
PER_FORM: list[Callable[[str, str], None]] = [
    check_sdpa_equals_reference,
    check_padding_changes_nothing,
    check_symmetric_scores,
    check_folded_equals_unfolded,
    check_saved_equals_loaded,
    check_compiles_whole,
    check_overfits_small_batch,
]


def check_operator(operator: str) -> None:
    """All of the checks; raises AssertionError at the first that does not hold."""
    for once in ONCE:
        once(operator)
    for per_form in PER_FORM:
        for form in FORMS:
            per_form(operator, form)
