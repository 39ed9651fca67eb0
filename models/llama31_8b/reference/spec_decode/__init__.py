# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Token-level speculation: trees (FlashSpecInfer), drafters and fuzzy drafting (EasySpec), verification of drafts
(Optimized speculative sampling), and the loop."""
