/* The page of `report`: no text becomes markup, elements nest, bytes repeat. Also tests curves and
 * axes at their limits, and allocation failures everywhere. */
#include "ck.h"
#include "report_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static kvf_ctx *ctx;

static void setup(void)
{
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

static kvf_json *parsed(const char *text)
{
    kvf_json *root = NULL;
    ck_assert_msg(!kvf_json_parse(ctx, "facts", text, strlen(text), &root), "%s",
                  kvf_ctx_error(ctx));
    return root;
}

static kvf__buf page_of(const kvf_json *facts, const kvf__history *history)
{
    kvf__buf out = {0};
    ck_assert_msg(!kvf__report_page(ctx, facts, history, &out), "%s", kvf_ctx_error(ctx));
    ck_assert_uint_eq(strlen(out.data), out.n);
    return out;
}

static size_t count(const char *text, const char *part)
{
    size_t n = 0;
    for (; (text = strstr(text, part)) != NULL; text += strlen(part))
        n++;
    return n;
}

/* ---- nesting --------------------------------------------------------------------------------- */

static bool is_void(const char *name)
{
    static const char *const VOID[] = {"meta", "link", "input"};
    for (size_t i = 0; i < sizeof VOID / sizeof VOID[0]; i++)
        if (!strcmp(name, VOID[i])) return true;
    return false;
}

/* Every element is closed, in order; the content of style and script is skipped. */
static void check_nesting(const char *page)
{
    enum { DEEP = 32 };
    static char open[DEEP][24];
    int depth = 0;

    for (const char *at = strchr(page, '<'); at; at = strchr(at, '<')) {
        char name[24] = {0};
        bool closes = at[1] == '/';
        const char *from = at + 1 + closes, *end = strchr(at, '>');
        size_t n = strcspn(from, " >/\n");
        ck_assert_msg(end != NULL && n < sizeof name, "\"%.40s\" does not end", at);
        memcpy(name, from, n);
        at = end;
        if (*name == '!' || is_void(name) || end[-1] == '/') continue;
        if (closes) {
            ck_assert_msg(depth && !strcmp(open[depth - 1], name), "</%s> closes <%s>", name,
                          depth ? open[depth - 1] : "nothing");
            depth--;
            continue;
        }
        ck_assert_int_lt(depth, DEEP);
        memcpy(open[depth++], name, sizeof name);
        if (!strcmp(name, "script")) at = strstr(at, "</script>");
        if (!strcmp(name, "style")) at = strstr(at, "</style>");
    }
    ck_assert_int_eq(depth, 0);
}

/* ---- text ------------------------------------------------------------------------------------ */

static const struct {
    const char *text, *want;
} TEXTS[] = {
    {"plain \xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "plain \xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"},
    {"<script>&\"'", "&lt;script&gt;&amp;&quot;&#39;"},
    {"a\tb\nc\r\nd\re", "a\tb\nc\nd\ne"},
    {"\x01\x1b[31m\x7f", "\xef\xbf\xbd\xef\xbf\xbd[31m\xef\xbf\xbd"},
    {"\xc2\x85\xc2\x9f\xc2\xa0", "\xef\xbf\xbd\xef\xbf\xbd\xc2\xa0"}, /* C1 */
    {"\xe2\x80\xae"
     "abc\xe2\x81\xa9",
     "\xef\xbf\xbd"
     "abc\xef\xbf\xbd"},                                                             /* bidi */
    {"\xef\xb7\x90\xef\xbf\xbf", "\xef\xbf\xbd\xef\xbf\xbd"},                        /* none */
    {"\xff<\xc3(\xe2\x82", "\xef\xbf\xbd&lt;\xef\xbf\xbd(\xef\xbf\xbd\xef\xbf\xbd"}, /* bad */
    {"\xc0\xbc\xe0\x80\xbc", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},                 /* a surrogate */
    {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* past the last */
    {"", ""},
    {NULL, ""},
};

START_TEST(text_is_escaped)
{
    kvf__html h = {.ctx = ctx};
    kvf__html_put(&h, "");
    kvf__html_text(&h, TEXTS[_i].text);
    ck_assert_int_eq(h.st, KVF_OK);
    ck_assert_str_eq(h.out.data, TEXTS[_i].want);
    kvf__buf_done(&h.out);
}
END_TEST

#define EVIL "</pre></td><script>x</script><img src=x onerror=y>\\\"'&amp;"

/* Every string of the facts is hostile, including object keys. */
static const char *const HOSTILE =
    "{\"title\":\"" EVIL "\",\"kind\":\"" EVIL "\",\"notes\":[\"" EVIL "\"],"
    "\"attributes\":{\"method\":\"" EVIL "\",\"task\":\"" EVIL "\",\"base_name\":\"" EVIL "\","
    "\"base_architecture\":\"" EVIL "\",\"P\":2,\"L\":2,\"G\":1,\"D\":4,\"" EVIL "\":1},"
    "\"options\":{\"" EVIL "\":\"" EVIL "\",\"list\":[\"" EVIL "\"]},"
    "\"lineage\":{\"" EVIL "\":\"" EVIL "\"},"
    "\"history\":{\"steps\":3,\"best_step\":2,\"best_metric\":\"" EVIL "\",\"best_value\":0.5},"
    "\"tensors\":[{\"name\":\"" EVIL "\",\"shape\":[2,3],\"dtype\":\"" EVIL "\",\"bytes\":24}],"
    "\"prefix\":{\"keys\":[[1,2],null],\"values\":[[3,4],null]},"
    "\"neurons\":{\"key\":[[1,2],null],\"value\":[[3,4],null],\"bias\":[[0,1],null]},"
    "\"attention\":{\"share\":[[0.25,0.5],[0,1]],\"labels\":5,\"rows\":2,\"data\":\"" EVIL "\","
    "\"before\":3.5,\"after\":2.5},"
    "\"words\":{\"layers\":[{\"layer\":0,\"tokens\":[{\"key\":[{\"text\":\"" EVIL
    "\",\"id\":1,\"cosine\":0.5}],\"value\":[]}]}]},"
    "\"samples\":{\"data\":\"" EVIL "\",\"max_tokens\":8,\"rows\":[{\"prompt\":\"" EVIL
    "\",\"before\":\"" EVIL "\",\"after\":\"\",\"references\":[\"" EVIL "\"]}]},"
    "\"written\":\"" EVIL "\",\"answers\":{\"data\":\"" EVIL
    "\",\"unit\":\"words\",\"n\":4,\"right\":3,\"labels\":[\"" EVIL "\",\"b\"],"
    "\"counts\":[[3,1],[0,0]],\"wrong\":[{\"text\":\"" EVIL "\",\"word\":\"" EVIL
    "\",\"label\":\"" EVIL "\",\"predicted\":\"" EVIL "\",\"probability\":0.5}]}}";

/* A comparison of two methods over three seeds at two steps; the name of one method and all other
 * texts are hostile. */
static const char *const COMPARISON =
    "{\"title\":\"" EVIL "\",\"reference\":\"" EVIL "\",\"base_parameters\":1000,"
    "\"about\":{\"" EVIL "\":\"" EVIL "\",\"steps\":20},\"options\":{\"" EVIL "\":\"" EVIL "\"},"
    "\"bare\":{\"reason\":\"" EVIL "\"},\"curve_steps\":[10,20],\"methods\":["
    "{\"name\":\"" EVIL "\",\"bytes\":2048,\"trainable_parameters\":25,\"share\":0.0125,\"runs\":3,"
    "\"tokens_per_second\":100.5,\"peak_rss_bytes\":4096,\"best_metric\":\"" EVIL "\","
    "\"loss\":{\"mean\":0.5,\"min\":0.25,\"max\":0.75},"
    "\"score\":{\"mean\":0.75,\"min\":0.75,\"max\":0.75},\"difference\":null,"
    "\"curves\":{\"loss\":{\"mean\":[1.5,0.5],\"min\":[1,0.25],\"max\":[2,0.75]},"
    "\"score\":{\"mean\":[0.5,0.75],\"min\":[0.5,0.75],\"max\":[0.5,0.75]}}},"
    "{\"name\":\"b\",\"bytes\":null,\"trainable_parameters\":1000,\"share\":1.0,\"runs\":3,"
    "\"tokens_per_second\":null,\"peak_rss_bytes\":0,\"loss\":null,\"score\":null,"
    "\"difference\":{\"mean\":-0.0625,\"standard_error\":0.03125,\"pairs\":3},"
    "\"curves\":{\"loss\":{\"mean\":[null,0.625],\"min\":[null,0.5],\"max\":[null,0.6875]}}}]}";

static kvf__buf comparison_of(const kvf_json *object)
{
    kvf__buf out = {0};
    ck_assert_msg(!kvf__comparison_page(ctx, object, &out), "%s", kvf_ctx_error(ctx));
    return out;
}

/* Three steps of a run, validated after its second step. */
static kvf__history three_steps(void)
{
    static int64_t step[] = {1, 2, 3};
    static double train[] = {3, 2, 1}, valid[] = {NAN, 2.5, NAN}, metric[] = {NAN, 0.5, NAN},
                  lr[] = {0.1, 0.05, 0}, grad[] = {1, 100, 10}, norm[] = {5, 5, 5};
    return (kvf__history){.n = 3,
                          .step = step,
                          .tokens = step,
                          .train_loss = train,
                          .valid_loss = valid,
                          .valid_metric = metric,
                          .lr = lr,
                          .grad_norm = grad,
                          .prefix_norm = norm};
}

/* The table's numbers, a band for each curve, the numbers read by the script; texts stay text. */
START_TEST(a_comparison_is_drawn)
{
    kvf_json *object = parsed(COMPARISON);
    kvf__buf page = comparison_of(object), again = comparison_of(object);
    ck_assert_ptr_nonnull(strstr(page.data, "<td>25</td><td>1.250&nbsp;%</td><td>2.0&nbsp;KiB"));
    ck_assert_ptr_nonnull(strstr(page.data, "<td>0.5000 <small>0.2500 to 0.7500</small></td>"));
    ck_assert_ptr_nonnull(strstr(page.data, "<td>0.7500</td><td>&ndash;</td></tr>"));
    ck_assert_ptr_nonnull(strstr(page.data, "<td>-0.0625 <small>&plusmn; 0.0312</small></td>"));
    /* score of one method, loss of two, the loss in a linear and a logarithmic view */
    ck_assert_uint_eq(count(page.data, "class=\"chart\""), 2);
    ck_assert_uint_eq(count(page.data, "<path class=\"band c0\""), 3);
    ck_assert_uint_eq(count(page.data, "<path class=\"band c1\""), 2);
    ck_assert_uint_eq(count(page.data, "data-column=\"loss-mean-1\""), 1);
    ck_assert_uint_eq(count(page.data, "data-key=\"loss-mean-1\""), 1);
    ck_assert_ptr_nonnull(strstr(page.data, "<tr><td>20</td><td>0.75</td><td>0.75</td>"));
    ck_assert_uint_eq(count(page.data, "<script"), 1);
    ck_assert_uint_eq(count(page.data, "<img"), 0);
    ck_assert_uint_eq(count(page.data, "nan"), 0);
    check_nesting(page.data);
    ck_assert_uint_eq(page.n, again.n);
    ck_assert_mem_eq(page.data, again.data, page.n);
    kvf__buf_done(&page);
    kvf__buf_done(&again);
    kvf_json_free(object);
}
END_TEST

static const char *const SWEEP =
    "{\"out\":\"" EVIL "\",\"metric\":\"" EVIL "\",\"options\":[\"" EVIL "\"],\"failed\":0,"
    "\"runs\":[{\"name\":\"" EVIL "\",\"options\":{\"" EVIL "\":\"" EVIL "\"},\"value\":0.5,"
    "\"best_step\":2,\"best_valid_loss\":0.25,\"train_loss\":0.125,\"steps\":3,"
    "\"seconds\":1.5,\"status\":\"done\"},{}],"
    "\"methods\":[{\"name\":\"" EVIL "\",\"curves\":{\"loss\":{\"mean\":[1,0.5]}}},"
    "{\"name\":\"b\",\"curves\":{\"loss\":{\"mean\":[null,0.25]}}}],\"curve_steps\":[1,2],"
    "\"loss\":\"Training loss\"}";

/* Report and curves are one object here. */
START_TEST(a_sweep_is_drawn)
{
    kvf_json *object = parsed(SWEEP);
    kvf__buf page = {0};
    ck_assert_msg(!kvf__sweep_page(ctx, object, object, &page), "%s", kvf_ctx_error(ctx));
    ck_assert_ptr_nonnull(
        strstr(page.data, "<td>0.5000</td><td>2</td><td>0.2500</td><td>0.1250</td><td>3</td>"));
    ck_assert_ptr_nonnull(strstr(page.data, "<h3>Training loss</h3>"));
    ck_assert_uint_eq(count(page.data, "class=\"chart\""), 1);
    ck_assert_uint_eq(count(page.data, "<path class=\"line c1\""), 2); /* linear and log */
    ck_assert_uint_eq(count(page.data, "<path class=\"band"), 0);
    ck_assert_uint_eq(count(page.data, "<script"), 1);
    ck_assert_uint_eq(count(page.data, "<img"), 0);
    ck_assert_uint_eq(count(page.data, "nan"), 0);
    check_nesting(page.data);
    kvf__buf_done(&page);
    kvf_json_free(object);
}
END_TEST

/* The loss of a bare base: a level across the chart. Without methods: no curves. */
START_TEST(a_bare_base_is_a_level)
{
    kvf_json *object = parsed(COMPARISON), *nothing = parsed("{}");
    kvf_json_set(object, "bare", parsed("{\"loss\":3.25}"));
    kvf__buf page = comparison_of(object), empty = comparison_of(nothing);
    ck_assert_ptr_nonnull(strstr(page.data, "data-column=\"bare\">bare base</li>"));
    ck_assert_uint_eq(count(page.data, "<td>3.25</td></tr>"), 2);
    ck_assert_ptr_nonnull(strstr(page.data, "<td>3.2500</td>"));
    check_nesting(page.data);
    check_nesting(empty.data);
    ck_assert_uint_eq(count(empty.data, "class=\"chart\""), 0);
    kvf__buf_done(&page);
    kvf__buf_done(&empty);
    kvf_json_free(object);
    kvf_json_free(nothing);
}
END_TEST

START_TEST(hostile_texts_stay_text)
{
    const kvf__history history = three_steps();
    kvf_json *facts = parsed(HOSTILE);
    kvf__buf page = page_of(facts, &history), again = page_of(facts, &history);
    ck_assert_uint_eq(count(page.data, "<script"), 1);
    ck_assert_uint_eq(count(page.data, "<img"), 0);
    /* once each, and again: the title, the metric in three places, four cards, a label in two */
    ck_assert_uint_eq(count(page.data, "&lt;script&gt;x"), count(HOSTILE, "<script>x") + 9);
    ck_assert_uint_eq(count(page.data, "\\&quot;&#39;"), 1 + 1); /* JSON in a list; a word */
    check_nesting(page.data);
    ck_assert_uint_eq(page.n, again.n);
    ck_assert_mem_eq(page.data, again.data, page.n);
    kvf__buf_done(&page);
    kvf__buf_done(&again);
    kvf_json_free(facts);
}
END_TEST

/* ---- curves ---------------------------------------------------------------------------------- */

static void fill_history(kvf__history *h, int64_t n)
{
    *h = (kvf__history){.n = n};
    int64_t **whole[] = {&h->step, &h->tokens};
    double **real[] = {&h->train_loss, &h->valid_loss, &h->valid_metric,
                       &h->lr,         &h->grad_norm,  &h->prefix_norm};
    for (int i = 0; i < 2; i++) {
        ck_assert(!kvf__alloc_array(ctx, (size_t)n, sizeof(int64_t), whole[i]));
        for (int64_t s = 0; s < n; s++)
            (*whole[i])[s] = s + 1;
    }
    for (int i = 0; i < 6; i++) {
        ck_assert(!kvf__alloc_array(ctx, (size_t)n, sizeof(double), real[i]));
        for (int64_t s = 0; s < n; s++)
            (*real[i])[s] = (double)(s + 1);
    }
}

/* Rows of the table of curves. */
static size_t table_rows(const kvf__buf *page)
{
    const char *from = strstr(page->data, "<table id=\"steps\">");
    if (!from) return 0;
    const char *end = strstr(from, "</table>");
    size_t n = 0;
    for (; (from = strstr(from, "<tr><td>")) != NULL && from < end; from++)
        n++;
    return n;
}

static const struct {
    int64_t steps;
    size_t rows;
    const char *first, *last; /* rows of step, train, smoothed, valid, lr, grad, norm */
} LENGTHS[] = {
    {0, 0, NULL, NULL},
    {1, 1, "<td>1</td><td>1</td><td>1</td><td>1</td>", "<td>1</td><td>1</td><td>1</td>"},
    {2, 2, "<td>1</td><td>1</td><td>1</td><td>1</td>", "<td>2</td><td>2</td><td>2</td>"},
    {400, 400, "<td>1</td><td>1</td><td>1</td><td>1</td>", "<td>400</td><td>400</td>"},
    /* of three steps each, the mean of 1, 2, 3 and the last; the last row has one */
    {1000, 334, "<td>3</td><td>2</td>", "<td>1000</td><td>1000</td>"},
};

START_TEST(long_runs_are_thinned)
{
    kvf__history history;
    kvf_json *facts = parsed("{\"title\":\"t\",\"kind\":\"run\"}");
    fill_history(&history, LENGTHS[_i].steps);
    kvf__buf page = page_of(facts, &history);
    ck_assert_uint_eq(table_rows(&page), LENGTHS[_i].rows);
    if (LENGTHS[_i].first) {
        ck_assert_ptr_nonnull(strstr(page.data, LENGTHS[_i].first));
        ck_assert_ptr_nonnull(strstr(page.data, LENGTHS[_i].last));
    }
    ck_assert_uint_eq(count(page.data, "class=\"chart\""), LENGTHS[_i].steps ? 4 : 0);
    ck_assert_uint_eq(count(page.data, "nan"), 0);
    ck_assert_uint_eq(count(page.data, ">inf"), 0);
    check_nesting(page.data);
    kvf__buf_done(&page);
    kvf__history_done(&history);
    kvf_json_free(facts);
}
END_TEST

/* The marked step is the best one, at its place and value; a metric other than the loss has its own
 * chart. */
START_TEST(best_step_is_marked)
{
    static const char *const METRICS[] = {"valid_loss", "f1"};
    const kvf__history history = three_steps();
    char text[200];
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text,
                 "{\"title\":\"t\",\"kind\":\"run\",\"history\":{\"best_step\":2,\"best_metric\":"
                 "\"%s\",\"best_value\":0.5}}",
                 METRICS[i]);
        kvf_json *facts = parsed(text);
        kvf__buf page = page_of(facts, &history);
        ck_assert_uint_eq(count(page.data, "id=\"metric\""), i);
        ck_assert_uint_eq(count(page.data, ">f1<"), 2 * i); /* chart, column */
        /* 2.5 of an axis from 1 to 3 (steps 1 to 3), and with its log view once more */
        ck_assert_ptr_nonnull(strstr(page.data, "style=\"left:50.00%;bottom:75.00%\">best"));
        ck_assert_uint_eq(count(page.data, ">best</span>"), 2 + i);
        kvf__buf_done(&page);
        kvf_json_free(facts);
    }
}
END_TEST

/* The retention set's loss, and the bare base's on the same text; the KL of a run with
 * --kl-to-base. */
START_TEST(the_retention_is_drawn)
{
    static double retention[] = {NAN, 3.25, 3.5}, kl[] = {0.5, 0.25, 0.125};
    kvf__history history = three_steps();
    kvf_json *facts = parsed(
        "{\"title\":\"t\",\"kind\":\"run\",\"lineage\":{\"retention_base_loss\":3.125}}");
    kvf__buf without = page_of(facts, &history);
    history.retention_loss = retention;
    history.kl_to_base = kl;
    kvf__buf page = page_of(facts, &history);
    ck_assert_uint_eq(
        count(without.data, "id=\"retention\"") + count(without.data, "data-key=\"re"), 0);
    ck_assert_uint_eq(count(page.data, "id=\"retention\""), 1);
    ck_assert_uint_eq(count(page.data, "id=\"kl\""), 1);
    /* step 1 has no value of the retention set, and needs no value of the bare base */
    ck_assert_ptr_nonnull(strstr(page.data, "<td></td><td></td><td>0.5</td>"));
    ck_assert_ptr_nonnull(strstr(page.data, "<td>3.25</td><td>3.125</td><td>0.25</td>"));
    ck_assert_ptr_nonnull(strstr(page.data, "<td>3.5</td><td>3.125</td><td>0.125</td>"));
    check_nesting(page.data);
    kvf__buf_done(&without);
    kvf__buf_done(&page);
    kvf_json_free(facts);
}
END_TEST

/* Values that are not finite, all equal, or not positive on a logarithmic scale. */
START_TEST(odd_values_draw)
{
    kvf__history history;
    kvf_json *facts = parsed("{\"title\":\"t\",\"kind\":\"run\"}");
    fill_history(&history, 6);
    for (int i = 0; i < 6; i++) {
        history.train_loss[i] = NAN;
        history.valid_loss[i] = i == 3 ? 2 : INFINITY;
        history.lr[i] = 0;
        history.grad_norm[i] = i ? -1e300 * i : 1e300;
        history.prefix_norm[i] = 1e-310;
    }
    kvf__buf page = page_of(facts, &history);
    ck_assert_uint_eq(count(page.data, "class=\"chart\""), 4);
    ck_assert_uint_eq(count(page.data, "nan") + count(page.data, "inf%"), 0);
    check_nesting(page.data);
    kvf__buf_done(&page);
    kvf__history_done(&history);
    kvf_json_free(facts);
}
END_TEST

/* ---- axes ------------------------------------------------------------------------------------ */

static const struct {
    double low, high;
    bool log;
    double want_low, want_high;
    int n;
} AXES[] = {
    {0, 10, false, 0, 10, 3},        {3.44, 4.31, false, 3, 4.5, 4},
    {-1, 1, false, -1, 1, 5},        {5, 5, false, 4.5, 5.5, 3},
    {0, 0, false, -1, 1, 5},         {1e-5, 3e-5, false, 1e-5, 3e-5, 5},
    {1, 1000, true, 1, 1000, 10},    {0.03, 0.4, true, 0.02, 0.5, 5},
    {1e-9, 1e9, true, 1e-9, 1e9, 7}, {2, 2, true, 2, 20, 4},
};

START_TEST(axes_hold_their_values)
{
    kvf__axis a = AXES[_i].log ? kvf__axis_log(AXES[_i].low, AXES[_i].high)
                               : kvf__axis_linear(AXES[_i].low, AXES[_i].high, 4);
    ck_assert_double_eq_tol(a.low, AXES[_i].want_low, 1e-9 * fabs(a.low) + 1e-300);
    ck_assert_double_eq_tol(a.high, AXES[_i].want_high, 1e-9 * fabs(a.high) + 1e-300);
    ck_assert_int_eq(a.n, AXES[_i].n);
    ck_assert_double_eq(kvf__axis_at(&a, a.low), 0);
    ck_assert_double_eq_tol(kvf__axis_at(&a, a.high), 1, 1e-12);
    for (int i = 0; i < a.n; i++) {
        double at = kvf__axis_at(&a, a.tick[i]);
        ck_assert(at > -1e-9 && at < 1 + 1e-9);
        ck_assert(i == 0 || a.tick[i] > a.tick[i - 1]);
    }
}
END_TEST

/* ---- limits ---------------------------------------------------------------------------------- */

static const char *const BARE[] = {
    "{}",
    "{\"title\":\"t\",\"kind\":\"prefix\"}",
    "{\"title\":\"t\",\"kind\":\"prefix\",\"prefix\":{\"keys\":[],\"values\":[]},\"virtual\":[]}",
    ("{\"title\":1,\"kind\":[],\"prefix\":{\"keys\":[null],\"values\":[[null]]},\"options\":[1],"
     "\"samples\":{\"rows\":[{}]},\"attention\":{},\"words\":{},\"tensors\":[1],\"virtual\":[null]"
     "}"),
    "{\"virtual\":[1.5,0],\"words\":{\"tokens\":[{\"nearest\":[{\"text\":\"a\",\"cosine\":1}]}]}}",
};

START_TEST(pages_of_little_are_whole)
{
    kvf_json *facts = parsed(BARE[_i]);
    kvf__buf page = page_of(facts, NULL);
    check_nesting(page.data);
    ck_assert_ptr_nonnull(strstr(page.data, "</html>"));
    kvf__buf_done(&page);
    kvf_json_free(facts);
}
END_TEST

/* 96 layers of 200 tokens: the map stays small, and every shade is drawn at most once. */
START_TEST(large_maps_stay_small)
{
    enum { ROWS = 96, COLUMNS = 200 };
    kvf_json *facts = parsed("{\"title\":\"t\",\"kind\":\"prefix\"}"), *rows = kvf_json_array();
    kvf_json *prefix = kvf_json_object();
    for (int r = 0; r < ROWS; r++) {
        kvf_json *row = kvf_json_array();
        for (int c = 0; c < COLUMNS; c++)
            kvf_json_add(row, kvf_json_new_real(r * 1.5 + c));
        kvf_json_add(rows, row);
    }
    kvf_json_set(prefix, "keys", rows);
    kvf_json_set(facts, "prefix", prefix);
    kvf__buf page = page_of(facts, NULL);
    ck_assert_uint_eq(count(page.data, "h1v1h-1z"), ROWS * COLUMNS);
    ck_assert_uint_le(count(page.data, "<path fill"), 64);
    ck_assert_uint_lt(page.n, 800000);
    check_nesting(page.data);
    kvf__buf_done(&page);
    kvf_json_free(facts);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

START_TEST(memory_may_run_out) /* 0: of a report, 1: of a comparison, 2: of a sweep */
{
    const kvf__history history = three_steps();
    kvf_json *facts = parsed(_i == 2 ? SWEEP : _i ? COMPARISON : HOSTILE);
    kvf__buf page = {0};
    kvf_status st = KVF_ENOMEM;
    int64_t n = 0;
    for (; st && n < 1000; n++) {
        kvf__ctx_fail_allocation(ctx, n);
        st = _i == 2 ? kvf__sweep_page(ctx, facts, facts, &page)
             : _i    ? kvf__comparison_page(ctx, facts, &page)
                     : kvf__report_page(ctx, facts, &history, &page);
        ck_assert(st == KVF_OK || (st == KVF_ENOMEM && !page.data));
    }
    kvf__ctx_fail_allocation(ctx, -1);
    ck_assert_int_eq(st, KVF_OK);
    ck_assert_int_gt(n, 5);
    kvf__buf_done(&page);
    kvf_json_free(facts);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("report");
    TCase *core = ck_case(suite, "core", setup, teardown, 4);
    TCase *limits = ck_case(suite, "limits", setup, teardown, 4);
    TCase *errors = ck_case(suite, "errors", setup, teardown, 4);

    tcase_add_loop_test(core, text_is_escaped, 0, sizeof TEXTS / sizeof TEXTS[0]);
    tcase_add_test(core, hostile_texts_stay_text);
    tcase_add_test(core, a_comparison_is_drawn);
    tcase_add_test(core, a_sweep_is_drawn);
    tcase_add_test(core, a_bare_base_is_a_level);
    tcase_add_test(core, best_step_is_marked);
    tcase_add_test(core, the_retention_is_drawn);
    tcase_add_loop_test(core, axes_hold_their_values, 0, sizeof AXES / sizeof AXES[0]);
    tcase_add_loop_test(limits, long_runs_are_thinned, 0, sizeof LENGTHS / sizeof LENGTHS[0]);
    tcase_add_loop_test(limits, pages_of_little_are_whole, 0, sizeof BARE / sizeof BARE[0]);
    tcase_add_test(limits, odd_values_draw);
    tcase_add_test(limits, large_maps_stay_small);
    tcase_add_loop_test(errors, memory_may_run_out, 0, 3);
    tcase_set_timeout(limits, 30);
    tcase_set_timeout(errors, 30);
    return ck_main(suite);
}
