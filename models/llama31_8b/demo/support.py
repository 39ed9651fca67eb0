# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a backend of the demo can do, declared once: errors, --help and the table of the docs come from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..config import LlamaConfig
from ..tt.layer_parallel import LayerAssignment
from ..tt.mesh import MeshError, MeshShape
from ..tt.spec_decode.draft_limits import check_draft_shape
from .options import ATTENTIONS, DRAFTERS, MAX_PROMPTS, DemoOptions, UserError, flag_of

# What draws a token; at temperature 0 none is drawn.
_SAMPLING = ("top_k", "top_p", "seed")

# What backends on chips support.
CHIP_DRAFTING: Mapping[str, str | None] = {
    "ngram": None,
    "self": None,
    "model": None,
}
_WHOLE_DISTRIBUTION = "drafts are verified against the whole distribution"
CHIP_DRAFTS_REFUSE: Mapping[str, str] = {
    "attention": "chips verify a tree's nodes with exact attention, or with guesses that are verified",
    "top_k": _WHOLE_DISTRIBUTION,
    "top_p": _WHOLE_DISTRIBUTION,
    "sample_on": "drafts are verified on the chips",
}


def chip_tree_nodes(options: DemoOptions, users: int = 1) -> int:
    """Return the nodes per user that a step on chips verifies, 0 without a drafter. Raises UserError for drafts of no
    token, for trees and layer groups that drafters on chips do not have, and for more rows than a pass of a draft model
    takes."""
    if options.drafter == "none":
        return 0
    shape = options.draft_shape()
    if shape.length < 1:
        raise UserError("--draft-length 0 drafts nothing: chips decode without drafts by --draft none")
    if options.draft_kind == "self" and (asked := options.flags("tree", "fuzzy")):
        raise UserError(f"{asked[0]}: on chips a model drafts chains for itself, its layers one after another")
    if options.draft_kind == "model":
        if shape.width > 1 and (options.fuzzy or 1) > 1:
            raise UserError(
                f"--fuzzy {options.fuzzy} with --tree {options.tree} would change nothing: on chips trees are drafted "
                "by exact passes"
            )
        try:
            check_draft_shape(shape, users)
        except ValueError as error:
            raise UserError(
                f"--draft {options.drafter}: {error}: a lower --draft-length, a smaller --tree, or fewer prompts"
            ) from error
    return shape.most_nodes


def layer_parallel(options: DemoOptions, draft: LlamaConfig, mesh: MeshShape) -> LayerAssignment | None:
    """Return the layer assignment of --fuzzy for a draft model on chips, None for sequential drafts. Raises UserError
    for a number of layers that the model does not have and for drafts of one token, MeshError for a model that the mesh
    cannot hold."""
    if options.fuzzy is None or options.fuzzy == 1:
        return None
    if options.draft_shape().length < 2:
        raise UserError(
            f"--fuzzy {options.fuzzy} with --draft-length 1 would change nothing: the first token of a draft comes "
            "from the exact pass"
        )
    try:
        return LayerAssignment.make(draft, mesh, options.fuzzy)
    except MeshError:
        raise
    except ValueError as error:
        raise UserError(f"--fuzzy {options.fuzzy}: {error} ({draft.name})") from error


UNVERIFIED = ("sink", "static")  # policies of attention that take a guess as it is
DECODE_SHARDING = "interleaved"  # without --decode-sharding


@dataclass(frozen=True)
class Support:
    """What one backend supports. In place of a reason, None means supported.

    what: a few words on where it runs. attention, drafting: why not, by policy and kind of drafter. chat: why there are
    no conversations. prompts: why there is only one prompt; prompts_refuse: by option, why it does not go with several.
    refused: by option, why it means nothing here; drafts_refuse: likewise in a run with a drafter, where "attention" is
    attention that takes guesses unverified (UNVERIFIED). default_attention: the policy without --attention, or a
    function of the options that returns it. reads_prompt: whether a prompt, or a terminal to chat in, is needed.
    seeds_weights: whether --seed matters at --temperature 0.
    """

    device: str
    what: str
    default_attention: str | Callable[[DemoOptions], str]
    attention: Mapping[str, str | None]
    drafting: Mapping[str, str | None]
    chat: str | None
    prompts: str | None = None
    prompts_refuse: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    drafts_refuse: Mapping[str, str] = field(default_factory=dict)
    reads_prompt: bool = True
    # Whether --temperature 0 leaves sampling parameters without effect; the seed may serve something else.
    seeds_weights: bool = False

    def resolved(self, options: DemoOptions) -> DemoOptions:
        """Return the options with this backend's default for the attention policy."""
        if options.attention is not None:
            return options
        default = self.default_attention
        return replace(options, attention=default if isinstance(default, str) else default(options))

    def check(self, options: DemoOptions) -> None:
        """Raise UserError for what this backend refuses, and for an option that would change nothing."""
        attention = str(options.attention)
        if (why := self.attention[attention]) is not None:
            raise self._refusal(f"--attention {attention}", why)
        if options.drafter != "none":
            self._check_drafting(options, attention)
        if options.prompts_given > 1:
            self._check_prompts(options)
        for name, why in self.refused.items():
            if name in options.given:
                raise self._refusal(flag_of(name), why)
        if "threshold" in options.given and attention != "alspec":
            raise UserError(
                f"--threshold is what --attention alspec accepts a guess by; this run has {attention} attention"
            )
        if "predictor" in options.given and attention != "alspec":
            raise UserError(
                f"--predictor is what a guess of --attention alspec reads; this run has {attention} attention"
            )
        if options.predictor == "followed" and options.drafter != "none":
            raise UserError(
                f"--predictor followed guesses one token after another; --draft {options.drafter} verifies several at "
                "once"
            )
        if options.static_layers is not None and attention != "static":
            raise UserError(f"--static-layers needs --attention static, got --attention {attention}")
        if options.static_layers is None and attention == "static":
            raise UserError("--attention static needs --static-layers, such as 0,4,10-12")
        if options.html is not None and attention != "alspec":
            raise UserError(f"--html shows what --attention alspec accepts; this run has {attention} attention")
        unused = [name for name in _SAMPLING if not (self.seeds_weights and name == "seed")]
        if options.temperature == 0 and (asked := options.flags(*unused)):
            raise UserError(f"{asked[0]} needs --temperature above 0: at 0 the likeliest token is taken, none is drawn")

    def _check_drafting(self, options: DemoOptions, attention: str) -> None:
        if (why := self.drafting[options.draft_kind]) is not None:
            raise self._refusal(f"--draft {options.drafter}", why)
        for name, why in self.drafts_refuse.items():
            if name == "attention" and attention in UNVERIFIED:
                raise self._refusal(f"--draft {options.drafter} with --attention {attention}", why)
            if name != "attention" and name in options.given:
                raise self._refusal(f"--draft {options.drafter} with {flag_of(name)}", why)

    def _check_prompts(self, options: DemoOptions) -> None:
        if self.prompts is not None:
            raise self._refusal("more than one prompt", self.prompts)
        for name, why in self.prompts_refuse.items():
            if name in options.given:
                raise self._refusal(f"{flag_of(name)} with more than one prompt", why)

    def check_page(self, options: DemoOptions, texts: Sequence[str] | None) -> None:
        """Raise UserError for --html with a conversation."""
        if texts is None and self.reads_prompt and options.html is not None:
            raise UserError("--html shows one text: give --prompt or --prompt-file, or pipe one in")

    def _refusal(self, what: str, why: str) -> UserError:
        return UserError(f"{what} does not go with --device {self.device}: {why}")

    def summary(self) -> str:
        """Return this backend's line of --help."""
        able = [name for name in ATTENTIONS if self.attention[name] is None]
        drafters = [kind for kind in DRAFTERS if self.drafting[kind] is None]
        also = [f"drafting by {', '.join(drafters)}"] if drafters else []
        also += [] if self.chat else ["chat"]
        also += [] if self.prompts else [f"up to {MAX_PROMPTS} prompts at once"]
        without = f"; not: {', '.join(map(flag_of, self.refused))}" if self.refused else ""
        return f"--device {self.device}: {self.what}. Attention {'; '.join([', '.join(able), *also])}{without}"
