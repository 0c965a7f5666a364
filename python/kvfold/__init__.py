"""kvfold: key/value prefixes for frozen transformers, trained, merged and used on CPUs.

    import kvfold
    base = kvfold.Base("SmolLM2-135M-Instruct.Q4_1.gguf")
    run = kvfold.train(base, [{"prompt": "2+2=", "completion": " 4"}], out="run.h5", steps=10)
    prefix = run.merge("prefix.h5")
    print(prefix.generate(["3+3="], max_tokens=4))

Shapes: B rows, T tokens, P virtual tokens, L layers, G key/value heads, D size of a head, V vocabulary.
"""
from ._library import Error, set_threads, versions
from ._options import EvalOptions, GenerateOptions, RowOptions, TrainOptions
from .base import Base, Shape
from .model import Evaluation, Model, Score
from .prefix import Prefix, inspect
from .training import Event, History, Option, Result, Run, train, train_options

__version__ = "0.1.0"
__all__ = ["Base", "Error", "EvalOptions", "Evaluation", "Event", "GenerateOptions", "History", "Model", "Option", "Prefix", "Result",
           "RowOptions", "Run", "Score", "Shape", "TrainOptions", "inspect", "set_threads", "train", "train_options", "versions"]
