# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Mistakes that the tests must find: one wrong line of product code each, and the tests that fail by it.

`text` is short and occurs once in its file. Whoever moves or rewrites that line, or one of the tests, updates the
entry; tests/test_mutations.py says which.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutation(NamedTuple):
    """name: for the command line. file: from the root of the repository. tests: ids for pytest; one of them must fail
    once `replacement` stands in the place of `text`."""

    name: str
    file: str
    text: str
    replacement: str
    tests: tuple[str, ...]


GATED, HEADS = (f"tt_kernels/{name}/kernels" for name in ("gated_product", "rotated_heads"))
COMMON, SFD, TREE = (f"tt_kernels/{name}/kernels" for name in ("common", "speculative_flash_decode", "tree_attention"))
VERIFY = "tt_kernels/speculative_sampling/kernels"
MODEL = "models/llama31_8b"
ROWS = "test_rows_of_users_are_closer_to_float64_than_the_stock_op"
AS_CLOSE = "test_all_formats_are_as_close_to_float64_as_their_bits"
ROTATED = "tests/tt_kernels/rotated_heads/test_rotated_heads.py"
ROTATED += "::test_heads_are_those_of_float64_and_change_their_rows_of_the_cache_alone"
KERNEL_TESTS, ATTENTION = "tests/tt_kernels", "tests/tt_kernels/test_attention"
SAMPLING = f"{KERNEL_TESTS}/speculative_sampling/test_speculative_sampling.py"
SPEC = "tests/models/reference/spec_decode"

MUTATIONS = [
    # --- kernels ---
    Mutation(
        "rescale of the softmax state leaves out the row sum",
        f"{COMMON}/online_softmax.hpp",
        "add_rescaled(0, stride)",
        "add_rescaled(0, stride - 1)",
        (f"{ATTENTION}.py::test_chunks_of_keys_of_any_size",),
    ),
    Mutation(
        "weights are powers of 2",
        f"{COMMON}/register_rows.hpp",
        "log2_e = 0x3FB8AA3B",
        "log2_e = 0x3F800000",
        (f"{ATTENTION}.py::test_other_settings_keep_the_tolerances",),
    ),
    Mutation(
        "mask of the last key tile shows one token too many",
        f"{COMMON}/chunk_split.hpp",
        "(tokens - 1) % tile_tokens + 1;",
        "(tokens - 1) % tile_tokens + 2;",
        (f"{ATTENTION}.py::test_every_boundary_of_tiles_chunks_and_the_cache[1: 32/8]",),
    ),
    Mutation(
        "merge of partial results takes one factor twice",
        f"{COMMON}/register_rows.hpp",
        "sfpi::vFloat own = 1.0f;",
        "sfpi::vFloat own = lower;",
        (f"{ATTENTION}.py::test_partial_results_of_any_number_of_workers_are_merged[1: 2]",),
    ),
    Mutation(
        "merge tree sends to a wrong worker",
        f"{COMMON}/merge_tree.hpp",
        "return worker & (worker - 1);",
        "return worker - 1;",
        (f"{ATTENTION}_host.py::test_the_kernels_merge_tree_is_the_hosts",),
    ),
    Mutation(
        "kernel accepts at equality",
        f"{COMMON}/guess_decision.hpp",
        "distance_sq < bound;",
        "distance_sq <= bound;",
        (f"{ATTENTION}_decisions.py::test_mixed_outcomes_of_several_users[1]",),
    ),
    Mutation(
        "kernel sums half of the squares",
        f"{COMMON}/register_rows.hpp",
        "add_rotated<4>();",
        "add_rotated<1>();",
        (f"{ATTENTION}.py::test_other_settings_keep_the_tolerances",),
    ),
    Mutation(
        "an accepted guess holds the layer",
        f"{COMMON}/guess_decision.hpp",
        "given_away ? priority::yielded : priority::holds_exact",
        "given_away ? priority::holds_exact : priority::yielded",
        (f"{ATTENTION}_decisions.py::test_a_closed_gate_does_not_stop_it",),
    ),
    Mutation(
        "the lower priority sends",
        f"{COMMON}/priority.hpp",
        "mine > peers || (mine",
        "mine < peers || (mine",
        (f"{ATTENTION}_host.py::test_the_kernels_decide_who_sends_as_the_reference_does",),
    ),
    Mutation(
        "a bypassed user counts as rejected",
        f"{COMMON}/priority.hpp",
        "holds_exact_unverified = 3;",
        "holds_exact_unverified = 2;",
        (f"{ATTENTION}_decisions.py::test_mixed_outcomes_of_several_users[1]",),
    ),
    Mutation(
        "a wait that ended counts as heard",
        f"{COMMON}/bounded_wait.hpp",
        "return done();",
        "return true;",
        (
            f"{KERNEL_TESTS}/device_exchange/test_device_exchange.py::test_a_silent_peer_ends_in_an_error_that_names_who_gave_up",
        ),
    ),
    Mutation(
        "a wait without end for the peer's acknowledgement is no failure",
        f"{COMMON}/peer_session.hpp",
        "|| fail(unacknowledged)",
        "|| true",
        (f"{ATTENTION}_faults.py::test_a_fault_of_a_member_is_told_and_leaves_the_layer_to_one_rank",),
    ),
    Mutation(
        "a receiver with a guess holds nothing",
        f"{COMMON}/guess_exchange.hpp",
        "users, priority::holds_guess)",
        "users, priority::yielded)",
        (f"{ATTENTION}_faults.py::test_on_a_tie_the_first_member_sends",),
    ),
    Mutation(
        "a TP group decides by its own heads",
        f"{COMMON}/tp_session.hpp",
        "numbers[kind][user] = __builtin_bit_cast(uint32_t, total);",
        "(void)total;",
        (f"{ATTENTION}_mesh.py::test_a_tp_group_decides_by_all_heads",),
    ),
    Mutation(
        "a paged cache is read from a wrong block",
        f"{COMMON}/head_rows.hpp",
        "blocks[row >> shift];",
        "blocks[0];",
        (f"{KERNEL_TESTS}/common/test_page_table.py::test_decoding_from_pages[bfloat16]",),
    ),
    Mutation(
        "the guess's tail lacks its last tile",
        f"{COMMON}/chunk_split.hpp",
        "own % tile_tokens != 0 ? 1 : 0",
        "own % tile_tokens != 0 ? 0 : 0",
        (f"{ATTENTION}_host.py::test_the_kernels_split_is_the_hosts",),
    ),
    Mutation(
        "a tile behind the middle is chosen",
        f"{COMMON}/chosen_tiles.hpp",
        "(word_bits - 1 - (end - 1) % word_bits)",
        "(word_bits - 1 - end % word_bits)",
        (f"{ATTENTION}_chosen.py::test_chosen_tiles_number_the_rows_of_the_cache",),
    ),
    Mutation(
        "the reducer has a full share of the rest",
        f"{COMMON}/chunk_split.hpp",
        "before -= guess_before(worker) + tiles_of_emission;",
        "before -= guess_before(worker);",
        (f"{ATTENTION}_host.py::test_the_kernels_split_is_the_hosts",),
    ),
    Mutation(
        "of equally heavy tiles one that may stay unread is chosen",
        "tt_kernels/tile_selection/kernels/budget_cut.hpp",
        "count && left >= masses[near[count - 1]]",
        "count && left > masses[near[count - 1]]",
        (f"{KERNEL_TESTS}/tile_selection/test_tile_selection.py::test_the_kernel_chooses_as_the_reference_does",),
    ),
    Mutation(
        "tree mask compares enter times twice",
        f"{TREE}/interval_tiles.hpp",
        "leave = leaves[position - span.prefix];",
        "leave = enters[position - span.prefix];",
        (f"{ATTENTION}.py::test_other_settings_keep_the_tolerances",),
    ),
    Mutation(
        "a tree's padding nodes count in its norm",
        f"{TREE}/interval_tiles.hpp",
        "words(0)[node] <= last;",
        "words(0)[node] <= last + nodes;",
        (f"{ATTENTION}_decisions.py::test_decisions_follow_thresholds_close_to_the_ratio[8]",),
    ),
    Mutation(
        "new rows go behind their place in the cache",
        "tt_kernels/tree_cache/kernels/move_rows.cpp",
        "prefix + node - written.begin * tile_tokens",
        "prefix + (node ^ 1) - written.begin * tile_tokens",
        (
            f"{KERNEL_TESTS}/tree_cache/test_tree_cache.py::test_a_committed_path_is_what_the_stock_update_writes_token_by_token",
        ),
    ),
    Mutation(
        "a committed path is stored backwards",
        "tt_kernels/tree_cache/kernels/move_rows.cpp",
        "prefix + path[step];",
        "prefix + path[length - 1 - step];",
        (
            f"{KERNEL_TESTS}/tree_cache/test_tree_cache.py::test_a_committed_path_is_what_the_stock_update_writes_token_by_token",
        ),
    ),
    Mutation(
        "the exchange goes the other way",
        "tt_kernels/device_exchange/kernels/writer.cpp",
        "if (met && sends) {",
        "if (met && !sends) {",
        (f"{KERNEL_TESTS}/device_exchange/test_device_exchange.py::test_every_role_order_and_ties",),
    ),
    Mutation(
        "the gate closes where there is work",
        "tt_kernels/compute_gate/kernels/set_gate.cpp",
        "== priority::yielded ?",
        "== priority::holds_guess ?",
        (
            f"{KERNEL_TESTS}/compute_gate/test_compute_gate.py::test_the_gate_opens_after_an_exception_and_when_it_was_left_closed",
        ),
    ),
    Mutation(
        "a drafted token is accepted by its own probability",
        f"{VERIFY}/exact_walk.hpp",
        "wide::scaled_target(p_[child], draft_sum_)",
        "wide::scaled_target(q_[child], draft_sum_)",
        (f"{SAMPLING}::test_decisions_are_the_references[with replacement, from tiles]",),
    ),
    Mutation(
        "the residual keeps what the draft has more of",
        f"{VERIFY}/weights.hpp",
        "v_if(left < 0.0f) { left = 0.0f; }",
        "v_if(left < 0.0f) { left = -left; }",
        (f"{SAMPLING}::test_decisions_are_the_references[with replacement, from tiles]",),
    ),
    Mutation(
        "greedy verification compares with the wrong node's choice",
        f"{VERIFY}/greedy.cpp",
        "token[child] == choice[node]",
        "token[child] == choice[child]",
        (f"{SAMPLING}::test_greedy",),
    ),
    Mutation(
        "a round forgets the bonus token's place",
        "tt_kernels/draft_round/kernels/take_result.cpp",
        "words(at_last)[user] = count - 1;",
        "words(at_last)[user] = 0;",
        (f"{KERNEL_TESTS}/draft_round/test_draft_round.py::test_what_one_step_decides_is_what_the_next_one_reads",),
    ),
    Mutation(
        "a decode product takes all rows from the first core that holds some",
        "tt_kernels/decode_product/kernels/move_rows.cpp",
        "tile / row_tiles",
        "0",
        (f"{KERNEL_TESTS}/decode_product/test_decode_product.py::{AS_CLOSE}",),
    ),
    Mutation(
        "a decode product adds its first block to what the result's memory held",
        "tt_kernels/decode_product/kernels/multiply.cpp",
        "pack_reconfig_l1_acc(block > 0);",
        "pack_reconfig_l1_acc(true);",
        (f"{KERNEL_TESTS}/decode_product/test_decode_product.py::{AS_CLOSE}",),
    ),
    Mutation(
        "rows of users of the last face are left out of a gated product",
        f"{COMMON}/user_vectors.hpp",
        "users > face_rows ? 4 : 2;",
        "2;",
        (f"{KERNEL_TESTS}/gated_product/test_gated_product.py::{ROWS}",),
    ),
    Mutation(
        "a gated product takes the wrong tile for up",
        f"{GATED}/multiply.cpp",
        "copy_tile(rows, up + first + i,",
        "copy_tile(rows, up + i,",
        (f"{KERNEL_TESTS}/gated_product/test_gated_product.py::{ROWS}",),
    ),
    Mutation(
        "heads are rotated backwards",
        f"{HEADS}/rotation.hpp",
        "even * c - odd * s);",
        "even * c + odd * s);",
        (ROTATED,),
    ),
    Mutation(
        "a user's head goes to the first user's tiles",
        f"{HEADS}/write_head.cpp",
        "get_noc_addr(user * tiles + tile)",
        "get_noc_addr(tile)",
        (ROTATED,),
    ),
    Mutation(
        "a cached row keeps the exponents that were there",
        f"{HEADS}/write_cache.cpp",
        "to[face * face_rows] = from[face * face_rows];",
        "to[face * face_rows] = to[face * face_rows];",
        (ROTATED,),
    ),
    Mutation(
        "a row past the capacity is cached",
        f"{HEADS}/write_cache.cpp",
        "position >= 0 && static_cast<uint32_t>(position) < shape.tiles * tile_tokens",
        "position >= 0",
        (ROTATED,),
    ),
    # --- Python ---
    Mutation(
        "reference accepts at equality",
        f"{MODEL}/reference/alspec/acceptance.py",
        "return distance < torch",
        "return distance <= torch",
        (
            "tests/models/reference/alspec/test_acceptance.py::test_the_comparison_is_strict_and_guards_degenerate_outputs",
        ),
    ),
    Mutation(
        "reference's guess lacks the tail's last unit",
        f"{MODEL}/reference/model/step.py",
        "ahead = 0 if self.whole_tail else self.alignment - 1",
        "ahead = self.alignment - 1",
        ("tests/models/reference/alspec/test_policies.py::test_selected_keys_are_the_first_and_the_last_chunk",),
    ),
    Mutation(
        "host's guess lacks the tail's last tile",
        "tt_kernels/speculative_flash_decode/guess_range.py",
        "tokens % TILE != 0",
        "tokens % TILE == 1",
        (f"{ATTENTION}_host.py::test_guesses_read_the_keys_of_the_reference",),
    ),
    Mutation(
        "a user at the bypass's border is bypassed",
        f"{MODEL}/reference/model/step.py",
        "deciding >= guess_range.bypass_below",
        "deciding > guess_range.bypass_below",
        ("tests/models/reference/alspec/test_acceptance.py::test_boundary_of_two_chunks",),
    ),
    Mutation(
        "a drafted token is accepted by the target alone",
        f"{MODEL}/reference/spec_decode/draft_verification.py",
        "* q_token < p_token)",
        "< p_token)",
        (f"{SPEC}/test_verification.py",),
    ),
    Mutation(
        "the residual is the whole target",
        f"{MODEL}/reference/spec_decode/draft_verification.py",
        "(before - q[on]).clamp(min=0.0)",
        "before.clone()",
        (f"{SPEC}/test_verification.py",),
    ),
    Mutation(
        "greedy verification compares with the root's choice",
        f"{MODEL}/reference/spec_decode/draft_verification.py",
        "target_argmax[users, walk.current[users]]",
        "target_argmax[users, 0]",
        (f"{SPEC}/test_verification.py",),
    ),
    Mutation(
        "top-p drops the token that reaches it",
        f"{MODEL}/generation/sampling.py",
        "mass.cumsum(-1) - mass >= params.top_p",
        "mass.cumsum(-1) >= params.top_p",
        ("tests/models/generation/test_sampling.py::test_warpers_match_plain_loops",),
    ),
    Mutation(
        "logits are multiplied by the temperature",
        f"{MODEL}/generation/sampling.py",
        "logits.float() / min(",
        "logits.float() * min(",
        ("tests/models/generation/test_sampling.py::test_warpers_match_plain_loops",),
    ),
    Mutation(
        "low temperatures overflow to NaN",
        f"{MODEL}/generation/sampling.py",
        "logits.float() - logits.float().amax(-1, keepdim=True)",
        "logits.float()",
        ("tests/models/generation/test_sampling.py::test_whatever_the_options_a_token_is_chosen_or_they_are_refused",),
    ),
    Mutation(
        "stop strings do not see special tokens",
        f"{MODEL}/checkpoint/tokenizer.py",
        "skip_special_tokens=False",
        "skip_special_tokens=True",
        ("tests/models/checkpoint/test_stop_strings.py",),
    ),
    Mutation(
        "a draft model drafts beyond its context",
        f"{MODEL}/spec_decode/loop.py",
        "drafter.context or self.engine.capacity",
        "self.engine.capacity",
        ("tests/models/spec_decode/test_loop.py::test_texts_beyond_a_draft_models_context_go_on_without_drafts",),
    ),
    Mutation(
        "a stop string over token borders is missed",
        f"{MODEL}/checkpoint/tokenizer.py",
        "text[-(self._longest - 1) :]",
        "text[-(self._longest - 2) :]",
        ("tests/models/checkpoint/test_stop_strings.py",),
    ),
    Mutation(
        "gate and up projections are swapped",
        f"{MODEL}/reference/model/model.py",
        '("gate", "up")',
        '("up", "gate")',
        ("tests/models/reference/model/test_model_transformers.py::test_logits_agree_with_transformers",),
    ),
    Mutation(
        "an untied head reads the embedding",
        f"{MODEL}/reference/model/model.py",
        'if tied else "lm_head.weight"',
        'if True else "lm_head.weight"',
        ("tests/models/reference/model/test_model_transformers.py::test_logits_agree_with_transformers",),
    ),
    Mutation(
        "GGUF's query rows keep llama.cpp's rotary order",
        f"{MODEL}/checkpoint/gguf.py",
        "return half_split_rows(value, self.config.num_attention_heads)",
        "return value",
        ("tests/models/checkpoint/test_weights_gguf.py::test_tensors_come_back_within_the_step_of_their_type",),
    ),
    Mutation(
        "the chips' rotary pairs are of the wrong heads",
        f"{MODEL}/tt/weights.py",
        "weight.view(heads, 2, rows // heads // 2, inputs)",
        "weight.view(heads, rows // heads // 2, 2, inputs)",
        ("tests/models/tt/test_weight_map.py::test_adjacent_rotation_is_the_checkpoints",),
    ),
    Mutation(
        "a prompt begins with two BOS",
        f"{MODEL}/checkpoint/tokenizer.py",
        "add_generation_prompt), add_bos=False)",
        "add_generation_prompt), add_bos=True)",
        ("tests/models/checkpoint/test_tokenizer.py::test_a_chat_begins_with_the_bos_of_its_template_alone",),
    ),
    Mutation(
        "BOS is left out where the model wants it",
        f"{MODEL}/checkpoint/tokenizer.py",
        "self.adds_bos if add_bos is None",
        "False if add_bos is None",
        ("tests/models/checkpoint/test_tokenizer.py::test_bos_is_added_where_the_model_wants_it",),
    ),
    Mutation(
        "llama3 rope scaling keeps the long wavelengths",
        f"{MODEL}/rope_frequencies.py",
        "(1 - blend) * frequencies / scaling.factor + blend * frequencies",
        "blend * frequencies / scaling.factor + (1 - blend) * frequencies",
        ("tests/models/reference/model/test_model_transformers.py::test_logits_agree_with_transformers",),
    ),
    Mutation(
        "rope scaling with equal frequency factors is taken",
        f"{MODEL}/config.py",
        "self.high_freq_factor <= self.low_freq_factor",
        "self.high_freq_factor < self.low_freq_factor",
        ("tests/models/test_config.py::test_refused_with_the_field_and_its_value",),
    ),
    Mutation(
        "n-grams are looked up shortest first",
        f"{MODEL}/spec_decode/drafters.py",
        "range(largest, smallest - 1, -1)",
        "range(smallest, largest + 1)",
        ("tests/models/spec_decode/test_drafters.py::test_ngram_drafts_chains_and_merged_trees",),
    ),
    Mutation(
        "the first layer-parallel group has all its layers",
        f"{MODEL}/spec_decode/draft_settings.py",
        "min(3, size)",
        "size",
        ("tests/models/spec_decode/test_draft_settings.py",),
    ),
    Mutation(
        "bonus calibration keeps fuzzy entries",
        f"{MODEL}/reference/generate.py",
        "padded, view, policy=self.policy,",
        "padded, view, policy=self.policy, layer_groups=self.layer_groups,",
        ("tests/models/spec_decode/test_drafters.py::test_the_draft_cache_is_that_of_a_sequential_pass",),
    ),
    Mutation(
        "a rejected position counts as accepted",
        f"{MODEL}/spec_decode/draft_settings.py",
        "1.0 if position < taken",
        "1.0 if position <= taken",
        ("tests/models/spec_decode/test_draft_settings.py",),
    ),
    Mutation(
        "a node leaves after its next sibling enters",
        f"{MODEL}/spec_decode/tree.py",
        "[e + s - 1 for e, s",
        "[e + s for e, s",
        ("tests/models/spec_decode/test_token_tree.py::test_interval_mask_is_the_ancestor_mask",),
    ),
    Mutation(
        "an attention layer takes a draft's layer of another chip",
        f"{MODEL}/tt/layer_parallel.py",
        "divmod(chip, self.share)",
        "divmod(chip + 1, self.share)",
        ("tests/models/tt/test_layer_parallel.py::test_every_part_of_a_parallel_layer_lies_on_one_chip",),
    ),
    Mutation(
        "transformers' attention takes the guess where it fails",
        f"{MODEL}/huggingface/attention.py",
        "torch.where(accepted[:, :, None, None], guess, exact)",
        "torch.where(accepted[:, :, None, None], exact, guess)",
        ("tests/models/huggingface/test_decoding.py",),
    ),
    Mutation(
        "appendix F: a hit waits for the sender and the layer",
        "models/llama31_8b/latency.py",
        "max(sfd_s - sfd_r, per_layer)",
        "(sfd_s - sfd_r + per_layer)",
        ("tests/models/test_latency.py",),
    ),
]
