// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0

// The vector layer that the wheel's Wormhole kernels include, over stock GCC: vector types, operators,
// predication. Written from the encodings in the wheel's ckernel_ops.h and Tenstorrent's public ISA
// documentation. sfpi_layer/registers.h says how a vector value travels through GCC
// and what becomes of it.

#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "lltt.h"
#include "sfpi_layer/constants.h"
#include "sfpi_layer/registers.h"
#include "sfpi_layer/types.h"
#include "sfpi_layer/float_ops.h"
#include "sfpi_layer/destination.h"
#include "sfpi_layer/integer_ops.h"
#include "sfpi_layer/conditions.h"
#include "sfpi_layer/convert.h"
#include "sfpi_layer/functions.h"
#include "sfpi_layer/lut.h"
