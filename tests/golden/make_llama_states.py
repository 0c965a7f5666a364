"""Makes llama_states/: one sequence of gguf_bpe.gguf as three engines save it. v3.state and v3_transposed.state are of llama.cpp
v0.5.0 (npm node-llama-cpp 3.22.1) with flash attention and without, v4.state of llama-server (PyPI xllamacpp 2026.10.11549).
v4_gemma3.state is of the same server for model_gemma3/model.gguf, with a tokenizer added.

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
from gguf import GGUFReader, GGUFWriter

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


def save(model, ids, name):
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.port, params.slot_save_path = str(model), 256, 1, 0, out + "/"
    server = xllamacpp.Server(params)
    post(server, "/completion", {"prompt": ids, "n_predict": 0, "id_slot": 0})
    post(server, "/slots/0?action=save", {"filename": name})


def with_tokenizer(source, target):
    reader, writer = GGUFReader(source), GGUFWriter(target, "gemma3")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            writer.add_key_value(field.name, field.contents(), field.types[0])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([chr(ord("A") + i) for i in range(40)])
    writer.add_token_merges(["A B"])
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


build, out = Path(sys.argv[1]), os.path.abspath(sys.argv[2])
(build / "make_llama_states.mjs").write_text(NODE)
subprocess.run(["node", "make_llama_states.mjs", json.dumps([str(MODEL.resolve()), IDS, out])], cwd=build, check=True)
save(MODEL, IDS, "v4.state")
with_tokenizer(MODEL.parent / "model_gemma3/model.gguf", build / "gemma3.gguf")
save(build / "gemma3.gguf", [5, 30, 7, 12, 39, 2, 9, 33, 8, 21, 14, 6], "v4_gemma3.state")
