"""Small vocabularies of SentencePiece and tiktoken, and what both libraries make of some lines: what
tests/text/test_sentencepiece.c compares with.

Writes sentencepiece/NAME.model, trained on the text below, sentencepiece/tiktoken.model, and sentencepiece/lines.json,
{NAME: [{"text", "ids", "decoded"}]}; decoded is left out where unknown characters were lost.

    bpe              as Llama's: bytes for what is unknown, spaces as they are
    bpe_unknown      without bytes: a run of unknown characters is one token
    unigram          normalised by rules, spaces collapsed
    unigram_bytes    bytes for what is unknown, no normalisation
    tiktoken         ranks, cut by the regex of cl100k_base

Run: python make_sentencepiece_golden.py   (sentencepiece 0.2, tiktoken 0.14)
"""
import base64
import io
import json
import os
import tempfile

import sentencepiece as spm
import tiktoken
from tiktoken._educational import bpe_train

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sentencepiece")
TEXT = """The old river runs below the town, and the boats of the fishers lie along its banks until the evening.
In spring the children throw stones from the bridge; in autumn they count the leaves that float to the sea.
Nobody knows how deep the water is. An engineer measured it once: 12.5 metres in 1907, and 13 in 1964.
She wrote: "the third pillar leans a little, as it always did", and left without another word.
Der Fluss ist alt, die Brücke älter. Les enfants jouent près de l'eau où les bateaux dorment déjà.
A bridge is a road over water, a road is a bridge over land, and both of them end where somebody waits.
They said that they would come back, that they would bring the others, that they'd never forget it.
"""
RULES = {"ﬁ": "fi", "ｅ": "e", "ｔ": "t", "\u00a0": " ", "\u3000": " ", "…": "...", "e\u0301": "é", "½": "1/2", "\u200b": ""}
LINES = ["", " ", "the bridge", " the  bridge ", "The river runs below the town.", "a", "  two  spaces\tand a tab ", "line\nbreak\n\nand more\r\n",
         "über die Brücke, près de l'eau", "cafe\u0301 and café", "unknown: 你好 🙂🙂 done", "你", "don't they'd THEY'D I'll", "1907 + 12345678 = ?",
         "ﬁsh … ½ ｔｅxt\u3000end\u00a0", "a\u200bb", "▁under▁line", "x" * 40, "bridgebridgebridge", "\u00e9\u00e8 \u0416\u0416 end", "ends in space ",
         "<unk> <0x41> <sep>", "\u2581", "punct!!! ... (a) [b] {c} #$%&*", "\u0e01\u0e33 \U0001d54f"]
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def train(name, **options):
    out = io.BytesIO()
    with tempfile.TemporaryDirectory() as place:
        rules = os.path.join(place, "rules.tsv")
        with open(rules, "w") as file:
            for source, target in RULES.items():
                file.write(" ".join(f"{ord(c):X}" for c in source) + "\t" + " ".join(f"{ord(c):X}" for c in target) + "\n")
        if options.pop("rules", False):
            options["normalization_rule_tsv"] = rules
        spm.SentencePieceTrainer.train(sentence_iterator=iter(TEXT.splitlines()), model_writer=out, num_threads=1, minloglevel=2,
                                       hard_vocab_limit=False, **options)
    path = os.path.join(HERE, name + ".model")
    with open(path, "wb") as file:
        file.write(out.getvalue())
    return spm.SentencePieceProcessor(model_file=path)


def rows_of(model, keeps_all):
    rows = []
    for line in LINES:
        if "<unk>" in line or "<0x" in line:  # text that is written as a special piece is that piece in transformers
            continue
        row = {"text": line, "ids": model.encode(line)}
        if keeps_all:
            row["decoded"] = model.decode(row["ids"])
        rows.append(row)
    return rows


def make_tiktoken():
    ranks = bpe_train(TEXT * 3, 400, PATTERN, visualise=None)
    with open(os.path.join(HERE, "tiktoken.model"), "w") as file:
        for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
            file.write(base64.b64encode(token).decode() + f" {rank}\n")
    model = tiktoken.Encoding("tiny", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    return [{"text": line, "ids": model.encode_ordinary(line), "decoded": line} for line in LINES]


if __name__ == "__main__":
    os.makedirs(HERE, exist_ok=True)
    lines = {
        "bpe": rows_of(train("bpe", model_type="bpe", vocab_size=420, byte_fallback=True, normalization_rule_name="identity",
                             remove_extra_whitespaces=False), True),
        "bpe_unknown": rows_of(train("bpe_unknown", model_type="bpe", vocab_size=150, normalization_rule_name="identity",
                                     remove_extra_whitespaces=False), False),
        "unigram": rows_of(train("unigram", model_type="unigram", vocab_size=150, rules=True), False),
        "unigram_bytes": rows_of(train("unigram_bytes", model_type="unigram", vocab_size=420, byte_fallback=True,
                                       normalization_rule_name="identity", remove_extra_whitespaces=False), True),
        "tiktoken": make_tiktoken(),
    }
    with open(os.path.join(HERE, "lines.json"), "w") as file:
        file.write('{"made_by": "sentencepiece %s, tiktoken %s"' % (spm.__version__, tiktoken.__version__))
        for name, rows in lines.items():
            file.write(f',\n"{name}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "]")
        file.write("}\n")
