# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Answer Spec-Bench's questions with token-level speculation, at will with attention-level speculation too.

`python -m perf.studies.quality.spec_bench --questions question.jsonl --answers FILE --draft ngram`, for example.

Reads and writes Spec-Bench's files, so that its own speed and equality scripts take the answers: one object per line
with question_id, category, answer_id, model_id, tstamp and choices, of which there is one, with turns, decoding_steps,
new_tokens and wall_time by turn, and accept_lengths: tokens of each target step, the bonus token counted. They are
written in order of size; their mean is what Spec-Bench reads. A stopped run continues after its last answer.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from models.llama31_8b.checkpoint.load import LoadedModel, load_model
from models.llama31_8b.demo.backends.cpu.generation import ReferenceSession
from models.llama31_8b.demo.options import ATTENTIONS, DemoOptions, UserError
from models.llama31_8b.reference.alspec.acceptance import check_threshold
from models.llama31_8b.results import GenerationResult
from runtime_patches.board.command_line import OneLineParser, run_command

PROG = "perf.studies.quality.spec_bench"


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = OneLineParser(prog=PROG, description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--questions", type=Path, required=True, metavar="FILE", help="Spec-Bench's question.jsonl")
    add("--answers", type=Path, required=True, metavar="FILE", help="written, or continued")
    add("--model", help="Hugging Face folder or hub id, or .gguf file (default: SmolLM2-135M-Instruct)")
    add("--model-id", help="name of the run in the answers (default: made of model and options)")
    add("--categories", nargs="+", help="only these (default: all)")
    add("--limit", type=int, help="only the first questions of each category")
    add("--max-new-tokens", type=int, default=128, help="of each turn (128)")
    add("--draft", default="none", help="none, self, ngram, or a draft model (none)")
    add("--draft-length", type=int, help="tokens drafted ahead")
    add("--tree", help="DEPTHxWIDTH, or auto")
    add("--fuzzy", type=int, help="layers of the draft that run in parallel")
    add("--attention", choices=[name for name in ATTENTIONS if name != "static"], default="exact", help="(exact)")
    add("--threshold", type=float, default=0.10, help="of --attention alspec (0.10)")
    add("--chunk-size", type=int, default=128, help="tokens the guess reads at either end (128)")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Answer what is not answered yet and print the mean acceptance length; 0, or 2 with one line for an error."""
    args = parse_args(argv)
    return run_command(PROG, lambda: run(args), (UserError, ValueError))


def read_questions(path: Path, categories: Sequence[str] | None, limit: int | None) -> list[dict]:
    """Return the questions of these categories, at most `limit` of each. Raises ValueError for a line that is none, and
    for a category that no question has."""
    found: dict[str, list[dict]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            try:
                question = {name: json.loads(line)[name] for name in ("question_id", "category", "turns")}
            except (json.JSONDecodeError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{path}, line {number}: no question with question_id, category, turns: {error}"
                ) from error
            found.setdefault(question["category"], []).append(question)
    unknown = [name for name in categories or () if name not in found]
    if unknown:
        raise ValueError(f"no question of category {', '.join(unknown)}; there are {', '.join(found)}")
    return [q for name, group in found.items() if not categories or name in categories for q in group[:limit]]


def run(args: argparse.Namespace) -> int:
    check_threshold(args.threshold)
    given = ("model", "attention", "threshold", "chunk_size", "max_new_tokens")
    drafting = ("draft", "draft_length", "tree", "fuzzy")
    options = DemoOptions(**{name: getattr(args, name) for name in given + drafting})
    questions = read_questions(args.questions, args.categories, args.limit)
    lines = args.answers.read_text(encoding="utf-8").splitlines() if args.answers.exists() else []
    answered = {json.loads(line)["question_id"] for line in lines if line.strip()}
    loaded = load_model(args.model)
    name = args.model_id or f"{loaded.config.name}-{args.draft}-{args.attention}"
    lengths: list[int] = []
    todo = [question for question in questions if question["question_id"] not in answered]
    for question in tqdm(todo, unit="question", disable=not sys.stderr.isatty()):
        choice = answer(loaded, options, question["turns"])
        lengths += choice["accept_lengths"]
        line = {name: question[name] for name in ("question_id", "category")}
        line |= {"answer_id": uuid.uuid4().hex, "model_id": name, "choices": [choice], "tstamp": time.time()}
        with args.answers.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    mean = f", {sum(lengths) / len(lengths):.2f} tokens a target step" if lengths else ""
    print(f"{name}: {len(todo)} questions answered, {len(questions) - len(todo)} were there{mean}")
    return 0


def answer(loaded: LoadedModel, options: DemoOptions, turns: Sequence[str]) -> dict:
    """Return one choice of Spec-Bench's answers: every turn in the conversation so far, greedily. A model without a
    chat template continues the turns as plain text."""
    choice: dict = {"index": 0, "turns": [], "decoding_steps": [], "new_tokens": [], "wall_time": []}
    tokenizer, lengths, messages = loaded.tokenizer, [], []
    for turn in turns:
        messages.append({"role": "user", "content": turn})
        if tokenizer.chat_template:
            prompt = tokenizer.apply_chat_template(messages)
        else:
            prompt = tokenizer.encode("\n".join(message["content"] for message in messages) + "\n")
        start = time.perf_counter()
        session = ReferenceSession(loaded, options, options.policy())
        result = session.generate([prompt], lambda user, token: False)
        choice["wall_time"].append(time.perf_counter() - start)
        text = tokenizer.decode(result.token_ids[0]).strip()
        messages.append({"role": "assistant", "content": text})
        steps = accept_lengths(result)
        lengths += steps
        choice["turns"].append(text)
        choice["decoding_steps"].append(len(steps))
        choice["new_tokens"].append(len(result.token_ids[0]))
    return {**choice, "accept_lengths": lengths}


def accept_lengths(result: GenerationResult) -> list[int]:
    """Return the tokens that each target step verified, the bonus token counted, smallest first; without drafts 1 each.
    The first token comes from the prefill and is not among them."""
    if result.speculation is None:
        return [1] * result.decode_tokens
    metrics = result.speculation
    drafted = [taken + 1 for taken, count in enumerate(metrics.acceptance_histogram) for _ in range(count)]
    return [1] * (metrics.num_target_steps - metrics.num_drafts) + drafted


if __name__ == "__main__":
    sys.exit(main())
