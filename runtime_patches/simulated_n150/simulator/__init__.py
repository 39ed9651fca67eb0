# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The simulator of the simulated N150: wolfpine 2.2, patched from outside and started by us."""

from runtime_patches.simulated_n150.simulator.directory import simulator_dir

__all__ = ["simulator_dir"]
