"""The demonstration in tiny shapes on the CPU: all arms compute the same model, and reports say what was measured."""

from __future__ import annotations

import doctest
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the example is for users of torch")

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "examples"))

from llama import __main__ as command  # noqa: E402
from llama import accuracy, measure, profile, report, traffic, workers  # noqa: E402
from llama.arms import ARMS, Jitnorm, Plain, default_arms  # noqa: E402
from llama.model import LLAMA, TINY, TINY_QWEN3, Shape, empty_cache, layer, places, random_weights  # noqa: E402
from llama.text import text_of  # noqa: E402

DEFAULT_ARMS = default_arms("cpu")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The command's output for two tiny models, one in prefill, the other in decode."""
    folder = tmp_path_factory.mktemp("llama")
    paths = [folder / f"{model}.json" for model in ("tiny", "tiny-qwen3")]
    for path, phase in zip(paths, ("prefill", "decode"), strict=True):
        options = ("--models", path.stem, "--phases", phase, "--batches", "2", "--layers", "1", "--backend", "eager")
        run(path, *options)
    return paths


def run(path: Path, *arguments: str, device: str = "cpu") -> Any:
    command.main(["--seconds", "3600", *arguments, "--device", device, "--json", str(path)])
    return json.loads(path.read_text("utf-8"))


@pytest.mark.parametrize(("at", "phase", "tokens"), [(0, "prefill", 16), (1, "decode", 2)])
def test_every_arm_computes_the_model(results: list[Path], at: int, phase: str, tokens: int) -> None:
    held = report.Results.read(results[at])
    assert held.left_out == []
    assert [row.arm for row in held.rows] == DEFAULT_ARMS
    for row in held.rows:
        assert (row.phase, row.tokens) == (phase, tokens)
        assert row.error < (0.1 if row.arm.startswith("fp8") else 0.01), row
        assert row.step_us > 2 * row.layer_us > 0


def test_inductor_compiles_layers_of_jitnorm_to_the_same_bits(tmp_path: Path) -> None:
    arms = ("--arms", "fp8-jitnorm,fp8-jitnorm-compiled", "--models", "tiny-qwen3")
    rows = run(tmp_path / "results.json", *arms, "--phases", "decode", "--batches", "2")["rows"]
    assert len(rows) == 2
    assert rows[0]["error"] == rows[1]["error"]


@pytest.mark.gpu
@pytest.mark.parametrize(("model", "batch"), [("tiny", "1"), ("tiny-qwen3", "2")])
def test_kernels_on_a_gpu_are_counted_by_their_class(model: str, batch: str, tmp_path: Path) -> None:
    options = ("--models", model, "--phases", "decode", "--batches", batch, "--layers", "2", "--workers", "0")
    held = run(tmp_path / "results.json", *options, "--arms", "bf16,fp8-jitnorm", device="cuda")
    assert held["left_out"] == []
    plain, fused = (measure.Row(**row) for row in held["rows"])
    assert fused.error < 0.1
    for row in (plain, fused):
        assert min(row.gemm_us, row.attention_us, row.outside_us, row.copy_us) > 0
    assert sum(often for often, _ in fused.kernels.values()) == 5  # all of jitnorm's
    assert fused.launches < plain.launches


def test_what_is_not_measured_is_named(tmp_path: Path) -> None:
    of_torchao = ("--arms", "fp8-torchao", "--models", "tiny", "--phases", "decode", "--batches", "1")
    held = run(tmp_path / "results.json", *of_torchao)
    assert held["rows"] == []
    assert [text.partition(": ")[0] for text in held["left_out"]] == ["tiny, decode, batch 1, fp8-torchao"]
    held = run(tmp_path / "results.json", *of_torchao, "--seconds", "0")
    assert held["left_out"] == ["tiny, decode, batch 1, fp8-torchao: out of time"]


@pytest.mark.parametrize("option", [("--arms", "fp9"), ("--models", "tiny,gpt"), ("--phases", "train")])
def test_names_that_are_not_known_are_refused(option: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(list(option))
    assert "is not known; allowed are" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("shape", "kind"), [(TINY, Plain), (TINY, Jitnorm), (TINY_QWEN3, Plain), (TINY_QWEN3, Jitnorm)]
)
def test_decode_continues_what_prefill_has_begun(shape: Shape, kind: type[Plain]) -> None:
    ops, sequences, length = kind(shape), 2, 6
    w = random_weights(shape, "cpu").encoded(ops.encoded_weight)
    x, residual = torch.randn(2, sequences * length, shape.hidden).bfloat16()
    cache = empty_cache(shape, sequences, length, "cpu")
    expected, _ = layer(ops, w, x, residual, cache, places(shape, sequences, length, 0, "cpu"))
    last = torch.tensor([length - 1, 2 * length - 1])
    for tensor in cache:
        tensor[:, -1] = 0
    found, _ = layer(ops, w, x[last], residual[last], cache, places(shape, sequences, length, length - 1, "cpu"))
    torch.testing.assert_close(found, expected[last], atol=0.05, rtol=0.05)


def test_bytes_are_those_of_the_tensors_that_steps_read_and_write() -> None:
    shape, tokens = TINY_QWEN3, 3
    ops, w = Jitnorm(shape), random_weights(shape, "cpu")
    x, residual = torch.randn(2, tokens, shape.hidden).bfloat16()
    q, total = ops.add_norm(x, residual, w.mlp_norm)
    heads = torch.randn(tokens, sum(shape.qkv_heads) * shape.head_size).bfloat16()
    gates = torch.randn(tokens, 2 * shape.intermediate).bfloat16()
    gated = ops.gate(gates)
    norm = [x, residual, total, q.data, q.scale]
    moved = [norm, [heads, heads], [x, q.data, q.scale], norm, [gates, gated.data, gated.scale]]
    expected = [sum(tensor.nbytes for tensor in tensors) for tensors in moved]
    assert list(traffic.elementwise_bytes(shape, tokens).values()) == expected


def test_kernels_are_told_apart_by_their_names() -> None:
    names = {
        "nvjet_tst_128x8_64x12_2x1_v_bz_TNN": "gemm",
        "void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::gemm::kernel::X>>": "gemm",
        "void cublasLt::splitKreduce_kernel<32, 16, int>": "gemm",
        "void gemvNSP_kernel<__nv_bfloat16>": "gemm",
        "triton_tem_fused__scaled_mm_0": "gemm",
        "fp8_gemv_kernel": "gemm",
        "void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, cutlass::bfloat16_t>>": "attention",
        "triton_red_fused__scaled_mm_add_mean_0": "other",
        "triton_poi_fused__scaled_dot_product_flash_attention_index_put_1": "other",
        "jitnorm_kernel": "other",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>>": "other",
        "Memcpy DtoD (Device -> Device)": "other",
    }
    assert {name: profile.kernel_class(name) for name in names} == names


def test_kernels_that_overlap_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = [
        ("gemm", 0.0, 5.0),
        ("jitnorm_norm", 4.0, 8.0),
        ("flash_fwd_kernel", 8.0, 10.0),
        ("jitnorm_norm", 9.0, 12.0),
    ]
    rounds = [profile.Span(name, start + 20 * at, end + 20 * at) for at in range(3) for name, start, end in layer]
    monkeypatch.setattr(profile, "_spans", lambda run: rounds)
    assert profile.kernels_of(print) == (4.0, 5.0, 2.0, 5.0, {"jitnorm_norm": (2.0, 7.0)})


def test_workers_measure_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples")
    path, options = tmp_path / "results.json", ("--models", "tiny", "--phases", "decode", "--batches", "2")
    first = run(path, *options, "--arms", "bf16", "--layers", "1")["rows"]
    arms = ("--arms", "bf16,fp8-jitnorm,fp8-torchao", "--layers", "1", "--backend", "eager")
    held = run(path, *options, *arms, "--resume", "--workers", "2")
    assert held["rows"][:1] == first
    assert [row["arm"] for row in held["rows"]] == ["bf16", "fp8-jitnorm"]
    assert [text.partition(": ")[0] for text in held["left_out"]] == ["tiny, decode, batch 2, fp8-torchao"]


def test_each_cell_is_in_the_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    cells = [measure.Cell(TINY, measure.Case("decode", batch, 8), ARMS["bf16"]) for batch in (1, 2)]

    def found() -> workers.Results:
        yield 0, row("bf16")
        assert report.Results.read(path).rows == [row("bf16")]
        yield 1, "out of time"
        assert report.Results.read(path).left_out == ["tiny, decode, batch 2, bf16: out of time"]
        path.unlink()

    command._keep(found(), cells, report.Results({}), path)
    assert list(tmp_path.iterdir()) == []


def test_resuming_with_another_setup_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    report.Results({"device": "H100", "layers of tiny": 2}, [row("bf16")]).write(path)
    resumed = report.Results({"device": "H100", "layers of tiny-qwen3": 2})
    resumed.resume(path)
    assert resumed.rows == [row("bf16")]
    with pytest.raises(ValueError, match=r"was measured with device 'H100', which is 'H200' now"):
        report.Results({"device": "H200"}).resume(path)


def test_what_is_prepared_is_not_compiled_again() -> None:
    bench = measure.Bench(1, "cpu", "eager")
    cells = [measure.Cell(TINY, measure.Case("decode", batch, 8), ARMS["bf16-compiled"]) for batch in range(1, 10)]
    compiled = torch._dynamo.utils.counters["stats"]
    with torch.no_grad():
        before = compiled["unique_graphs"]
        for cell in cells:
            bench.prepare(cell)
        prepared = compiled["unique_graphs"]
        rows = [bench.measure(cell) for cell in cells]
    assert (prepared, compiled["unique_graphs"]) == (before + len(cells), prepared)
    assert [each.key for each in rows] == [cell.key for cell in cells]


@pytest.mark.parametrize("module", [profile, accuracy], ids=lambda module: module.__name__)
def test_the_examples_in_docstrings_are_right(module: Any) -> None:
    found = doctest.testmod(module)
    assert found.attempted
    assert found.failed == 0


def row(arm: str, **fields: Any) -> measure.Row:
    known = {"layer_us": 20.0, "step_us": 700.0, "error": 0.03, "launches": 9.0, "gemm_us": 9.0, "attention_us": 3.0}
    known |= {"outside_us": 4.0, "copy_us": 3.0} | fields
    return measure.Row("Qwen3-8B", "decode", 32, known.pop("tokens", 32), arm, **known)


def test_bars_that_are_missed_are_said_to_be() -> None:
    others = [row("bf16", layer_us=30.0), row("fp8-torchao", layer_us=21.0, outside_us=9.0)]
    (line,) = report.bars([*others, row("fp8-jitnorm")])
    assert line == (
        "Qwen3-8B, decode, batch 32, fp8-jitnorm: 1.050 times the speed of fp8-torchao, the best other arm; "
        "0.44 of compiled FP8's time outside; 1.33 of a copy's"
    )
    (line,) = report.bars([*others, row("fp8-jitnorm", layer_us=22.0, outside_us=6.0)])
    assert line.count("(MISSED)") == 2
    (line,) = report.bars([row("bf16", tokens=256), row("fp8-jitnorm", tokens=256)])
    assert line.endswith("1.33 of a copy's (MISSED)")


def test_bars_are_not_reached_while_a_better_arm_may_be_missing() -> None:
    complete = [row("bf16", layer_us=30.0), row("fp8-compiled", layer_us=25.0, outside_us=9.0), row("fp8-jitnorm")]
    scarce = [replace(each, batch=1, tokens=1) for each in (complete[0], complete[2])]
    slow = [replace(each, batch=256, tokens=256) for each in (complete[0], row("fp8-jitnorm", layer_us=31.0))]
    first, second, third = report.bars([*complete, *scarce, *slow])
    assert "1.500 times the speed of bf16, the best of 1 other arms, the rest were not measured; 1.33" in first
    assert "1.250 times the speed of fp8-compiled, the best other arm; 0.44 of" in second
    assert "0.968 times the speed of bf16, the best of 1 other arms, the rest were not measured (MISSED)" in third
    assert list(report.summary(report.Results({}, [*slow, *complete, *scarce], left_out=["one"]))) == [
        "7 of 8 cells are measured",
        "speed, at least the best other arm's: 0.97 to 1.25; 1 of 2 MISSED",
        "time outside, at most half of compiled FP8's, up to 128 tokens: 0.44 to 0.44; none of 1 MISSED",
        "time outside, at most 1.1 of a copy's, above 128 tokens: 1.33 to 1.33; 1 of 1 MISSED",
    ]


def test_tables_are_in_one_order_however_cells_are_measured() -> None:
    rows = [row(arm, tokens=tokens) for tokens in (32, 256) for arm in ("fp8-jitnorm", "fp8-compiled", "bf16")]
    assert list(report.tables(report.Results({}, rows[::-1]))) == list(report.tables(report.Results({}, rows)))


def test_the_page_gets_tables_and_keeps_its_text(
    results: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, measured = tmp_path / "page.md", tmp_path / "measured.json"
    before, after = command.PAGE.read_text("utf-8").split(report.BEGIN)[0], f"{report.END}"
    page.write_text(f"{before}{report.BEGIN}OLD FIGURES{report.END}", "utf-8")
    report.Results({"device": "H200"}, [row("bf16"), row("fp8-jitnorm")], left_out=["tiny: out of time"]).write(
        measured
    )
    monkeypatch.setattr(command, "PAGE", page)
    for _ in range(2):
        command.main(["--write-docs", str(measured), *map(str, results)])
        text = page.read_text("utf-8")
        assert (text.startswith(before), text.endswith(after), "OLD FIGURES" in text) == (True, True, False)
        assert "| FP8, jitnorm | 45,714 | 20.0 | 9.0 | 9.0 | 3.0 | 4.0 | 3.0 | 0.0300 |\n" in text
        assert text.count("- not measured: tiny: out of time\n") == 1
        assert text.count("- Qwen3-8B, decode, batch 32, fp8-jitnorm: 1.000 times the speed of bf16") == 1
    assert text.count("**Qwen3-8B, decode, batch 32** (32 tokens)") == 1


def test_results_of_something_else_are_refused(tmp_path: Path) -> None:
    (path := tmp_path / "other.json").write_text("{}", "utf-8")
    with pytest.raises(ValueError, match="holds no results of this example"):
        command.main(["--write-docs", str(path)])


def test_formats_lose_what_they_should_in_a_trained_model() -> None:
    small = replace(TINY, name="small", layers=1, vocabulary=128)
    exact, narrow, nvfp4 = accuracy.compared("cpu", 40, ["nvfp4"], lambda text: None, small)
    assert exact.loss < 0.8 * math.log(128)
    assert narrow.loss == pytest.approx(exact.loss, abs=0.02)
    assert nvfp4.loss == pytest.approx(exact.loss, abs=0.2)
    assert 10 < nvfp4.logits_snr < narrow.logits_snr
    assert all(15 < snr < 25 for snr in nvfp4.snr.values())


def test_text_is_the_same_for_the_same_seed() -> None:
    text = bytes(text_of(2000, seed=3).tolist())
    assert text == bytes(text_of(2000, seed=3).tolist()) != bytes(text_of(2000, seed=4).tolist())
    assert b" + " in text
    assert max(text) < 128


def test_a_model_of_llamas_size_has_its_parameters() -> None:
    with torch.device("meta"):
        parameters = sum(t.numel() for t in random_weights(LLAMA, "meta") if t is not None)
    assert parameters * LLAMA.layers + 2 * LLAMA.vocabulary * LLAMA.hidden + LLAMA.hidden == 8_030_261_248
