# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The metadata is in pyproject.toml."""

from setuptools import setup

setup()
