"""The kernels compiled for a Hopper GPU, without one: what is chosen must compile and fit into its shared memory."""

import pytest
import torch

triton = pytest.importorskip("triton")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402
from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction  # noqa: E402
from triton.runtime.jit import JITFunction  # noqa: E402

from triune.kernels import one_tensor  # noqa: E402
from triune.kernels.one_tensor import hopper  # noqa: E402
from triune.kernels.one_tensor.call import Call  # noqa: E402
from triune.kernels.triton_here import interpreted  # noqa: E402

pytestmark = pytest.mark.skipif(interpreted(), reason="Triton's interpreter compiles nothing")

SHARED_MEMORY = 232_448  # bytes that a program may have
MULTIPROCESSOR = 233_472  # and all that run on a multiprocessor at a time, each with 1 KiB of its own
REGISTERS = 65_536
TYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32", torch.int32: "i32", torch.int64: "i64"}


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    """Launches become compilations; each kernel that was compiled, by name."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    found = {}

    def compile_only(self, *args, grid, warmup=False, **named):
        names = [parameter.name for parameter in self.params]
        options = {key: named.pop(key) for key in list(named) if key not in names}
        signature, constants, attributes = {}, {}, {}
        for place, (name, value) in enumerate([*zip(names, args, strict=False), *named.items()]):
            place = names.index(name)
            if isinstance(value, torch.Tensor):
                signature[name] = f"*{TYPES[value.dtype]}"
                attributes[(place,)] = [["tt.divisibility", 16]]
            elif hasattr(value, "block_shape"):
                shape = ", ".join(map(str, value.block_shape))
                signature[name] = f"tensordesc<{TYPES[value.base.dtype]}[{shape}],{value.layout!r}>"
            elif self.params[place].is_constexpr:
                signature[name], constants[(place,)] = "constexpr", value
            else:
                signature[name] = "fp32" if isinstance(value, float) else "i32"
                if isinstance(value, int) and value % 16 == 0:  # as at a launch
                    attributes[(place,)] = [["tt.divisibility", 16]]
        source = GluonASTSource if isinstance(self, GluonJITFunction) else ASTSource
        ordered = {name: signature[name] for name in names}
        found[self.fn.__name__] = triton.compile(
            source(self, ordered, constants, attributes), target=GPUTarget("cuda", 90, 32), options=options
        )

    monkeypatch.setattr(JITFunction, "run", compile_only)
    return found


def call_of(length, width=64, rotary=False, packed=False, values=True):
    """Tensors and a call, of zeros: nothing is run."""
    tokens, heads = 2 * length, 2
    table = torch.zeros(tokens, width // 2) if rotary else None
    starts = torch.zeros(12, dtype=torch.int32) if packed else None  # sequences of 16 tokens on average
    scale = torch.zeros(heads, width)
    return Call(scale, scale if values else None, length, starts, None, table, table, None, 0.0, False, False)


@pytest.mark.parametrize(
    ("length", "dtype", "options"),
    [
        (64, torch.bfloat16, {}),
        (128, torch.bfloat16, {"rotary": True}),
        (100, torch.bfloat16, {}),
        (200, torch.bfloat16, {}),
        (90, torch.bfloat16, {"packed": True}),
        (300, torch.float32, {"rotary": True}),
        (300, torch.float16, {"width": 128}),
    ],
)
def test_triton_kernels_fit(compiled, length, dtype, options):
    from triune.kernels.one_tensor.launch import run_backward, run_forward

    call = call_of(length, **options)
    shared = torch.zeros(2 * length, 2, options.get("width", 64), dtype=dtype)
    output, levels = run_forward(shared, call, True)
    run_backward(shared, shared, output, levels, call)
    assert len(compiled) >= 3
    if call.packed:
        assert {"short_forward_kernel", "forward_kernel", "short_backward_kernel", "backward_kernel"} <= set(compiled)
    for name, kernel in compiled.items():
        assert kernel.metadata.shared <= SHARED_MEMORY, name


@pytest.mark.parametrize(
    ("length", "values"), [(128, False), (128, True), (192, True), (256, False), (384, True), (512, False)]
)
def test_hopper_kernels_fit_as_often_as_they_are_meant_to(compiled, monkeypatch, length, values):
    monkeypatch.setattr(hopper, "programs_a_head", lambda *_: 1)
    call = call_of(length, values=values)
    shared = torch.zeros(2 * length, 2, 64, dtype=torch.bfloat16)
    numbers = torch.zeros(2, 2 * length)
    hopper.run_forward(shared, call, torch.zeros_like(shared), numbers)
    parts = torch.zeros(1, 2, 2, 64)
    hopper.run_backward(shared, shared, shared, numbers, torch.zeros_like(shared), numbers, parts, call)
    tiles = length // 64
    for name, shape in {
        "hopper_forward_kernel": hopper.FORWARD[tiles],
        "hopper_backward_kernel": hopper.BACKWARD[tiles],
    }.items():
        metadata = compiled[name].metadata
        assert metadata.num_warps == shape.warps
        assert metadata.shared <= SHARED_MEMORY, name
        assert (metadata.shared + 1024) * shape.programs <= MULTIPROCESSOR, name
        if shape.registers:
            assert shape.registers * 32 * shape.warps * shape.programs <= REGISTERS, name


@pytest.mark.parametrize("width", [64, 48])
def test_the_rotation_compiles(compiled, width):
    from triune.kernels.rotary import rotate_in_one_pass

    x, table = torch.zeros(2, 40, 3, width, dtype=torch.bfloat16).transpose(1, 2), torch.zeros(1, 1, 40, width // 2)
    rotate_in_one_pass(x, table, table)
    ptx = compiled["rotate_kernel"].asm["ptx"]
    assert ptx.count("st.global.v4.b32") == ptx.count("st.global.") > 0  # 16 bytes at a time


def test_which_calls_the_hopper_kernels_take():
    for length, width, dtype, plain, takes in (
        (128, 64, torch.bfloat16, True, True),
        (512, 64, torch.float16, True, True),
        (64, 64, torch.bfloat16, True, False),
        (576, 64, torch.bfloat16, True, False),
        (200, 64, torch.bfloat16, True, False),
        (128, 32, torch.bfloat16, True, False),
        (128, 64, torch.float32, True, False),
        (128, 64, torch.bfloat16, False, False),
    ):
        assert hopper.takes_shape(length, width, dtype, plain) is takes
    assert hopper.unusable(torch.device("cpu")) == "no CUDA device"


def test_few_sequences_and_unaligned_tensors_are_left_to_the_other_kernels(monkeypatch):
    monkeypatch.setattr(hopper, "unusable", lambda device: None)
    monkeypatch.setattr("triune.kernels.one_tensor.call.multiprocessors", lambda device: 132)
    call = call_of(128)
    enough = torch.zeros(66 * 128, 2, 64, dtype=torch.bfloat16)
    assert hopper.takes(enough, call, save_levels=True)
    assert hopper.takes_back(enough, call, symmetric=True)
    assert not hopper.takes_back(enough, call, symmetric=False)
    assert not hopper.takes(enough[128:], call, save_levels=True)
    odd = call_of(320), torch.zeros(66 * 320, 2, 64, dtype=torch.bfloat16)
    assert hopper.takes(odd[1], odd[0], save_levels=False)
    assert not hopper.takes(odd[1], odd[0], save_levels=True)  # there is no backward kernel for it
    assert not hopper.takes(enough.to(torch.float16), call, save_levels=True)
    wider = torch.zeros(66 * 128, 2 * 64 + 4, dtype=torch.bfloat16)[:, : 2 * 64].unflatten(1, (2, 64))
    assert not hopper.takes(wider, call, save_levels=True)  # rows are no multiple of 16 bytes apart
    assert not hopper.takes(enough[:1].expand(66 * 128, 2, 64), call, save_levels=True)
    assert not hopper.takes(enough, call_of(128, rotary=True), save_levels=True)


def test_what_runs_can_be_described_without_a_gpu():
    said = one_tensor.describe(torch.bfloat16, head_width=64, max_length=128)
    if not torch.cuda.is_available():
        assert said.startswith("forward whole sequences, 128×128")
        assert "backward resident" in said
    said = one_tensor.describe(torch.bfloat16, head_width=64, max_length=128, packed=True, mean_length=30)
    assert said.startswith("forward whole sequences to 64")
    assert "longer one way" in said
    assert "both ways" in one_tensor.describe(torch.float16, head_width=64, max_length=300)
