/* generate --interactive: answers the lines of standard input one by one, as they are written. With
 * a prefix trained on chats, or a named chat template, lines and answers are the turns of one chat;
 * else each line is a prompt of its own. */
#include "cli_model.h"
#include "cli_progress.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 20 }; /* of a line */

typedef struct talk {
    cli_call *call;
    const cli_model *model;
    const kvf_generate_options *how;
    kvf_json *chat, *next; /* {"messages": [...]} before and with the line; NULL: no chat */
    FILE *said;            /* the answer */
    kvf_generate_stats stats;
    bool terminal;
} talk;

static bool print_piece(void *user, size_t prompt, const char *text, size_t bytes)
{
    const talk *t = user;
    (void)prompt;
    fwrite(text, 1, bytes, stdout);
    fflush(stdout);
    fwrite(text, 1, bytes, t->said);
    return true;
}

static kvf_json *new_chat(void)
{
    return kvf__json_of("messages:o", kvf_json_array());
}

static bool add_turn(kvf_json *chat, const char *role, const char *text, size_t bytes)
{
    return kvf_json_add(kvf_json_get(chat, "messages"),
                        kvf__json_of("role:s content:o", role, kvf_json_new_strn(text, bytes)));
}

/* Generates the answer to a line, in a chat after the turns so far, or as its first turn. */
static kvf_status generate(talk *t, const char *line, bool anew)
{
    kvf_ctx *ctx = t->call->ctx;
    kvf_base *base = t->model->base;
    const kvf_prefix *prefix = t->model->n ? t->model->prefixes[0] : NULL;
    char *text = NULL;
    kvf_json_free(t->next);
    t->next = t->chat && anew ? new_chat() : kvf__json_copy(t->chat);
    if (t->chat && !add_turn(t->next, "user", line, strlen(line))) return KVF_ENOMEM;
    kvf_status st = t->chat
                        ? kvf__generate_row(ctx, base, prefix, t->next, t->how, &text, &t->stats)
                        : kvf_generate(ctx, base, prefix, &line, 1, t->how, &text, &t->stats);
    if (!st) kvf_texts_free(&text, 1);
    return st;
}

/* Generates an answer that SIGINT ends. A chat that no longer fits begins anew. */
static kvf_status generate_until_signal(talk *t, const char *line, int *signal)
{
    kvf_ctx *ctx = t->call->ctx;
    const bool goes_on = kvf_json_size(kvf_json_get(t->chat, "messages")) > 0;
    kvf_ctx_set_stop(ctx, cli_stop_install());
    kvf_status st = generate(t, line, false);
    if (st == KVF_EDATA && goes_on) {
        cli_fail(t->call->command, "%s: the chat begins anew", kvf_ctx_error(ctx));
        st = generate(t, line, true);
    }
    *signal = cli_stop_signal();
    kvf_ctx_set_stop(ctx, NULL);
    cli_stop_clean(ctx); /* at the prompt a signal ends the program */
    return st == KVF_ESTOPPED && *signal == SIGINT ? KVF_OK : st;
}

/* Prints the answer to a line. In a chat it is the next turn, even if it was stopped. */
static int answer(talk *t, const char *line)
{
    char *said = NULL;
    size_t bytes = 0;
    int signal = 0;
    t->said = open_memstream(&said, &bytes);
    t->stats = (kvf_generate_stats){0};
    const kvf_status st = t->said ? generate_until_signal(t, line, &signal) : KVF_ENOMEM;
    if (t->said) fclose(t->said);
    if (!st) {
        putchar('\n');
        fflush(stdout);
        if (t->terminal && t->stats.new_tokens == t->how->max_tokens)
            cli_fail(t->call->command, "cut at --max-tokens %lld", (long long)t->how->max_tokens);
    }
    if (!st && t->chat && add_turn(t->next, "assistant", said, bytes)) {
        kvf_json_free(t->chat);
        t->chat = t->next;
        t->next = NULL;
    }
    free(said);
    if (st == KVF_ESTOPPED) return CLI_SIGNAL + signal;
    return st ? cli_fail_status(t->call, st) : CLI_OK;
}

/* Reads a line without its end into text [MOST_BYTES + 1]. Returns false at the end of the input.
 */
static bool read_line(const talk *t, char *text, bool *good)
{
    size_t n = 0;
    int c;
    if (t->terminal) fputs("> ", stderr);
    *good = true;
    while ((c = getchar()) != EOF && c != '\n')
        if (c && n < MOST_BYTES)
            text[n++] = (char)c;
        else
            *good = false;
    if (n && text[n - 1] == '\r') n--;
    text[n] = 0;
    return n || !*good || c != EOF;
}

static int answer_lines(talk *t, char *line)
{
    int code = CLI_OK;
    bool good;
    while (code < CLI_SIGNAL && (!code || t->terminal) && read_line(t, line, &good)) {
        if (!good)
            code = cli_fail(t->call->command,
                            "standard input: a line is longer than 1 MiB or holds a zero byte");
        else if (strspn(line, " \t") < strlen(line))
            code = answer(t, line);
        if (cli_is_unread(stdout)) break;
    }
    if (t->terminal && code < CLI_SIGNAL) putc('\n', stderr);
    return t->terminal && code < CLI_SIGNAL ? CLI_OK : code;
}

int cli_converse(cli_call *call, const cli_model *model, kvf_generate_options *how)
{
    talk t = {.call = call, .model = model, .how = how, .terminal = isatty(STDIN_FILENO)};
    const kvf_prefix *prefix = model->n ? model->prefixes[0] : NULL;
    bool chats = false;
    kvf_status st = kvf__prompts_are_chats(call->ctx, model->base, prefix, how->chat_template,
                                           &chats);
    if (st) return cli_fail_status(call, st);
    how->token = print_piece;
    how->token_user = &t;
    if (t.terminal && !call->common.quiet)
        cli_fail(call->command, "%s; Ctrl-C ends an answer, Ctrl-D leaves",
                 chats ? "a chat" : "each line is a prompt of its own");
    char *line = malloc(MOST_BYTES + 1);
    if (chats) t.chat = new_chat();
    const int code = line && !chats == !t.chat ? answer_lines(&t, line)
                                               : cli_fail(call->command, "out of memory");
    kvf_json_free(t.chat);
    kvf_json_free(t.next);
    free(line);
    return code;
}
