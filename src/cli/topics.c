/* The texts of `kvfold help TOPIC`. */
#include "cli_int.h"

static const char WORDS[] =
    "base      the frozen pretrained transformer: a Hugging Face folder or a GGUF file\n"
    "prefix    the tensor [L, 2, G, P, D] (2: key, value) that attention sees in front\n"
    "          of the tokens; the same for every row of a batch\n"
    "encoder   trainable parameters that emit a prefix (reparameterization)\n"
    "merge     run the encoder once and keep only the prefix; also: to fold\n"
    "run       file with encoder, optimizer and history: training can be resumed\n"
    "method    what is trained: see `kvfold help methods`\n"
    "\n"
    "task      what the base is tuned for; see `kvfold help tasks`\n"
    "head      the trained layer that answers, for tasks other than lm\n"
    "\n"
    "Letters of shapes: L layers, G key/value heads, P prefix length (virtual tokens),\n"
    "D head size, H query heads, C model width, M hidden width of the encoder, B batch,\n"
    "T tokens, V vocabulary. Brackets list memory order, slowest first.\n"
    "\n"
    "A prefix of zeros is not the same as no prefix: each zero key takes a share of\n"
    "the softmax.\n"
    "\n"
    "The first token of a row stands at position P (--position-start P, as in PEFT and\n"
    "P-tuning v2), or at 0 (--position-start 0). The choice is stored, and every\n"
    "command honours it.\n";

static const char FILES[] =
    "run file, HDF5, written by train:\n"
    "  /encoder/PARAMETER          values after the last step\n"
    "  /head/PARAMETER             of tasks with a head; /head/labels names its outputs\n"
    "  /best/encoder, /best/head   values of the best validation\n"
    "  /optimizer/m, /optimizer/v  moments of AdamW\n"
    "  /state, /history            where training stands, and what each step gave\n"
    "  /options, /lineage          options, and hashes of data and base\n"
    "\n"
    "prefix file, HDF5, written by merge and import:\n"
    "  /prefix/past_key_values     [L, 2, 1, G, P, D], f32, f16 or bf16: layer, key or\n"
    "                              value, batch, head, position, head_dim; keys as they\n"
    "                              lie in a Hugging Face cache, rotated already\n"
    "  /head                       as in the run\n"
    "  /options, /lineage          of the run it comes from\n"
    "\n"
    "Both carry kvfold_kind, kvfold_format, base_name, base_architecture and base_hash\n"
    "at the root. A file is refused with another base than its own, unless\n"
    "--allow-other-base is given. h5ls, h5dump, h5py and HDFView read them:\n"
    "  h5dump -d /prefix/past_key_values prefix.h5\n"
    "\n"
    "Outputs appear whole or not at all, and replace an existing file only with\n"
    "--force. Equal runs give equal bytes.\n"
    "\n"
    "recipe file, text, for train --recipe: lines `option = value`, long names without\n"
    "dashes, flags as true or false, lines that begin with # are comments. Options on\n"
    "the command line win.\n";

static const char METHODS[] =
    "mlp      (default) embedding [P, G*D], Linear(G*D, M), tanh, Linear(M, 2*L*G*D).\n"
    "         Trained together, and folded away by merge. --encoder-hidden is M.\n"
    "direct   the prefix itself is the parameter.\n"
    "\n"
    "Both end as the same tensor, and inference cannot tell them apart.\n"
    "\n"
    "Where a prefix starts, --init:\n"
    "  vocab   keys and values that the bare base gives for P random words (default)\n"
    "  text    the same for the first P tokens of --init-text\n"
    "  random  random weights (default where the base is bidirectional): as torch does,\n"
    "          direct N(0, 1), or all N(0, 0.02) with --init-scheme ptuning-v2\n"
    "  zero    a prefix of zeros\n"
    "  kv      the prefix file --init-kv\n"
    "\n"
    "Learning rates are in prefix units (--lr-units prefix): one step moves keys and\n"
    "values about as far as it would move a direct prefix, whatever M and the base\n"
    "are. --lr-units parameter gives every parameter the same rate, as PEFT does.\n";

static const char TASKS[] =
    "lm               (default) predict the next token; causal bases only\n"
    "seq-cls          a class for a text or a pair of texts, or a number (--regression on)\n"
    "token-cls        a tag for each word\n"
    "qa               an answer that is a span of the context, or none\n"
    "multiple-choice  the right one of several texts\n"
    "\n"
    "All but lm train a head beside the prefix, as in transformers (...For\n"
    "SequenceClassification and so on), at --head-lr. Names of classes and tags are\n"
    "learnt from the training data and stored; another label is an error later.\n"
    "\n"
    "The best checkpoint is chosen by --metric; see `kvfold help metrics`.\n"
    "\n"
    "  kvfold train --task seq-cls --base MODEL --data train.tsv --out run.h5\n"
    "  kvfold eval --base MODEL --prefix run.h5 --data test.tsv\n"
    "  kvfold predict --base MODEL --prefix run.h5 --data new.jsonl --out answers.jsonl\n";

static const char METRICS[] =
    "Those of a task, the one that chooses the best checkpoint first; --metric takes\n"
    "another. Shares from 0 to 1, but qa and BLEU in percent; mcc, pearson and spearman\n"
    "from -1 to 1.\n"
    "\n"
    "lm               loss, perplexity; with eval --generate also bleu and rouge_l, as\n"
    "                 sacrebleu and rouge_score compute them\n"
    "seq-cls          accuracy, f1 (mean over the classes), f1_micro, mcc\n"
    "  --regression   pearson, spearman\n"
    "token-cls        f1, precision and recall of entities as in seqeval, f1_macro,\n"
    "                 f1_strict (IOB2 to the letter), accuracy of tags\n"
    "qa               f1, exact_match, as SQuAD's own scripts\n"
    "multiple-choice  accuracy\n"
    "\n"
    "Every task has its loss too. An entity is right if type and both ends are. eval\n"
    "with several --prefix measures the mean of their probabilities.\n";

static const char FORMATS[] =
    "base: a Hugging Face folder (config.json, model.safetensors, whole or sharded, and\n"
    "  tokenizer.json, vocab.json with merges.txt, or vocab.txt), or a GGUF file.\n"
    "\n"
    "data: JSONL, one object a line, or one of the formats below:\n"
    "  {\"prompt\": TEXT, \"completion\": TEXT}   the completion and the end token carry loss\n"
    "  {\"text\": TEXT}                         all of it carries loss\n"
    "  {\"messages\": [{\"role\", \"content\"}]}    assistant turns carry loss\n"
    "  {\"input_ids\": [...], \"labels\": [...]}  labels unshifted, -100: none; also\n"
    "                                         attention_mask\n"
    "  {\"text\"[, \"text_pair\"], \"label\"}     seq-cls\n"
    "  {\"tokens\": [...], \"tags\": [...]}      token-cls\n"
    "  {\"context\", \"question\", \"answers\": [{\"text\", \"start\"}]}   qa; start: the\n"
    "                                         character, from 0; [] for no answer\n"
    "  {\"text\", \"choices\": [...], \"label\"}   multiple-choice, counted from 0\n"
    "  TSV, CSV    named by a header or --columns, or text and label alone\n"
    "  CoNLL       a word a line with its tag in the last column, an empty line between\n"
    "              sentences\n"
    "  SQuAD       1.1 and 2.0\n"
    "  SuperGLUE   JSONL; it, GLUE, HellaSwag and SWAG are told by their field names\n"
    "  A file's format is told by content and name; --format names it otherwise.\n"
    "  --map prompt=question,completion=answer reads foreign names. Rows longer than\n"
    "  the model allows stop the command, or are cut or left out (--overlong).\n"
    "  --chat-template says how rows are rendered; it is stored with the prefix.\n"
    "\n"
    "import: a PEFT folder of kind PREFIX_TUNING or CARTRIDGE becomes a prefix file; a\n"
    "  safetensors file with embedding.weight and transform.{0,2}.{weight,bias} a run\n"
    "  file at step 0.\n"
    "\n"
    "export: --format peft makes a folder that PeftModel.from_pretrained loads,\n"
    "  --format safetensors one file with past_key_values [L, 2, 1, G, P, D].\n"
    "\n"
    "inspect: all of these.\n";

const char *cli_topic(size_t index, const char **name)
{
    static const struct {
        const char *name, *text;
    } TOPICS[] = {{"words", WORDS}, {"files", FILES},     {"methods", METHODS},
                  {"tasks", TASKS}, {"metrics", METRICS}, {"formats", FORMATS}};
    if (index >= sizeof TOPICS / sizeof TOPICS[0]) return NULL;
    *name = TOPICS[index].name;
    return TOPICS[index].text;
}
