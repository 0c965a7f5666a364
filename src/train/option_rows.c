/* The table of train's options. Adding one is a field of kvf_train_options, a row here, and its
 * use. */
#include "method.h"
#include "options_priv.h"

#include <string.h>

enum { LOCAL = KVF__LOCAL, FREE = KVF__FREE, DISTILL = KVF__DISTILL };

#define ALL NULL
#define OPTION(name, argument, initial, kind, field, rules, methods, task, help)                   \
    {                                                                                              \
        {name, argument, initial, kind, offsetof(kvf_train_options, field), help}, rules, methods, \
            task                                                                                   \
    }

/* Methods that train a prefix, and those with virtual tokens at the input. */
#define PREFIXES "mlp|direct|projected"
#define VECTORS  "prompt|p-tuning"

static const kvf__option ROWS[] = {
    OPTION("base", "PATH", "", KVF_TEXT, base, LOCAL | DISTILL, ALL, ALL,
           "base model: Hugging Face folder, GGUF or base file"),
    OPTION("lora", "FOLDER", "", KVF_TEXT, lora, LOCAL | DISTILL, ALL, ALL,
           "LoRA of PEFT that is folded into the base's weights"),
    OPTION("data", "FILE", "", KVF_TEXT, data, LOCAL | DISTILL, ALL, ALL,
           "training data: JSON, JSONL, TSV, CSV, CoNLL, SQuAD, SuperGLUE or plain text, or these "
           "gzipped; NAME=FILE, for each of several tasks that share a prefix"),
    OPTION("valid", "FILE", "", KVF_TEXT, valid, LOCAL | DISTILL, ALL, ALL,
           "held-out data for validation"),
    OPTION("out", "RUN.h5", "", KVF_TEXT, out, LOCAL | DISTILL, ALL, ALL, "run file to write"),
    OPTION("resume", NULL, "", KVF_FLAG, resume, LOCAL | DISTILL, ALL, ALL,
           "continue the run file named by --out"),
    OPTION("force", NULL, "", KVF_FLAG, force, LOCAL | DISTILL, ALL, ALL,
           "replace an existing output"),
    OPTION("dry-run", NULL, "", KVF_FLAG, dry_run, LOCAL | DISTILL, ALL, ALL,
           "load everything, show what would be done and what it would take, and stop"),
    OPTION("allow-other-base", NULL, "", KVF_FLAG, allow_other_base, LOCAL, ALL, ALL,
           "accept --init-kv and --init-from files made for another base"),
    OPTION("task", "lm|seq-cls|token-cls|qa|multiple-choice", "lm", KVF_WORD, task, 0, ALL, ALL,
           "what the base is tuned for; all but lm train a head too; NAME=KIND for one of several "
           "tasks"),
    OPTION("method", KVF__METHOD_CHOICES, "mlp", KVF_WORD, method, DISTILL, ALL, ALL,
           "what is trained: see help methods"),
    OPTION("prefix-length", "N", "20; prefixes of lm 64, of token-cls on bidirectional bases 40",
           KVF_COUNT, prefix_length, DISTILL, PREFIXES "|" VECTORS, ALL, "virtual tokens P"),
    OPTION("encoder-hidden", "N", "512", KVF_COUNT, encoder_hidden, DISTILL, "mlp|p-tuning", ALL,
           "hidden width M of the encoder: mlp, p-tuning"),
    OPTION(
        "layers", "A-B,...", "all", KVF_TEXT, layers, 0, PREFIXES, ALL,
        "layers that have a prefix, from 0 on, as 4-7 or 0,2,4-7; the others attend to none, and "
        "there is no PEFT form"),
    OPTION("places", "WORD,...", "all", KVF_TEXT, places, 0, PREFIXES, ALL,
           "encoder-decoders: where the prefix is attended to: encoder, decoder (both in their "
           "self-attention), cross; peft: decoder in PEFT's form, where T5's relative bias counts "
           "the prefix"),
    OPTION("p-encoder", "lstm|mlp", "lstm", KVF_WORD, p_encoder, 0, ALL, ALL,
           "p-tuning: what the virtual tokens come out of"),
    OPTION("unfreeze", "off|base", "off", KVF_EITHER, unfreeze_base, 0, "p-tuning", ALL,
           "p-tuning: base trains the base's weights too"),
    OPTION("base-lr", "X", "2e-05", KVF_AMOUNT, base_lr, 0, "p-tuning", ALL,
           "learning rate of the base's weights, with --unfreeze"),
    OPTION(
        "p-template", "TEXT", "virtual tokens lead", KVF_TEXT, p_template, 0, ALL, ALL,
        "prompt, p-tuning: where virtual tokens are, as \"{p:3} {text} {p:2}\"; {text}, "
        "{text_pair}, {prompt} and {completion} are fields of the row, [MASK] is the mask token; "
        "without {p} also for prefixes of seq-cls"),
    OPTION("verbalizer", "LABEL=WORD,...", "", KVF_TEXT, verbalizer, 0, PREFIXES "|" VECTORS, ALL,
           "seq-cls: the word that means each label at [MASK] of --p-template, on causal bases as "
           "what comes next, at the end; no head is trained"),
    OPTION("init", "vocab|random|zero|text|kv|match|centroids",
           "match for lm, else vocab; centroids on bidirectional bases", KVF_WORD, init, DISTILL,
           PREFIXES "|" VECTORS, ALL,
           "starting prefix: K/V of random words, random weights, zeros, K/V of --init-text, a "
           "prefix file; match: rows of the data read as one text, matched by attention; "
           "centroids: keys at centroids of the rows' queries, values that change little; "
           "prompt, p-tuning: embeddings of words, on any base"),
    OPTION("init-text", "TEXT", "", KVF_TEXT, init_text, DISTILL, PREFIXES "|" VECTORS, ALL,
           "text to start from: --init text"),
    OPTION("init-kv", "FILE", "", KVF_TEXT, init_kv, LOCAL | DISTILL, PREFIXES "|" VECTORS, ALL,
           "prefix file to start from: --init kv"),
    OPTION("init-scheme", "torch|ptuning-v2", "torch", KVF_EITHER, init_ptuning_v2, 0,
           "mlp|direct|prompt|p-tuning", ALL, "distribution of random weights"),
    OPTION("init-encoder", "FILE", "", KVF_TEXT, init_encoder, LOCAL, PREFIXES "|" VECTORS, ALL,
           "encoder weights, safetensors"),
    OPTION(
        "init-from", "FILE", "", KVF_TEXT, init_from, LOCAL | DISTILL, ALL, ALL,
        "weights of a run or prefix file, with its head where the labels agree; not its optimizer"),
    OPTION("approximate", NULL, "", KVF_FLAG, approximate, LOCAL | DISTILL, "mlp|p-tuning", ALL,
           "start from what the encoder comes nearest to, even if that misses by more than 0.01"),
    OPTION("log-weight", "off|fixed|train", "off", KVF_CHOICE, log_weight, DISTILL, PREFIXES, ALL,
           "a number for each virtual token and key head that is added to the scores of its key: "
           "kept as it starts, or trained"),
    OPTION("start-mass", "X", "0, or of the file to start from", KVF_REAL, start_mass, DISTILL,
           PREFIXES, ALL,
           "log-weights start so that the prefix has e^X times the attention that the text's own "
           "tokens have; -10: next to none"),
    OPTION("log-weight-lr", "X", "0.1", KVF_AMOUNT, log_weight_lr, DISTILL, PREFIXES, ALL,
           "learning rate of log-weights: --log-weight train"),
    OPTION("lr", "X", "by method", KVF_AMOUNT, lr, DISTILL, ALL, ALL,
           "learning rate; mlp, direct, projected 0.03, for token-cls 0.05, with any head times "
           "sqrt(batch-size / 8), at most 0.1; prompt 0.3, p-tuning 0.001"),
    OPTION("train-head", NULL, "", KVF_FLAG, train_head, 0, ALL, ALL,
           "lm: train the language model's head too; a tied base is untied, its embedding stays"),
    OPTION("head-lr", "X", "by task", KVF_AMOUNT, head_lr, 0, ALL, ALL,
           "learning rate of the head, in its own units; 0.01, for seq-cls with K classes 0.01 "
           "times K - 1, at most 0.05; of --train-head 0.0003"),
    OPTION("head-dropout", "X", "the config's", KVF_AMOUNT, head_dropout, 0, ALL, ALL,
           "dropout on what the head reads, while training"),
    OPTION("lr-units", "prefix|parameter", "prefix", KVF_EITHER, lr_per_parameter, 0,
           PREFIXES "|" VECTORS, ALL,
           "prefix: a step moves K/V as far as it would move a direct prefix"),
    OPTION("steps", "N", "by epochs", KVF_COUNT, steps, FREE | DISTILL, ALL, ALL,
           "optimizer steps, counted from the start; 0: a run of starting values"),
    OPTION("epochs", "N", "3", KVF_COUNT, epochs, FREE | DISTILL, ALL, ALL,
           "passes over the data, unless --steps"),
    OPTION("batch-size", "N", "8", KVF_COUNT, batch_size, DISTILL, ALL, ALL,
           "rows per step; of qa and multiple-choice questions"),
    OPTION("batch-tokens", "N|auto", "off", KVF_OR_AUTO, batch_tokens, 0, ALL, ALL,
           "tokens per step instead of rows; auto: so many that weights are read for little of a "
           "step's time, by the shapes of base and method alone"),
    OPTION("format", "auto|jsonl|json|tsv|csv|conll|squad|superglue|text", "auto", KVF_WORD, format,
           DISTILL, ALL, ALL, "of the data files; auto: by name and content"),
    OPTION("no-header", NULL, "", KVF_FLAG, no_header, 0, ALL, ALL,
           "the first line of TSV or CSV is a row"),
    OPTION("columns", "NAME,...", "the header's", KVF_TEXT, columns, 0, ALL, ALL,
           "names of the columns of TSV or CSV; -: not read"),
    OPTION("split-text", "N", "off", KVF_COUNT, split_text, 0, ALL, "lm",
           "lm: data files are plain text, cut into rows of N tokens"),
    OPTION("limit", "N", "all", KVF_COUNT, limit, 0, ALL, ALL, "read the first N rows of --data"),
    OPTION(
        "valid-split", "X", "off", KVF_AMOUNT, valid_split, 0, ALL, ALL,
        "validate on a share X of the rows of --data, drawn by --seed, which are not trained on"),
    OPTION("regression", "on|off", "off", KVF_ON_OFF, regression, 0, ALL, "seq-cls",
           "seq-cls: labels are numbers, the loss is the squared error"),
    OPTION(
        "labels", "NAME,...", "the training data's", KVF_TEXT, labels, LOCAL, ALL, ALL,
        "seq-cls, token-cls: all classes or tags, as A,B,C or @FILE with one a line; those that "
        "occur in validation alone must be named; NAME=A,B,C for one of several tasks"), /* the head
                                                                                         has them
                                                                                       */
    OPTION("doc-stride", "N", "128", KVF_COUNT, doc_stride, 0, ALL, "qa",
           "qa: tokens that two windows of a long context share"),
    OPTION("share-prefixes", "auto|off", "auto", KVF_EITHER, share_off, 0, ALL, ALL,
           "compute tokens that rows of a step begin with once (exact)"),
    OPTION("group-by", "off|prefix", "off", KVF_EITHER, group_by_prefix, 0, ALL, ALL,
           "prefix: rows that begin alike come into the same steps"),
    OPTION("task-prefix", "shared|low-rank", "shared", KVF_EITHER, low_rank_tasks, 0, ALL, ALL,
           "several tasks: one prefix for all, or for each the shared one times a matrix of rank 1 "
           "per layer"),
    OPTION("mix", "proportional|equal", "proportional", KVF_EITHER, equal_mix, 0, ALL, ALL,
           "several tasks: each step is one task's, drawn by their rows, or each as often"),
    OPTION("grad-accum", "N", "1", KVF_COUNT, grad_accum, DISTILL, ALL, ALL,
           "parts in which a step's rows are computed, to save memory"),
    OPTION("recompute", "on|off", "off", KVF_ON_OFF, recompute, FREE, ALL, ALL,
           "compute layers again for the backward pass instead of keeping what they leave: less "
           "memory, more time, the same bits"),
    OPTION("keep-states", "SIZE", "off", KVF_TEXT, keep_states, FREE, PREFIXES, ALL,
           "with --layers or --places: compute the layers below the first prefix once for each "
           "row, of --valid too, and keep what they give in so much memory, as 2G, then in a file "
           "beside --out"),
    OPTION("weight-dtype", "auto|f32|bf16|int8", "auto", KVF_CHOICE, weight_dtype, 0, ALL, ALL,
           "frozen weights: one copy in this type, packed layer by layer just before use; auto: "
           "packed once, in both directions"),
    OPTION("stream-layers", "on|off", "off", KVF_ON_OFF, stream_layers, FREE, ALL, ALL,
           "read each layer from the file when it is computed, for bases larger than memory: the "
           "same bits; with --recompute on unless that is off"),
    OPTION("max-length", "N", "the model's", KVF_COUNT, max_length, DISTILL, ALL, ALL,
           "longest row in tokens"),
    OPTION("overlong", "stop|truncate|truncate-end|skip", "stop", KVF_CHOICE_1, overlong, DISTILL,
           ALL, ALL,
           "what to do with longer rows; truncate: cut the prompt at its left, and the end only of "
           "what is too long without it; truncate-end: cut the end"),
    OPTION("shuffle", "on|off", "on", KVF_ON_OFF, shuffle, 0, ALL, ALL,
           "new order of rows each epoch"),
    OPTION("schedule", "linear|cosine|constant", "linear", KVF_CHOICE, schedule, DISTILL, ALL, ALL,
           "learning rate over time"),
    OPTION("schedule-steps", "N", "--steps", KVF_COUNT, schedule_steps, 0, ALL, ALL,
           "length of the schedule, fixed when the run is created"),
    OPTION("warmup", "N|N%", "5%", KVF_TEXT, warmup, DISTILL, ALL, ALL, "steps of warmup"),
    OPTION("weight-decay", "X", "0", KVF_AMOUNT, weight_decay, 0, ALL, ALL,
           "decoupled weight decay"),
    OPTION("optimizer", "natural|adamw", "natural; adamw with --lr-units parameter", KVF_EITHER,
           optimizer_adamw, 0, "mlp", ALL,
           "mlp: natural keeps AdamW's moments of the prefix itself, and the encoder's last layer "
           "makes the step; adamw: those of each parameter"),
    OPTION("value-optimizer", "adamw|muon", "muon for token-cls from centroids, else adamw",
           KVF_EITHER, values_muon, 0, "mlp|direct", ALL,
           "what steps the prefix's values; muon: the momentum of each head, its singular values "
           "made more alike; keys step by AdamW"),
    OPTION("beta1", "X", "by method", KVF_AMOUNT, beta1, 0, ALL, ALL,
           "AdamW; mlp and direct 0.5, others and --lr-units parameter 0.9"),
    OPTION("beta2", "X", "0.999", KVF_AMOUNT, beta2, 0, ALL, ALL, "AdamW"),
    OPTION("eps", "X", "1e-08", KVF_AMOUNT, eps, 0, ALL, ALL, "AdamW"),
    OPTION("clip", "X", "1", KVF_AMOUNT, clip, 0, ALL, ALL,
           "largest gradient norm; 0: no clipping"),
    OPTION("skip-nonfinite", "N", "0", KVF_COUNT, skip_nonfinite, FREE, ALL, ALL,
           "steps to leave out where loss or gradient is not finite"),
    OPTION("spike-guard", "X", "off", KVF_AMOUNT, spike_guard, 0, ALL, ALL,
           "leave out steps whose loss is above X times the mean of the last 32, once there are 8"),
    OPTION("prefix-dropout", "X", "0", KVF_AMOUNT, prefix_dropout, 0, PREFIXES "|" VECTORS, ALL,
           "share of the prefix's keys and values dropped while training"),
    OPTION("prefix-dropout-per-row", NULL, "", KVF_FLAG, prefix_dropout_per_row, 0, ALL, ALL,
           "a mask for each row of a step instead of one for all; nothing is shared between rows "
           "then"),
    OPTION("adapter-size", "N", "64", KVF_COUNT, adapter_size, 0, "adapter", ALL,
           "adapter: width of the bottleneck"),
    OPTION("adapter-activation", "gelu|relu|tanh", "gelu", KVF_WORD, adapter_activation, 0,
           "adapter", ALL, "adapter: between its two products"),
    OPTION("adapter-norms", "on|off", "on", KVF_EITHER, adapter_norms_off, 0, "adapter", ALL,
           "adapter: train the base's norms too"),
    OPTION(
        "adapter-placement", "serial|parallel|attn|ffn", "serial", KVF_WORD, adapter_placement, 0,
        "adapter", ALL,
        "adapter: on the output of both sub-layers, parallel to them, or on that of attention or "
        "feed-forward part alone"),
    OPTION("base-dropout", "X", "0", KVF_AMOUNT, base_dropout, 0, ALL, ALL,
           "dropout of the base while training: on embeddings, what each half of a block adds, and "
           "the probabilities of attention where the config has a rate for them"),
    OPTION("eval-every", "N", "epoch", KVF_COUNT, eval_every, FREE | DISTILL, ALL, ALL,
           "steps between validations"),
    OPTION("save-every", "N", "epoch", KVF_COUNT, save_every, FREE | DISTILL, ALL, ALL,
           "steps between saves"),
    OPTION("metric", "NAME", "by task", KVF_TEXT, metric, 0, ALL, ALL,
           "what the best checkpoint is best in: loss, accuracy, f1, exact_match, ...; of equal "
           "ones that of the lowest loss"),
    OPTION("retain", "FILE", "", KVF_TEXT, retention, LOCAL | DISTILL, ALL, ALL,
           "lm: text that the prefix is not meant to change; its loss is measured, and that of "
           "the bare base"),
    OPTION("kl-to-base", "X", "0", KVF_AMOUNT, kl_to_base, DISTILL, ALL, ALL,
           "adds X times KL(base || with the prefix) on rows of the --retain file to the loss, "
           "over the base's 20 likeliest items at each label"),
    OPTION("early-stop", "N", "off", KVF_COUNT, early_stop, DISTILL, ALL, ALL,
           "stop after N validations without a better one"),
    OPTION("position-start", "P|N", "P", KVF_TEXT, position_start, DISTILL, PREFIXES "|" VECTORS,
           ALL, "position of a row's first token"),
    OPTION("infix", NULL, "", KVF_FLAG, infix, 0, PREFIXES "|" VECTORS, ALL,
           "lm: the prefix is inside rows, before the last token of the prompt, and the prompt "
           "before it does not see it"),
    OPTION("chat-template", KVF__CHAT_TEMPLATES, "auto", KVF_WORD, chat_template, DISTILL, ALL,
           "lm", "auto: for messages only; named: wraps prompts too: see help data"),
    OPTION("map", "OURS=THEIRS,...", "", KVF_TEXT, map, DISTILL, ALL, ALL,
           "foreign field names: prompt=question,completion=answer"),
    OPTION("precision", "auto|f32|bf16|int8", "auto", KVF_CHOICE, precision, DISTILL, ALL, ALL,
           "auto: bf16 where the CPU's flags say it is faster"),
    OPTION("seed", "N", "0", KVF_SEED, seed, DISTILL, ALL, ALL, "of initialisation and order"),
    OPTION("log", "FILE", "", KVF_TEXT, log, LOCAL, ALL, ALL,
           "write what happens as JSONL, a line an event: see help logs; -: standard output"),
    OPTION(
        "forecast", "auto|on|off", "auto", KVF_CHOICE, forecast, LOCAL, ALL, ALL,
        "show before the first step what the run will take; auto: on a terminal, and in a dry run"),
    OPTION("tensorboard", "DIR", "", KVF_TEXT, tensorboard, LOCAL, ALL, ALL,
           "write loss, rates, norms and metrics for TensorBoard"),
};
#define N_ROWS (sizeof ROWS / sizeof ROWS[0])

/* The defaults that help shows in other words than those of a value. */
static const kvf_train_options DESCRIBED = {
    .init = "vocab", .head_dropout = -1, .beta1 = -1, .warmup = "5%", .position_start = "P"};

kvf_train_options kvf_train_defaults(void)
{
    kvf_train_options options = DESCRIBED;
    for (size_t i = 0; i < N_ROWS; i++)
        if (ROWS[i].row.kind != KVF_TEXT && ROWS[i].row.kind != KVF_FLAG)
            kvf__option_set(&ROWS[i].row, ROWS[i].row.initial, &options);
    return options;
}

const kvf__option_row *kvf__train_option_row(size_t index)
{
    return index < N_ROWS ? &ROWS[index].row : NULL;
}

bool kvf__train_option_distills(size_t index)
{
    return ROWS[index].rules & KVF__DISTILL;
}

const kvf__option *kvf__option_at(size_t index)
{
    return index < N_ROWS ? &ROWS[index] : NULL;
}

const kvf__option *kvf__option_find(const char *name)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (!strcmp(ROWS[i].row.name, name)) return &ROWS[i];
    return NULL;
}

void kvf__option_mark(kvf_train_options *options, const kvf__option *row)
{
    _Static_assert(N_ROWS <= KVF_MAX_TRAIN_OPTIONS, "every row has its place in given");
    options->given[row - ROWS] = true;
}

bool kvf__train_option_given(const kvf_train_options *options, const char *name)
{
    return options->given[kvf__option_find(name) - ROWS];
}
