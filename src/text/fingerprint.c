/* Hash of all that determines the ids of a text or chat. It is part of a base's identity, because a
 * prefix trained on other ids is useless.
 *
 * The finished tokenizer is hashed, so a folder and a base file made from it agree. The decoder and
 * the flags of special tokens are omitted. */
#include "hash.h"
#include "tok_int.h"

#include <string.h>

static void add_number(kvf__hash *hash, int64_t value)
{
    kvf__hash_add(hash, &value, sizeof value);
}

static void add_text(kvf__hash *hash, const char *text, size_t n)
{
    add_number(hash, text ? (int64_t)n : -1);
    if (text) kvf__hash_add(hash, text, n);
}

static void add_vocabulary(kvf__hash *hash, const kvf__tokenizer *t)
{
    for (size_t id = 0; id < t->lex.n; id++) {
        const struct kvf__token *token = &t->lex.v[id];
        const char *text = t->lex.text.data + token->at;
        if (!(token->flags & KVF__TOK_PRESENT)) continue;
        add_number(hash, (int64_t)id);
        add_number(hash, (int64_t)(token->flags & ~(uint32_t)KVF__TOK_SPECIAL));
        add_number(hash, kvf__lexicon_model(&t->lex, text, token->n));
        add_text(hash, text, token->n);
        if (id < t->model.n_scores) /* omit tokens added after the vocabulary */
            kvf__hash_add(hash, &t->model.scores[id], sizeof *t->model.scores);
    }
    for (size_t i = 0; i < t->added.n; i++) {
        const kvf__added *a = &t->added.v[i];
        add_text(hash, a->text, a->n);
        add_number(hash, a->id);
        add_number(hash, a->single_word | a->lstrip << 1 | a->rstrip << 2 | a->normalized << 3);
    }
}

static void add_model(kvf__hash *hash, const kvf__tok_model *m)
{
    const int64_t numbers[] = {m->kind,     m->unk,           m->byte_fallback,
                               m->fuse_unk, m->ignore_merges, m->max_chars};
    kvf__hash_add(hash, numbers, sizeof numbers);
    kvf__hash_add(hash, &m->unk_score, sizeof m->unk_score);
    add_text(hash, m->prefix, m->prefix ? strlen(m->prefix) : 0);
    add_text(hash, m->suffix, m->suffix ? strlen(m->suffix) : 0);
    if (m->pairs.cap) kvf__hash_add(hash, m->pairs.v, m->pairs.cap * sizeof *m->pairs.v);
}

static void add_steps(kvf__hash *hash, const kvf__tok_steps *steps)
{
    add_number(hash, (int64_t)steps->n);
    for (size_t i = 0; i < steps->n; i++) {
        const kvf__tok_step *s = &steps->v[i];
        const char *pattern = s->pattern ? kvf__pattern_source(s->pattern) : NULL;
        const int64_t numbers[] = {s->kind,         s->behavior, s->scheme, s->invert,
                                   s->prefix_space, s->split,    s->start,  s->stop};
        kvf__hash_add(hash, numbers, sizeof numbers);
        add_text(hash, s->text, s->text_n);
        add_text(hash, pattern, pattern ? strlen(pattern) : 0);
    }
}

static void add_template(kvf__hash *hash, const kvf__post_template *p)
{
    add_text(hash, (const char *)p->items.data, p->items.n * sizeof *p->items.data);
    add_text(hash, (const char *)p->types.data, p->types.n * sizeof *p->types.data);
}

void kvf__tokenizer_hash(const kvf__tokenizer *t, kvf__hash *hash)
{
    const int64_t ids[] = {t->bos, t->eos, t->cls, t->mask, t->trim_offsets, t->trim_prefix_space};
    add_vocabulary(hash, t);
    add_model(hash, &t->model);
    add_steps(hash, &t->normalizer);
    add_steps(hash, &t->pre);
    add_template(hash, &t->post);
    add_template(hash, &t->pair);
    kvf__hash_add(hash, ids, sizeof ids);
    if (t->chat_template) add_text(hash, t->chat_template, strlen(t->chat_template));
}
