/* Which of train's options a distillation has: those that its rows name. Some have another default
 * or another help here. */
#include <kvfold/study.h>

#include "trainer.h"

#include <string.h>

#define AT(field) offsetof(kvf_train_options, field)
static const kvf__option_row OTHER[] = {
    {"data", "FILE", "", KVF_TEXT, AT(data),
     "rows about the document, in place of those made from it"},
    {"valid", "FILE", "one row in eight", KVF_TEXT, AT(valid), "held-out rows to measure by"},
    {"dry-run", NULL, "", KVF_FLAG, AT(dry_run),
     "make the rows, show what would be done, and stop"},
    {"method", "direct|mlp|projected", "direct", KVF_WORD, AT(method), "what emits the prefix"},
    {"prefix-length", "N", "20", KVF_COUNT, AT(prefix_length), "virtual tokens P"},
    {"encoder-hidden", "N", "512", KVF_COUNT, AT(encoder_hidden),
     "hidden width M of the encoder: mlp"},
    {"init", "match|text|vocab|random|zero|kv", "text: the document's first P tokens", KVF_WORD,
     AT(init), "starting prefix: solved for by attention matching, or as train has it"},
    {"steps", "N", "200", KVF_COUNT, AT(steps), "optimizer steps, counted from the start"},
    {"epochs", "N", "off", KVF_COUNT, AT(epochs), "passes over the rows, instead of --steps"},
    {"lr", "X", "0.03", KVF_AMOUNT, AT(lr), "learning rate"},
    {"batch-size", "N", "8", KVF_COUNT, AT(batch_size), "rows per step"},
    {"max-length", "N", "what fits", KVF_COUNT, AT(max_length), "longest row in tokens"},
    {"seed", "N", "0", KVF_SEED, AT(seed), "of prompts, answers, initialisation and order"},
};

const kvf__option_row *kvf__distill_option_row(size_t index)
{
    const kvf__option_row *row;
    for (size_t i = 0; (row = kvf__train_option_row(i)) != NULL; i++) {
        if (!kvf__train_option_distills(i) || index--) continue;
        for (size_t k = 0; k < sizeof OTHER / sizeof OTHER[0]; k++)
            if (!strcmp(OTHER[k].name, row->name)) return &OTHER[k];
        return row;
    }
    return NULL;
}
