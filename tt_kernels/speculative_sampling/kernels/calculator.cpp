// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The compute kernel: carries out the walker's commands (config.hpp).

#include <cstdint>

#include "api/compute/cb_api.h"
#include "api/compute/compute_kernel_hw_startup.h"
#include "api/compute/pack.h"
#include "api/compute/reg_api.h"
#include "api/compute/tile_move_copy.h"
#include "config.hpp"
#include "weights.hpp"

namespace {

uint32_t word(uint32_t index) { return read_tile_value(config::cb_command, 0, index); }

// The current command, except its kind and tiles.
struct Task {
    uint32_t source, form;
    uint32_t end, last_vectors;  // the tile after the last one, and the last one's vectors
    uint32_t offset[2], sharpness;
    uint32_t stages;
    uint32_t scales[2 * config::max_nodes];

    void read() {
        source = word(command::source);
        form = word(command::form);
        end = word(command::stop);
        last_vectors = word(command::last_vectors);
        offset[0] = word(command::target_offset);
        offset[1] = word(command::draft_offset);
        sharpness = word(command::sharpness);
        stages = word(command::stages);
        for (uint32_t i = 0; i < 2 * stages; ++i) {
            scales[i] = word(command::first_scales + i);
        }
    }

    uint32_t vectors(uint32_t tile) const { return tile + 1 == end ? last_vectors : command::pairs; }
    uint32_t row() const { return source == command::target ? config::cb_target : config::cb_draft; }

    // Sets the target register to the weights of a tile.
    void weigh(uint32_t tile) const {
        copy_tile(row(), tile, weights::target);
        if constexpr (config::sigmoid) {
            if (form == command::sigmoid) {
                weights::sigmoid(weights::target, vectors(tile), offset[0], sharpness);
                return;
            }
            if (form == command::difference) {
                copy_tile(config::cb_draft, tile, weights::draft);
                weights::sigmoid_difference(vectors(tile), offset[0], sharpness);
                return;
            }
        }
        weights::exponentiate(weights::target, vectors(tile), offset[source], sharpness);
        if (stages > 0) {
            copy_tile(config::cb_draft, tile, weights::draft);
            weights::exponentiate(weights::draft, vectors(tile), offset[1], sharpness);
            for (uint32_t i = 0; i < stages; ++i) {
                weights::subtract_draft(vectors(tile), scales[2 * i], scales[2 * i + 1]);
            }
        }
    }
};

void pack(uint32_t tiles) {
    cb_reserve_back(config::cb_result, command::result_pages);
    tile_regs_commit();
    tile_regs_wait();
    for (uint32_t i = 0; i < tiles; ++i) {
        pack_tile(weights::result + i, config::cb_result);
    }
    tile_regs_release();
    cb_push_back(config::cb_result, command::result_pages);
}

void range(const Task& task, uint32_t begin) {
    tile_regs_acquire();
    for (uint32_t tile = begin; tile < task.end; ++tile) {
        copy_tile(task.row(), tile, weights::target);
        weights::widen_range(tile == begin, task.vectors(tile));
    }
    pack(1);
}

void sums(const Task& task, uint32_t begin) {
    while (begin < task.end) {
        const uint32_t room = begin + command::tiles_per_result;
        const uint32_t stop = task.end < room ? task.end : room;
        tile_regs_acquire();
        for (uint32_t tile = begin; tile < stop; ++tile) {
            task.weigh(tile);
            weights::add_up(task.vectors(tile), tile - begin);
        }
        pack(1);
        begin = stop;
    }
}

}  // namespace

void kernel_main() {
    compute_kernel_hw_startup(config::cb_target, config::cb_result);
    copy_init(config::cb_target);
    weights::init();
    Task task;
    while (true) {
        cb_wait_front(config::cb_command, 1);
        const uint32_t kind = word(command::kind);
        if (kind == command::end) {
            cb_pop_front(config::cb_command, 1);
            return;
        }
        const uint32_t begin = word(command::begin);
        task.read();
        cb_pop_front(config::cb_command, 1);
        if (kind == command::range) {
            range(task, begin);
        } else if (kind == command::sums) {
            sums(task, begin);
        } else {
            tile_regs_acquire();
            task.weigh(begin);
            weights::split(task.vectors(begin));
            pack(2);
        }
    }
}
