// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// How a data movement kernel gets the page of control.hpp. Prefixes are int32 [users]; gathered priorities are those of
// both ranks (common/kernels/priority.hpp).

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "control.hpp"
#include "jobs.hpp"
#include "tt_kernels/common/kernels/pair_role.hpp"

namespace control {

template <typename PrefixArgs, typename GatheredArgs>
inline void fetch(uint32_t page, const PrefixArgs& prefix_args, const GatheredArgs& gathered_args) {
    const auto prefixes = TensorAccessor(prefix_args, RUNTIME_ARG(prefixes));
    noc_async_read(prefixes.get_noc_addr(0), page, config::users() * sizeof(uint32_t));
    if constexpr (config::has_peer) {
        const auto gathered = TensorAccessor(gathered_args, RUNTIME_ARG(gathered_priorities));
        pair_role::fetch(gathered, RUNTIME_ARG(sp_rank), page + first_line);
    }
    noc_async_read_barrier();
    volatile tt_l1_ptr int32_t* found = reinterpret_cast<volatile tt_l1_ptr int32_t*>(page);
    for (uint32_t user = 0; user < config::users(); ++user) {
        const int32_t prefix = found[user];
        found[user] = prefix < 0 ? static_cast<int32_t>(jobs::skipped) : prefix;
    }
    pair_role::Role role{};
    if constexpr (config::has_peer) {
        role = pair_role::of(page + first_line, RUNTIME_ARG(sp_rank), config::users());
    }
    found[receiving] = role.receiving;
    found[alone] = role.alone;
}

}  // namespace control
