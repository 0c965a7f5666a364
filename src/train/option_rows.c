/* The rows of train's options, and their defaults. Adding an option is a field of
 * kvf_train_options, a row here, its default and its use. */
#include "options_priv.h"

#include <string.h>

#define AT(field) offsetof(kvf_train_options, field)

static const kvf__option ROWS[] = {
    {{"base", "PATH", "", "base model: Hugging Face folder or GGUF file"},
     KVF__TEXT,
     AT(base),
     KVF__LOCAL},
    {{"data", "FILE", "", "training data: JSONL, TSV, CSV, CoNLL, SQuAD or SuperGLUE"},
     KVF__TEXT,
     AT(data),
     KVF__LOCAL},
    {{"valid", "FILE", "", "held-out data for validation"}, KVF__TEXT, AT(valid), KVF__LOCAL},
    {{"out", "RUN.h5", "", "run file to write"}, KVF__TEXT, AT(out), KVF__LOCAL},
    {{"resume", NULL, "", "continue the run file named by --out"},
     KVF__FLAG,
     AT(resume),
     KVF__LOCAL},
    {{"force", NULL, "", "replace an existing output"}, KVF__FLAG, AT(force), KVF__LOCAL},
    {{"dry-run", NULL, "", "load everything, say what would be done, and stop"},
     KVF__FLAG,
     AT(dry_run),
     KVF__LOCAL},
    {{"allow-other-base", NULL, "", "accept --init-kv and --init-from files made for another base"},
     KVF__FLAG,
     AT(allow_other_base),
     KVF__LOCAL},
    {{"task", "lm|seq-cls|token-cls|qa|multiple-choice", "lm",
      "what the base is tuned for; all but lm train a head too"},
     KVF__CHOICE,
     AT(task),
     KVF__LATER},
    {{"method", "mlp|direct", "mlp", "what emits the prefix"}, KVF__CHOICE, AT(method), 0},
    {{"prefix-length", "N", "20", "virtual tokens P"}, KVF__COUNT, AT(prefix_length), 0},
    {{"encoder-hidden", "N", "512", "hidden width M of the mlp encoder"},
     KVF__COUNT,
     AT(encoder_hidden),
     0},
    {{"init", "vocab|random|zero|text|kv", "vocab; random on bidirectional bases",
      "starting prefix: K/V of random words, random weights, zeros, K/V of "
      "--init-text, a prefix file"},
     KVF__CHOICE,
     AT(init),
     0},
    {{"init-text", "TEXT", "", "text for --init text"}, KVF__TEXT, AT(init_text), 0},
    {{"init-kv", "FILE", "", "prefix file for --init kv"}, KVF__TEXT, AT(init_kv), KVF__LOCAL},
    {{"init-scheme", "torch|ptuning-v2", "torch", "distribution of random weights"},
     KVF__CHOICE,
     AT(init_scheme),
     0},
    {{"init-encoder", "FILE", "", "encoder weights, safetensors"},
     KVF__TEXT,
     AT(init_encoder),
     KVF__LOCAL},
    {{"init-from", "FILE", "", "weights of a run or prefix file, without its optimizer"},
     KVF__TEXT,
     AT(init_from),
     KVF__LOCAL},
    {{"lr", "X", "by method", "learning rate; mlp and direct 0.01"}, KVF__REAL, AT(lr), 0},
    {{"head-lr", "X", "0.01", "learning rate of the head, in its own units"},
     KVF__REAL,
     AT(head_lr),
     KVF__LATER},
    {{"head-dropout", "X", "the config's", "dropout on what the head reads, while training"},
     KVF__REAL,
     AT(head_dropout),
     KVF__LATER},
    {{"lr-units", "prefix|parameter", "prefix",
      "prefix: a step moves K/V as far as it would move a direct prefix"},
     KVF__CHOICE,
     AT(lr_units),
     0},
    {{"steps", "N", "by epochs", "optimizer steps, counted from the start"},
     KVF__COUNT,
     AT(steps),
     KVF__FREE},
    {{"epochs", "N", "3", "passes over the data, unless --steps"},
     KVF__COUNT,
     AT(epochs),
     KVF__FREE},
    {{"batch-size", "N", "8", "rows per step"}, KVF__COUNT, AT(batch_size), 0},
    {{"batch-tokens", "N", "off", "tokens per step instead of rows"},
     KVF__COUNT,
     AT(batch_tokens),
     0},
    {{"format", "auto|jsonl|tsv|csv|conll|squad|superglue", "auto",
      "of the data files; auto: by name and content"},
     KVF__CHOICE,
     AT(format),
     KVF__LATER},
    {{"no-header", NULL, "", "the first line of TSV or CSV is a row"},
     KVF__FLAG,
     AT(no_header),
     KVF__LATER},
    {{"columns", "NAME,...", "the header's", "names of the columns of TSV or CSV; -: not read"},
     KVF__TEXT,
     AT(columns),
     KVF__LATER},
    {{"regression", "on|off", "off", "seq-cls: labels are numbers, the loss is the squared error"},
     KVF__ON_OFF,
     AT(regression),
     KVF__LATER},
    {{"doc-stride", "N", "128", "qa: tokens that two windows of a long context share"},
     KVF__COUNT,
     AT(doc_stride),
     KVF__LATER},
    {{"share-leads", "auto|off", "auto",
      "compute tokens that rows of a step begin with once (exact)"},
     KVF__CHOICE,
     AT(share_leads),
     0},
    {{"grad-accum", "N", "1", "parts in which a step's rows are computed, to save memory"},
     KVF__COUNT,
     AT(grad_accum),
     0},
    {{"recompute", "on|off", "off",
      "compute layers again for the backward pass instead of keeping what they leave: less memory, "
      "more "
      "time, the same bits"},
     KVF__ON_OFF,
     AT(recompute),
     KVF__FREE},
    {{"max-length", "N", "the model's", "longest row in tokens"}, KVF__COUNT, AT(max_length), 0},
    {{"overlong", "stop|truncate|skip", "stop", "what to do with longer rows"},
     KVF__CHOICE,
     AT(overlong),
     0},
    {{"shuffle", "on|off", "on", "new order of rows each epoch"}, KVF__ON_OFF, AT(shuffle), 0},
    {{"schedule", "linear|cosine|constant", "linear", "learning rate over time"},
     KVF__CHOICE,
     AT(schedule),
     0},
    {{"schedule-steps", "N", "--steps", "length of the schedule, fixed when the run is created"},
     KVF__COUNT,
     AT(schedule_steps),
     0},
    {{"warmup", "N|N%", "5%", "steps of warmup"}, KVF__TEXT, AT(warmup), 0},
    {{"weight-decay", "X", "0", "decoupled weight decay"}, KVF__REAL, AT(weight_decay), 0},
    {{"beta1", "X", "0.9", "AdamW"}, KVF__REAL, AT(beta1), 0},
    {{"beta2", "X", "0.999", "AdamW"}, KVF__REAL, AT(beta2), 0},
    {{"eps", "X", "1e-08", "AdamW"}, KVF__REAL, AT(eps), 0},
    {{"clip", "X", "1", "largest gradient norm; 0: no clipping"}, KVF__REAL, AT(clip), 0},
    {{"eval-every", "N", "epoch", "steps between validations"},
     KVF__COUNT,
     AT(eval_every),
     KVF__FREE},
    {{"save-every", "N", "epoch", "steps between saves"}, KVF__COUNT, AT(save_every), KVF__FREE},
    {{"metric", "NAME", "by task",
      "what the best checkpoint is best in: loss, accuracy, f1, exact_match, ..."},
     KVF__TEXT,
     AT(metric),
     KVF__LATER},
    {{"early-stop", "N", "off", "stop after N validations without a better one"},
     KVF__COUNT,
     AT(early_stop),
     KVF__LATER},
    {{"position-start", "P|0", "P", "position of a row's first token"},
     KVF__CHOICE,
     AT(position_start),
     0},
    {{"chat-template", "auto|none|chatml|llama3|mistral", "auto",
      "auto: for messages only; named: wraps prompts too"},
     KVF__CHOICE,
     AT(chat_template),
     0},
    {{"map", "OURS=THEIRS,...", "", "foreign field names: prompt=question,completion=answer"},
     KVF__TEXT,
     AT(map),
     0},
    {{"precision", "auto|f32|bf16", "auto", "auto: bf16 where a probe finds it 1.25x faster"},
     KVF__CHOICE,
     AT(precision),
     0},
    {{"seed", "N", "0", "of initialisation and order"}, KVF__SEED, AT(seed), 0},
};
#define N_ROWS (sizeof ROWS / sizeof ROWS[0])

kvf_train_options kvf_train_defaults(void)
{
    return (kvf_train_options){
        .method = "mlp",
        .task = "lm",
        .head_lr = 1e-2,
        .head_dropout = -1,
        .format = "auto",
        .doc_stride = 128,
        .prefix_length = 20,
        .encoder_hidden = 512,
        .init = "vocab",
        .init_scheme = "torch",
        .lr_units = "prefix",
        .epochs = 3,
        .batch_size = 8,
        .grad_accum = 1,
        .overlong = "stop",
        .shuffle = true,
        .share_leads = "auto",
        .schedule = "linear",
        .warmup = "5%",
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .clip = 1,
        .position_start = "P",
        .chat_template = "auto",
        .precision = "auto",
    };
}

const kvf_option_row *kvf_train_option_row(size_t index)
{
    return index < N_ROWS ? &ROWS[index].public : NULL;
}

const kvf__option *kvf__option_at(size_t index)
{
    return index < N_ROWS ? &ROWS[index] : NULL;
}

const kvf__option *kvf__option_find(const char *name)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (!strcmp(ROWS[i].public.name, name)) return &ROWS[i];
    return NULL;
}

uint64_t kvf__option_bit(const kvf__option *row)
{
    _Static_assert(N_ROWS <= 64, "given has 64 bits");
    return UINT64_C(1) << (row - ROWS);
}

bool kvf__train_option_given(const kvf_train_options *options, const char *name)
{
    return options->given & kvf__option_bit(kvf__option_find(name));
}
