"""Makes bpe/vocab.json, bpe/merges.txt and bpe/values.txt: a small byte-level BPE and what Hugging Face's
`tokenizers` makes of difficult texts with it.

    python make_bpe.py TEXT

TEXT is any English text (the King James Bible, Debian's bible-kjv, was used). values.txt has a line per text:
its bytes in hex, then the tokens. Bytes that are not UTF-8 cannot be given to the library as a text; each run of
them is given to its BPE model as a word of its own. Needs: tokenizers 0.23.3.
"""
import json
import os
import random
import re
import sys

from tokenizers import ByteLevelBPETokenizer, Tokenizer, models, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
END = "<|endoftext|>"
# Letters, marks, numbers of every kind, all white space and what only looks like it, symbols of 1 to 4 bytes.
ALPHABET = (
    list("abstrvemlldTSRE''''  .,;!?-_09") + list("\t\n\v\f\r    \x00\x1b\x1f\x7f")
    + list("\x85\xa0\u1680\u2000\u2009\u200a\u2028\u2029\u202f\u205f\u3000") + list("\u180e\u200b\u200d\ufeff\xad")
    + list("éßÅøñČЖяΩλאבعربहिदीไทย漢字かな한글𝒜𐍈") + list("\u0301\u0308\u0345\u093f")
    + list("²½٣४५Ⅷ㊅𝟙৬") + list("€©™→♥️👍🏽👩‍🚀🇩🇪\U0010ffff\ue000")
)
TEXTS = [
    "", " ", "  ", "\n", "a", " a", "  a", "   a ", "hello world", "Hello, World!", "in the beginning  God created\n\nthe heaven",
    "I'm you're he's we've they'll I'd can't", "I'M YOU'RE HE'S", "'sss 'tis ''s '", "it’s", "don't'll've", "l'été à l'œuvre",
    "a\tb\t\tc\t", "\r\n\r\nx\r\n", "x   \n   y", " " * 40, " " * 40 + "x", "x" * 100, "abcabc" * 50, "the" * 200,
    "123456 7890 3.14159 1,000", "٣٤٥ ४५६ Ⅷ ½ ²", "1st 2nd x2 2x", "caf\u00e9 cafe\u0301", "naïve Ångström straße",
    "漢字かな交じり文", "中文，标点。", "한국어 텍스트", "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดีชาวโลก", "Привет, мир!",
    "😀", "😀😃 👍🏽 👩‍🚀 🇩🇪", "a\u00a0b\u00a0\u00a0c", "\u3000全角\u3000", "\u2003\u2003em", "a\u180eb a\u200bb \ufeffc",
    "\x85x\x85\x85y", "tab\vvt\fff\x1cfs\x1dgs", "nul\x00byte", "_snake_case__ __init__", "if (x>=0) {\n    y += 1;\n}\n",
    "http://example.org/a?b=c&d=%20e", "...!!!???", "-- --- ——", "\u0301\u0301a", END, "a" + END + "b", "<|endoftext", "\U0010ffff\ue000",
]
BROKEN = [
    "ff", "80", "c3", "c328", "e282", "e28241", "f09f98", "f09f9841", "c080", "e08080", "eda080", "edbfbf", "f4908080",
    "f8888080", "fffefdfc", "61ff62", "2061ff2062", "2020ff20", "0aff0a", "27ff73", "31c332", "f09f9880ff", "fff09f9880",
    "e28182e2", "c3a9c3", "00ff00",
]


def byte_characters():
    """encoder.py's bytes_to_unicode(), as its text says: printable bytes as themselves, the rest from U+0100 on."""
    shown = [b for b in range(256) if chr(b).isprintable() and chr(b) != " "]
    hidden = [b for b in range(256) if b not in shown]
    return {b: chr(b) if b in shown else chr(256 + hidden.index(b)) for b in range(256)}


def encode(tokenizer, characters, data):
    ids = []
    for part in re.split("([\udc80-\udcff]+)", data.decode("utf-8", "surrogateescape")):
        if part and 0xDC80 <= ord(part[0]) <= 0xDCFF:
            word = "".join(characters[b] for b in part.encode("utf-8", "surrogateescape"))
            ids += [token.id for token in tokenizer._tokenizer.model.tokenize(word)]
        else:
            ids += tokenizer.encode(part).ids
    return ids


def random_texts(rng, n):
    return ["".join(rng.choice(ALPHABET) for _ in range(rng.randint(1, 30))) for _ in range(n)]


def main():
    rng = random.Random(7)
    folder = os.path.join(HERE, "bpe")
    os.makedirs(folder, exist_ok=True)
    with open(sys.argv[1], encoding="utf-8") as file:
        lines = [re.sub(r"^\w+:\d+ ", "", line) for line in file][:300]
    # Without GPT-2's pattern, so that pairs are joined everywhere: wherever the pattern cuts, it shows.
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=1000, min_frequency=2, special_tokens=[END], max_token_length=8,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    trained.train_from_iterator(lines + TEXTS * 3 + random_texts(rng, 1500), trainer)
    trained.model.save(folder)
    tokenizer = ByteLevelBPETokenizer(os.path.join(folder, "vocab.json"), os.path.join(folder, "merges.txt"))
    characters = byte_characters()
    assert all(c in json.load(open(os.path.join(folder, "vocab.json"))) for c in characters.values())
    datas = [text.encode() for text in TEXTS + random_texts(rng, 300)] + [bytes.fromhex(text) for text in BROKEN]
    with open(os.path.join(folder, "values.txt"), "w", encoding="ascii") as file:
        for data in datas:
            ids = encode(tokenizer, characters, data)
            file.write(" ".join([data.hex() or "-"] + [str(i) for i in ids]) + "\n")


main()
