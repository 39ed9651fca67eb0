# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Llama under vLLM's server through vllm-tt-plugin: docs/serving.md. Imports neither vLLM nor the plugin."""
