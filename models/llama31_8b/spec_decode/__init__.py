# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Token-level speculation, the same on every backend: the generation loop, drafters, trees, draft lengths, metrics."""
