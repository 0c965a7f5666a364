/* Recipe files: `option = value` lines, long names without dashes, flags as true or false. A line
 * that begins with # is a comment; a value runs to the end of its line, so that texts may hold any
 * character. */
#include "cli_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 20 };

int cli_read_text(const cli_call *call, const char *path, char **out)
{
    FILE *file = fopen(path, "re");
    char *text = malloc(MAX_BYTES + 1);
    int code = CLI_OK;

    if (!file)
        code = cli_fail(call->command, "%s: cannot open: %s", path, strerror(errno));
    else if (!text)
        code = cli_fail(call->command, "out of memory");
    size_t n = code ? 0 : fread(text, 1, MAX_BYTES + 1, file);
    if (!code && ferror(file))
        code = cli_fail(call->command, "%s: cannot read: %s", path, strerror(errno));
    else if (n > MAX_BYTES)
        code = cli_fail(call->command, "%s: larger than 1 MiB, too long for its kind", path);
    else if (!code && memchr(text, 0, n))
        code = cli_fail(call->command, "%s: holds a zero byte: not a text", path);
    if (file) fclose(file);
    if (code) {
        free(text);
        return code;
    }
    text[n] = 0;
    *out = text;
    return CLI_OK;
}

static int read_line(const cli_call *call, char *line, cli_given *given)
{
    char *name, *value;
    if (!kvf__option_split(line, &name, &value))
        return cli_misuse(call->command, "%s:%d: want \"option = value\", found \"%.60s\"",
                          given->file, given->line, line);
    const kvf__option_row *row = cli_row_find(call->command, name);
    if (!row || !strcmp(name, "recipe") || !strcmp(name, "help"))
        return cli_unknown_option(call->command, given, name, strlen(name));
    if (!*value)
        return cli_misuse(call->command, "%s:%d: %s has no value", given->file, given->line, name);
    given->name = row->name;
    given->value = value;
    return CLI_OK;
}

static size_t count_lines(const char *text)
{
    size_t n = 1;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* Lines into `list`, which has room for all of them; *n of them were options. */
static int read_lines(const cli_call *call, const char *path, char *text, cli_given *list,
                      size_t *n)
{
    int number = 0, code = CLI_OK;
    for (char *line; !code && (line = kvf__option_line(&text, &number)) != NULL;) {
        list[*n] = (cli_given){.file = path, .line = number};
        code = read_line(call, line, &list[(*n)++]);
    }
    return code;
}

int cli_recipe_load(cli_call *call, const char *path)
{
    size_t n = 0;
    if (!strcmp(path, "-")) path = CLI_STDIN;
    int code = cli_read_text(call, path, &call->recipe);
    if (code) return code;
    cli_given *list = calloc(count_lines(call->recipe) + call->n_given, sizeof *list);
    if (!list) return cli_fail(call->command, "out of memory");
    code = read_lines(call, path, call->recipe, list, &n);
    if (call->n_given) memcpy(list + n, call->given, call->n_given * sizeof *list);
    free(call->given);
    call->given = list;
    call->n_given += n;
    return code;
}
