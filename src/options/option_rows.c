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

/* Reasons why an option is not available in a sweep. */
#define SHARED_BASE "the runs of a sweep share the base"
#define FROZEN      "not available in a sweep, where the base is frozen"
#define SINGLE_TASK "not available in a sweep: a run on several tasks must run alone"
#define ALL_RUNS    "the value holds for all runs"
#define NOT_SWEPT   "not available in a sweep"

/* ---- defaults by method and task ------------------------------------------------------------- */

/* True for a prefix that is trained on one task. */
static bool is_one_prefix(const kvf_train_options *o)
{
    const kvf__method *method = kvf__method_find(o->method);
    return method && method->port == KVF__PORT_KV && !o->named_data.n;
}

/* 0: the default depends on the base (docs/methods.md). */
static void decide_length(kvf_train_options *o)
{
    const bool one = is_one_prefix(o);
    if (one && !strcmp(o->task, "token-cls") && !o->lr_per_parameter) return;
    o->prefix_length = one && !strcmp(o->task, "lm") ? 64 : 20;
}

/* With a head, gradients of more rows have less noise: the rate grows with the square root of the
 * rows. A row of tags has many labels (docs/methods.md). */
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

/* Steps of all neurons add up in a block's output: at 0.003, 128 neurons take SST-2 to a constant
 * answer (docs/methods.md). */
static void decide_ffn_lr(kvf_train_options *o)
{
    static const double RATE = 0.003, NEURONS = 32;
    o->ffn_lr = RATE * fmin(1, NEURONS / fmax(1, (double)o->ffn_length));
}

/* 0: the default depends on the number of classes in the data. A pretrained matrix needs a lower
 * rate than a new layer. E2E on SmolLM2, validation loss after 8 steps: 1.637 without training the
 * head, 1.625 at 1e-4, 1.595 at 3e-4, 1.601 at 1e-3. */
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
    ROW("lora", "FOLDER", "", KVF_TEXT, lora, "PEFT LoRA to fold into the base's weights",
        .rules = LOCAL | DISTILL, .shared = SHARED_BASE),
    ROW("data", "FILE", "", KVF_TEXT, data,
        "training data: JSON, JSONL, TSV, CSV, CoNLL, SQuAD, SuperGLUE or plain text, also "
        "gzipped; NAME=FILE, once for each of several tasks that share a prefix",
        .rules = LOCAL | DISTILL),
    ROW("valid", "FILE", "", KVF_TEXT, valid, "held-out data for validation",
        .rules = LOCAL | DISTILL),
    ROW("out", "RUN.h5", "", KVF_TEXT, out, "run file to write", .rules = LOCAL | DISTILL,
        .sweep = "sweep names each run file after its run", .compare = ""),
    ROW("resume", NULL, "", KVF_FLAG, resume, "continue the run file given by --out",
        .rules = LOCAL | DISTILL, .shared = ALL_RUNS, .compare = ""),
    ROW("force", NULL, "", KVF_FLAG, force, "replace an existing output", .rules = LOCAL | DISTILL,
        .shared = ALL_RUNS, .compare = ""),
    ROW("dry-run", NULL, "", KVF_FLAG, dry_run,
        "load everything, print the plan and its estimated cost, and stop",
        .rules = LOCAL | DISTILL, .shared = ALL_RUNS,
        .compare = "not available in a comparison, which always checks all rows first"),
    ROW("allow-other-base", NULL, "", KVF_FLAG, allow_other_base,
        "accept --init-kv and --init-from files made for another base", .rules = LOCAL),
    ROW("task", "lm|seq-cls|token-cls|qa|multiple-choice", "lm", KVF_WORD, task,
        "task to tune the base for; all but lm also train a head; NAME=KIND for each of several "
        "tasks",
        .rules = 0),
    ROW("method", KVF__METHOD_CHOICES, "mlp", KVF_WORD, method,
        "trained parameters: see help "
        "methods",
        .rules = DISTILL, .compare = "use --methods A,B,... in a comparison"),
    ROW("prefix-length", "N", "20; prefixes for lm 64, for token-cls on bidirectional bases 40",
        KVF_COUNT, prefix_length, "virtual tokens P", .rules = DISTILL | UNSET,
        .decide = decide_length, .methods = PREFIXES "|" VECTORS),
    ROW("encoder-hidden", "N", "512", KVF_COUNT, encoder_hidden,
        "hidden width M of the encoder: mlp, p-tuning", .rules = DISTILL,
        .methods = "mlp|p-tuning"),
    ROW("ffn-length", "N", "0", KVF_COUNT, ffn_length,
        "virtual neurons of each feed-forward block, beside the prefix; alone with --prefix-length "
        "0",
        .rules = DISTILL, .methods = "mlp|direct", .excludes = "infix|task-prefix=low-rank"),
    ROW("ffn-lr", "X", "by length", KVF_ABOVE_0, ffn_lr,
        "learning rate of the virtual neurons; 0.003, above 32 neurons 0.003 * 32 / N",
        .rules = FREE | UNSET | DISTILL, .decide = decide_ffn_lr, .methods = "mlp|direct",
        .needs = "ffn-length"),
    ROW("layers", "A-B,...", "all", KVF_TEXT, layers,
        "layers with a prefix, counted from 0, such as 4-7 or 0,2,4-7; other layers have none; "
        "cannot be "
        "exported to PEFT",
        .rules = UNSET, .methods = PREFIXES),
    ROW("places", "WORD,...", "all", KVF_TEXT, places,
        "encoder-decoders: attention that reads the prefix: encoder, decoder (self-attention), "
        "cross; peft: decoder as in PEFT, where the relative bias of T5 counts the virtual "
        "tokens",
        .rules = UNSET | STACKS, .methods = PREFIXES),
    ROW("p-encoder", "lstm|mlp", "lstm", KVF_WORD, p_encoder,
        "p-tuning: network that emits the virtual tokens", .methods = "p-tuning"),
    ROW("unfreeze", "off|base", "off", KVF_EITHER, unfreeze_base,
        "p-tuning: base also trains the base's weights", .methods = "p-tuning",
        .excludes = "precision=int8", .sweep = SHARED_BASE),
    ROW("base-lr", "X", "2e-05", KVF_ABOVE_0, base_lr,
        "learning rate of the base's weights, with --unfreeze", .methods = "p-tuning",
        .needs = "unfreeze=base", .sweep = FROZEN),
    ROW("p-template", "TEXT", "virtual tokens first", KVF_TEXT, p_template,
        "prompt, p-tuning: places of the virtual tokens, such as \"{p:3} {text} {p:2}\"; {text}, "
        "{text_pair}, {prompt} and {completion} are fields of the row, [MASK] is the mask "
        "token; prefixes for seq-cls take a template without {p}",
        .rules = UNSET | ONE_STACK, .tasks = "lm|seq-cls"),
    ROW("verbalizer", "LABEL=WORD,...", "", KVF_TEXT, verbalizer,
        "seq-cls: a word for each label, predicted at [MASK] of --p-template by the base's own "
        "head instead of a trained one; on causal bases [MASK] comes last and means the next "
        "word",
        .rules = ONE_TASK | ONE_STACK, .methods = PREFIXES "|" VECTORS, .tasks = "seq-cls",
        .needs = "p-template", .excludes = "regression|head-lr|head-dropout"),
    ROW("init", "vocab|random|zero|text|kv|match|centroids",
        "match for lm, else vocab; centroids on bidirectional bases", KVF_WORD, init,
        "initial prefix: K/V of random words (vocab), random weights, zeros, K/V of "
        "--init-text, a prefix file (kv); match: approximates the effect of training rows in "
        "the context; centroids: keys at cluster centers of the queries of training rows; "
        "prompt, p-tuning: embeddings of words; see help methods",
        .rules = DISTILL | UNSET, .methods = PREFIXES "|" VECTORS),
    ROW("init-text", "TEXT", "", KVF_TEXT, init_text, "text for --init text", .rules = DISTILL,
        .methods = PREFIXES "|" VECTORS),
    ROW("init-kv", "FILE", "", KVF_TEXT, init_kv, "prefix file for --init kv",
        .rules = LOCAL | DISTILL, .methods = PREFIXES),
    ROW("init-scheme", "torch|ptuning-v2", "torch", KVF_EITHER, init_ptuning_v2,
        "distribution of random weights", .methods = "mlp|direct|prompt|p-tuning"),
    ROW("init-encoder", "FILE", "", KVF_TEXT, init_encoder,
        "file of initial encoder weights, "
        "safetensors",
        .rules = LOCAL, .methods = PREFIXES "|" VECTORS, .excludes = "init-from"),
    ROW("init-from", "FILE", "", KVF_TEXT, init_from,
        "run or prefix file to take initial weights from, with its head if the labels agree, "
        "without optimizer state",
        .rules = LOCAL | DISTILL),
    ROW("approximate", NULL, "", KVF_FLAG, approximate,
        "start from the encoder's best approximation of the initial prefix, even if its "
        "relative error exceeds 0.01",
        .rules = LOCAL | DISTILL, .methods = "mlp|p-tuning"),
    ROW("log-weight", "off|fixed|train", "off", KVF_CHOICE, log_weight,
        "a bias for each virtual token and key head, added to the attention scores of its key: "
        "fixed at its initial value, or trained",
        .rules = DISTILL, .methods = PREFIXES),
    ROW("start-mass", "X", "0, or from the initial prefix", KVF_REAL, start_mass,
        "initial log-weights give the prefix e^X times the attention of the row's own tokens; "
        "-10: almost none",
        .rules = DISTILL | UNSET, .methods = PREFIXES,
        .needs = "log-weight=fixed|log-weight=train"),
    ROW("log-weight-lr", "X", "0.1", KVF_ABOVE_0, log_weight_lr,
        "learning rate of log-weights, with --log-weight train", .rules = DISTILL,
        .methods = PREFIXES, .needs = "log-weight=train"),
    ROW("state-lr", "X", "0", KVF_AMOUNT, state_lr,
        "hybrids: learning rate of the state with which layers without attention begin each row; "
        "0: it is fixed",
        .rules = DISTILL, .methods = PREFIXES, .excludes = "infix"),
    ROW("lr", "X", "by method", KVF_ABOVE_0, lr,
        "learning rate; mlp, direct, projected 0.03, for token-cls 0.05, with a head times "
        "sqrt(batch-size / 8), at most 0.1; prompt 0.3, p-tuning 0.001",
        .rules = DISTILL | UNSET, .decide = decide_lr,
        .methods = PREFIXES "|" VECTORS "|adapter|full"),
    ROW("train-head", NULL, "", KVF_FLAG, train_head,
        "lm: also train the language-model head; if it is tied to the embedding, the embedding "
        "stays frozen",
        .rules = ONE_TASK, .methods = PREFIXES "|" VECTORS "|adapter", .tasks = "lm",
        .excludes = "unfreeze"),
    ROW("head-lr", "X", "by task", KVF_ABOVE_0, head_lr,
        "learning rate of the head, always for its parameters; 0.01, for seq-cls with K classes "
        "0.01 * (K - 1), at most 0.05; with --train-head 0.0003",
        .rules = UNSET, .decide = decide_head_lr,
        .needs = "task=seq-cls|task=token-cls|task=qa|task=multiple-choice|train-head"),
    ROW("head-dropout", "X", "the config's", KVF_SHARE, head_dropout,
        "dropout on the head's input during training", .rules = UNSET, .unset = -1,
        .needs = "task=seq-cls|task=token-cls|task=qa|task=multiple-choice"),
    ROW("lr-units", "prefix|parameter", "prefix", KVF_EITHER, lr_per_parameter,
        "prefix: one step moves K/V as far as a step of a direct prefix does; parameter: the "
        "same rate for every parameter, as in PEFT",
        .methods = PREFIXES),
    ROW("steps", "N", "by epochs", KVF_COUNT, steps,
        "total optimizer steps, including those before --resume; 0: write the initial values",
        .rules = FREE | DISTILL | UNSET, .compare = ""),
    ROW("epochs", "N", "3", KVF_COUNT, epochs, "passes over the data, without --steps",
        .rules = FREE | DISTILL),
    ROW("batch-size", "N", "8", KVF_POSITIVE, batch_size,
        "rows per step (qa, multiple-choice: questions)", .rules = DISTILL),
    ROW("batch-tokens", "N|auto", "off", KVF_OR_AUTO, batch_tokens,
        "tokens per step, instead of rows; auto: enough tokens that reading weights takes "
        "little of a step's time, computed from the sizes of base and method",
        .rules = UNSET),
    ROW("format", "auto|jsonl|json|tsv|csv|conll|squad|superglue|text", "auto", KVF_WORD, format,
        "format of the data files; auto: by name and content", .rules = DISTILL),
    ROW("no-header", NULL, "", KVF_FLAG, no_header, "TSV, CSV or CoNLL files have no header line",
        .rules = 0),
    ROW("columns", "NAME,...", "the header's", KVF_TEXT, columns,
        "names of the columns of TSV, CSV or CoNLL; -: ignored", .rules = UNSET),
    ROW("delimiter", "CHAR", "tab or comma", KVF_TEXT, delimiter,
        "column separator of TSV and CSV: one character, or \\t", .rules = UNSET),
    ROW("split-text", "N", "off", KVF_COUNT, split_text,
        "lm: data files are plain text, cut into rows of N tokens", .rules = UNSET | ONE_STACK,
        .tasks = "lm"),
    ROW("limit", "N", "all", KVF_COUNT, limit, "read only the first N rows of --data",
        .rules = UNSET),
    ROW("rows", "N", "all", KVF_COUNT, rows,
        "train on N rows of --data (of each task), drawn by --seed; for seq-cls each class keeps "
        "its share and at least one row",
        .rules = UNSET),
    ROW("valid-split", "X", "off", KVF_SHARE, valid_split,
        "validate on a share X of the rows of --data, drawn by --seed and not trained on",
        .rules = UNSET, .excludes = "valid"),
    ROW("regression", "on|off", "off", KVF_ON_OFF, regression,
        "seq-cls: labels are numbers, the loss is the squared error", .tasks = "seq-cls"),
    ROW("labels", "NAME,...", "the training data's", KVF_TEXT, labels,
        "seq-cls, token-cls: all classes or tags, as A,B,C or @FILE with one per line; needed "
        "for labels that only validation has; NAME=A,B,C for each of several tasks",
        .rules = LOCAL | UNSET, .tasks = "seq-cls|token-cls", .excludes = "regression"),
    ROW("class-weights", "balanced|FILE", "each 1", KVF_TEXT, class_weights,
        "seq-cls, token-cls: factor on the training loss of each class or tag; balanced: rows / "
        "(classes * rows of the class); FILE: lines NAME WEIGHT",
        .rules = UNSET, .tasks = "seq-cls|token-cls", .excludes = "regression|verbalizer"),
    ROW("doc-stride", "N", "128", KVF_COUNT, doc_stride,
        "qa: overlap in tokens between windows of a long context", .tasks = "qa"),
    ROW("share-prefixes", "auto|off", "auto", KVF_EITHER, share_off,
        "compute tokens that several rows of a step begin with only once (exact)", .rules = 0),
    ROW("group-by", "off|prefix", "off", KVF_EITHER, group_by_prefix,
        "prefix: put rows with a common beginning into the same step", .rules = 0),
    ROW("task-prefix", "shared|low-rank", "shared", KVF_EITHER, low_rank_tasks,
        "several tasks: shared: one prefix for all; low-rank: for each task the shared prefix "
        "times a matrix of rank 1 per layer",
        .rules = TASKS, .methods = PREFIXES, .excludes = "prefix-dropout", .sweep = SINGLE_TASK),
    ROW("mix", "proportional|equal", "proportional", KVF_EITHER, equal_mix,
        "several tasks: each step trains one task, drawn in proportion to its rows, or each "
        "equally often",
        .rules = TASKS, .methods = PREFIXES, .sweep = SINGLE_TASK),
    ROW("grad-accum", "N", "1", KVF_POSITIVE, grad_accum,
        "number of parts to divide a step's rows into, to save memory", .rules = DISTILL),
    ROW("recompute", "on|off", "off", KVF_ON_OFF, recompute,
        "recompute activations in the backward pass: less memory, more time, the same bits",
        .rules = FREE),
    ROW("keep-states", "SIZE", "off", KVF_TEXT, keep_states,
        "with --layers or --places: compute the layers below the first prefix once for each "
        "row, including --valid, and cache their output in up to SIZE of memory, such as 2G, "
        "then in a temporary file next to --out",
        .rules = FREE | UNSET, .methods = PREFIXES),
    ROW("weight-dtype", "auto|f32|bf16|int8", "auto", KVF_CHOICE, weight_dtype,
        "frozen weights: one copy in this type, packed layer by layer just before use; auto: "
        "packed once for both directions",
        .excludes = "precision=int8|method=full|unfreeze", .shared = SHARED_BASE),
    ROW("stream-layers", "on|off", "off", KVF_ON_OFF, stream_layers,
        "read each layer from the file when it is computed, for bases larger than memory: the "
        "same bits; implies --recompute on unless given",
        .rules = FREE, .excludes = "weight-dtype|precision=int8|method=full|unfreeze",
        .shared = SHARED_BASE),
    ROW("max-length", "N", "the model's", KVF_COUNT, max_length, "longest row in tokens",
        .rules = DISTILL | UNSET),
    ROW("overlong", "stop|truncate|truncate-end|skip", "stop", KVF_CHOICE_1, overlong,
        "action for longer rows; truncate: cut the start of the prompt, and the end only if the "
        "rest is still too long; truncate-end: cut the end",
        .rules = DISTILL),
    ROW("shuffle", "on|off", "on", KVF_ON_OFF, shuffle, "shuffle the rows in each epoch",
        .rules = 0),
    ROW("schedule", "linear|cosine|constant", "linear", KVF_CHOICE, schedule,
        "schedule of the learning rate", .rules = DISTILL),
    ROW("schedule-steps", "N", "--steps", KVF_COUNT, schedule_steps,
        "length of the schedule; cannot change when a run is resumed", .rules = UNSET),
    ROW("warmup", "N|N%", "5%", KVF_TEXT, warmup, "warmup steps, or their share of all steps",
        .rules = DISTILL),
    ROW("weight-decay", "X", "0", KVF_AMOUNT, weight_decay, "decoupled weight decay", .rules = 0),
    ROW("optimizer", "natural|adamw", "natural; adamw with --lr-units parameter", KVF_EITHER,
        optimizer_adamw,
        "mlp: natural: AdamW moments of the emitted prefix, and the step is made by the "
        "encoder's last layer; adamw: moments of each parameter",
        .rules = UNSET, .methods = "mlp"),
    ROW("value-optimizer", "adamw|muon", "muon for token-cls with --init centroids, else adamw",
        KVF_EITHER, values_muon,
        "optimizer of the prefix's values; muon: momentum per head with its singular values "
        "made more equal; keys always use AdamW",
        .rules = UNSET, .methods = "mlp|direct"),
    ROW("beta1", "X", "by method", KVF_SHARE, beta1,
        "of AdamW; mlp and direct 0.5, others and --lr-units parameter 0.9", .rules = UNSET,
        .unset = -1, .decide = decide_beta1),
    ROW("beta2", "X", "0.999", KVF_SHARE, beta2, "AdamW", .rules = 0),
    ROW("eps", "X", "1e-08", KVF_AMOUNT, eps, "AdamW", .rules = 0),
    ROW("clip", "X", "1", KVF_AMOUNT, clip, "largest gradient norm; 0: no clipping", .rules = 0),
    ROW("skip-nonfinite", "N", "0", KVF_COUNT, skip_nonfinite,
        "number of steps that may be skipped because loss or gradient is not finite",
        .rules = FREE),
    ROW("spike-guard", "X", "off", KVF_AMOUNT, spike_guard,
        "skip steps whose loss exceeds X times the mean of the last 32, after 8 steps",
        .rules = UNSET),
    ROW("prefix-dropout", "X", "0", KVF_SHARE, prefix_dropout,
        "dropout rate of the prefix's keys and values during training", .methods = PREFIXES),
    ROW("prefix-dropout-per-row", NULL, "", KVF_FLAG, prefix_dropout_per_row,
        "a dropout mask for each row of a step instead of one for all; common beginnings of "
        "rows are then computed for each row",
        .methods = PREFIXES, .needs = "prefix-dropout", .sweep = NOT_SWEPT),
    ROW("adapter-size", "N", "64", KVF_POSITIVE, adapter_size, "adapter: bottleneck width",
        .methods = "adapter", .sweep = FROZEN),
    ROW("adapter-activation", "gelu|relu|tanh", "gelu", KVF_WORD, adapter_activation,
        "adapter: activation of the bottleneck", .methods = "adapter", .sweep = FROZEN),
    ROW("adapter-norms", "on|off", "on", KVF_EITHER, adapter_norms_off,
        "adapter: also train the base's norms", .methods = "adapter", .sweep = FROZEN),
    ROW("adapter-placement", "serial|parallel|attn|ffn", "serial", KVF_WORD, adapter_placement,
        "adapter: on the output of both sub-layers (serial), parallel to both, or on the output "
        "of the attention or feed-forward sub-layer only",
        .methods = "adapter", .sweep = FROZEN),
    ROW("base-dropout", "X", "0", KVF_SHARE, base_dropout,
        "dropout of the base during training: on embeddings, on the output of each sub-layer, "
        "and on attention probabilities if the config has a rate for them",
        .rules = ONE_STACK, .methods = PREFIXES "|" VECTORS "|full|head", .sweep = NOT_SWEPT),
    ROW("eval-every", "N", "epoch", KVF_COUNT, eval_every, "steps between validations",
        .rules = FREE | DISTILL | UNSET, .compare = ""),
    ROW("save-every", "N", "epoch", KVF_COUNT, save_every, "steps between saves",
        .rules = FREE | DISTILL | UNSET),
    ROW("metric", "NAME", "by task", KVF_TEXT, metric,
        "metric that selects the best checkpoint: loss, accuracy, f1, exact_match, ...; a tie "
        "goes to the lowest loss",
        .rules = UNSET),
    ROW("retain", "FILE|prompts", "", KVF_TEXT, retention,
        "lm: text on which the base should stay unchanged; reports its loss with the prefix and "
        "with the bare base; prompts: the text without loss of up to 128 rows of --data",
        .rules = LOCAL | DISTILL | ONE_TASK | ONE_STACK, .methods = PREFIXES, .tasks = "lm",
        .excludes = "infix"),
    ROW("kl-to-base", "X", "0", KVF_AMOUNT, kl_to_base,
        "weight of an extra loss, KL(base || with the prefix) on rows of --retain, "
        "over the base's 20 likeliest tokens at each label",
        .rules = DISTILL | ONE_TASK, .methods = PREFIXES, .tasks = "lm", .needs = "retain",
        .excludes = "train-head"),
    ROW("early-stop", "N", "off", KVF_COUNT, early_stop,
        "stop after N validations without improvement", .rules = DISTILL | UNSET,
        .needs = "valid|valid-split"),
    ROW("position-start", "P|N", "P", KVF_TEXT, position_start, "position of a row's first token",
        .rules = DISTILL, .methods = PREFIXES),
    ROW("infix", NULL, "", KVF_FLAG, infix,
        "lm: put the prefix inside rows, before the last token of the prompt; earlier tokens do "
        "not attend to it",
        .rules = ONE_TASK | CAUSAL | ONE_STACK, .methods = "mlp|direct", .tasks = "lm",
        .excludes = "prefix-dropout-per-row|position-start|base-dropout", .sweep = NOT_SWEPT),
    ROW("chat-template", KVF__CHAT_TEMPLATES, "auto", KVF_WORD, chat_template,
        "auto: the base's template, for messages only; a name: that template, for prompts too; "
        "see help formats",
        .rules = DISTILL, .tasks = "lm"),
    ROW("map", "OURS=THEIRS,...", "", KVF_TEXT, map,
        "names of the fields in the data: prompt=question,completion=answer", .rules = DISTILL),
    ROW("precision", "auto|f32|bf16|int8", "auto", KVF_CHOICE, precision,
        "precision of matrix products; auto: bf16 if the CPU's flags indicate that it is faster",
        .rules = DISTILL, .shared = SHARED_BASE),
    ROW("seed", "N", "0", KVF_SEED, seed, "random seed of initialization and row order",
        .rules = DISTILL, .compare = ""),
    ROW("log", "FILE", "", KVF_TEXT, log,
        "write events as JSONL, one per line: see help logs; -: standard output", .rules = LOCAL,
        .sweep = "the runs would write to one file; --tensorboard gives each run a folder",
        .compare = "the runs of a comparison would write to one file"),
    ROW("forecast", "auto|on|off", "auto", KVF_CHOICE, forecast,
        "print an estimate of time and memory before the first step; auto: on a terminal, and "
        "in a dry run",
        .rules = LOCAL, .sweep = NOT_SWEPT, .compare = "not available in a comparison"),
    ROW("tensorboard", "DIR", "", KVF_TEXT, tensorboard,
        "write loss, rates, norms and metrics for TensorBoard", .rules = LOCAL, .shared = ALL_RUNS,
        .compare = "the runs of a comparison would write to one folder"),
};
#define N_ROWS (sizeof ROWS / sizeof ROWS[0])

/* ---- views ----------------------------------------------------------------------------------- */

/* Rows that a command shows with another default or help text. */
#define AT(field) offsetof(kvf_train_options, field)
static const kvf__option_row OF_DISTILL[] = {
    {"data", "FILE", "", KVF_TEXT, AT(data),
     "training rows about the document, instead of generated ones"},
    {"valid", "FILE", "one row in eight", KVF_TEXT, AT(valid), "held-out rows for validation"},
    {"dry-run", NULL, "", KVF_FLAG, AT(dry_run), "generate the rows, print the plan, and stop"},
    {"method", "direct|mlp|projected", "direct", KVF_WORD, AT(method),
     "parameters that emit "
     "the prefix"},
    {"prefix-length", "N", "20", KVF_POSITIVE, AT(prefix_length), "virtual tokens P"},
    {"encoder-hidden", "N", "512", KVF_COUNT, AT(encoder_hidden),
     "hidden width M of the encoder: mlp"},
    {"init", "match|text|vocab|random|zero|kv", "text: the document's first P tokens", KVF_WORD,
     AT(init),
     "initial prefix: match solves for a prefix with the effect of the document "
     "(attention matching); others as in train"},
    {"steps", "N", "200", KVF_COUNT, AT(steps),
     "total optimizer steps, including those before "
     "--resume"},
    {"epochs", "N", "off", KVF_COUNT, AT(epochs), "passes over the rows, instead of --steps"},
    {"lr", "X", "0.03", KVF_ABOVE_0, AT(lr), "learning rate"},
    {"batch-size", "N", "8", KVF_POSITIVE, AT(batch_size), "rows per step"},
    {"max-length", "N", "what fits", KVF_COUNT, AT(max_length), "longest row in tokens"},
    {"seed", "N", "0", KVF_SEED, AT(seed),
     "random seed of prompts, answers, initialization and "
     "row order"},
};
/* All methods except those that train the base, which the runs of a sweep share. */
#define CHOICE_KV(name)    "|" name
#define CHOICE_EMBED(name) "|" name
#define CHOICE_BLOCK(name)
#define CHOICE_NONE(name)
#define CHOICE(name, port, lr, beta1, folds_to, reads_base) CHOICE_##port(name)
static const kvf__option_row OF_SWEEP[] = {
    {"method", (&("" KVF__METHOD_LIST(CHOICE))[1]), "mlp", KVF_WORD, AT(method),
     "trained parameters: see help methods"},
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

/* Returns the row at this index among the rows of the view. */
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
    _Static_assert(N_ROWS <= KVF_MAX_TRAIN_OPTIONS, "given has an element for every option");
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
