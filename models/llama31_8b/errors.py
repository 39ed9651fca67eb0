# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The error of a model that cannot be loaded."""


class ModelLoadError(ValueError):
    """Weights or tokenizer files are missing, damaged or out of reach; the message names which."""
