#!/usr/bin/env python3
"""Golden files of the tokenizer, made by Hugging Face's `tokenizers`, which they make our code agree with.

  make_tokenizer_golden.py                    writes tests/golden/tokenizer/
  make_tokenizer_golden.py --fuzz N [--seed S] [--binary PATH] [FOLDER ...]
                                              compares N random texts and N random token lists per folder
                                              (default: the golden ones and models/tales/target)
  make_tokenizer_golden.py --sweep            compares every character, in every pattern set and normalization form
  make_tokenizer_golden.py --unicode-updates  prints the table of common/tokenizer/text/unicode_versions.cc

Needs `pip install tokenizers` (0.23.3 made what is checked in). No model is downloaded: small vocabularies are trained here
and given the settings of GPT-2, Llama-3, Qwen-2, Llama-2, Mistral and others, as their tokenizer.json has them.
"""

import argparse
import hashlib
import itertools
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/tokenizer"
TALES = ROOT / "models/tales/target"
BINARY = ROOT / "build/cpu-release/tests/tokenizer_compare"

SCRIPTS = {
    "Latin": "All human beings are born free and equal in dignity and rights.",
    "Latin, accents": "Tất cả mọi người sinh ra đều được tự do; señor, Ærøskøbing, naïve façade, İstanbul ığdır.",
    "Cyrillic": "Все люди рождаются свободными и равными в своём достоинстве и правах.",
    "Greek": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια.",
    "Arabic": "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق، ١٢٣٤٥.",
    "Hebrew": "כל בני האדם נולדו בני חורין ושווים בערכם, בְּרֵאשִׁית.",
    "Syriac": "ܟܠ ܒܪܢܫܐ ܒܪܝܠܗ ܚܐܪܐ",
    "Devanagari": "सभी मनुष्यों को गौरव और अधिकारों के मामले में स्वतन्त्रता प्राप्त है। १२३",
    "Bengali": "সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা নিয়ে জন্মগ্রহণ করে। ১২৩",
    "Gurmukhi": "ਸਾਰਾ ਮਨੁੱਖੀ ਪਰਿਵਾਰ ਆਪਣੀ ਮਹਿਮਾ",
    "Gujarati": "પ્રતિષ્ઠા અને અધિકારોની દૃષ્ટિએ સર્વ માનવો",
    "Tamil": "மனிதப் பிறிவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.",
    "Telugu": "ప్రతిపత్తిస్వత్వముల విషయమున మానవులెల్లరును",
    "Kannada": "ಎಲ್ಲಾ ಮಾನವರೂ ಸ್ವತಂತ್ರರಾಗಿಯೇ",
    "Malayalam": "മനുഷ്യരെല്ലാവരും തുല്യാവകാശങ്ങളോടും",
    "Sinhala": "සියලු මනුෂ්‍යයෝ නිදහස්ව උපත ලබා ඇත.",
    "Thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกัน ๑๒๓",
    "Lao": "ມະນຸດທຸກຄົນເກີດມາມີກຽດສັກສີ",
    "Khmer": "មនុស្សទាំងអស់កើតមកមានសេរីភាព។",
    "Myanmar": "လူတိုင်းသည် တူညီ လွတ်လပ်သော ဂုဏ်သိက္ခာ",
    "Tibetan": "འགྲོ་བ་མིའི་རིགས་རྒྱུད་ཡོངས་ལ།",
    "Georgian": "ყველა ადამიანი იბადება თავისუფალი. ᲧᲕᲔᲚᲐ",
    "Armenian": "Բոլոր մարդիկ ծնվում են ազատ ու հավասար։",
    "Ethiopic": "የሰው፡ልጅ፡ሁሉ፡ሲወለድ፡ነጻና፡በክብርም።",
    "Hangul": "모든 인간은 태어날 때부터 자유로우며 존엄과 권리에 있어 동등하다. \u1112\u1161\u11ab\u1100\u1173\u11af",
    "Kana": "すべての人間は、生まれながらにして自由であり、カタカナ ﾊﾝｶｸ ヴ。",
    "Han": "人人生而自由，在尊嚴和權利上一律平等。㐀𠀀𪜀 〇一二三",
    "Mongolian": "ᠬᠦᠮᠦᠨ ᠪᠦᠷ ᠲᠥᠷᠥᠵᠦ \u180e ᠮᠡᠨᠳᠡᠯᠡᠬᠦ",
    "Cherokee": "ᎾᏍᎩ ᎠᏂᏴᏫ ꭰꮒᏼꮻ",
    "Canadian": "ᐃᓅᔪᓕᒫᑦ ᐊᓂᖅᑎᕆᔪᓕᒫᑦ",
    "Runic": "ᚠᛇᚻ᛫ᛒᛦᚦ᛫ᚠᚱᚩᚠᚢᚱ",
    "Gothic": "𐌼𐌰𐌲 𐌲𐌻𐌴𐍃 𐌹̈𐍄𐌰𐌽",
    "Deseret": "𐐆𐐲𐑌 𐐨𐐶𐐲𐑌",
    "Tifinagh": "ⵉⵎⴷⴰⵏⵏ ⴰⴽⴽⵯ",
    "Adlam": "𞤋𞤥𞤦𞤫 𞤊𞤵𞤤",
}

OTHER_TEXTS = [
    "",
    " ",
    "\n",
    "a",
    "  leading and trailing  ",
    "one  two   three    four\tfive\t\tsix \t seven",
    "line\nline\n\nline\r\nline\r\n\r\n \n \n  x\n   ",
    "tail of spaces     ",
    "\u00a0no-break\u00a0\u00a0 \u2003em\u2003 \u3000ideographic\u3000 \u200bzero\u200b \u180e\u1680x \u2028\u2029 \x85y",
    "I'm you're he's we've they'll I'd can't",
    "I'M YOU'RE HE'S WE'VE THEY'LL I'D CAN'T o'T 'Sx 'Ll'lL",
    "it’s I’m 'ſ x'ſ 'K '\u212a don''t '' 's' 't'",
    "0 1 12 123 1234 12345 1234567890 3.14159 1,000,000 0x7f 1e-9 ½²Ⅷ①一百",
    "١٢٣ ४५६ ৭৮৯ ๑๒๓ 𝟏𝟐𝟑 ¼ⅻ㊿",
    "int main(int argc, char** argv) {\n\treturn x != y ? foo->bar[3] : ~0u;  // ok\n}\n",
    "def f(x):\n    return {'a': [1, 2], \"b\": x**2}\n\n\nclass A:\n    pass\n",
    "<html><body class=\"x\">&amp;</body></html> https://example.org/a?b=c&d=%20#e user@example.org",
    "a.b,c;d:e!f?g(h)[i]{j}<k>/l\\m|n_o-p+q=r*s&t^u%v$w#x@y~z`",
    "...!!!???---===___***,,,;;; ...\n\n!!!\n",
    "🙂 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 1️⃣ ❤️ 🫨🩷🪿 ☺︎ 👨‍💻x👨‍💻",
    "e\u0301 é \u212b Å \u0041\u030a ﬁ ﬀ Ⅸ ㍿ \uac00 \u1100\u1161 q\u0323\u0307 q\u0307\u0323 s\u0323\u0307 \u1e9b\u0323",
    "\u0301 leading mark, a\u0301\u0301\u0327\u0327\u05b4\u0591 stacked \u0344 \u0f73 \u0340",
    "\x00\x01\x02\x07\x08\x0b\x0c\x0e\x1b\x1f\x7f \x80\x9f\xad\ufeff\ufffe\uffff\U0010ffff\ue000",
    "ZWJ\u200dx ZWNJ\u200cy \u2060z \u202ertl\u202c \u061c",
    "new in Unicode 15 and 16: \U00031350\U0002ebf0\U0001e030\u1c89\ua7cb \U00011f04\U0001f6dc \u0897 \U00016d70",
    "newer than 9: x\u0898\u0301\u0327 x\u1715\u0301 \U00011935\U00011930 \u32ff",
    "▁x ▁▁y z▁ _ ▁",
    "<0x41> <0xFF> <unk> <s> </s> <s>text</s> <s> text </s>x",
    "<|endoftext|> <|begin_of_text|><|eot_id|>a<|im_start|>user\nhi<|im_end|>\n<|endoftext|",
    "Supercalifragilisticexpialidocious pneumonoultramicroscopicsilicovolcanoconiosis",
    "camelCaseWords HTTPServer iPhone XMLHttpRequest McDonald ÀÉÎ straße STRASSE ǅ ǈ",
]

RUNS = ["a", " ", "1", "\n", "🙂", "é", "\u0301", " \n", "ab ", "'s", "가", "."]

LLAMA3_REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN2_REGEX = LLAMA3_REGEX.replace(r"\p{N}{1,3}", r"\p{N}")
O200K_REGEX = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK_REGEX = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level(add_prefix_space=False, use_regex=False):
    return {
        "type": "ByteLevel",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def split(regex, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


def pre_sequence(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def norm_sequence(*parts):
    return {"type": "Sequence", "normalizers": list(parts)}


def replace(old, new):
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def added(content, special=True, **flags):
    token = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}
    return {"content": content, **token, **flags}


def template(before, after=()):
    """TemplateProcessing; ids are filled in by `build`."""
    special = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [*map(special, before), {"Sequence": {"id": "A", "type_id": 0}}, *map(special, after)],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {name: {"id": name, "ids": [], "tokens": [name]} for name in (*before, *after)},
    }


def decoders(*parts):
    return {"type": "Sequence", "decoders": list(parts)}


LLAMA2_DECODER = decoders(
    replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}
)
SPM_TOKENS = [added("<unk>"), added("<s>"), added("</s>")]
SPM_MODEL = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}


def metaspace(scheme, split_it):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split_it}


def all_flags():
    names = ["single_word", "lstrip", "rstrip", "normalized", "special"]
    tokens = []
    for i, flags in enumerate(itertools.product([False, True], repeat=len(names))):
        tokens.append(added(f"[Ä{i}]" if i % 2 else f"tok{i}", **dict(zip(names, flags))))
    # Overlaps: the longest of those that start first wins.
    return tokens + [added("[Ä"), added("tok"), added("]]", False), added("ok1", False), added("  ", False)]


# What a vocabulary is trained with, and the settings around it: (kind, settings). `model` updates the model's.
FAMILIES = {
    "gpt2": ("bytes", dict(
        tokens=[added("<|endoftext|>", normalized=True)],
        pre_tokenizer=byte_level(use_regex=True),
        post_processor=byte_level(True),
        decoder=byte_level(True, True),
        # As openai-community/gpt2 has it: no type, an empty unknown token, merges in one string.
        model={"type": None, "unk_token": "", "continuing_subword_prefix": "", "end_of_word_suffix": ""},
        string_merges=True,
        long_runs=True,
    )),
    "llama3": ("bytes", dict(
        tokens=[added(t) for t in ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>")],
        pre_tokenizer=pre_sequence(split(LLAMA3_REGEX), byte_level()),
        post_processor={"type": "Sequence", "processors": [byte_level(True), template(["<|begin_of_text|>"])]},
        decoder=byte_level(True, True),
        model={"ignore_merges": True},
        long_runs=True,
    )),
    "qwen2": ("bytes", dict(
        tokens=[added(t) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")] + [added("<tool_call>", False)],
        normalizer={"type": "NFC"},
        pre_tokenizer=pre_sequence(split(QWEN2_REGEX), byte_level()),
        post_processor=byte_level(),
        decoder=byte_level(),
        model={"continuing_subword_prefix": "", "end_of_word_suffix": ""},
        string_merges=True,
    )),
    "o200k": ("bytes", dict(
        tokens=[added("<|endoftext|>")],
        pre_tokenizer=pre_sequence(split(O200K_REGEX, "Removed", True), byte_level()),
        post_processor=template(["<|endoftext|>"], ["<|endoftext|>"]),
        decoder=byte_level(),
    )),
    "deepseek": ("bytes", dict(
        tokens=[added("<｜begin▁of▁sentence｜>"), added("<｜User｜>", False)],
        normalizer=norm_sequence(),
        pre_tokenizer=pre_sequence(
            split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK_REGEX), byte_level()
        ),
        post_processor=template(["<｜begin▁of▁sentence｜>"]),
        decoder=byte_level(),
    )),
    "behaviors": ("bytes", dict(
        tokens=[added("<|end|>")],
        pre_tokenizer=pre_sequence(
            split(r"[\r\n]", "MergedWithPrevious"),
            split(r"\s(?=\S)", "MergedWithNext"),
            split(r"[\p{P}\p{S}]", "Contiguous"),
            split(r"(?i)[xyz]\h{,2}+|\b\w\B", "Isolated"),
            {"type": "Split", "pattern": {"String": "e"}, "behavior": "MergedWithPrevious", "invert": True},
            {"type": "Digits", "individual_digits": False},
            {"type": "Punctuation", "behavior": "Isolated"},
            byte_level(True, False),
        ),
        decoder=byte_level(),
    )),
    "whitespace": ("bytes", dict(
        tokens=[added("<|end|>")],
        normalizer=norm_sequence(
            {"type": "Strip", "strip_left": True, "strip_right": True},
            {"type": "NFKC"},
            {"type": "Lowercase"},
            {"type": "Replace", "pattern": {"Regex": r"\s{2,}|zz"}, "content": " "},
            {"type": "NFD"},
        ),
        pre_tokenizer=pre_sequence(
            {"type": "Whitespace"}, {"type": "Digits", "individual_digits": True}, {"type": "WhitespaceSplit"}, byte_level()
        ),
        decoder=None,
    )),
    "added": ("bytes", dict(
        tokens=all_flags(),
        normalizer=norm_sequence({"type": "NFD"}, {"type": "Lowercase"}, replace("x", "tok3")),
        pre_tokenizer=pre_sequence(split(LLAMA3_REGEX), byte_level()),
        decoder=byte_level(),
    )),
    "llama2": ("characters", dict(
        tokens=SPM_TOKENS,
        normalizer=norm_sequence({"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")),
        post_processor=template(["<s>"]),
        decoder=LLAMA2_DECODER,
        model=SPM_MODEL,
        string_merges=True,
        long_runs=True,
    )),
    "mistral": ("characters", dict(
        tokens=SPM_TOKENS + [added("[INST]"), added("[/INST]")],
        pre_tokenizer=metaspace("first", False),
        post_processor=template(["<s>"]),
        decoder=LLAMA2_DECODER,
        model={**SPM_MODEL, "ignore_merges": True},
    )),
    "metaspace": ("characters", dict(
        tokens=SPM_TOKENS,
        pre_tokenizer=metaspace("always", True),
        post_processor=template([], ["</s>"]),
        decoder=metaspace("always", True),
        model={"unk_token": "<unk>", "fuse_unk": False, "byte_fallback": False},
        drop_bytes=True,
    )),
    "partial_bytes": ("characters", dict(
        # Some byte tokens are missing: characters fall back to bytes or to the unknown token.
        tokens=SPM_TOKENS,
        normalizer=norm_sequence(replace(" ", "▁"), {"type": "NFKD"}),
        pre_tokenizer=metaspace("never", True),
        decoder=decoders(
            {"type": "Strip", "content": "▁", "start": 2, "stop": 0}, replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}
        ),
        model=SPM_MODEL,
        drop_bytes=[0x9F, 0xAC, 0xB8],
    )),
}

NUM_MERGES = 260


def training_texts():
    rng = random.Random(1)
    texts = [*SCRIPTS.values(), *OTHER_TEXTS]
    words = " ".join(texts).split()
    return texts * 3 + [" ".join(rng.choices(words, k=12)) for _ in range(300)]


def train(kind):
    """Vocabulary and merges of a small model."""
    tokenizer = Tokenizer(models.BPE())
    if kind == "bytes":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(LLAMA3_REGEX), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        alphabet = []
    trainer = trainers.BpeTrainer(
        vocab_size=256 + NUM_MERGES, initial_alphabet=alphabet, limit_alphabet=256, show_progress=False
    )
    tokenizer.train_from_iterator(training_texts(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), [tuple(m) for m in model["merges"]]


def build(kind, settings, trained):
    """tokenizer.json as a dictionary."""
    entries, merges = trained[kind]
    entries = list(entries)
    tokens = settings["tokens"]
    if kind == "characters":
        dropped = settings.get("drop_bytes", [])
        byte_tokens = [] if dropped is True else [f"<0x{b:02X}>" for b in range(256) if b not in dropped]
        entries = [t["content"] for t in tokens] + byte_tokens + entries
    vocabulary = {entry: i for i, entry in enumerate(entries)}
    for token in tokens:
        token["id"] = vocabulary.get(token["content"])
        if token["id"] is None:
            token["id"] = 1 + max(len(vocabulary) - 1, max((t.get("id") or 0 for t in tokens), default=0))
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
        "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, **settings.get("model", {}),
    }
    if model["type"] is None:
        del model["type"]
    model["vocab"] = vocabulary
    model["merges"] = [" ".join(m) for m in merges] if settings.get("string_merges") else [list(m) for m in merges]
    post = settings.get("post_processor")
    for part in (post or {}).get("processors", [post]):
        for name, special in (part or {}).get("special_tokens", {}).items():
            special["ids"] = [next(t["id"] for t in tokens if t["content"] == name)]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": t["id"], **{k: v for k, v in t.items() if k != "id"}} for t in tokens],
        "normalizer": settings.get("normalizer"), "pre_tokenizer": settings.get("pre_tokenizer"),
        "post_processor": post, "decoder": settings.get("decoder"), "model": model,
    }


def added_token_texts(config):
    """Every added token between letters, spaces and other tokens."""
    contents = [t["content"] for t in config["added_tokens"]]
    texts = []
    for content in contents[:40]:
        texts.append(f"a{content}b {content} c  {content}\n{content}{content} é{content}é-{content}-\t{content}.")
    rng = random.Random(2)
    texts.append("".join(rng.choice(contents) + rng.choice(["", " ", "x", "  "]) for _ in range(30)))
    return texts


def ids_digest(ids):
    return hashlib.sha256(struct.pack(f"<{len(ids)}i", *ids)).hexdigest()


def encode_cases(tokenizer, config, texts):
    plain = tokenizer.encode("", add_special_tokens=True).ids
    cases = [tokenizer.encode(text).ids for text in texts]
    bare = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    before = [i for i in range(len(plain) + 1) if all(c[i : len(c) - (len(plain) - i)] == b for c, b in zip(cases, bare))]
    own = added_token_texts(config)
    return {
        "ids": cases,
        "num_before": before[0],
        "num_after": len(plain) - before[0],
        "added_texts": own,
        "added_ids": [tokenizer.encode(text).ids for text in own],
    }


def run_cases(tokenizer, characters, length):
    runs = []
    for text in characters:
        ids = tokenizer.encode(text * length).ids
        runs.append({"text": text, "count": length, "num_ids": len(ids), "sha256": ids_digest(ids)})
    return runs


def random_ids(rng, config, count):
    """Token lists that decoders find hard: byte tokens, halves of characters, special tokens, ids that do not exist."""
    vocabulary = config["model"]["vocab"]
    bytes_of = [i for t, i in vocabulary.items() if t.startswith("<0x")] or [i for t, i in vocabulary.items() if len(t) == 1]
    added_ids = [t["id"] for t in config["added_tokens"]] or [0]
    highest = max([*vocabulary.values(), *added_ids])
    spaces = [i for t, i in vocabulary.items() if set(t) <= set("▁Ġ")] or [0]
    result = []
    for _ in range(count):
        kinds = rng.choices(["byte", "any", "added", "space", "missing"], [rng.random() * 4, 4, 0.6, 1, 0.1], k=rng.randint(1, 11))
        pick = {"byte": bytes_of, "added": added_ids, "space": spaces, "any": range(highest + 1), "missing": [highest + 5, 2**31 - 1]}
        result.append([rng.choice(pick[k]) for k in kinds])
    return result


def skippable(tokenizer, config, ids):
    """Without special tokens that Hugging Face's decode fails to skip: those whose text the normalizer changes."""
    broken = {t["id"] for t in config["added_tokens"] if t["special"] and tokenizer.id_to_token(t["id"]) != t["content"]}
    return [i for i in ids if i not in broken]


def decode_cases(tokenizer, config, texts, count):
    rng = random.Random(3)
    lists = [tokenizer.encode(text).ids[:14] for text in rng.sample(texts, 8)] + random_ids(rng, config, count)
    return [
        {"ids": ids, "skip": skip, "prefixes": [tokenizer.decode(ids[: i + 1], skip_special_tokens=skip) for i in range(len(ids))]}
        for i, ids in enumerate(lists) for skip in [i % 3 == 0]
        for ids in [skippable(tokenizer, config, ids) if skip else ids]
    ]


def dump(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    return path.stat().st_size


def write_golden():
    trained = {kind: train(kind) for kind in ("bytes", "characters")}
    texts = [*SCRIPTS.values(), *OTHER_TEXTS]
    total = dump(GOLDEN / "texts.json", texts)
    for name, (kind, settings) in [*FAMILIES.items(), ("tales", (None, None))]:
        if kind is None:
            config = json.loads((TALES / "tokenizer.json").read_text(encoding="utf-8"))
            tokenizer = Tokenizer.from_file(str(TALES / "tokenizer.json"))
        else:
            config = build(kind, settings, trained)
            size = dump(GOLDEN / name / "tokenizer.json", config)
            assert size <= 60_000, (name, size)
            total += size
            tokenizer = Tokenizer.from_file(str(GOLDEN / name / "tokenizer.json"))
        for token in config["added_tokens"]:
            assert tokenizer.token_to_id(token["content"]) == token["id"], (name, token)
        cases = encode_cases(tokenizer, config, texts)
        long_runs = kind is None or settings.get("long_runs")
        cases["runs"] = run_cases(
            tokenizer, RUNS, 1_000_000 if long_runs else 20_000)
        cases["decode"] = decode_cases(tokenizer, config, texts, 60)
        size = dump(GOLDEN / name / "cases.json", cases)
        assert size <= 150_000, (name, size)
        total += size
        print(f"{name}: {len(config['model']['vocab'])} entries, {size} bytes of cases")
    print(f"{total} bytes in all")


class Ours:
    """The tokenizer_compare executable of a folder."""

    def __init__(self, binary, folder):
        self.process = subprocess.Popen([str(binary), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def random_character(rng):
    while True:
        kind = rng.random()
        if kind < 0.25:
            character = rng.randint(0x20, 0x7E)
        elif kind < 0.4:
            return rng.choice(" \n\t\r\xa0\u3000'’sStTlLdDvVeEmM0123456789.,;:!?-_()▁")
        elif kind < 0.75:
            character = rng.choice([rng.randrange(0xA0, 0x2000), rng.randrange(0x2000, 0x3400), rng.randrange(0x3400, 0xD800)])
        elif kind < 0.85:
            character = rng.choice([rng.randrange(0x300, 0x370), rng.randrange(0x1F300, 0x1FB00), 0x200D, rng.randrange(0, 0x20)])
        else:
            character = rng.randrange(0x110000)
        if not 0xD800 <= character < 0xE000:
            return chr(character)


def random_text(rng, snippets):
    parts = []
    for _ in range(rng.randint(1, 12)):
        kind = rng.random()
        if kind < 0.35:
            snippet = rng.choice(snippets)
            start = rng.randrange(len(snippet) + 1)
            parts.append(snippet[start : start + rng.randint(1, 20)])
        elif kind < 0.45:
            parts.append(random_character(rng) * rng.randint(2, 30))
        elif kind < 0.5:
            parts.append("".join(rng.choices(" \n\r\t", k=rng.randint(1, 8))))
        else:
            parts.append("".join(random_character(rng) for _ in range(rng.randint(1, 10))))
    text = "".join(parts)
    form = rng.random()
    return unicodedata.normalize("NFC" if form < 0.1 else "NFD", text) if form < 0.2 else text


def fuzz(count, seed, binary, folders):
    failures = 0
    for folder in folders:
        config = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        ours = Ours(binary, folder)
        rng = random.Random(f"{seed} {folder.name}")
        contents = [t["content"] for t in config["added_tokens"]]
        snippets = [*SCRIPTS.values(), *OTHER_TEXTS[1:], *contents, *contents]
        wrong = panics = 0
        for _ in range(count):
            text, special = random_text(rng, snippets), rng.random() < 0.5
            try:
                want = tokenizer.encode(text, add_special_tokens=special).ids
            except BaseException as error:  # a Rust panic is no Exception
                if type(error).__name__ != "PanicException":
                    raise
                panics += 1
                continue
            got = ours.ask(encode=text, special=special)
            if got != want:
                wrong += 1
                if wrong <= 3:
                    print(f"{folder.name}: {text!r}\n  want {want}\n  got  {got}")
        for ids in random_ids(rng, config, count):
            skip = rng.random() < 0.5
            ids = skippable(tokenizer, config, ids) if skip else ids
            got = ours.ask(decode=ids, skip=skip)
            want = tokenizer.decode(ids, skip_special_tokens=skip)
            if got["text"] != want or "".join(got["pieces"]) != want:
                wrong += 1
                if wrong <= 3:
                    print(f"{folder.name}: {ids} skip={skip}\n  want {want!r}\n  got  {got}")
        ours.close()
        print(f"{folder.name}: {count} texts, {count} token lists, {wrong} differ"
              + (f" (Hugging Face's panicked on {panics})" if panics else ""), flush=True)
        failures += wrong
    return failures


def characters():
    return [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def ranges(numbers):
    """Sorted numbers as (first, last) pairs."""
    result = []
    for number in numbers:
        if result and result[-1][1] == number - 1:
            result[-1][1] = number
        else:
            result.append([number, number])
    return result


CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn".split()


def sweep(binary):
    """Every character once in each pattern, normalizer and added-token flag, alone or between neighbours."""
    alphabet = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    sets = [r"\s", r"\S", r"[^\S]", r"\w", r"\W", r"\d", r"\D", r"\h", r".", r"\p{Han}", r"\p{Greek}", r"\p{Katakana}",
            r"\p{Hiragana}", "(?i:s)", "(?i:k)", "(?i:[a-z])"]
    sets += [rf"\p{{{c}}}" for c in [*CATEGORIES, "L", "M", "N", "P", "S", "Z", "C"]]
    token = added("<a>")
    settings = [(s, dict(pre=split(s, "Removed")), "{}") for s in sets]
    settings += [(f, dict(norm={"type": f}), "x{}") for f in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase")]
    settings += [(f"{f} and marks", dict(norm={"type": f}), "x{0}\u0301\u0327\u05b4{0}") for f in ("NFC", "NFKD")]
    settings += [("single_word", dict(tokens=[{**token, "single_word": True}]), "{0}<a> <a>{0}"),
                 ("strips", dict(tokens=[{**token, "lstrip": True, "rstrip": True}]), "z{0}<a>{0}z"),
                 ("Punctuation", dict(pre={"type": "Punctuation", "behavior": "Removed"}), "{}"),
                 ("Strip", dict(norm={"type": "Strip", "strip_left": True, "strip_right": True}, tokens=[token]), "<a>{}<a>")]
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tokenizer.json"
        for name, parts, wrap in settings:
            tokens = [{"id": 256, **t} for t in parts.get("tokens", [])]
            dump(path, {
                "version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens,
                "normalizer": parts.get("norm"), "post_processor": None, "decoder": byte_level(),
                "pre_tokenizer": pre_sequence(*filter(None, [parts.get("pre")]), byte_level()),
                "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                          "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                          "vocab": alphabet, "merges": []},
            })
            tokenizer, ours = Tokenizer.from_file(str(path)), Ours(binary, folder)
            differ = lambda text: ours.ask(encode=text, special=False) != tokenizer.encode(text, add_special_tokens=False).ids
            wrong = []
            every = characters()
            for start in range(0, len(every), 1024):
                block = every[start : start + 1024]
                if differ("".join(wrap.format(chr(c)) for c in block)):
                    wrong += [c for c in block if differ(wrap.format(chr(c)))]
            ours.close()
            shown = " ".join(f"{a:X}" if a == b else f"{a:X}-{b:X}" for a, b in ranges(wrong))
            print(f"{name}: {len(wrong)} characters differ {shown}", flush=True)
            failures += len(wrong)
    return failures


def members(regex):
    """All characters that a pattern of one character matches, as Hugging Face's tokenizers see it."""
    found = set()
    every = characters()
    matcher = pre_tokenizers.Split(Regex(regex), "removed", invert=True)
    for start in range(0, len(every), 65536):
        for piece, _ in matcher.pre_tokenize_str("".join(map(chr, every[start : start + 65536]))):
            found.update(map(ord, piece))
    return found


def print_unicode_updates():
    assert unicodedata.unidata_version == "14.0.0", "needs the Python that has PCRE2's version: 3.11"
    scripts = {name: members(rf"\p{{{name}}}") for name in ("Han", "Hiragana", "Katakana")}
    rows = []
    for category in CATEGORIES:
        new = {c for c in members(rf"\p{{{category}}}") if unicodedata.category(chr(c)) != category}
        for name, script in scripts.items():
            rows += [(a, b, f"k{name}{len(chr(a).encode())}") for a, b in ranges(sorted(new & script))]
            new -= script
        rows += [(a, b, f"k{category}{len(chr(a).encode())}") for a, b in ranges(sorted(new))]
    for first, last, known in sorted(rows):
        print(f"{{0x{first:X}, 0x{last:X}, {known}}},")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fuzz", type=int, metavar="N")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--binary", type=pathlib.Path, default=BINARY)
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--unicode-updates", action="store_true")
    parser.add_argument("folders", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    if options.unicode_updates:
        print_unicode_updates()
    elif options.sweep:
        sys.exit(sweep(options.binary) > 0)
    elif options.fuzz is not None:
        folders = options.folders or [GOLDEN / name for name in FAMILIES] + [TALES]
        sys.exit(fuzz(options.fuzz, options.seed, options.binary, folders) > 0)
    else:
        write_golden()


if __name__ == "__main__":
    main()
