/* What a chat template in our table does beyond its kind (chat.c, chat_template.c). */
#ifndef KVF_CHAT_FORM_H
#define KVF_CHAT_FORM_H

#include "text_int.h"

typedef enum kvf__chat_form {
    KVF__FORM_PLAIN,       /* every turn alike, any role */
    KVF__FORM_QWEN2,       /* roles system, user, assistant */
    KVF__FORM_QWEN3,       /* the same, with think blocks */
    KVF__FORM_LLAMA31,     /* a system turn with dates comes first */
    KVF__FORM_GEMMA2,      /* no system turn */
    KVF__FORM_GEMMA3,      /* the system text begins the first user turn */
    KVF__FORM_PHI35,       /* an empty system turn is left out */
    KVF__FORM_TULU,        /* OLMo 2's without BOS */
    KVF__FORM_MISTRAL_OLD, /* "[INST] u [/INST]a</s>", no system turn */
    KVF__FORM_MISTRAL_V1,  /* " [INST] s\n\nu [/INST] a</s>" */
    KVF__FORM_MISTRAL_V3,  /* "[INST] u[/INST] a</s>"; the system text goes to a last user turn */
    KVF__FORM_MINISTRAL,   /* the same, "[INST]u[/INST] a</s>" */
    KVF__FORM_MISTRAL_NEMO /* the same, "[INST]u[/INST]a</s>" */
} kvf__chat_form;

/* Recognises a template by its source; kind NONE if it is none of ours. chat->system is allocated.
 */
kvf_status kvf__chat_recognise(kvf_ctx *ctx, const char *source, kvf__chat *out);

#endif
