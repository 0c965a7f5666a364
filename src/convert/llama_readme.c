/* README.md beside a saved sequence: how its engine loads it, how to see that the prefix is in use,
 * and what loses it without a word, as tried (docs/engines.md). */
#include "export.h"

#include <string.h>

/* ---- llama-server ---------------------------------------------------------------------------- */

static const char SERVER_USE[] =
    "curl http://127.0.0.1:8080/slots/0?action=restore -H 'Content-Type: application/json' \\\n"
    "  -d '{\"filename\": \"prefix.state\"}'\n"
    "```\n\n"
    "A restored slot stays so until the server ends. Restore every slot that is to have the\n"
    "prefix, and name one in each request: left alone, the server takes the slot whose last "
    "prompt\n"
    "is most alike.\n\n";

static const char SERVER_SEEN[] =
    "## Is it in use?\n\n"
    "`timings.cache_n` of an answer is at least P. If it is less, the ids were computed as "
    "ordinary\n"
    "tokens, and the answer is nonsense.\n\n"
    "## What loses it without a word\n\n"
    "- A slot that was not restored, was erased (`action=erase`), or another slot than the one\n"
    "  restored; a server that was started again.\n"
    "- Several slots of a unified cache without `--no-cache-idle-slots`: a request to one clears "
    "the\n"
    "  others.\n"
    "- `\"cache_prompt\": false`: the slot then holds the ids computed as tokens, for later "
    "requests\n"
    "  too. Restore it.\n"
    "- A prompt that does not begin with the ids: it takes the slot's place. The server keeps "
    "what\n"
    "  was there in memory and finds it again, unless `--cache-ram 0` or too many others.\n"
    "- A prompt of the ids alone: the last of them is computed anew. Send at least one token "
    "more.\n";

/* The ids, and BOS where a text begins with one. */
static kvf_status put_ids(kvf_ctx *ctx, const kvf__llama_export *e, const char *separator,
                          kvf__buf *out)
{
    const kvf__tokenizer *t = e->base->tokenizer;

    for (size_t i = 0; i < e->ids.n; i++)
        KVF_TRY(kvf__buf_printf(ctx, out, "%d%s", (int)e->ids.data[i], separator));
    if (!kvf__adds_bos(t)) return KVF_OK;
    return kvf__buf_printf(ctx, out, "%d%s", (int)kvf__token_bos(t), separator);
}

static kvf_status put_server(kvf_ctx *ctx, const kvf__llama_export *e, kvf__buf *out)
{
    const bool alone = e->form.streams == 1;

    KVF_TRY(
        kvf__buf_printf(ctx, out,
                        "```sh\nllama-server -m MODEL.gguf --slot-save-path . --parallel %lld "
                        "%s%s%s%s\n",
                        (long long)e->form.streams, alone ? "--kv-unified" : "--no-kv-unified",
                        e->form.transposed ? " --flash-attn off" : "",
                        e->form.dtype == KVF__F32 ? " -ctk f32 -ctv f32" : "",
                        e->template ? " --jinja --chat-template-file chat_template.jinja" : ""));
    KVF_TRY(kvf__buf_printf(ctx, out, "%s", SERVER_USE));
    if (alone)
        KVF_TRY(kvf__buf_printf(ctx, out,
                                "`--parallel 4 --kv-unified --no-cache-idle-slots` serves four "
                                "such slots; for `--no-kv-unified` export with `--streams "
                                "4`.\n\n"));
    KVF_TRY(kvf__buf_printf(ctx, out,
                            "A prompt is the ids, then text:\n\n"
                            "```sh\ncurl http://127.0.0.1:8080/completion -H 'Content-Type: "
                            "application/json' \\\n  -d '{\"prompt\": ["));
    KVF_TRY(put_ids(ctx, e, ", ", out));
    KVF_TRY(kvf__buf_printf(ctx, out,
                            "\"Internet, noun:\"],\n"
                            "       \"id_slot\": 0, \"n_predict\": 40, \"temperature\": 0}'\n"));
    if (e->template)
        KVF_TRY(kvf__buf_printf(
            ctx, out,
            "curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' "
            "\\\n"
            "  -d '{\"messages\": [{\"role\": \"user\", \"content\": \"What is the internet?\"}],\n"
            "       \"id_slot\": 0, \"max_tokens\": 40, \"temperature\": 0}'\n"));
    return kvf__buf_printf(ctx, out, "```\n\n%s%s",
                           e->template ? "The chat template begins with the ids itself.\n\n" : "",
                           SERVER_SEEN);
}

/* ---- node-llama-cpp -------------------------------------------------------------------------- */

static const char NODE_LOAD[] =
    "const sequence = context.getSequence();\n"
    "await sequence.loadStateFromFile(\"prefix.state\", {acceptRisk: true});\n"
    "const {ids} = JSON.parse(fs.readFileSync(\"placeholders.json\", \"utf8\"));\n"
    "const completion = new LlamaCompletion({contextSequence: sequence});\n";

static const char NODE_CHAT[] =
    "In a chat the template begins with the ids itself. Give a `systemPrompt`: without one "
    "node-llama-cpp has its own.\n\n"
    "```js\n"
    "const template = fs.readFileSync(\"chat_template.jinja\", \"utf8\");\n"
    "const session = new LlamaChatSession({contextSequence: sequence, systemPrompt: \"...\",\n"
    "                                      chatWrapper: new "
    "JinjaTemplateChatWrapper({template})});\n"
    "console.log(await session.prompt(\"What is the internet?\", {temperature: 0}));\n"
    "```\n\n";

static const char NODE_SEEN[] =
    "## Is it in use?\n\n"
    "`sequence.tokenMeter.usedInputTokens` rises by the tokens of the text alone, not by P "
    "more.\n\n"
    "## What loses it without a word\n\n"
    "- `sequence.clearHistory()`, or a prompt on the same sequence that does not begin with the\n"
    "  ids: they are computed as ordinary tokens the next time, and the answer is nonsense. Load\n"
    "  the state again.\n";

static kvf_status put_node(kvf_ctx *ctx, const kvf__llama_export *e, kvf__buf *out)
{
    const bool bos = kvf__adds_bos(e->base->tokenizer);

    KVF_TRY(kvf__buf_printf(
        ctx, out,
        "```js\n"
        "import fs from \"fs\";\n"
        "import {getLlama, JinjaTemplateChatWrapper, LlamaChatSession, LlamaCompletion} "
        "from \"node-llama-cpp\";\n"
        "const llama = await getLlama();\n"
        "const model = await llama.loadModel({modelPath: \"MODEL.gguf\"});\n"
        "const context = await model.createContext({%s%ssequences: %lld});\n%s",
        e->form.transposed ? "flashAttention: false, " : "",
        e->form.dtype == KVF__F32
            ? "experimentalKvCacheKeyType: \"F32\", experimentalKvCacheValueType: \"F32\", "
            : "",
        (long long)e->form.streams, NODE_LOAD));
    KVF_TRY(kvf__buf_printf(ctx, out,
                            "const prompt = [...ids, %s...model.tokenize(\"Internet, noun:\")];\n"
                            "console.log(await completion.generateCompletion(prompt, {temperature: "
                            "0, maxTokens: 40}));\n"
                            "```\n\n",
                            bos ? "model.tokens.bos, " : ""));
    if (e->template) KVF_TRY(kvf__buf_printf(ctx, out, "%s", NODE_CHAT));
    return kvf__buf_printf(ctx, out, "%s", NODE_SEEN);
}

/* ---- llama-cpp-python ------------------------------------------------------------------------ */

static const char PYTHON_LOAD[] =
    "ids = json.load(open(\"placeholders.json\"))[\"ids\"]\n\n"
    "def restore():\n"
    "    room, n = (llama_cpp.llama_token * len(ids))(), ctypes.c_size_t()\n"
    "    if not llama_cpp.llama_state_seq_load_file(llm.ctx, b\"prefix.state\", 0, room, len(ids), "
    "n):\n"
    "        raise RuntimeError(\"the state was refused\")\n"
    "    llm.input_ids[:len(ids)] = ids\n"
    "    llm.n_tokens = len(ids)\n\n"
    "restore()\n";

static const char PYTHON_SEEN[] =
    "## Is it in use?\n\n"
    "`Llama(verbose=True)` prints how many tokens of the prompt match: at least P.\n\n"
    "## What loses it without a word\n\n"
    "- `llm.reset()`, or a prompt that does not begin with the ids: they are computed as ordinary\n"
    "  tokens the next time, and the answer is nonsense. Call `restore()` before each prompt.\n";

static kvf_status put_python(kvf_ctx *ctx, const kvf__llama_export *e, kvf__buf *out)
{
    KVF_TRY(kvf__buf_printf(ctx, out,
                            "```python\n"
                            "import ctypes, json\n"
                            "import llama_cpp\n\n"
                            "llm = llama_cpp.Llama(\"MODEL.gguf\", n_ctx=2048%s%s, verbose=False)\n"
                            "%s",
                            e->form.transposed ? "" : ", flash_attn=True",
                            e->form.dtype == KVF__F32 ? ", type_k=0, type_v=0" : "", PYTHON_LOAD));
    return kvf__buf_printf(ctx, out,
                           "prompt = ids + llm.tokenize(b\"Internet, noun:\", add_bos=%s, "
                           "special=True)\n"
                           "print(llm.create_completion(prompt, max_tokens=40, temperature=0)"
                           "[\"choices\"][0][\"text\"])\n"
                           "```\n\n%s",
                           kvf__adds_bos(e->base->tokenizer) ? "True" : "False", PYTHON_SEEN);
}

/* ---- all ------------------------------------------------------------------------------------- */

static const struct {
    const char *engine;
    kvf_status (*put)(kvf_ctx *ctx, const kvf__llama_export *e, kvf__buf *out);
} ROWS[] = {
    {"llama-server", put_server}, {"node-llama-cpp", put_node}, {"llama-cpp-python", put_python}};

static kvf_status put_facts(kvf_ctx *ctx, const kvf__llama_export *e, kvf__buf *out)
{
    const kvf__llama_form *f = &e->form;
    const kvf__identity *id = &e->prefix->file.id;

    return kvf__buf_printf(
        ctx, out,
        "# A prefix for %s\n\n"
        "`prefix.state` holds keys and values of P = %lld virtual tokens, trained with kvfold for\n"
        "%s (hash %s), in the form of a saved sequence of llama.cpp:\n"
        "state version %lld, values %s, %lld stream%s, %s. The engine refuses another form\n"
        "(`kvfold export --state-version`, `--flash-attention`, `--streams`, `--dtype`).\n\n"
        "The engine takes it for its cache of the %lld ids in `placeholders.json`. Every prompt\n"
        "begins with them.\n\n"
        "## Load\n\n",
        e->engine->name, (long long)id->P, e->base->name, e->base->hash, (long long)f->version,
        f->transposed ? "transposed (flash attention off)" : "not transposed",
        (long long)f->streams, f->streams == 1 ? "" : "s", f->dtype == KVF__F32 ? "f32" : "f16",
        (long long)id->P);
}

kvf_status kvf__llama_readme(kvf_ctx *ctx, const kvf__llama_export *export, kvf__buf *out)
{
    size_t i = 0;

    KVF_TRY(put_facts(ctx, export, out));
    while (strcmp(ROWS[i].engine, export->engine->name) != 0)
        i++;
    return ROWS[i].put(ctx, export, out);
}
