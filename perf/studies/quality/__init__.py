# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Does attention-level speculation hold its quality? Hit rates and accuracy: `python -m perf.studies.quality`."""
