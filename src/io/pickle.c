/* The pickle of a state dict, read for its tensors; nothing in it is run.
 *
 * A pickle is a program for a stack (pickletools.py of CPython). Here a few of its operations act
 * on values of a few kinds: texts, numbers, tuples, dicts, and what torch saves a tensor as, a call
 * of torch._utils._rebuild_tensor_v2 on a storage. Every other operation, and every other name that
 * a program could call, is refused by its name before anything follows from it. */
#include "torch_zip.h"

#include <string.h>

typedef enum kind {
    ATOM, /* None, true, false, a real number: never looked at */
    NUMBER,
    TEXT,
    GLOBAL, /* number: its row in GLOBALS */
    MARK,
    TUPLE, /* items first .. first + number - 1 */
    LIST,  /* of which nothing is kept */
    DICT,  /* number names it in pairs */
    STORAGE,
    TENSOR /* number: its place among the views */
} kind;

typedef struct value {
    kind kind;
    kvf__dtype dtype; /* of a storage */
    int64_t number;   /* of a storage: elements */
    size_t first;
    const char *text; /* of a storage: its bytes */
    size_t bytes;
} value;

/* The names that may be called or named. */
typedef enum role { NEW_DICT, NEW_TENSOR, NEW_PARAMETER, A_STORAGE } role;
static const struct {
    const char *module, *name;
    role role;
    kvf__dtype dtype;
} GLOBALS[] = {
    {"collections", "OrderedDict", NEW_DICT, KVF__OTHER},
    {"torch._utils", "_rebuild_tensor_v2", NEW_TENSOR, KVF__OTHER},
    {"torch._utils", "_rebuild_parameter", NEW_PARAMETER, KVF__OTHER},
    {"torch", "FloatStorage", A_STORAGE, KVF__F32},
    {"torch", "HalfStorage", A_STORAGE, KVF__F16},
    {"torch", "BFloat16Storage", A_STORAGE, KVF__BF16},
    {"torch", "DoubleStorage", A_STORAGE, KVF__F64},
    {"torch", "LongStorage", A_STORAGE, KVF__I64},
    {"torch", "IntStorage", A_STORAGE, KVF__I32},
    {"torch", "ShortStorage", A_STORAGE, KVF__I16},
    {"torch", "CharStorage", A_STORAGE, KVF__I8},
    {"torch", "ByteStorage", A_STORAGE, KVF__U8},
    {"torch", "BoolStorage", A_STORAGE, KVF__BOOL},
};

/* A member of a dict. */
typedef struct pair {
    int64_t dict;
    value key, value;
} pair;

typedef struct values {
    value *v;
    size_t n, cap;
} values;

typedef struct machine {
    kvf_ctx *ctx;
    const kvf__zip *zip;
    kvf__reader r;
    values stack, memo, items;
    pair *pairs;
    size_t n_pairs, pairs_cap;
    kvf__view *views;
    size_t n_views, views_cap;
    int64_t n_dicts;
} machine;

static kvf_status bad(const machine *m, const char *what)
{
    return kvf__fail(m->ctx, KVF_EFORMAT, "%s: data.pkl: byte %zu: %s", m->zip->where, m->r.at,
                     what);
}

static kvf_status add_value(machine *m, values *list, value v)
{
    KVF_TRY(kvf__reserve(m->ctx, &list->v, &list->cap, list->n + 1, sizeof *list->v));
    list->v[list->n++] = v;
    return KVF_OK;
}

static kvf_status push(machine *m, value v)
{
    return add_value(m, &m->stack, v);
}

/* A mark where nothing is left: no operation takes one. */
static value pop(machine *m)
{
    return m->stack.n ? m->stack.v[--m->stack.n] : (value){.kind = MARK};
}

/* ---- tuples, dicts, memo --------------------------------------------------------------------- */

/* The values above the last mark; false: there is no mark. */
static bool find_mark(const machine *m, size_t *first)
{
    for (size_t i = m->stack.n; i > 0; i--)
        if (m->stack.v[i - 1].kind == MARK) {
            *first = i;
            return true;
        }
    return false;
}

static kvf_status make_tuple(machine *m, size_t first)
{
    const value tuple = {
        .kind = TUPLE, .number = (int64_t)(m->stack.n - first), .first = m->items.n};

    for (size_t i = first; i < m->stack.n; i++)
        KVF_TRY(add_value(m, &m->items, m->stack.v[i]));
    m->stack.n = first;
    return push(m, tuple);
}

static kvf_status make_marked_tuple(machine *m)
{
    size_t first;

    if (!find_mark(m, &first)) return bad(m, "a tuple without a mark");
    KVF_TRY(make_tuple(m, first));
    m->stack.v[m->stack.n - 2] = m->stack.v[m->stack.n - 1];
    m->stack.n--;
    return KVF_OK;
}

static kvf_status make_short_tuple(machine *m, size_t n)
{
    return m->stack.n < n ? bad(m, "an empty stack") : make_tuple(m, m->stack.n - n);
}

static kvf_status make_dict(machine *m)
{
    return push(m, (value){.kind = DICT, .number = m->n_dicts++});
}

/* Pairs from `first` on become members of the dict at the top of the `below` values before them. */
static kvf_status set_items(machine *m, size_t first, size_t below)
{
    const value dict = below ? m->stack.v[below - 1] : (value){.kind = ATOM};

    if (dict.kind != DICT || (m->stack.n - first) % 2) return bad(m, "items of no dict");
    for (size_t i = first; i < m->stack.n; i += 2) {
        KVF_TRY(kvf__reserve(m->ctx, &m->pairs, &m->pairs_cap, m->n_pairs + 1, sizeof *m->pairs));
        m->pairs[m->n_pairs++] = (pair){dict.number, m->stack.v[i], m->stack.v[i + 1]};
    }
    m->stack.n = below;
    return KVF_OK;
}

static kvf_status set_marked_items(machine *m)
{
    size_t first;
    return find_mark(m, &first) ? set_items(m, first, first - 1) : bad(m, "items without a mark");
}

static kvf_status append_marked(machine *m)
{
    size_t first;

    if (!find_mark(m, &first) || first < 2 || m->stack.v[first - 2].kind != LIST)
        return bad(m, "members of no list");
    m->stack.n = first - 1;
    return KVF_OK;
}

/* Places of the memo are used in their order. */
static kvf_status put_memo(machine *m, uint64_t at)
{
    if (!m->stack.n || at > m->memo.n) return bad(m, "a place of the memo that is not the next");
    const value top = m->stack.v[m->stack.n - 1];
    if (at == m->memo.n) return add_value(m, &m->memo, top);
    m->memo.v[at] = top;
    return KVF_OK;
}

static kvf_status get_memo(machine *m, uint64_t at)
{
    return at < m->memo.n ? push(m, m->memo.v[at]) : bad(m, "a place of the memo that is empty");
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* NULL: of an empty one. */
static const value *items_of(const machine *m, const value *tuple)
{
    return tuple->number ? m->items.v + tuple->first : NULL;
}

/* ("storage", type, key, location, elements) */
static kvf_status make_storage(machine *m)
{
    const value id = pop(m);
    kvf__zip_member member;
    char name[128];
    size_t bytes;

    if (id.kind != TUPLE || id.number != 5) return bad(m, "a reference to no storage");
    const value *item = items_of(m, &id);
    if (item[1].kind != GLOBAL || GLOBALS[item[1].number].role != A_STORAGE ||
        item[2].kind != TEXT || item[4].kind != NUMBER || item[4].number < 0)
        return bad(m, "a reference to no storage");
    const kvf__dtype dtype = GLOBALS[item[1].number].dtype;
    int n = snprintf(name, sizeof name, "data/%.*s", (int)(item[2].bytes % 100), item[2].text);
    if (!kvf__zip_find(m->zip, name, (size_t)n, &member))
        return kvf__fail(m->ctx, KVF_EFORMAT, "%s: member \"%s\" is missing", m->zip->where, name);
    if (!kvf__mul((size_t)item[4].number, kvf__dtype_block_bytes(dtype), &bytes) ||
        bytes > member.n)
        return kvf__fail(m->ctx, KVF_EFORMAT, "%s: member \"%s\" has %zu bytes, want %s[%lld]",
                         m->zip->where, name, member.n, kvf__dtype_name(dtype),
                         (long long)item[4].number);
    return push(m, (value){.kind = STORAGE,
                           .dtype = dtype,
                           .number = item[4].number,
                           .text = (const char *)member.bytes});
}

static bool read_shape(const machine *m, const value *tuple, int64_t dim[KVF__MAX_RANK])
{
    if (tuple->kind != TUPLE || tuple->number > KVF__MAX_RANK) return false;
    for (int64_t i = 0; i < tuple->number; i++) {
        const value *item = &items_of(m, tuple)[i];
        if (item->kind != NUMBER || item->number < 0) return false;
        dim[i] = item->number;
    }
    return true;
}

/* Does each row follow the one before? */
static bool is_dense(const kvf__view *view, const int64_t stride[KVF__MAX_RANK])
{
    int64_t want = 1;

    for (int i = view->rank - 1; i >= 0; i--) {
        if (view->dim[i] > 1 && stride[i] != want) return false;
        want *= view->dim[i]; /* kvf__shape_count has bounded it */
    }
    return true;
}

/* (storage, offset, size, stride, requires_grad, hooks) */
static kvf_status make_tensor(machine *m, const value *args)
{
    const value *item = items_of(m, args);
    int64_t stride[KVF__MAX_RANK] = {0};
    kvf__view view = {0};
    size_t count, end;
    bool empty;

    if (args->number < 4 || item[0].kind != STORAGE || item[1].kind != NUMBER ||
        item[1].number < 0 || !read_shape(m, &item[2], view.dim) ||
        !read_shape(m, &item[3], stride) || item[2].number != item[3].number)
        return bad(m, "a tensor of something else than a storage, offset, shape and strides");
    view.rank = (int)item[2].number;
    view.dtype = item[0].dtype;
    if (!kvf__shape_count(&view, &count, &empty) ||
        !kvf__add((size_t)item[1].number, empty ? 0 : count, &end) || end > (size_t)item[0].number)
        return bad(m, "a tensor that reaches past its storage");
    if (!empty && !is_dense(&view, stride))
        return kvf__fail(m->ctx, KVF_EUNSUPPORTED,
                         "%s: a tensor that is a transposed or strided view: save it contiguous",
                         m->zip->where);
    view.data = item[0].text + (size_t)item[1].number * kvf__dtype_block_bytes(view.dtype);
    KVF_TRY(kvf__reserve(m->ctx, &m->views, &m->views_cap, m->n_views + 1, sizeof *m->views));
    m->views[m->n_views] = view;
    return push(m, (value){.kind = TENSOR, .number = (int64_t)m->n_views++});
}

static kvf_status call(machine *m)
{
    const value args = pop(m), function = pop(m);

    if (function.kind != GLOBAL || args.kind != TUPLE) return bad(m, "a call of something else");
    switch (GLOBALS[function.number].role) {
    case NEW_DICT:
        return args.number ? bad(m, "a dict of arguments") : make_dict(m);
    case NEW_TENSOR:
        return make_tensor(m, &args);
    case NEW_PARAMETER:
        if (args.number < 1 || items_of(m, &args)->kind != TENSOR)
            return bad(m, "a parameter of no tensor");
        return push(m, *items_of(m, &args));
    default:
        return bad(m, "a storage is called");
    }
}

/* ---- names, texts, numbers ------------------------------------------------------------------- */

static kvf_status push_global(machine *m, const char *module, size_t module_n, const char *name,
                              size_t name_n)
{
    for (size_t i = 0; i < sizeof GLOBALS / sizeof *GLOBALS; i++)
        if (strlen(GLOBALS[i].module) == module_n && !memcmp(GLOBALS[i].module, module, module_n) &&
            strlen(GLOBALS[i].name) == name_n && !memcmp(GLOBALS[i].name, name, name_n))
            return push(m, (value){.kind = GLOBAL, .number = (int64_t)i});
    return kvf__fail(m->ctx, KVF_EUNSUPPORTED,
                     "%s: names \"%.*s.%.*s\", which a state dict has no use for: it is not read",
                     m->zip->where, (int)(module_n < 60 ? module_n : 60), module,
                     (int)(name_n < 60 ? name_n : 60), name);
}

/* Up to the end of the line, which is passed over. */
static const char *read_line(machine *m, size_t *n)
{
    const char *line = (const char *)m->r.data + m->r.at;
    const char *end = memchr(line, '\n', m->r.n - m->r.at);

    *n = end ? (size_t)(end - line) : 0;
    if (!end)
        m->r.failed = true;
    else
        m->r.at += *n + 1;
    return line;
}

static kvf_status push_line_global(machine *m)
{
    size_t module_n, name_n;
    const char *module = read_line(m, &module_n), *name = read_line(m, &name_n);
    return m->r.failed ? bad(m, "ends in a name") : push_global(m, module, module_n, name, name_n);
}

static kvf_status push_stack_global(machine *m)
{
    const value name = pop(m), module = pop(m);

    if (name.kind != TEXT || module.kind != TEXT) return bad(m, "a name that is no text");
    return push_global(m, module.text, module.bytes, name.text, name.bytes);
}

static kvf_status push_text(machine *m, uint64_t n)
{
    if (n > m->r.n - m->r.at) return bad(m, "a text longer than the rest");
    const char *text = (const char *)kvf__read_bytes(&m->r, (size_t)n);
    return push(m, (value){.kind = TEXT, .text = text, .bytes = (size_t)n});
}

static kvf_status push_number(machine *m, int64_t number)
{
    return push(m, (value){.kind = NUMBER, .number = number});
}

/* An integer of n bytes in two's complement. */
static kvf_status push_long(machine *m, size_t n)
{
    if (n > 8) return bad(m, "a number of more than 8 bytes");
    uint64_t bits = kvf__read_little(&m->r, n);
    if (n && n < 8 && bits >> (8 * n - 1)) bits |= UINT64_MAX << (8 * n);
    return push_number(m, (int64_t)bits);
}

static kvf_status push_kind(machine *m, kind what)
{
    return push(m, (value){.kind = what});
}

/* Pops what only adds to what stays: the attributes of a dict, the last member of a list. */
static kvf_status drop(machine *m, kind owner)
{
    (void)pop(m);
    const bool fits = m->stack.n && m->stack.v[m->stack.n - 1].kind == owner;
    return fits ? KVF_OK : bad(m, "a state or member of something else");
}

/* ---- the program ----------------------------------------------------------------------------- */

/* Operations without values or with those of the stack alone. */
static kvf_status step_stack(machine *m, uint8_t op)
{
    switch (op) {
    case '(':
        return push_kind(m, MARK);
    case 'N':
    case 0x88: /* true */
    case 0x89: /* false */
        return push_kind(m, ATOM);
    case '}':
        return make_dict(m);
    case ']':
        return push_kind(m, LIST);
    case ')':
        return make_short_tuple(m, 0);
    case 0x85:
    case 0x86:
    case 0x87:
        return make_short_tuple(m, (size_t)op - 0x84);
    case 't':
        return make_marked_tuple(m);
    case 's':
        return m->stack.n < 3 ? bad(m, "an empty stack")
                              : set_items(m, m->stack.n - 2, m->stack.n - 2);
    case 'u':
        return set_marked_items(m);
    case 'a':
        return drop(m, LIST);
    case 'e':
        return append_marked(m);
    case 'b':
        return drop(m, DICT);
    case 'Q':
        return make_storage(m);
    case 'R':
        return call(m);
    case 0x93:
        return push_stack_global(m);
    case 0x94:
        return put_memo(m, m->memo.n);
    default:
        return kvf__fail(m->ctx, KVF_EUNSUPPORTED,
                         "%s: data.pkl: byte %zu: operation 0x%02x, which a state dict has no use "
                         "for: it is not read",
                         m->zip->where, m->r.at - 1, op);
    }
}

static kvf_status step(machine *m, uint8_t op)
{
    switch (op) {
    case 0x80: /* the protocol */
        (void)kvf__read_u8(&m->r);
        return KVF_OK;
    case 0x95: /* a frame, whose length says nothing new */
        (void)kvf__read_u64(&m->r);
        return KVF_OK;
    case 'q':
        return put_memo(m, kvf__read_u8(&m->r));
    case 'r':
        return put_memo(m, kvf__read_u32(&m->r));
    case 'h':
        return get_memo(m, kvf__read_u8(&m->r));
    case 'j':
        return get_memo(m, kvf__read_u32(&m->r));
    case 'c':
        return push_line_global(m);
    case 'X':
        return push_text(m, kvf__read_u32(&m->r));
    case 0x8c:
        return push_text(m, kvf__read_u8(&m->r));
    case 'J':
        return push_long(m, 4);
    case 'K':
        return push_number(m, kvf__read_u8(&m->r));
    case 'M':
        return push_number(m, kvf__read_u16(&m->r));
    case 0x8a:
        return push_long(m, kvf__read_u8(&m->r));
    case 'G':
        (void)kvf__read_u64(&m->r);
        return push_kind(m, ATOM);
    default:
        return step_stack(m, op);
    }
}

static kvf_status run(machine *m, value *root)
{
    for (;;) {
        const uint8_t op = kvf__read_u8(&m->r);
        if (m->r.failed) return bad(m, "ends before it says so");
        if (op == '.') break;
        KVF_TRY(step(m, op));
        if (m->r.failed) return bad(m, "ends before it says so");
    }
    *root = pop(m);
    return root->kind == DICT ? KVF_OK : bad(m, "leaves no dict of tensors");
}

static kvf_status add_tensor(const machine *m, const pair *p, kvf__table *table)
{
    char *name = NULL;

    if (p->key.kind != TEXT || memchr(p->key.text, 0, p->key.bytes))
        return bad(m, "a member whose name is no text");
    KVF_TRY(kvf__strndup(m->ctx, p->key.text, p->key.bytes, &name));
    kvf_status st = p->value.kind == TENSOR
                        ? kvf__table_add(m->ctx, table, name, m->views[p->value.number])
                        : kvf__fail(m->ctx, KVF_EUNSUPPORTED,
                                    "%s: \"%.80s\" is no tensor: a checkpoint, want a state dict",
                                    m->zip->where, name);
    kvf__free(name);
    return st == KVF_EFORMAT ? kvf__fail_prefix(m->ctx, st, "%s", m->zip->where) : st;
}

kvf_status kvf__pickle_read(const kvf__zip *zip, const kvf__zip_member *pickle, kvf__table *table)
{
    machine m = {.ctx = zip->ctx, .zip = zip, .r = {.data = pickle->bytes, .n = pickle->n}};
    value root = {0};

    kvf_status st = run(&m, &root);
    for (size_t i = 0; i < m.n_pairs && !st; i++)
        if (m.pairs[i].dict == root.number) st = add_tensor(&m, &m.pairs[i], table);
    kvf__free(m.stack.v);
    kvf__free(m.memo.v);
    kvf__free(m.items.v);
    kvf__free(m.pairs);
    kvf__free(m.views);
    return st;
}
