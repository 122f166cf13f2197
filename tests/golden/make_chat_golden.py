#!/usr/bin/env python3
"""Makes tests/golden/chat/tales.json: what Hugging Face's transformers answers greedily to chats with models/tales/target.

    python3 -m venv /tmp/golden
    /tmp/golden/bin/pip install torch==2.15.0 transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0
    /tmp/golden/bin/python tests/golden/make_chat_golden.py

What is checked in was made with these versions. Each case has the messages, the ids that `apply_chat_template` gives for them, and the ids
and the text of the answer. The model computes in F32 from the weights as stored, with the eager attention.
"""

import json
import pathlib

import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = ROOT / "models" / "tales" / "target"
OUT = ROOT / "tests" / "golden" / "chat" / "tales.json"
MAX_TOKENS = 48

CHATS = [
    [("user", "Once upon a time there was a king who")],
    [("system", "In a deep forest there lived a woodcutter."), ("user", "His wife said to him:")],
    [("user", "The fox met a crow."), ("assistant", " \"Good morning,\" said the fox."), ("user", "The crow answered, and")],
    [("user", "Zwölf Brüder — 十二人 — und eine Schwester")],
]


def main():
    tokenizer = transformers.AutoTokenizer.from_pretrained(TARGET)
    model = transformers.AutoModelForCausalLM.from_pretrained(TARGET, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    cases = []
    for chat in CHATS:
        messages = [dict(role=role, content=content) for role, content in chat]
        inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        with torch.no_grad():
            ids = model.generate(**inputs, max_new_tokens=MAX_TOKENS, do_sample=False)[0]
        prompt = inputs["input_ids"][0].tolist()
        answer = ids[len(prompt):].tolist()
        cases.append(dict(messages=messages, prompt_ids=prompt, answer_ids=answer,
                          text=tokenizer.decode(answer, skip_special_tokens=True)))
    OUT.parent.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    OUT.write_text(f'{{"transformers": "{transformers.__version__}", "max_tokens": {MAX_TOKENS}, "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
