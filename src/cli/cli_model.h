/* Opens base and prefixes, and defines rows of options, shared by several commands. A row macro
 * takes the offset of its field. */
#ifndef KVF_CLI_MODEL_H
#define KVF_CLI_MODEL_H

#include "cli_int.h"

typedef struct cli_model_options {
    const char *base;
    kvf__strings prefixes;
    kvf_session_options open; /* without `more`, the further prefixes */
} cli_model_options;

typedef struct cli_model {
    kvf_session *session; /* session of the others */
    kvf_base *base;
    kvf_prefix *const *prefixes;
    size_t n;
} cli_model;
int cli_model_open(const cli_call *call, const cli_model_options *options, cli_model *out);
void cli_model_close(cli_model *model);
/* generate --interactive: answers the lines of standard input (interactive.c). Sets the callback of
 * the options. */
int cli_converse(cli_call *call, const cli_model *model, kvf_generate_options *options);

/* ---- rows ------------------------------------------------------------------------------------ */

#define CLI_FORMATS "auto|jsonl|json|tsv|csv|conll|squad|superglue|text"

#define CLI_ROW(name, argument, initial, kind, at, help)                                           \
    {                                                                                              \
        name, argument, initial, kind, at, help                                                    \
    }
#define CLI_BASE(at, help) CLI_ROW("base", "PATH", "", KVF_TEXT, at, help)
#define CLI_ANY_BASE(at)   CLI_BASE(at, "base model: Hugging Face folder, GGUF or base file")
#define CLI_LORA(at)                                                                               \
    CLI_ROW("lora", "FOLDER", "", KVF_TEXT, at, "PEFT LoRA to fold into the base's weights")
#define CLI_ALLOW_OTHER_BASE(at)                                                                   \
    CLI_ROW("allow-other-base", NULL, "", KVF_FLAG, at,                                            \
            "accept a prefix made for another base of the same shape")
#define CLI_CHECKPOINT(at, help)                                                                   \
    CLI_ROW("checkpoint", "best|last", "best if there is one", KVF_CHOICE_1, at, help)
#define CLI_HEAD(at)                                                                               \
    CLI_ROW("head", "NAME", "", KVF_TEXT, at,                                                      \
            "task whose head to use, for a prefix trained on several tasks")
#define CLI_DTYPE(at, initial)                                                                     \
    CLI_ROW("dtype", "f32|f16|bf16|int8", initial, KVF_CHOICE, at, "type of the stored values")
#define CLI_FORCE(at) CLI_ROW("force", NULL, "", KVF_FLAG, at, "replace an existing output")
#define CLI_PRECISION(at, initial, help)                                                           \
    CLI_ROW("precision", "auto|f32|bf16|int8", initial, KVF_CHOICE, at, help)
#define CLI_AUTO_PRECISION(at)                                                                     \
    CLI_PRECISION(at, "auto",                                                                      \
                  "precision of matrix products; auto: bf16 if the CPU's flags "                   \
                  "indicate that it is faster")
#define CLI_WEIGHTS(at_dtype, at_stream)                                                           \
    CLI_ROW("weight-dtype", "auto|f32|bf16|int8", "auto", KVF_CHOICE, at_dtype,                    \
            "weights of the base: one copy in this type, packed layer by layer just before use; "  \
            "auto: packed once"),                                                                  \
        CLI_ROW("stream-layers", "on|off", "off", KVF_ON_OFF, at_stream,                           \
                "read each layer from the file when it is computed, for bases larger than memory")
#define CLI_FORMAT(at)                                                                             \
    CLI_ROW("format", CLI_FORMATS, "auto", KVF_WORD, at,                                           \
            "format of the data file; auto: by name and content")
#define CLI_NO_HEADER(at)                                                                          \
    CLI_ROW("no-header", NULL, "", KVF_FLAG, at, "TSV, CSV or CoNLL files have no header line")
#define CLI_COLUMNS(at)                                                                            \
    CLI_ROW("columns", "NAME,...", "the header's", KVF_TEXT, at,                                   \
            "names of the columns of TSV, CSV or CoNLL")
#define CLI_DELIMITER(at)                                                                          \
    CLI_ROW("delimiter", "CHAR", "tab or comma", KVF_TEXT, at,                                     \
            "column separator of TSV and CSV: one character, or \\t")
#define CLI_MAP(at, help) CLI_ROW("map", "OURS=THEIRS,...", "the run's", KVF_TEXT, at, help)
#define CLI_MAP_FIELDS(at)                                                                         \
    CLI_MAP(at, "names of the fields in the data: "                                                \
                "prompt=question,completion=answer")
#define CLI_MAX_LENGTH(at)                                                                         \
    CLI_ROW("max-length", "N", "as in training, or the model's", KVF_COUNT, at,                    \
            "longest row in tokens")
#define CLI_OVERLONG(at)                                                                           \
    CLI_ROW("overlong", "stop|truncate|truncate-end|skip", "as in training, or stop",              \
            KVF_CHOICE_1, at, "action for longer rows")
#define CLI_CHAT_TEMPLATE(at, help)                                                                \
    CLI_ROW("chat-template", KVF__CHAT_TEMPLATES, "the prefix's", KVF_WORD, at, help)

/* Options of eval, predict and score: model(f) and eval(f) are the offsets of field f of a
 * cli_model_options and a kvf_eval_options. */
#define CLI_ROWS_OPTIONS(model, eval, data_help, prefix_help)                                      \
    CLI_ANY_BASE(model(base)), CLI_LORA(model(open.base.lora)),                                    \
        CLI_ROW("data", "FILE", "", KVF_TEXT, eval(data), data_help),                              \
        CLI_ROW("prefix", "FILE", "", KVF_TEXTS, model(prefixes), prefix_help),                    \
        CLI_CHECKPOINT(model(open.checkpoint), "state of a run file to use"),                      \
        CLI_HEAD(model(open.head)), CLI_ALLOW_OTHER_BASE(model(open.allow_other_base)),            \
        CLI_ROW("drop-layers", "A-B,...", "", KVF_TEXT, model(open.drop_layers),                   \
                "leave out the adapters of these layers, counted from 0, such as 4-7 or 0,2,4-7"), \
        CLI_FORMAT(eval(format)), CLI_NO_HEADER(eval(no_header)), CLI_COLUMNS(eval(columns)),      \
        CLI_DELIMITER(eval(delimiter)),                                                            \
        CLI_ROW("split-text", "N", "off", KVF_COUNT, eval(split_text),                             \
                "lm: the file is plain text, cut into rows of N tokens"),                          \
        CLI_ROW("limit", "N", "all", KVF_COUNT, eval(limit), "read only the first N rows"),        \
        CLI_MAX_LENGTH(eval(max_length)), CLI_OVERLONG(eval(overlong))
#define CLI_RENDER_OPTIONS(model, eval)                                                            \
    CLI_CHAT_TEMPLATE(eval(chat_template), "chat template of prompts"), CLI_MAP_FIELDS(eval(map)), \
        CLI_WEIGHTS(model(open.base.weight_dtype), model(open.base.stream_layers)),                \
        CLI_AUTO_PRECISION(model(open.base.precision))
/* Options of eval and predict. */
#define CLI_EVAL_OPTIONS(model, eval, data_help, prefix_help)                                      \
    CLI_ROWS_OPTIONS(model, eval, data_help, prefix_help),                                         \
        CLI_ROW("vote", "mean|majority", "mean", KVF_EITHER, eval(majority),                       \
                "several prefixes: answer by the mean of their probabilities, or by the "          \
                "majority of "                                                                     \
                "their answers, with ties decided by the mean"),                                   \
        CLI_ROW("no-answer-above", "X", "0", KVF_REAL, eval(no_answer_above),                      \
                "qa: threshold of the log odds of no answer against the best answer; above it "    \
                "there is no answer"),                                                             \
        CLI_ROW("max-answer", "N", "30", KVF_POSITIVE, eval(max_answer),                           \
                "qa: longest answer in tokens"),                                                   \
        CLI_ROW("n-best", "N", "20", KVF_POSITIVE, eval(n_best),                                   \
                "qa: number of best starts and ends to pair, at most 64"),                         \
        CLI_RENDER_OPTIONS(model, eval)

/* Options of prune and quantize: file(f) is the offset of field f of the tool's own options,
 * eval(f) of a kvf_eval_options. base and data are used for measuring. */
#define CLI_TOOL_OPTIONS(file, eval, at_precision, usual_dtype, data_help)                         \
    CLI_ROW("out", "OUT.h5", "", KVF_TEXT, file(out), "prefix file to write"),                     \
        CLI_DTYPE(file(dtype), usual_dtype),                                                       \
        CLI_ROW("force", NULL, "", KVF_FLAG, file(force), "replace existing outputs"),             \
        CLI_BASE(file(base), "base model"), CLI_LORA(file(lora)),                                  \
        CLI_ROW("data", "FILE", "", KVF_TEXT, eval(data), data_help),                              \
        CLI_CHECKPOINT(file(checkpoint), "state of run files to use"),                             \
        CLI_ROW("head", "NAME", "all", KVF_TEXT, file(head),                                       \
                "task whose head to use, for a prefix trained on several tasks"),                  \
        CLI_ALLOW_OTHER_BASE(file(allow_other_base)), CLI_FORMAT(eval(format)),                    \
        CLI_MAP_FIELDS(eval(map)), CLI_MAX_LENGTH(eval(max_length)), CLI_OVERLONG(eval(overlong)), \
        CLI_PRECISION(at_precision, "f32", "precision of the base when the loss is measured")

#endif
