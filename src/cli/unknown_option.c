/* Reports an unknown option, with the nearest known one. */
#include "cli_int.h"

static const char *nearest_option(const cli_command *command, const char *name, size_t n)
{
    const kvf__option_row *row;
    kvf__nearest nearest = {.word = name, .n = n};
    for (size_t i = 0; (row = cli_row(command, i)) != NULL; i++)
        kvf__nearest_try(&nearest, row->name);
    return nearest.name;
}

int cli_unknown_option(const cli_command *command, const cli_given *given, const char *name,
                       size_t n)
{
    char word[64], near[64] = "";
    const char *dashes = given->file ? "" : "--", *quote = given->file ? "\"" : "";
    snprintf(word, sizeof word, "%.*s", (int)n, name);
    const char *why = command->refusal ? command->refusal(word) : NULL;
    const char *nearest = nearest_option(command, name, n);
    if (nearest) snprintf(near, sizeof near, ", the nearest is %s%s", dashes, nearest);
    if (why) return cli_misuse_at(command, given, "--%s: %s", word, why);
    return cli_misuse_at(command, given, "option %s%s%s%s is not known%s", dashes, quote, word,
                         quote, near);
}
