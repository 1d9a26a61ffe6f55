"""What the tests of the one-tensor kernels share, through Triton's interpreter and on a GPU."""

from dataclasses import dataclass, field

import torch
import triton
import triton.language as tl

from triune.kernels import one_tensor
from triune.kernels.one_tensor.pieces import dropout_keep, dropout_rows
from triune.kernels.one_tensor.reference import one_tensor_reference
from triune.kernels.rotary import rotary_tables

TOLERANCES = {torch.float32: 5e-6, torch.float16: 4e-3, torch.bfloat16: 1.2e-2}


@dataclass
class Case:
    """A call of the kernels on random inputs."""

    lengths: list[int]
    dtype: torch.dtype = torch.float32
    heads: int = 2
    width: int = 32
    packed: bool = False
    values: bool = True
    rotary: bool = False
    masked: bool = False
    dropout: float = 0.0
    causal: bool = False
    mask_diagonal: bool = False
    size: float = 1.0  # of S: scores grow with its square
    device: str = "cpu"
    seed: int = 0
    generator: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)

    @property
    def tokens(self) -> int:
        return sum(self.lengths)

    def random(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.generator).to(self.device)

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        # A view with rows further apart than they are long, as of a wider projection; c has both signs.
        wide = (self.size * self.random(self.tokens, self.heads * self.width + 16)).to(self.dtype)
        shared = wide[:, : self.heads * self.width].unflatten(1, (self.heads, self.width))
        score_scale = self.random(self.heads, self.width) * self.width**-0.5
        return shared, score_scale, self.random(self.heads, self.width) if self.values else None

    def options(self) -> dict:
        starts = torch.tensor([0, *self.lengths]).cumsum(0).to(self.device, torch.int32)
        tables = None
        if self.rotary:
            positions = torch.cat([torch.arange(length) for length in self.lengths])[None].to(self.device)
            tables = tuple(table[0, 0] for table in rotary_tables(positions, self.width, 10_000.0))
        mask = (torch.rand(self.tokens, generator=self.generator) > 0.3).to(self.device) if self.masked else None
        return {
            "max_length": max(self.lengths),
            "cu_seqlens": starts if self.packed else None,
            "key_mask": mask,
            "rotary": tables,
            "causal": self.causal,
            "mask_diagonal": self.mask_diagonal,
        }


def relative(ours: torch.Tensor, exact: torch.Tensor, least: float = 1e-3) -> float:
    """Of the norm, or of `least` an element where there is hardly any: the gradient of c is zero for single tokens."""
    assert torch.isfinite(ours).all()
    return ((ours.double() - exact).norm() / exact.norm().clamp(min=least * exact.numel() ** 0.5)).item()


def errors(case: Case, **changed) -> dict[str, float]:
    """Relative errors of output and gradients against float64; unwritten memory is not a number."""
    shared, score_scale, value_scale = case.tensors()
    options = {**case.options(), **changed}
    d_output = case.random(*shared.shape).to(case.dtype)
    inputs = [tensor for tensor in (shared, score_scale, value_scale) if tensor is not None]
    kernel_inputs = [tensor.detach().requires_grad_() for tensor in inputs]
    exact_inputs = [tensor.detach().double().requires_grad_() for tensor in inputs]
    keep = None
    with poisoned_memory():
        if case.dropout:
            torch.manual_seed(case.seed)
            keep = kept_weights(case)
            torch.manual_seed(case.seed)
        ours = one_tensor.attention(*kernel_inputs, **options, dropout=case.dropout)
        grads = torch.autograd.grad(ours, kernel_inputs, d_output)
        if case.device == "cuda":  # where programs and warps run in another order each time
            for _ in range(2):
                torch.manual_seed(case.seed)
                again = one_tensor.attention(*kernel_inputs, **options, dropout=case.dropout)
                assert torch.equal(again, ours), "not the same bits again"
                for one, other in zip(torch.autograd.grad(again, kernel_inputs, d_output), grads, strict=True):
                    assert torch.equal(one, other), "not the same gradients again"
    exact = one_tensor_reference(*exact_inputs, **options, keep=keep, dropout=case.dropout)
    exact_grads = torch.autograd.grad(exact, exact_inputs, d_output.double())
    found = {"output": relative(ours, exact)}
    # What should cancel in the gradient of c is a difference of two sums over a head's width.
    least = {"d_score": 0.5 * case.width**0.5}
    for name, grad, exact_grad in zip(("d_shared", "d_score", "d_value"), grads, exact_grads, strict=False):
        found[name] = relative(grad, exact_grad, least.get(name, 1e-3))
    return found


def check(case: Case, tolerance: float | None = None, **changed) -> None:
    found = errors(case, **changed)
    limit = tolerance or TOLERANCES[case.dtype]
    assert all(error < limit for error in found.values()), (case, found)


class poisoned_memory:  # noqa: N801
    """In here `torch.empty` is full of nan: what a kernel leaves unwritten shows."""

    def __enter__(self) -> None:
        self.before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True, warn_only=True)
        assert torch.utils.deterministic.fill_uninitialized_memory

    def __exit__(self, *_) -> None:
        torch.use_deterministic_algorithms(self.before)


@triton.jit(do_not_specialize=["head_of_all", "length"])
def _kept_kernel(Seed, Kept, head_of_all, length, keep_share, ROWS: tl.constexpr, LENGTH: tl.constexpr):
    """A few rows a program: all rows of a long sequence in one took minutes to compile."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, LENGTH)
    kept = dropout_keep(dropout_rows(Seed, head_of_all, rows, True)[:, None], cols[None, :], keep_share)
    places = Kept + rows[:, None] * length + cols[None, :]
    tl.store(places, kept, mask=(rows < length)[:, None] & (cols < length)[None, :])


def kept_weights(case: Case) -> list[torch.Tensor]:
    """What dropout lets through, (heads, length, length) for each sequence, from the seed that the next call draws."""
    seed = torch.randint(2**62, (1,), device=case.device)
    masks = []
    for number, length in enumerate(case.lengths):
        kept = torch.zeros(case.heads, length, length, dtype=torch.bool, device=case.device)
        for head in range(case.heads if length else 0):
            place = number * case.heads + head
            columns = triton.next_power_of_2(length)
            _kept_kernel[(triton.cdiv(length, 16),)](seed, kept[head], place, length, 1 - case.dropout, 16, columns)
        masks.append(kept)
    return masks


def results(model, batch, autocast=False):
    """Of a pass and its backward, in float64: logits and every gradient."""
    model.zero_grad()
    with torch.autocast("cpu", torch.float16, enabled=autocast):
        outputs = model(**batch)
    outputs.loss.backward()
    grads = {
        name: parameter.grad.double() for name, parameter in model.named_parameters() if parameter.grad is not None
    }
    return {"logits": outputs.logits.detach().double(), **grads}
