/* Writes HTML. Markup and text have separate functions, so that a text cannot become markup by
 * mistake: everything except constants of this folder goes through kvf__html_text(). It only passes
 * characters allowed in HTML (WHATWG 13.1.4 and the list of noncharacters). Characters that change
 * the writing direction (Unicode UAX 9: embeddings, overrides, isolates) become U+FFFD, because
 * they could disguise an option. */
#include "report_priv.h"
#include "utf8.h"

#include <math.h>
#include <string.h>

static const char REPLACEMENT[] = "\xef\xbf\xbd";

void kvf__html_put(kvf__html *h, const char *markup)
{
    if (!h->st) h->st = kvf__buf_add(h->ctx, &h->out, markup, strlen(markup));
}

void kvf__html_printf(kvf__html *h, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text) {
        if (!h->st)
            h->st = kvf__fail(h->ctx, KVF_EINTERNAL,
                              "report: a piece of markup is too long (%d bytes)", n);
        return;
    }
    kvf__html_put(h, text);
}

static bool is_shown(uint32_t c)
{
    if (c < 0x20) return c == '\t' || c == '\n';
    if (c >= 0x7f && c < 0xa0) return false;
    if ((c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069)) return false;
    return !(c >= 0xfdd0 && c <= 0xfdef) && (c & 0xfffe) != 0xfffe; /* UINT32_MAX: not UTF-8 */
}

/* Returns the escaped form of a character in text and in quoted attributes; NULL: unchanged. */
static const char *escaped(uint32_t c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    case '\r':
        return "\n";
    default:
        return is_shown(c) ? NULL : REPLACEMENT;
    }
}

void kvf__html_text(kvf__html *h, const char *text)
{
    for (size_t bytes; text && *text && !h->st; text += bytes) {
        uint32_t c;
        bytes = kvf__utf8_next(text, strnlen(text, 4), &c);
        if (c == UINT32_MAX) bytes = 1; /* U+FFFD for each bad byte */
        const char *other = escaped(c);
        if (c == '\r' && text[1] == '\n') other = "";
        if (other)
            kvf__html_put(h, other);
        else
            h->st = kvf__buf_add(h->ctx, &h->out, text, bytes);
    }
}

void kvf__html_around(kvf__html *h, const char *before, const char *text, const char *after)
{
    kvf__html_put(h, before);
    kvf__html_text(h, text);
    kvf__html_put(h, after);
}

void kvf__html_quoted(kvf__html *h, const kvf_json *value)
{
    char *text = kvf_json_text(value, KVF_JSON_COMPACT);

    if (!text && !h->st) h->st = kvf__fail(h->ctx, KVF_ENOMEM, "report: out of memory");
    kvf__html_text(h, text);
    kvf_json_text_free(text);
}

void kvf__html_value(kvf__html *h, const kvf_json *value)
{
    const char *string = kvf_json_str(value, NULL);

    if (string)
        kvf__html_text(h, string);
    else
        kvf__html_quoted(h, value);
}

void kvf__html_number(kvf__html *h, const char *format, double value)
{
    if (isfinite(value))
        kvf__html_printf(h, format, value);
    else
        kvf__html_put(h, "&ndash;");
}

void kvf__html_cell(kvf__html *h, const char *format, double value)
{
    kvf__html_put(h, "<td>");
    kvf__html_number(h, format, value);
    kvf__html_put(h, "</td>");
}

kvf_status kvf__html_end(kvf__html *h, kvf__buf *out)
{
    KVF__GIVE(h->st, out, h->out, kvf__buf_done(&h->out));
    return h->st;
}
