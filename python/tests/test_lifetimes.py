"""Objects keep what they need: files that go or change, other threads, children of fork()."""
import copy
import functools
import logging
import os
import pickle
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
import unittest.mock
from pathlib import Path

import kvfold
import numpy as np
from support import COMMAND, PAIRS, SMALL, Case, command, write_rows

PLACE = Path(kvfold.__file__).parent.parent
PACKED = (PLACE / "kvfold.libs").exists()  # the wheel


class Loading(unittest.TestCase):
    def shown(self, program):
        done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(PLACE)}, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_one_openmp(self):
        """A process with kvfold has one OpenMP runtime."""
        maps = self.shown("import kvfold; kvfold.versions(); print(open('/proc/self/maps').read())")
        found = set(re.findall(r"/\S*/lib(?:gomp|i?omp)[\w.-]*", maps))
        self.assertEqual(len(found), 1, found)

    @unittest.skipUnless(PACKED, "the libraries of this system may take longer")
    def test_import_is_fast(self):
        program = "import numpy, time; begin = time.process_time(); import kvfold; print(time.process_time() - begin)"
        self.assertLess(min(float(self.shown(program)) for _ in range(5)), 0.1)


class Files(Case):
    def own_base(self, name):
        return kvfold.Base(shutil.copytree(self.llama, self.folder / name))

    def test_a_base_trains_without_its_file(self):
        base = self.own_base("moved")
        want = base.generate(["w1:"], max_tokens=4)
        shutil.rmtree(self.folder / "moved")
        run = kvfold.train(base, PAIRS, out=self.folder / "moved.h5", **{**SMALL, "method": "direct"})
        kvfold.train(self.base, PAIRS, out=self.folder / "there.h5", **{**SMALL, "method": "direct"})
        np.testing.assert_array_equal(run.prefix().numpy(), kvfold.Run(self.folder / "there.h5", self.base).prefix().numpy())
        self.assertEqual(base.generate(["w1:"], max_tokens=4), want)

    def test_a_base_is_whole_while_it_begins_to_train(self):
        base, errors, stop = self.own_base("watched"), [], threading.Event()

        def look():
            while not stop.is_set():
                try:
                    self.assertEqual((base.name, base.shape.L, base.hash), ("watched", 2, self.base.hash))
                except BaseException as error:
                    errors.append(error)

        watcher = threading.Thread(target=look)
        watcher.start()
        kvfold.train(base, PAIRS, out=self.folder / "watched.h5", **SMALL)
        stop.set()
        watcher.join()
        self.assertEqual(errors, [])

    def test_another_base_at_the_path(self):
        """A prefix that changes the base opens it once more."""
        base = self.own_base("replaced")
        adapter = {"method": "adapter", "adapter_size": 2, "prefix_length": None}
        self.prefix_of(base, PAIRS, "adapter", **adapter)
        kvfold.train(base, PAIRS, out=self.folder / "full.h5", method="full", steps=1).merge_base(self.folder / "other.h5")
        shutil.rmtree(self.folder / "replaced")
        shutil.move(self.folder / "other.h5", self.folder / "replaced")
        self.fails("holds other weights now", kvfold.Prefix.load, self.folder / "adapter.h5", base, allow_other_base=True,
                   status="EMISMATCH")

    def test_to_peft_writes_what_is_in_memory(self):
        array = np.random.default_rng(1).normal(size=(2, 2, 1, 2, 4, 8)).astype(np.float32)
        kvfold.Prefix.from_numpy(self.base, array).save(self.folder / "p.h5")
        prefix = kvfold.Prefix.load(self.folder / "p.h5", self.base)
        kvfold.Prefix.from_numpy(self.base, 2 * array).save(self.folder / "p.h5", force=True)
        prefix.to_peft(self.folder / "peft")
        np.testing.assert_array_equal(kvfold.Prefix.from_peft(self.folder / "peft", self.base).numpy(), array)

    def test_a_base_is_not_written_over(self):
        base = self.own_base("kept")
        weights = self.folder / "kept/model.safetensors"
        prefix = kvfold.Prefix.from_numpy(base, np.zeros((2, 2, 1, 2, 4, 8)))
        os.link(weights, self.folder / "linked")
        for path in (weights, self.folder / "linked"):
            self.fails("is open for reading", prefix.save, path, force=True, status="EUSAGE")
        self.assertEqual(kvfold.Base(self.folder / "kept").hash, base.hash)

    def test_objects_are_not_copied(self):
        prefix = kvfold.Prefix.from_numpy(self.base, np.zeros((2, 2, 1, 2, 4, 8)))
        with unittest.mock.patch("sys.unraisablehook") as half_made:
            for function in (copy.deepcopy, pickle.dumps):
                self.assertRaisesRegex(TypeError, "not copied or pickled", function, prefix)
                self.assertRaises((TypeError, ValueError), function, self.base)
        half_made.assert_not_called()

    def test_relative_paths(self):
        self.own_base("near")
        here = os.getcwd()
        try:
            os.chdir(self.folder)
            base = kvfold.Base("near")
            run = kvfold.train(base, PAIRS, out=self.folder / "near.h5", **{**SMALL, "method": "projected"})
            os.chdir("/")
            run.merge(self.folder / "near.prefix.h5").to_peft(self.folder / "near.peft")
        finally:
            os.chdir(here)
        self.assertEqual(kvfold.Prefix.from_peft(self.folder / "near.peft", base).length, 3)


class Stopped(Case):
    """What Ctrl-C or a callback raises is raised after the call, which ends soon and leaves the base as it was."""

    def setUp(self):
        self.many = write_rows(self.folder / "many.jsonl", [{"prompt": "w: u", "completion": " abc" * 20}] * 20000)
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))

    def calls(self):
        bert = kvfold.Base(self.bert)
        head = self.prefix_of(bert, [{"text": "a", "label": "y"}, {"text": "b", "label": "n"}] * 8, "head", task="seq-cls")
        texts = write_rows(self.folder / "texts.jsonl", [{"text": "a b " * 60}] * 10000)
        return {"eval": (self.base.eval, self.many), "score": (self.base.score, self.many), "predict": (head.predict, texts),
                "generate": (functools.partial(self.base.generate, max_tokens=400), ["w1:"] * 4000)}

    def test_ctrl_c(self):
        for name, (function, data) in self.calls().items():
            with self.subTest(name):
                timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
                timer.start()
                begin = time.monotonic()
                self.assertRaises(KeyboardInterrupt, function, data)
                self.assertLess(time.monotonic() - begin, 4)
                timer.join()
        self.assertEqual(len(self.base.generate(["a"])), 1)
        self.assertEqual(signal.getsignal(signal.SIGINT), signal.default_int_handler)
        self.assertEqual(signal.set_wakeup_fd(-1), -1)

    def test_another_handler(self):
        """One that raises is obeyed; so is asyncio's, which gets the number by a descriptor."""

        def handler(number, frame):
            raise ZeroDivisionError

        signal.signal(signal.SIGINT, handler)
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        self.assertRaises(ZeroDivisionError, self.base.eval, self.many)
        reader, writer = socket.socketpair()
        for end in (reader, writer):
            end.setblocking(False)
            self.addCleanup(end.close)
        self.addCleanup(signal.set_wakeup_fd, signal.set_wakeup_fd(writer.fileno()))
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        self.assertRaises(ZeroDivisionError, self.base.eval, self.many)
        self.assertEqual(select.select([reader], [], [], 5)[0], [reader])
        self.assertEqual(reader.recv(8), bytes([signal.SIGINT]))

    def test_a_log_that_raises(self):
        logger, handler = logging.getLogger("kvfold"), logging.Handler()
        handler.emit = unittest.mock.Mock(side_effect=KeyboardInterrupt)
        logger.addHandler(handler)
        self.addCleanup(logger.removeHandler, handler)
        self.addCleanup(logger.setLevel, logger.level)
        logger.setLevel(logging.INFO)
        with self.assertRaises(KeyboardInterrupt):
            kvfold.train(self.base, PAIRS, out=self.folder / "log.h5", **SMALL)
        handler.emit.assert_called()


class Forked(Case):
    PROGRAM = """
import kvfold, os, subprocess, sys, threading, time
def in_child(work):
    pid = os.fork()
    if not pid:
        try: print(work(), flush=True)
        except kvfold.Error as error: print(error, flush=True)
        os._exit(0)
    for _ in range(1000):
        if os.waitpid(pid, os.WNOHANG)[0]: return
        time.sleep(0.01)
    os.kill(pid, 9)
    print("hangs", flush=True)
def answer(): return kvfold.Base(sys.argv[1]).generate(["a"] * 8, max_tokens=3)
kvfold.set_threads(2)
in_child(answer)
base = kvfold.Base(sys.argv[1])
print(base.generate(["a"] * 8, max_tokens=3), flush=True)
in_child(lambda: base.generate(["a"] * 8, max_tokens=3))
in_child(answer)
in_child(lambda: base.detokenize(base.tokenize("abc")))
print(subprocess.check_output([sys.argv[2], "generate", "--base", sys.argv[1], "--prompt", "a", "--json"], preexec_fn=lambda: None), flush=True)
busy = threading.Thread(target=base.eval, args=([("a", "b" * 99)] * 4000,))
busy.start()
while not base._context._busy: pass
in_child(lambda: base.tokenize("abc"))
os._exit(0)
"""

    def test_children(self):
        """A child computes if its parent has not; else it gets a line. What a program does after exec is its own."""
        done = subprocess.run([sys.executable, "-c", self.PROGRAM, self.llama, COMMAND], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0], lines[1], done.stderr)
        for line in lines[2:4]:
            self.assertIn("this process was forked after computing", line)
        self.assertEqual(lines[4], "abc")
        self.assertIn("text", lines[5])
        self.assertEqual(lines[6], "this process was forked while a call used the base")


class FilesInThreads(Case):
    """HDF5 is not thread-safe where it is built as for the wheel."""

    def in_threads(self, n, work):
        errors = []

        def guarded(i):
            try:
                work(i)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=guarded, args=(i,)) for i in range(n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])

    def test_files(self):
        self.prefix_of(self.base, PAIRS, "p")

        def work(i):
            for _ in range(25):
                prefix = kvfold.Prefix.load(self.folder / "p.h5")
                kvfold.inspect(self.folder / "p.run.h5")
                self.assertEqual(len(kvfold.Run(self.folder / "p.run.h5").history["step"]), 4)
                prefix.save(self.folder / f"t{i}.h5", force=True)
                np.testing.assert_array_equal(prefix.numpy(), kvfold.Prefix.load(self.folder / f"t{i}.h5").numpy())

        self.in_threads(6, work)

    def test_runs(self):
        def work(i):
            base = kvfold.Base(self.llama)
            for _ in range(3):
                run = kvfold.train(base, PAIRS, out=self.folder / f"r{i}.h5", save_every=1, method="direct", **SMALL)
                run.merge(self.folder / f"r{i}.prefix.h5", force=True)

        self.in_threads(4, work)
        command("diff", self.folder / "r0.prefix.h5", self.folder / "r3.prefix.h5")
