# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a process needs before it opens a board: the doctor, the boards it may open, environment and runtime root."""
