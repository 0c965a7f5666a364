/* Recipe files: `option = value` lines, long names without dashes, flags as true or false. A line
 * that begins with # is a comment. A value extends to the end of its line, so that texts may
 * contain any character. If the command has sections, `[NAME]` begins one. */
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
        code = cli_fail(call->command, "%s: is larger than 1 MiB", path);
    else if (!code && memchr(text, 0, n))
        code = cli_fail(call->command, "%s: is not a text file, because it contains a zero byte",
                        path);
    if (file) fclose(file);
    if (code) {
        free(text);
        return code;
    }
    text[n] = 0;
    *out = text;
    return CLI_OK;
}

static int read_option(const cli_call *call, const cli_command *command, char *line,
                       cli_given *given)
{
    char *name, *value;
    if (!kvf__option_split(line, &name, &value))
        return cli_misuse_at(call->command, given, "want \"option = value\", found \"%.60s\"",
                             line);
    const kvf__option_row *row = cli_row_find(command, name);
    if (!row || !strcmp(name, "recipe") || !strcmp(name, "help"))
        return cli_unknown_option(command, given, name, strlen(name));
    if (!*value) return cli_misuse_at(call->command, given, "%s has no value", name);
    given->name = row->name;
    given->value = value;
    return CLI_OK;
}

static int read_section(const cli_call *call, char *line, cli_given *given)
{
    const size_t n = strlen(line);
    if (line[n - 1] != ']')
        return cli_misuse_at(call->command, given, "want [NAME], found \"%.60s\"", line);
    line[n - 1] = 0;
    given->name = kvf__trim(line + 1);
    given->section = true;
    return CLI_OK;
}

static size_t count_lines(const char *text)
{
    size_t n = 1;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* Reads lines into `list`, which has space for all of them, and from the first section on into
 * call->sections. */
static int read_lines(cli_call *call, const char *path, char *text, cli_given *list, size_t *n)
{
    int number = 0, code = CLI_OK;
    for (char *line; !code && (line = kvf__option_line(&text, &number)) != NULL;) {
        cli_given given = {.file = path, .line = number};
        const bool begins = *line == '[' && call->command->sections;
        const bool inside = begins || call->n_sections;
        code = begins ? read_section(call, line, &given)
                      : read_option(call, inside ? call->command->sections : call->command, line,
                                    &given);
        if (inside)
            call->sections[call->n_sections++] = given;
        else
            list[(*n)++] = given;
    }
    return code;
}

int cli_recipe_load(cli_call *call, const char *path)
{
    size_t n = 0;
    if (!strcmp(path, "-")) path = CLI_STDIN;
    int code = cli_read_text(call, path, &call->recipe);
    if (code) return code;
    const size_t lines = count_lines(call->recipe);
    cli_given *list = calloc(lines + call->n_given, sizeof *list);
    if (call->command->sections) call->sections = calloc(lines, sizeof *call->sections);
    if (!list || (call->command->sections && !call->sections)) {
        free(list);
        return cli_fail(call->command, "out of memory");
    }
    code = read_lines(call, path, call->recipe, list, &n);
    if (call->n_given) memcpy(list + n, call->given, call->n_given * sizeof *list);
    free(call->given);
    call->given = list;
    call->n_given += n;
    return code;
}
