// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0

// Mode bits of the vector instructions, as the ISA documentation names and numbers them.

#pragma once

#include <cstdint>

#define sfpi_inline __attribute__((always_inline)) inline

namespace sfpi {

constexpr std::uint32_t SFP_DESTREG_STRIDE = 2;

constexpr std::uint32_t SFPLOAD_MOD0_FMT_SRCB = 0;
constexpr std::uint32_t SFPLOAD_MOD0_FMT_FP16A = 1;
constexpr std::uint32_t SFPLOAD_MOD0_FMT_FP16B = 2;
constexpr std::uint32_t SFPLOAD_MOD0_FMT_FP32 = 3;
constexpr std::uint32_t SFPLOAD_MOD0_FMT_INT32 = 4;
constexpr std::uint32_t SFPSTORE_MOD0_FMT_SRCB = 0;
constexpr std::uint32_t SFPSTORE_MOD0_FMT_FP16A = 1;
constexpr std::uint32_t SFPSTORE_MOD0_FMT_FP16B = 2;
constexpr std::uint32_t SFPSTORE_MOD0_FMT_FP32 = 3;
constexpr std::uint32_t SFPSTORE_MOD0_FMT_INT32 = 4;
constexpr std::uint32_t SFPLOAD_ADDR_MODE_NOINC = 3;
constexpr std::uint32_t SFPSTORE_ADDR_MODE_NOINC = 3;

constexpr std::uint32_t SFPLOADI_MOD0_FLOATB = 0;
constexpr std::uint32_t SFPLOADI_MOD0_FLOATA = 1;
constexpr std::uint32_t SFPLOADI_MOD0_USHORT = 2;
constexpr std::uint32_t SFPLOADI_MOD0_SHORT = 4;
constexpr std::uint32_t SFPLOADI_MOD0_UPPER = 8;
constexpr std::uint32_t SFPLOADI_MOD0_LOWER = 10;

constexpr std::uint32_t SFPMAD_MOD1_OFFSET_NONE = 0;
constexpr std::uint32_t SFPMAD_MOD1_INDIRECT_VA = 4;
constexpr std::uint32_t SFPMAD_MOD1_INDIRECT_VD = 8;

constexpr std::uint32_t SFPMOV_MOD1_NEGATE = 1;
constexpr std::uint32_t SFPMOV_MOD1_COMPSIGN = 1;
constexpr std::uint32_t SFPMOV_MOD1_ALL_LANES_ENABLED = 2;
constexpr std::uint32_t SFPMOV_MOD1_FROM_SPECIAL = 8;

constexpr std::uint32_t SFPABS_MOD1_INT = 0;
constexpr std::uint32_t SFPABS_MOD1_FLOAT = 1;

constexpr std::uint32_t SFPIADD_MOD1_ARG_LREG_DST = 0;
constexpr std::uint32_t SFPIADD_MOD1_ARG_IMM = 1;
constexpr std::uint32_t SFPIADD_MOD1_ARG_2SCOMP_LREG_DST = 2;
constexpr std::uint32_t SFPIADD_MOD1_CC_LT0 = 0;
constexpr std::uint32_t SFPIADD_MOD1_CC_NONE = 4;
constexpr std::uint32_t SFPIADD_MOD1_CC_GTE0 = 8;

constexpr std::uint32_t SFPSHFT_MOD1_ARG_IMM = 1;
constexpr std::uint32_t SFPSHFT2_MOD1_COPY4 = 0;
constexpr std::uint32_t SFPSHFT2_MOD1_SUBVEC_CHAINED_COPY4 = 1;
constexpr std::uint32_t SFPSHFT2_MOD1_SUBVEC_SHFLROR1_AND_COPY4 = 2;
constexpr std::uint32_t SFPSHFT2_MOD1_SUBVEC_SHFLROR1 = 3;
constexpr std::uint32_t SFPSHFT2_MOD1_SUBVEC_SHFLSHR1 = 4;
constexpr std::uint32_t SFPSHFT2_MOD1_SHFT_LREG = 5;
constexpr std::uint32_t SFPSHFT2_MOD1_SHFT_IMM = 6;

constexpr std::uint32_t SFPSETEXP_MOD1_ARG_IMM = 1;
constexpr std::uint32_t SFPSETEXP_MOD1_ARG_EXPONENT = 2;
constexpr std::uint32_t SFPSETMAN_MOD1_ARG_IMM = 1;
constexpr std::uint32_t SFPSETSGN_MOD1_ARG_IMM = 1;
constexpr std::uint32_t SFPDIVP2_MOD1_ADD = 1;

constexpr std::uint32_t SFPEXEXP_MOD1_DEBIAS = 0;
constexpr std::uint32_t SFPEXEXP_MOD1_NODEBIAS = 1;
constexpr std::uint32_t SFPEXEXP_MOD1_SET_CC_SGN_EXP = 2;
constexpr std::uint32_t SFPEXEXP_MOD1_SET_CC_COMP_EXP = 8;
constexpr std::uint32_t SFPEXMAN_MOD1_PAD8 = 0;
constexpr std::uint32_t SFPEXMAN_MOD1_PAD9 = 1;

constexpr std::uint32_t SFPLZ_MOD1_CC_NE0 = 2;
constexpr std::uint32_t SFPLZ_MOD1_NOSGN_MASK = 4;
constexpr std::uint32_t SFPLZ_MOD1_CC_COMP = 8;

constexpr std::uint32_t SFPSETCC_MOD1_LREG_LT0 = 0;
constexpr std::uint32_t SFPSETCC_MOD1_IMM_BIT0 = 1;
constexpr std::uint32_t SFPSETCC_MOD1_LREG_NE0 = 2;
constexpr std::uint32_t SFPSETCC_MOD1_LREG_GTE0 = 4;
constexpr std::uint32_t SFPSETCC_MOD1_LREG_EQ0 = 6;
constexpr std::uint32_t SFPSETCC_MOD1_CLEAR = 8;

// SFPENCC: first letters say what happens to the enable bit (U left, C inverted, I from the immediate), the
// last two what happens to the flags (1 all true, I from the immediate).
constexpr std::uint32_t SFPENCC_MOD1_EU_R1 = 0;
constexpr std::uint32_t SFPENCC_MOD1_EC_R1 = 1;
constexpr std::uint32_t SFPENCC_MOD1_EI_R1 = 2;
constexpr std::uint32_t SFPENCC_MOD1_EU_RI = 8;
constexpr std::uint32_t SFPENCC_MOD1_EC_RI = 9;
constexpr std::uint32_t SFPENCC_MOD1_EI_RI = 10;
constexpr std::uint32_t SFPENCC_IMM12_E = 1;
constexpr std::uint32_t SFPENCC_IMM12_R = 2;
constexpr std::uint32_t SFPENCC_IMM12_BOTH = 3;

constexpr std::uint32_t SFPSTOCHRND_RND_EVEN = 0;
constexpr std::uint32_t SFPSTOCHRND_RND_STOCH = 1;
constexpr std::uint32_t SFPSTOCHRND_MOD1_FP32_TO_FP16A = 0;
constexpr std::uint32_t SFPSTOCHRND_MOD1_FP32_TO_FP16B = 1;
constexpr std::uint32_t SFPSTOCHRND_MOD1_FP32_TO_UINT8 = 2;
constexpr std::uint32_t SFPSTOCHRND_MOD1_FP32_TO_INT8 = 3;
constexpr std::uint32_t SFPSTOCHRND_MOD1_INT32_TO_UINT8 = 4;
constexpr std::uint32_t SFPSTOCHRND_MOD1_INT32_TO_INT8 = 5;
constexpr std::uint32_t SFPSTOCHRND_MOD1_FP32_TO_UINT16 = 6;
constexpr std::uint32_t SFPSTOCHRND_MOD1_FP32_TO_INT16 = 7;

constexpr std::uint32_t SFPCAST_MOD1_SM32_TO_FP32_RNE = 0;
constexpr std::uint32_t SFPCAST_MOD1_INT32_TO_FP32_RNE = 0;
constexpr std::uint32_t SFPCAST_MOD1_SM32_TO_FP32_RNS = 1;

constexpr std::uint32_t SFPSWAP_MOD1_SWAP = 0;
constexpr std::uint32_t SFPSWAP_MOD1_VEC_MIN_MAX = 1;

constexpr std::uint32_t SFPLUT_MOD0_SGN_RETAIN = 4;
constexpr std::uint32_t SFPLUTFP32_MOD1_FP32_3ENTRY_TABLE = 0;
constexpr std::uint32_t SFPLUTFP32_MOD1_FP16_6ENTRY_TABLE1 = 2;
constexpr std::uint32_t SFPLUTFP32_MOD1_FP16_6ENTRY_TABLE2 = 3;
constexpr std::uint32_t SFPLUTFP32_MOD1_FP16_3ENTRY_TABLE = 10;
constexpr std::uint32_t SFPLUTFP32_MOD1_SGN_RETAIN = 4;

// Constant registers. 8 to 10 are fixed (0.8373, 0, 1); 11 holds -1 after start-up; 12 to 14 belong to
// kernels; 15 holds twice the lane number.
constexpr unsigned LREG_0P8373 = 8;
constexpr unsigned LREG_ZERO = 9;
constexpr unsigned LREG_ONE = 10;
constexpr unsigned LREG_NEGATIVE_ONE = 11;
constexpr unsigned LREG_PROGRAMMABLE_0 = 12;
constexpr unsigned LREG_TILE_ID = 15;

}  // namespace sfpi
