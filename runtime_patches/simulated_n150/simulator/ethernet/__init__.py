# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The Ethernet tile of a Wormhole: its queues, its control registers, what starts its core, and the links."""
