# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The model in torch: decode and prefill, attention in segments, cache, rotary embedding."""
