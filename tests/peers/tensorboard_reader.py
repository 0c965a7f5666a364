"""The event files of train --tensorboard read by TensorBoard itself, on the tests' tiny model: values compared with the log's, the options
as a text, and a run that lost steps and did them again, which must show each step once."""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

failures = 0


def expect(what, good):
    global failures
    failures += not good
    print(f"{'ok  ' if good else 'FAIL'} {what}")


def train(args, folder, steps, *more):
    command = [args.kvfold, "train", "--base", "model", "--data", "train.jsonl", "--valid", "train.jsonl", "--out", "run.h5",
               "--prefix-length", "4", "--encoder-hidden", "16", "--precision", "f32", "--schedule", "constant", "--schedule-steps",
               "10", "--steps", steps, "--eval-every", "2", "--log", "log.jsonl", "--tensorboard", "board", *more]
    subprocess.run([str(word) for word in command], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def lines(folder, event):
    with open(os.path.join(folder, "log.jsonl")) as file:
        return [line for line in map(json.loads, file) if line["event"] == event]


def accumulate(folder):
    board = EventAccumulator(os.path.join(folder, "board"))
    board.Reload()
    return board


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    args = parser.parse_args()
    args.kvfold = os.path.abspath(os.path.join(args.build, "kvfold"))
    folder = tempfile.mkdtemp()
    subprocess.run([os.path.abspath(os.path.join(args.build, "tests", "make_tiny")), "model"], cwd=folder, check=True)
    with open(os.path.join(folder, "train.jsonl"), "w") as file:
        for i in range(24):
            print(json.dumps({"prompt": f"after {i}:", "completion": f" {i + 1}"}), file=file)

    train(args, folder, 4)
    board = accumulate(folder)
    tags = {"train/loss", "train/lr", "train/grad_norm", "train/prefix_norm", "train/tokens_per_second", "valid/loss"}
    expect("tags of scalars", set(board.Tags()["scalars"]) == tags)
    keys = {"train/loss": "train_loss", "train/lr": "lr", "train/grad_norm": "grad_norm", "train/prefix_norm": "prefix_norm"}
    for tag, key in keys.items():
        want = [(line["step"], line[key]) for line in lines(folder, "step")]
        got = [(event.step, event.value) for event in board.Scalars(tag)]
        expect(f"{tag} is the log's", len(got) == 4 and all(a[0] == b[0] and abs(a[1] - b[1]) <= 1e-6 * abs(b[1])
                                                           for a, b in zip(got, want)))
    expect("valid/loss at steps 2 and 4", [event.step for event in board.Scalars("valid/loss")] == [2, 4])
    text = tensor_util.make_ndarray(board.Tensors("options")[0].tensor_proto).item().decode()
    expect("options as a text", "| method | mlp |" in text and "| prefix-length | 4 |" in text)

    run = os.path.join(folder, "run.h5")
    shutil.copy(run, run + ".kept")
    train(args, folder, 8, "--resume")
    shutil.copy(run + ".kept", run)  # as if the run had been killed before it saved steps 5 to 8
    train(args, folder, 10, "--resume")
    board = accumulate(folder)
    expect("three event files", len(os.listdir(os.path.join(folder, "board"))) == 3)
    expect("each step once", [event.step for event in board.Scalars("train/loss")] == list(range(1, 11)))
    expect("each validation once", [event.step for event in board.Scalars("valid/loss")] == [2, 4, 6, 8, 10])
    shutil.rmtree(folder)
    sys.exit(failures != 0)


main()
