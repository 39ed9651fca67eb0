# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Kernels and the host agree on arguments by name: nothing on either side writes an index."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tt_kernels.common.kernel import pack_cores

ROOT = Path(__file__).parents[2]
KERNELS = [
    path
    for folder in (ROOT / "tt_kernels", ROOT / "perf" / "kernels")
    for path in sorted(folder.rglob("*.?pp"))
    if path.name not in ("arguments.hpp", "start_line.hpp")  # the macros; behind another program's arguments
]
POSITIONAL = re.compile(
    r"get_(common_)?arg_val<\w+>\(\s*(\w+\+\+|\d)|get_compile_time_arg_val\(|TensorAccessorArgs<\d"
    r"|next_compile_time_args_offset"
)


def test_cores_must_have_the_same_names_at_the_same_places():
    packed, indices = pack_cores({(0, 0): {"a": 1, "b": 2}, (1, 0): {"a": 3, "b": 4}})
    assert packed == {(0, 0): [1, 2], (1, 0): [3, 4]} and indices == {"a": 0, "b": 1}
    for other in ({"b": 4, "a": 3}, {"a": 3}, {"a": [3, 3], "b": 4}, {"a": 3, "b": 4, "c": 5}):
        with pytest.raises(ValueError, match=r"core \(1, 0\) has its arguments at"):
            pack_cores({(0, 0): {"a": 1, "b": 2}, (1, 0): other})


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: f"{path.parents[1].name}-{path.name}")
def test_no_kernel_reads_an_argument_by_a_number(path):
    found = [line for line in path.read_text().splitlines() if POSITIONAL.search(line)]
    assert not found


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler for this machine")
@pytest.mark.parametrize("name, compiles", [("member", True), ("membre", False)])
def test_a_name_the_host_does_not_give_does_not_compile(tmp_path, name, compiles):
    """With the lookup of tt-metal's compile_time_args.h."""
    source = tmp_path / "names.cpp"
    source.write_text(
        f"""
        #include <string_view>
        #include <utility>
        #include <cstdint>
        constexpr std::pair<std::string_view, uint32_t> names[] = {{{{"arg_member", 3}}}};
        constexpr uint32_t get_named_compile_time_arg_val(std::string_view name) {{
            for (const auto& [known, value] : names) if (name == known) return value;
            __builtin_unreachable();
        }}
        #include "tt_kernels/common/kernels/arguments.hpp"
        static_assert(RUNTIME_INDEX({name}) == 3);
        """
    )
    command = ["g++", "-std=c++20", f"-I{ROOT}", "-fsyntax-only", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == compiles, done.stderr
