# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Compiled execution of the baby RISC-V cores of a chip (interpreter.py): of one core where other parts of its tile are
busy too (cores.py), of all cores of a chip while nothing else on it has anything to do (engine.py).

The same instructions are executed at the same cycles as one by one in Python.
"""

# The latter: of a mesh always but with "0", which shows that it makes no difference; of one chip with "1", as under
# fast dispatch, where cores that dispatch are always busy. Else it costs more than it saves.
BURST_VARIABLE = "SIMULATED_N150_BURST"
