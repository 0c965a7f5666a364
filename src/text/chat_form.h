/* Variants of the chat templates in our table beyond their kind (chat.c, chat_template.c). */
#ifndef KVF_CHAT_FORM_H
#define KVF_CHAT_FORM_H

#include "text_int.h"

typedef enum kvf__chat_form {
    KVF__FORM_PLAIN,       /* all turns alike, any role */
    KVF__FORM_QWEN2,       /* roles system, user, assistant */
    KVF__FORM_QWEN3,       /* as QWEN2, with think blocks */
    KVF__FORM_LFM2,        /* as QWEN2, after BOS; an empty first system turn is omitted */
    KVF__FORM_LLAMA31,     /* begins with a system turn with dates */
    KVF__FORM_GEMMA2,      /* no system turn */
    KVF__FORM_GEMMA3,      /* the system text begins the first user turn */
    KVF__FORM_PHI35,       /* empty system turns are omitted */
    KVF__FORM_TULU,        /* OLMo 2's template without BOS */
    KVF__FORM_MISTRAL_OLD, /* "[INST] u [/INST]a</s>", no system turn */
    KVF__FORM_MISTRAL_V1,  /* " [INST] s\n\nu [/INST] a</s>" */
    KVF__FORM_MISTRAL_V3, /* "[INST] u[/INST] a</s>"; the system text goes to the last message if it
                             is a user turn */
    KVF__FORM_MINISTRAL,  /* as V3, "[INST]u[/INST] a</s>" */
    KVF__FORM_MISTRAL_NEMO /* as V3, "[INST]u[/INST]a</s>" */
} kvf__chat_form;

/* Recognises a template by its source; kind NONE: not in the table. chat->system is allocated. */
kvf_status kvf__chat_recognise(kvf_ctx *ctx, const char *source, kvf__chat *out);

#endif
