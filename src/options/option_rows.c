/* The table of train's options. A new option is a field of kvf_train_options, a row here, and its
 * use. */
#include "method.h"
#include "options.h"

#include <math.h>
#include <string.h>

enum {
    LOCAL = KVF__LOCAL,
    FREE = KVF__FREE,
    DISTILL = KVF__DISTILL,
    UNSET = KVF__UNSET,
    ONE_TASK = KVF__ONE_TASK,
    TASKS = KVF__TASKS,
    CAUSAL = KVF__CAUSAL,
    STACKS = KVF__STACKS,
    ONE_STACK = KVF__ONE_STACK
};

/* Methods that train a prefix, and those with virtual tokens at the input. */
#define PREFIXES "mlp|direct|projected"
#define VECTORS  "prompt|p-tuning"

/* Reasons for a sweep. */
#define SHARED_BASE "the runs of a sweep share the base"
#define FROZEN      "not in a sweep, where the base is not trained"
#define SINGLE_TASK "a run of several tasks has no place in a sweep"
#define ALL_RUNS    "it holds for all runs"
#define NOT_SWEPT   "not in a sweep"

/* ---- defaults by method and task ------------------------------------------------------------- */

/* True for a prefix that is trained on one task. */
static bool is_one_prefix(const kvf_train_options *o)
{
    const kvf__method *method = kvf__method_find(o->method);
    return method && method->port == KVF__PORT_KV && !o->named_data.n;
}

/* 0: decided with the base (docs/methods.md). */
static void decide_length(kvf_train_options *o)
{
    const bool one = is_one_prefix(o);
    if (one && !strcmp(o->task, "token-cls") && !o->lr_per_parameter) return;
    o->prefix_length = one && !strcmp(o->task, "lm") ? 64 : 20;
}

/* With a head: gradients of more rows have less noise, which grows with the rate and shrinks with
 * the root of the rows; tags are many labels to a row (docs/methods.md). */
static void decide_lr(kvf_train_options *o)
{
    static const double ROWS = 8, MOST = 0.1;
    const double rows = o->batch_tokens ? ROWS : (double)o->batch_size;
    const double of_task = !strcmp(o->task, "token-cls") ? 0.05 : 0.03;
    if (is_one_prefix(o) && strcmp(o->task, "lm") && !o->lr_per_parameter)
        o->lr = fmin(MOST, of_task * sqrt(rows / ROWS));
    else
        o->lr = kvf__method_find(o->method)->default_lr;
}

/* 0: decided with the data, by the number of classes. A trained matrix wants less than a fresh
 * layer: E2E on SmolLM2, validation loss after 8 steps: 1.637 without, 1.625 at 1e-4, 1.595 at
 * 3e-4, 1.601 at 1e-3. */
static void decide_head_lr(kvf_train_options *o)
{
    const bool by_classes = !strcmp(o->task, "seq-cls") && !o->named_data.n && !o->lr_per_parameter;
    o->head_lr = o->train_head ? 3e-4 : by_classes ? 0 : 1e-2;
}

static void decide_beta1(kvf_train_options *o)
{
    o->beta1 = o->lr_per_parameter ? 0.9 : kvf__method_find(o->method)->default_beta1;
}

/* ---- the table ------------------------------------------------------------------------------- */

#define ROW(name, argument, initial, kind, field, help, ...)                                       \
    {                                                                                              \
        .row = {name, argument, initial, kind, offsetof(kvf_train_options, field), help},          \
        __VA_ARGS__                                                                                \
    }

static const kvf__option ROWS[] = {
    ROW("base", "PATH", "", KVF_TEXT, base, "base model: Hugging Face folder, GGUF or base file",
        .rules = LOCAL | DISTILL, .shared = SHARED_BASE),
    ROW("lora", "FOLDER", "", KVF_TEXT, lora, "LoRA of PEFT that is folded into the base's weights",
        .rules = LOCAL | DISTILL, .shared = SHARED_BASE),
    ROW("data", "FILE", "", KVF_TEXT, data,
        "training data: JSON, JSONL, TSV, CSV, CoNLL, SQuAD, SuperGLUE or plain text, or these "
        "gzipped; NAME=FILE, for each of several tasks that share a prefix",
        .rules = LOCAL | DISTILL),
    ROW("valid", "FILE", "", KVF_TEXT, valid, "held-out data for validation",
        .rules = LOCAL | DISTILL),
    ROW("out", "RUN.h5", "", KVF_TEXT, out, "run file to write", .rules = LOCAL | DISTILL,
        .sweep = "a run's file is named after the run", .compare = ""),
    ROW("resume", NULL, "", KVF_FLAG, resume, "continue the run file named by --out",
        .rules = LOCAL | DISTILL, .shared = ALL_RUNS,
        .compare = "not in a comparison, whose runs begin anew"),
    ROW("force", NULL, "", KVF_FLAG, force, "replace an existing output", .rules = LOCAL | DISTILL,
        .shared = ALL_RUNS, .compare = ""),
    ROW("dry-run", NULL, "", KVF_FLAG, dry_run,
        "load everything, show what would be done and what it would take, and stop",
        .rules = LOCAL | DISTILL, .shared = ALL_RUNS,
        .compare = "not in a comparison, which checks all rows before it trains one"),
    ROW("allow-other-base", NULL, "", KVF_FLAG, allow_other_base,
        "accept --init-kv and --init-from files made for another base", .rules = LOCAL),
    ROW("task", "lm|seq-cls|token-cls|qa|multiple-choice", "lm", KVF_WORD, task,
        "what the base is tuned for; all but lm train a head too; NAME=KIND for one of several "
        "tasks",
        .rules = 0),
    ROW("method", KVF__METHOD_CHOICES, "mlp", KVF_WORD, method, "what is trained: see help methods",
        .rules = DISTILL, .compare = "a comparison has --methods A,B,..."),
    ROW("prefix-length", "N", "20; prefixes of lm 64, of token-cls on bidirectional bases 40",
        KVF_POSITIVE, prefix_length, "virtual tokens P", .rules = DISTILL | UNSET,
        .decide = decide_length, .methods = PREFIXES "|" VECTORS),
    ROW("encoder-hidden", "N", "512", KVF_COUNT, encoder_hidden,
        "hidden width M of the encoder: mlp, p-tuning", .rules = DISTILL,
        .methods = "mlp|p-tuning"),
    ROW("layers", "A-B,...", "all", KVF_TEXT, layers,
        "layers that have a prefix, from 0 on, as 4-7 or 0,2,4-7; the others attend to none, and "
        "there is no PEFT form",
        .rules = UNSET, .methods = PREFIXES),
    ROW("places", "WORD,...", "all", KVF_TEXT, places,
        "encoder-decoders: where the prefix is attended to: encoder, decoder (both in their "
        "self-attention), cross; peft: decoder in PEFT's form, where T5's relative bias counts "
        "the prefix",
        .rules = UNSET | STACKS, .methods = PREFIXES),
    ROW("p-encoder", "lstm|mlp", "lstm", KVF_WORD, p_encoder,
        "p-tuning: what the virtual tokens come out of", .methods = "p-tuning"),
    ROW("unfreeze", "off|base", "off", KVF_EITHER, unfreeze_base,
        "p-tuning: base trains the base's weights too", .methods = "p-tuning",
        .excludes = "precision=int8", .sweep = SHARED_BASE),
    ROW("base-lr", "X", "2e-05", KVF_ABOVE_0, base_lr,
        "learning rate of the base's weights, with --unfreeze", .methods = "p-tuning",
        .needs = "unfreeze=base", .sweep = FROZEN),
    ROW("p-template", "TEXT", "virtual tokens lead", KVF_TEXT, p_template,
        "prompt, p-tuning: where virtual tokens are, as \"{p:3} {text} {p:2}\"; {text}, "
        "{text_pair}, {prompt} and {completion} are fields of the row, [MASK] is the mask token; "
        "without {p} also for prefixes of seq-cls",
        .rules = UNSET | ONE_STACK, .tasks = "lm|seq-cls"),
    ROW("verbalizer", "LABEL=WORD,...", "", KVF_TEXT, verbalizer,
        "seq-cls: the word that means each label at [MASK] of --p-template, on causal bases as "
        "what comes next, at the end; no head is trained",
        .rules = ONE_TASK | ONE_STACK, .methods = PREFIXES "|" VECTORS, .tasks = "seq-cls",
        .needs = "p-template", .excludes = "regression|head-lr|head-dropout"),
    ROW("init", "vocab|random|zero|text|kv|match|centroids",
        "match for lm, else vocab; centroids on bidirectional bases", KVF_WORD, init,
        "starting prefix: K/V of random words, random weights, zeros, K/V of --init-text, a "
        "prefix file; match: rows of the data read as one text, matched by attention; "
        "centroids: keys at centroids of the rows' queries, values that change little; "
        "prompt, p-tuning: embeddings of words, on any base",
        .rules = DISTILL | UNSET, .methods = PREFIXES "|" VECTORS),
    ROW("init-text", "TEXT", "", KVF_TEXT, init_text, "text to start from: --init text",
        .rules = DISTILL, .methods = PREFIXES "|" VECTORS),
    ROW("init-kv", "FILE", "", KVF_TEXT, init_kv, "prefix file to start from: --init kv",
        .rules = LOCAL | DISTILL, .methods = PREFIXES),
    ROW("init-scheme", "torch|ptuning-v2", "torch", KVF_EITHER, init_ptuning_v2,
        "distribution of random weights", .methods = "mlp|direct|prompt|p-tuning"),
    ROW("init-encoder", "FILE", "", KVF_TEXT, init_encoder, "encoder weights, safetensors",
        .rules = LOCAL, .methods = PREFIXES "|" VECTORS, .excludes = "init-from"),
    ROW("init-from", "FILE", "", KVF_TEXT, init_from,
        "weights of a run or prefix file, with its head where the labels agree; not its optimizer",
        .rules = LOCAL | DISTILL),
    ROW("approximate", NULL, "", KVF_FLAG, approximate,
        "start from what the encoder comes nearest to, even if that misses by more than 0.01",
        .rules = LOCAL | DISTILL, .methods = "mlp|p-tuning"),
    ROW("log-weight", "off|fixed|train", "off", KVF_CHOICE, log_weight,
        "a number for each virtual token and key head that is added to the scores of its key: "
        "kept as it starts, or trained",
        .rules = DISTILL, .methods = PREFIXES),
    ROW("start-mass", "X", "0, or of the file to start from", KVF_REAL, start_mass,
        "log-weights start so that the prefix has e^X times the attention that the text's own "
        "tokens have; -10: next to none",
        .rules = DISTILL | UNSET, .methods = PREFIXES,
        .needs = "log-weight=fixed|log-weight=train"),
    ROW("log-weight-lr", "X", "0.1", KVF_ABOVE_0, log_weight_lr,
        "learning rate of log-weights: --log-weight train", .rules = DISTILL, .methods = PREFIXES,
        .needs = "log-weight=train"),
    ROW("lr", "X", "by method", KVF_ABOVE_0, lr,
        "learning rate; mlp, direct, projected 0.03, for token-cls 0.05, with any head times "
        "sqrt(batch-size / 8), at most 0.1; prompt 0.3, p-tuning 0.001",
        .rules = DISTILL | UNSET, .decide = decide_lr,
        .methods = PREFIXES "|" VECTORS "|adapter|full"),
    ROW("train-head", NULL, "", KVF_FLAG, train_head,
        "lm: train the language model's head too; a tied base is untied, its embedding stays",
        .rules = ONE_TASK, .methods = PREFIXES "|" VECTORS "|adapter", .tasks = "lm",
        .excludes = "unfreeze"),
    ROW("head-lr", "X", "by task", KVF_ABOVE_0, head_lr,
        "learning rate of the head, in its own units; 0.01, for seq-cls with K classes 0.01 "
        "times K - 1, at most 0.05; of --train-head 0.0003",
        .rules = UNSET, .decide = decide_head_lr,
        .needs = "task=seq-cls|task=token-cls|task=qa|task=multiple-choice|train-head"),
    ROW("head-dropout", "X", "the config's", KVF_SHARE, head_dropout,
        "dropout on what the head reads, while training", .rules = UNSET, .unset = -1,
        .needs = "task=seq-cls|task=token-cls|task=qa|task=multiple-choice"),
    ROW("lr-units", "prefix|parameter", "prefix", KVF_EITHER, lr_per_parameter,
        "prefix: a step moves K/V as far as it would move a direct prefix", .methods = PREFIXES),
    ROW("steps", "N", "by epochs", KVF_COUNT, steps,
        "optimizer steps, counted from the start; 0: a run of starting values",
        .rules = FREE | DISTILL | UNSET, .compare = ""),
    ROW("epochs", "N", "3", KVF_COUNT, epochs, "passes over the data, unless --steps",
        .rules = FREE | DISTILL),
    ROW("batch-size", "N", "8", KVF_POSITIVE, batch_size,
        "rows per step; of qa and multiple-choice questions", .rules = DISTILL),
    ROW("batch-tokens", "N|auto", "off", KVF_OR_AUTO, batch_tokens,
        "tokens per step instead of rows; auto: so many that weights are read for little of a "
        "step's time, by the shapes of base and method alone",
        .rules = UNSET),
    ROW("format", "auto|jsonl|json|tsv|csv|conll|squad|superglue|text", "auto", KVF_WORD, format,
        "of the data files; auto: by name and content", .rules = DISTILL),
    ROW("no-header", NULL, "", KVF_FLAG, no_header,
        "the first line of TSV, CSV or CoNLL is no header", .rules = 0),
    ROW("columns", "NAME,...", "the header's", KVF_TEXT, columns,
        "names of the columns of TSV, CSV or CoNLL; -: not read", .rules = UNSET),
    ROW("split-text", "N", "off", KVF_COUNT, split_text,
        "lm: data files are plain text, cut into rows of N tokens", .rules = UNSET | ONE_STACK,
        .tasks = "lm"),
    ROW("limit", "N", "all", KVF_COUNT, limit, "read the first N rows of --data", .rules = UNSET),
    ROW("valid-split", "X", "off", KVF_SHARE, valid_split,
        "validate on a share X of the rows of --data, drawn by --seed, which are not trained on",
        .rules = UNSET, .excludes = "valid"),
    ROW("regression", "on|off", "off", KVF_ON_OFF, regression,
        "seq-cls: labels are numbers, the loss is the squared error", .tasks = "seq-cls"),
    ROW("labels", "NAME,...", "the training data's", KVF_TEXT, labels,
        "seq-cls, token-cls: all classes or tags, as A,B,C or @FILE with one a line; those that "
        "occur in validation alone must be named; NAME=A,B,C for one of several tasks",
        .rules = LOCAL | UNSET, .tasks = "seq-cls|token-cls", .excludes = "regression"),
    ROW("class-weights", "balanced|FILE", "each 1", KVF_TEXT, class_weights,
        "seq-cls, token-cls: what the training loss of each class or tag is multiplied by: rows / "
        "(classes x rows of the class), or of a file with NAME WEIGHT a line",
        .rules = UNSET, .tasks = "seq-cls|token-cls", .excludes = "regression|verbalizer"),
    ROW("doc-stride", "N", "128", KVF_COUNT, doc_stride,
        "qa: tokens that two windows of a long context share", .tasks = "qa"),
    ROW("share-prefixes", "auto|off", "auto", KVF_EITHER, share_off,
        "compute tokens that rows of a step begin with once (exact)", .rules = 0),
    ROW("group-by", "off|prefix", "off", KVF_EITHER, group_by_prefix,
        "prefix: rows that begin alike come into the same steps", .rules = 0),
    ROW("task-prefix", "shared|low-rank", "shared", KVF_EITHER, low_rank_tasks,
        "several tasks: one prefix for all, or for each the shared one times a matrix of rank 1 "
        "per layer",
        .rules = TASKS, .methods = PREFIXES, .excludes = "prefix-dropout", .sweep = SINGLE_TASK),
    ROW("mix", "proportional|equal", "proportional", KVF_EITHER, equal_mix,
        "several tasks: each step is one task's, drawn by their rows, or each as often",
        .rules = TASKS, .methods = PREFIXES, .sweep = SINGLE_TASK),
    ROW("grad-accum", "N", "1", KVF_POSITIVE, grad_accum,
        "parts in which a step's rows are computed, to save memory", .rules = DISTILL),
    ROW("recompute", "on|off", "off", KVF_ON_OFF, recompute,
        "compute layers again for the backward pass instead of keeping what they leave: less "
        "memory, more time, the same bits",
        .rules = FREE),
    ROW("keep-states", "SIZE", "off", KVF_TEXT, keep_states,
        "with --layers or --places: compute the layers below the first prefix once for each "
        "row, of --valid too, and keep what they give in so much memory, as 2G, then in a file "
        "beside --out",
        .rules = FREE | UNSET, .methods = PREFIXES),
    ROW("weight-dtype", "auto|f32|bf16|int8", "auto", KVF_CHOICE, weight_dtype,
        "frozen weights: one copy in this type, packed layer by layer just before use; auto: "
        "packed once, in both directions",
        .excludes = "precision=int8|method=full|unfreeze", .shared = SHARED_BASE),
    ROW("stream-layers", "on|off", "off", KVF_ON_OFF, stream_layers,
        "read each layer from the file when it is computed, for bases larger than memory: the "
        "same bits; with --recompute on unless that is off",
        .rules = FREE, .excludes = "weight-dtype|precision=int8|method=full|unfreeze",
        .shared = SHARED_BASE),
    ROW("max-length", "N", "the model's", KVF_COUNT, max_length, "longest row in tokens",
        .rules = DISTILL | UNSET),
    ROW("overlong", "stop|truncate|truncate-end|skip", "stop", KVF_CHOICE_1, overlong,
        "what to do with longer rows; truncate: cut the prompt at its left, and the end only of "
        "what is too long without it; truncate-end: cut the end",
        .rules = DISTILL),
    ROW("shuffle", "on|off", "on", KVF_ON_OFF, shuffle, "new order of rows each epoch", .rules = 0),
    ROW("schedule", "linear|cosine|constant", "linear", KVF_CHOICE, schedule,
        "learning rate over time", .rules = DISTILL),
    ROW("schedule-steps", "N", "--steps", KVF_COUNT, schedule_steps,
        "length of the schedule, fixed when the run is created", .rules = UNSET),
    ROW("warmup", "N|N%", "5%", KVF_TEXT, warmup, "steps of warmup", .rules = DISTILL),
    ROW("weight-decay", "X", "0", KVF_AMOUNT, weight_decay, "decoupled weight decay", .rules = 0),
    ROW("optimizer", "natural|adamw", "natural; adamw with --lr-units parameter", KVF_EITHER,
        optimizer_adamw,
        "mlp: natural keeps AdamW's moments of the prefix itself, and the encoder's last layer "
        "makes the step; adamw: those of each parameter",
        .rules = UNSET, .methods = "mlp"),
    ROW("value-optimizer", "adamw|muon", "muon for token-cls from centroids, else adamw",
        KVF_EITHER, values_muon,
        "what steps the prefix's values; muon: the momentum of each head, its singular values "
        "made more alike; keys step by AdamW",
        .rules = UNSET, .methods = "mlp|direct"),
    ROW("beta1", "X", "by method", KVF_SHARE, beta1,
        "AdamW; mlp and direct 0.5, others and --lr-units parameter 0.9", .rules = UNSET,
        .unset = -1, .decide = decide_beta1),
    ROW("beta2", "X", "0.999", KVF_SHARE, beta2, "AdamW", .rules = 0),
    ROW("eps", "X", "1e-08", KVF_AMOUNT, eps, "AdamW", .rules = 0),
    ROW("clip", "X", "1", KVF_AMOUNT, clip, "largest gradient norm; 0: no clipping", .rules = 0),
    ROW("skip-nonfinite", "N", "0", KVF_COUNT, skip_nonfinite,
        "steps to leave out where loss or gradient is not finite", .rules = FREE),
    ROW("spike-guard", "X", "off", KVF_AMOUNT, spike_guard,
        "leave out steps whose loss is above X times the mean of the last 32, once there are 8",
        .rules = UNSET),
    ROW("prefix-dropout", "X", "0", KVF_SHARE, prefix_dropout,
        "share of the prefix's keys and values dropped while training", .methods = PREFIXES),
    ROW("prefix-dropout-per-row", NULL, "", KVF_FLAG, prefix_dropout_per_row,
        "a mask for each row of a step instead of one for all; nothing is shared between rows "
        "then",
        .methods = PREFIXES, .needs = "prefix-dropout", .sweep = NOT_SWEPT),
    ROW("adapter-size", "N", "64", KVF_POSITIVE, adapter_size, "adapter: width of the bottleneck",
        .methods = "adapter", .sweep = FROZEN),
    ROW("adapter-activation", "gelu|relu|tanh", "gelu", KVF_WORD, adapter_activation,
        "adapter: between its two products", .methods = "adapter", .sweep = FROZEN),
    ROW("adapter-norms", "on|off", "on", KVF_EITHER, adapter_norms_off,
        "adapter: train the base's norms too", .methods = "adapter", .sweep = FROZEN),
    ROW("adapter-placement", "serial|parallel|attn|ffn", "serial", KVF_WORD, adapter_placement,
        "adapter: on the output of both sub-layers, parallel to them, or on that of attention or "
        "feed-forward part alone",
        .methods = "adapter", .sweep = FROZEN),
    ROW("base-dropout", "X", "0", KVF_SHARE, base_dropout,
        "dropout of the base while training: on embeddings, what each half of a block adds, and "
        "the probabilities of attention where the config has a rate for them",
        .rules = ONE_STACK, .methods = PREFIXES "|" VECTORS "|full|head", .sweep = NOT_SWEPT),
    ROW("eval-every", "N", "epoch", KVF_COUNT, eval_every, "steps between validations",
        .rules = FREE | DISTILL | UNSET, .compare = ""),
    ROW("save-every", "N", "epoch", KVF_COUNT, save_every, "steps between saves",
        .rules = FREE | DISTILL | UNSET),
    ROW("metric", "NAME", "by task", KVF_TEXT, metric,
        "what the best checkpoint is best in: loss, accuracy, f1, exact_match, ...; of equal "
        "ones that of the lowest loss",
        .rules = UNSET),
    ROW("retain", "FILE", "", KVF_TEXT, retention,
        "lm: text that the prefix is not meant to change; its loss is measured, and that of "
        "the bare base",
        .rules = LOCAL | DISTILL | ONE_TASK | ONE_STACK, .methods = PREFIXES, .tasks = "lm",
        .excludes = "infix"),
    ROW("kl-to-base", "X", "0", KVF_AMOUNT, kl_to_base,
        "adds X times KL(base || with the prefix) on rows of the --retain file to the loss, "
        "over the base's 20 likeliest items at each label",
        .rules = DISTILL | ONE_TASK, .methods = PREFIXES, .tasks = "lm", .needs = "retain",
        .excludes = "train-head"),
    ROW("early-stop", "N", "off", KVF_COUNT, early_stop,
        "stop after N validations without a better one", .rules = DISTILL | UNSET,
        .needs = "valid|valid-split"),
    ROW("position-start", "P|N", "P", KVF_TEXT, position_start, "position of a row's first token",
        .rules = DISTILL, .methods = PREFIXES),
    ROW("infix", NULL, "", KVF_FLAG, infix,
        "lm: the prefix is inside rows, before the last token of the prompt, and the prompt "
        "before it does not see it",
        .rules = ONE_TASK | CAUSAL | ONE_STACK, .methods = "mlp|direct", .tasks = "lm",
        .excludes = "prefix-dropout-per-row|position-start|base-dropout", .sweep = NOT_SWEPT),
    ROW("chat-template", KVF__CHAT_TEMPLATES, "auto", KVF_WORD, chat_template,
        "auto: for messages only; named: wraps prompts too: see help data", .rules = DISTILL,
        .tasks = "lm"),
    ROW("map", "OURS=THEIRS,...", "", KVF_TEXT, map,
        "foreign field names: prompt=question,completion=answer", .rules = DISTILL),
    ROW("precision", "auto|f32|bf16|int8", "auto", KVF_CHOICE, precision,
        "auto: bf16 where the CPU's flags say it is faster", .rules = DISTILL,
        .shared = SHARED_BASE),
    ROW("seed", "N", "0", KVF_SEED, seed, "of initialisation and order", .rules = DISTILL,
        .compare = "a comparison has --seeds N"),
    ROW("log", "FILE", "", KVF_TEXT, log,
        "write what happens as JSONL, a line an event: see help logs; -: standard output",
        .rules = LOCAL,
        .sweep = "the runs would write to one file; --tensorboard has a folder for each",
        .compare = "the runs of a comparison would write to one file"),
    ROW("forecast", "auto|on|off", "auto", KVF_CHOICE, forecast,
        "show before the first step what the run will take; auto: on a terminal, and in a dry run",
        .rules = LOCAL, .sweep = NOT_SWEPT, .compare = "not in a comparison"),
    ROW("tensorboard", "DIR", "", KVF_TEXT, tensorboard,
        "write loss, rates, norms and metrics for TensorBoard", .rules = LOCAL, .shared = ALL_RUNS,
        .compare = "the runs of a comparison would write to one folder"),
};
#define N_ROWS (sizeof ROWS / sizeof ROWS[0])

/* ---- views ----------------------------------------------------------------------------------- */

/* Rows that a command shows with another default or help. */
#define AT(field) offsetof(kvf_train_options, field)
static const kvf__option_row OF_DISTILL[] = {
    {"data", "FILE", "", KVF_TEXT, AT(data),
     "rows about the document, in place of those made from it"},
    {"valid", "FILE", "one row in eight", KVF_TEXT, AT(valid), "held-out rows to measure by"},
    {"dry-run", NULL, "", KVF_FLAG, AT(dry_run),
     "make the rows, show what would be done, and stop"},
    {"method", "direct|mlp|projected", "direct", KVF_WORD, AT(method), "what emits the prefix"},
    {"prefix-length", "N", "20", KVF_POSITIVE, AT(prefix_length), "virtual tokens P"},
    {"encoder-hidden", "N", "512", KVF_COUNT, AT(encoder_hidden),
     "hidden width M of the encoder: mlp"},
    {"init", "match|text|vocab|random|zero|kv", "text: the document's first P tokens", KVF_WORD,
     AT(init), "starting prefix: solved for by attention matching, or as train has it"},
    {"steps", "N", "200", KVF_COUNT, AT(steps), "optimizer steps, counted from the start"},
    {"epochs", "N", "off", KVF_COUNT, AT(epochs), "passes over the rows, instead of --steps"},
    {"lr", "X", "0.03", KVF_ABOVE_0, AT(lr), "learning rate"},
    {"batch-size", "N", "8", KVF_POSITIVE, AT(batch_size), "rows per step"},
    {"max-length", "N", "what fits", KVF_COUNT, AT(max_length), "longest row in tokens"},
    {"seed", "N", "0", KVF_SEED, AT(seed), "of prompts, answers, initialisation and order"},
};
/* Methods but those that train the base, which the runs share. */
#define CHOICE_KV(name)    "|" name
#define CHOICE_EMBED(name) "|" name
#define CHOICE_BLOCK(name)
#define CHOICE_NONE(name)
#define CHOICE(name, port, lr, beta1, folds_to, reads_base) CHOICE_##port(name)
static const kvf__option_row OF_SWEEP[] = {
    {"method", (&("" KVF__METHOD_LIST(CHOICE))[1]), "mlp", KVF_WORD, AT(method),
     "what is trained: see help methods"},
};
#undef AT

static bool is_any(const kvf__option *option)
{
    return option != NULL;
}

static bool is_of_distill(const kvf__option *option)
{
    return option->rules & KVF__DISTILL;
}

static bool is_of_sweep(const kvf__option *option)
{
    return !option->sweep;
}

static bool is_of_compare(const kvf__option *option)
{
    return !option->compare;
}

/* The row with this index among those that the view has. */
static const kvf__option_row *view_row(bool (*has)(const kvf__option *), const kvf__option_row *own,
                                       size_t n, size_t index)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        if (!has(&ROWS[i]) || index--) continue;
        for (size_t k = 0; k < n; k++)
            if (own[k].offset == ROWS[i].row.offset) return &own[k];
        return &ROWS[i].row;
    }
    return NULL;
}

const kvf__option_row *kvf__train_option_row(size_t index)
{
    return view_row(is_any, NULL, 0, index);
}

const kvf__option_row *kvf__distill_option_row(size_t index)
{
    return view_row(is_of_distill, OF_DISTILL, sizeof OF_DISTILL / sizeof *OF_DISTILL, index);
}

const kvf__option_row *kvf__sweep_option_row(size_t index)
{
    return view_row(is_of_sweep, OF_SWEEP, sizeof OF_SWEEP / sizeof *OF_SWEEP, index);
}

const kvf__option_row *kvf__compare_option_row(size_t index)
{
    return view_row(is_of_compare, NULL, 0, index);
}

const char *kvf__sweep_refusal(const char *name)
{
    const kvf__option *option = kvf__option_find(name);
    return option ? option->sweep : NULL;
}

const char *kvf__option_shared(const char *name)
{
    const kvf__option *option = kvf__option_find(name);
    return option ? option->shared : NULL;
}

const char *kvf__compare_refusal(const char *name)
{
    const kvf__option *option = kvf__option_find(name);
    return option && option->compare && *option->compare ? option->compare : NULL;
}

bool kvf__train_option_applies(const char *name, const char *method)
{
    const kvf__option *option = kvf__option_find(name);
    return option && kvf__method_find(method ? method : "") &&
           (!option->methods || kvf__choice_index(option->methods, method) >= 0);
}

/* ---- access ---------------------------------------------------------------------------------- */

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

const kvf__option *kvf__option_of(size_t offset)
{
    size_t i = 0;
    while (ROWS[i].row.offset != offset)
        i++;
    return &ROWS[i];
}

void kvf__option_mark(kvf_train_options *options, const kvf__option *row)
{
    _Static_assert(N_ROWS <= KVF_MAX_TRAIN_OPTIONS, "every row has its place in given");
    options->given[row - ROWS] = true;
}

bool kvf__option_given(const kvf_train_options *options, const kvf__option *row)
{
    return options->given[row - ROWS];
}

static void set_default(kvf_train_options *options, const kvf__option *row)
{
    void *field = kvf__option_field(options, row);
    if (!(row->rules & KVF__UNSET))
        kvf__option_set(&row->row, row->row.initial, options);
    else if (row->row.kind == KVF_AMOUNT || row->row.kind == KVF_SHARE ||
             row->row.kind == KVF_REAL || row->row.kind == KVF_ABOVE_0)
        *(double *)field = row->unset;
}

kvf_train_options kvf_train_defaults(void)
{
    kvf_train_options options = {0};
    for (size_t i = 0; i < N_ROWS; i++)
        if (*ROWS[i].row.initial) set_default(&options, &ROWS[i]);
    return options;
}
