# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Decode time of Llama 3.1 8B by op on meshes of N150, fitted to one of the ALSpec paper's tables and tested on the
others: `python -m perf.projections.decode_model`."""
