// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// count.cpp with the define in the source, which counts as one of the kernel's descriptor.

#define SGDC_UNGATED 1
#include "count.cpp"
