# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Packaging of llama-alspec. `make setup` installs it; constraints.txt pins the versions the tests ran with."""

from setuptools import find_namespace_packages, find_packages, setup

setup(
    name="llama-alspec",
    version="0.2.0",
    description="Llama 3.1 8B on N150 meshes in TT-NN with attention-level and token-level speculation",
    license="Apache-2.0",
    # ttnn publishes wheels for CPython 3.10 and 3.12 only.
    python_requires=">=3.10,<3.13",
    # models/ has no __init__.py: tt-metal ships a namespace of the same name.
    packages=find_namespace_packages(include=["models.*"])
    + find_packages(include=["perf", "perf.*", "tt_kernels", "tt_kernels.*", "runtime_patches", "runtime_patches.*"]),
    include_package_data=True,
    install_requires=[
        "torch>=2.6",
        "numpy>=1.26",
        "transformers>=4.53",
        "tokenizers>=0.21",
        "huggingface_hub>=0.30",
        "safetensors>=0.5",
        "gguf>=0.17",
        "jinja2>=3.1.6",
        "filelock>=3.12",
        "pyyaml>=6",
        "loguru>=0.7",
        "tqdm>=4.66",
        "rich>=13",
        "matplotlib>=3.8",
    ],
    extras_require={
        # The simulated N150, the mock meshes and silicon all run the stock ttnn wheel.
        "ttnn": ["ttnn==0.81.1"],
        "sim": ["ttnn==0.81.1", "wolfpine==2.2", "numba>=0.60"],
        "test": [
            "pytest>=8",
            "pytest-timeout>=2.3",
            "pytest-xdist>=3.5",
            "hypothesis>=6.130",
            "scipy>=1.11",
            "setuptools>=70.1",  # builds the wheel that tests/test_wheel.py installs
        ],
        # Formatters differ from release to release: the same ones everywhere.
        "lint": ["ruff==0.17.6", "mypy==2.4.1", "clang-format==23.1.5", "pre-commit>=4"],
    },
    entry_points={"console_scripts": ["llama-alspec=models.llama31_8b.demo.__main__:main"]},
)
