"""The examples in Taichi's package, which brings no tests: those that draw no random numbers, on
the GPU and on the CPU. Fields must have the same values."""

import importlib
import sys

import numpy
import pytest
import taichi as ti

# Module of taichi.examples: the calls that its main() makes between looking at its window.
STEPS = {
    "algorithm.laplace": ["main()"],
    "autodiff.simple_derivative": ["initialize()"],
    "features.sparse.explicit_activation": [],
    "features.sparse.taichi_bitmasked": [
        "ti.deactivate_all_snodes()",
        "activate()",
        "paint_active_pixels(0.75)",
    ],
    "features.sparse.taichi_dynamic": ["main()"],
    "features.sparse.taichi_sparse": [
        *("img.fill(0.05)", "block1.deactivate_all()", "activate(0.3)", "paint()"),
        *("block1.deactivate_all()", "activate(0.6)", "paint()"),
    ],
    "features.sparse.tutorial": [],
    "minimal": [],
    "rendering.taichi_logo": ["paint()"],
    "simulation.euler": [
        *("set_ic()", "set_bc()", "calc_dt()", "copy_to_old()", "compute_W()"),
        *("compute_F_muscl()", "update_Q(0)", "set_bc()", "compute_W()", "compute_F_thinc()"),
    ],
    "simulation.fem99": [
        *("init_mesh()", "init_pos()"),
        *["TAPE = ti.ad.Tape(loss=U)\nwith TAPE:\n    update_U()\nadvance()"] * 4,
    ],
    "simulation.fractal": ["paint(0.9)"],
    "simulation.game_of_life": [
        "alive.from_numpy(np.random.default_rng(1).integers(0, 2, (n, n), dtype=np.int32))",
        *["run()"] * 5,
    ],
    "simulation.initial_value_problem": ["paint(1.5)"],
    "simulation.karman_vortex_street": [
        "LBM = lbm_solver(160, 60, 0.01, [0, 0, 1, 0], [[0.1, 0.0]] + [[0.0, 0.0]] * 3, 1,"
        " [40.0, 30.0, 5.0])",
        "LBM.init()",
        *["LBM.collide_and_stream(); LBM.update_macro_var(); LBM.apply_bc()"] * 5,
        "RHO = LBM.rho; VELOCITY = LBM.vel",
    ],
    "simulation.mandelbrot_zoom": ["render(0.5)"],
    "simulation.vortex_rings": [*["advect(); integrate_vortex()"] * 4],
    "simulation.waterwave": [
        *("reset()", "create_wave(2.0, 100.0, 200.0)"),
        *["update()"] * 4,
        "visualize_wave()",
    ],
}

# The share of values that may differ: pictures with edges, on whose other side a rounding can put a
# point. Kernels on the GPU multiply and add in one step.
MAY_DIFFER = {
    "rendering.taichi_logo": 1e-4,
    "simulation.fractal": 1e-4,
    "simulation.mandelbrot_zoom": 5e-3,
}


def values_after(module, steps, arch, monkeypatch, capfd):
    """{name: array} of the example's fields, and what its kernels printed."""
    monkeypatch.setenv("TI_ARCH", arch)  # stronger than what the example says
    monkeypatch.setenv("TI_OFFLINE_CACHE", "0")
    monkeypatch.setattr(sys, "argv", [module])
    capfd.readouterr()
    name = f"taichi.examples.{module}"
    sys.modules.pop(name, None)
    names = vars(importlib.import_module(name))
    assert ti.lang.impl.current_cfg().arch == getattr(ti, arch)
    for step in steps:
        exec(step, names)
    ti.sync()
    found = {}
    for key, value in sorted(names.items()):
        if isinstance(value, ti.Field):
            found[key] = value.to_numpy()
    ti.reset()
    lines = capfd.readouterr().out.splitlines()
    return found, sorted(line for line in lines if "[Taichi]" not in line)


@pytest.mark.parametrize("module", STEPS)
def test_gpu_and_cpu_agree(module, monkeypatch, capfd):
    if module.split(".")[-1] in ("simple_derivative", "euler", "karman_vortex_street"):
        pytest.importorskip("matplotlib").use("Agg")
    gpu, printed = values_after(module, STEPS[module], "cuda", monkeypatch, capfd)
    cpu, expected = values_after(module, STEPS[module], "x64", monkeypatch, capfd)
    assert printed == expected
    assert gpu.keys() == cpu.keys()
    assert gpu or printed, "nothing to compare"
    for name, values in gpu.items():
        largest = max(1, numpy.abs(cpu[name]).max(initial=0))
        equal = numpy.isclose(values, cpu[name], rtol=1e-3, atol=1e-5 * largest)
        share = 1 - numpy.mean(equal)
        assert share <= MAY_DIFFER.get(module, 0), f"{name}: {share} of the values differ"
