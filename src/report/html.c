/* Writing HTML. Markup and text are two functions, so that nothing of a file's can become markup by
 * being forgotten: what is not a constant of this folder goes through kvf__html_text().
 *
 * Text is held to what HTML allows (WHATWG 13.1.4 and the list of noncharacters), and characters
 * that turn the direction of writing (Unicode UAX 9: embeddings, overrides, isolates) are shown as
 * U+FFFD: they could make an option read as another. */
#include "report_priv.h"

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
        if (!h->st) h->st = kvf__fail(h->ctx, KVF_EINTERNAL, "report: markup of %d bytes", n);
        return;
    }
    kvf__html_put(h, text);
}

/* The code point that begins at s, and its bytes; 0 bytes: s begins none. Strict: no surrogates, no
 * overlong forms. */
static uint32_t decode(const unsigned char *s, size_t *bytes)
{
    static const struct {
        unsigned char mask, common;
        uint32_t least;
    } FORMS[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};

    *bytes = 0;
    for (size_t n = 0; n < 4; n++) {
        if ((s[0] & FORMS[n].mask) != FORMS[n].common) continue;
        uint32_t point = s[0] & (unsigned char)~FORMS[n].mask;
        for (size_t i = 1; i <= n; i++) {
            if ((s[i] & 0xc0) != 0x80) return 0; /* stops at a NUL, too */
            point = point << 6 | (s[i] & 0x3fu);
        }
        if (point < FORMS[n].least || point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
            return 0;
        *bytes = n + 1;
        return point;
    }
    return 0;
}

static bool is_shown(uint32_t c)
{
    if (c < 0x20) return c == '\t' || c == '\n';
    if (c >= 0x7f && c < 0xa0) return false;
    if ((c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069)) return false;
    return !(c >= 0xfdd0 && c <= 0xfdef) && (c & 0xfffe) != 0xfffe;
}

/* What stands for a character in text and in quoted attributes; NULL: itself. */
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
    const unsigned char *s = (const unsigned char *)text;

    while (s && *s && !h->st) {
        size_t bytes;
        uint32_t c = decode(s, &bytes);
        const char *other = bytes ? escaped(c) : REPLACEMENT;
        if (c == '\r' && s[1] == '\n') other = "";
        if (!bytes) bytes = 1;
        if (other)
            kvf__html_put(h, other);
        else
            h->st = kvf__buf_add(h->ctx, &h->out, s, bytes);
        s += bytes;
    }
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

void kvf__html_number(kvf__html *h, double value, int digits)
{
    if (isfinite(value))
        kvf__html_printf(h, "%.*g", digits, value);
    else
        kvf__html_put(h, "&ndash;");
}
