# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Run by the serving environment's Python: ask a server what its clients would, and print what came as JSON."""

import asyncio
import json
import sys

import openai

LONG = "When the moon is full, the sea rises higher than on other days, and lower too, as both pull in line."
PROMPTS = ("The tides are", "When the moon is full, the sea", "A", LONG)


async def session(url: str, brief: bool) -> dict:
    client = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=600)
    model = (await client.models.list()).data[0].id

    async def chosen(prompt: str, tokens: int = 6, **settings) -> list[int]:
        """Return the token ids of an answer: the texts of ends and of halves of characters are empty or alike."""
        extra = {"ignore_eos": True, "return_token_ids": True} | settings.pop("extra_body", {})
        settings = {"temperature": 0} | settings
        answer = await client.completions.create(
            model=model, prompt=prompt, max_tokens=tokens, extra_body=extra, **settings
        )
        assert answer.usage.completion_tokens == tokens
        return answer.choices[0].token_ids

    def stream(prompt: str, tokens: int, **extra):
        asked = {"max_tokens": tokens, "temperature": 0, "extra_body": {"ignore_eos": True, **extra}}
        return client.completions.create(model=model, prompt=prompt, stream=True, **asked)

    async def streamed(prompt: str) -> tuple[list[int], int]:
        pieces = [piece.choices[0].token_ids or [] async for piece in await stream(prompt, 6, return_token_ids=True)]
        return [token for piece in pieces for token in piece], len(pieces)

    async def cancelled(prompt: str) -> int:
        pieces, count = await stream(prompt, 200), 0
        async for _ in pieces:
            count += 1
            if count == 3:
                break
        await pieces.close()
        return count

    if brief:
        # The engine logs what was guessed when the next prompt comes, and short ones are not guessed.
        return {"alone": [await chosen(prompt) for prompt in (LONG, PROMPTS[0])]}
    found: dict = {"alone": [await chosen(prompt) for prompt in PROMPTS]}
    together = await asyncio.gather(*(chosen(prompt) for prompt in PROMPTS), cancelled("This one ends early. "))
    found["together"], found["cancelled after"] = list(together[:-1]), together[-1]
    found["streamed"], found["pieces"] = await streamed(PROMPTS[0])
    found["drawn"] = [await chosen(PROMPTS[1], temperature=1.0, seed=seed) for seed in (5, 5, 6)]
    kept = {"temperature": 1.0, "top_p": 0.95, "extra_body": {"top_k": 20}}
    found["drawn on chip"] = [await chosen(PROMPTS[1], seed=seed, **kept) for seed in (5, 6)]
    beside = asyncio.gather(chosen(PROMPTS[1], seed=5, **kept), chosen(PROMPTS[0]), chosen(PROMPTS[1], seed=6, **kept))
    found["drawn together"] = list(await beside)
    chat = await client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "Why?"}], max_tokens=4, temperature=0
    )
    found["chat"] = chat.choices[0].message.content
    try:
        await chosen("x" * 4000)
    except openai.BadRequestError as error:
        found["too long"] = error.message
    found["after"] = await chosen(PROMPTS[0])
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(session(sys.argv[1], sys.argv[2:] == ["brief"]))))
