# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the mends need wolfpine, but neither ttnn nor a compiler."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("framework") else ["test_*.py"]
