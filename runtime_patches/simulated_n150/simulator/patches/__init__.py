# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The patches, one a module; `registry.all_patches` lists them in the order they are applied."""
