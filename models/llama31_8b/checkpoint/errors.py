# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The error of a model that cannot be loaded."""


class ModelLoadError(ValueError):
    """Weights or tokenizer files are missing, damaged or out of reach; the message names which."""


class ContextLengthError(ValueError):
    """More tokens than the model's context or the cache can hold; the message names both figures."""


class ChatTemplateError(ValueError):
    """A model has no chat template, or its template fails on these messages."""
