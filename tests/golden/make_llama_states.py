"""Makes llama_states/: one sequence of gguf_bpe.gguf as three engines save it. v3.state and v3_transposed.state are of llama.cpp
v0.5.0 (npm node-llama-cpp 3.22.1) with flash attention and without, v4.state of llama-server (PyPI xllamacpp 2026.10.11549).

    npm install --prefix BUILD node-llama-cpp@3.22.1
    python make_llama_states.py BUILD llama_states
"""
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import xllamacpp

IDS = [5, 256, 257, 258, 70, 9, 33]
MODEL = Path(__file__).parent / "gguf_bpe.gguf"
NODE = """
import {getLlama, LlamaLogLevel} from "node-llama-cpp";
const [model, ids, out] = JSON.parse(process.argv[2]);
const llama = await getLlama({gpu: false, build: "never", skipDownload: true, logLevel: LlamaLogLevel.error});
const context = async flash => (await llama.loadModel({modelPath: model})).createContext({contextSize: 64, flashAttention: flash});
for (const [name, flash] of [["v3", true], ["v3_transposed", false]]) {
    const sequence = (await context(flash)).getSequence();
    await sequence.evaluateWithoutGeneratingNewTokens(ids);
    await sequence.saveStateToFile(`${out}/${name}.state`);
}
process.exit(0);
"""


def post(server, path, body):
    request = urllib.request.Request(server.listening_address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))


build, out = Path(sys.argv[1]), os.path.abspath(sys.argv[2])
(build / "make_llama_states.mjs").write_text(NODE)
subprocess.run(["node", "make_llama_states.mjs", json.dumps([str(MODEL.resolve()), IDS, out])], cwd=build, check=True)
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel, params.port, params.slot_save_path = str(MODEL), 256, 1, 0, out + "/"
server = xllamacpp.Server(params)
post(server, "/completion", {"prompt": IDS, "n_predict": 0, "id_slot": 0})
post(server, "/slots/0?action=save", {"filename": "v4.state"})
