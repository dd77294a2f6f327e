#include "runtime/compile/layouts.h"
#include "ir/build.h"
#include "ir/print.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "layout/calculator/draw.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/shared_access.h"
#include "passes/select/tma.h"
#include <string.h>

typedef struct Picture {
    const char *key, *where;   // equal keys are equal pictures
} Picture;

typedef struct Page {
    Arena *arena;
    Module *module;
    const Target *target;
    LayoutsForm form;
    StrBuf *out;
    const char *kernel_text;
    int number;                 // of the kernel
    const Func *func;           // the kernel
    SharedAccessVec accesses;   // of the kernel
    VEC(Picture) seen;
    VEC(Drawing) drawings;   // SVG only
} Page;

// ---- texts ----

static const char *buffer_text(const Page *page, const Buf *buf) {
    StrBuf out;
    sb_init(&out, page->arena);
    sb_printf(&out, "%s: %s[", buf->name, type_text(buf->type));
    for (int d = 0; d < buf->rank; d++) {
        if (d) sb_str(&out, ", ");
        print_expr(buf->shape[d], &out);
    }
    sb_char(&out, ']');
    return sb_text(&out);
}

static const char *scope_name(const Buf *buf) {
    return buf->scope == SCOPE_SHARED ? "shared" : "fragment";
}

static const char *layout_of(const Page *page, const Buf *buf) {
    return buf->layout ? layout_text(page->arena, buf->layout) : "no layout";
}

static const char *statement_name(const Stmt *stmt) {
    if (stmt->kind == STMT_CALL) return op_info(stmt->call.op)->text;
    return stmt->kind == STMT_FOR ? "loop" : "statement";
}

// ---- accesses ----

typedef VEC(AccessWords) Rows;

static const char *conflicts_text(Arena *arena, const SharedAccess *access, AccessCost cost) {
    const char *most = access->exact ? "" : "at most ";
    long long conflicts = cost.conflicts, accesses = cost.accesses;
    if (conflicts == 0) return "none";
    if (conflicts % accesses == 0) return arena_printf(arena, "%s%lld an access", most, conflicts / accesses);
    return arena_printf(arena, "%s%lld in %lld accesses", most, conflicts, accesses);
}

AccessWords access_words(Arena *arena, const Target *target, const SharedAccess *access) {
    AccessCost cost = access_cost(target, access, access->buf->layout, INT64_MAX);
    int line = access->stmt->loc.line;
    const char *name = statement_name(access->stmt);
    int64_t bytes = (int64_t)type_bytes(access->buf->type) * access->vector * access->steps / cost.accesses;
    return (AccessWords){
        line > 0 ? arena_printf(arena, "line %d, %s", line, name) : name,
        arena_printf(arena, "%s %lld bytes a lane", access->is_store ? "writes" : "reads", (long long)bytes),
        conflicts_text(arena, access, cost), cost.conflicts > 0};
}

static bool same_row(const AccessWords *a, const AccessWords *b) {
    return !strcmp(a->who, b->who) && !strcmp(a->what, b->what) && !strcmp(a->conflicts, b->conflicts);
}

// Copies of one statement (in a prologue) are merged into one row.
static Rows rows_of(const Page *page, const Buf *buf) {
    Rows rows = {0};
    for (int i = 0; i < page->accesses.count; i++) {
        if (page->accesses.items[i].buf != buf) continue;
        AccessWords row = access_words(page->arena, page->target, &page->accesses.items[i]);
        bool known = false;
        for (int r = 0; r < rows.count && !known; r++) known = same_row(&rows.items[r], &row);
        if (!known) vec_push(page->arena, &rows, row);
    }
    return rows;
}

static void text_accesses(const Page *page, const Buf *buf) {
    Rows rows = rows_of(page, buf);
    for (int i = 0; i < rows.count; i++)
        sb_printf(page->out, "           %s %s, bank conflicts: %s\n", rows.items[i].who, rows.items[i].what,
                  rows.items[i].conflicts);
}

static void html_accesses(const Page *page, const Buf *buf) {
    Rows rows = rows_of(page, buf);
    if (rows.count) sb_str(page->out, "<table><tr><th>access</th><th></th><th>bank conflicts</th></tr>\n");
    for (int i = 0; i < rows.count; i++)
        sb_printf(page->out, "<tr><td>%s</td><td>%s</td><td%s>%s</td></tr>\n", rows.items[i].who, rows.items[i].what,
                  rows.items[i].conflicting ? " class=\"bad\"" : "", rows.items[i].conflicts);
    if (rows.count) sb_str(page->out, "</table>\n");
}

// ---- mechanisms ----

static const char *swizzled_text(Arena *arena, int64_t bytes) {
    return bytes ? arena_printf(arena, "swizzled in %lld bytes", (long long)bytes) : "not swizzled";
}

// The boxes of a staging tile that TMA stores: whole ones, or the narrower last one.
static const char *stored_text(const Page *page, const Stmt *stmt, const Region *region) {
    TmaStore store;
    if (!stores_staged(stmt) || tma_epilogue_problem(page->target, stmt, &store)) return NULL;
    bool whole = region == copy_of(stmt).stage;
    if (!whole && region != copy_of(stmt).tail) return NULL;
    int64_t count = store.strips * (whole ? store.chunks : 1), columns = whole ? store.columns : store.tail;
    int64_t swizzle = whole ? store.columns * type_bytes(region->buf->type) : store.tail_swizzle;
    return arena_printf(page->arena, "line %d, stored by %s: %lld box%s of %lld x %lld, %s", stmt->loc.line,
                        via_is(stmt, VIA_TMA_STORE) ? "TMA" : "threads", (long long)count, count > 1 ? "es" : "",
                        (long long)store.rows, (long long)columns, swizzled_text(page->arena, swizzle));
}

// A tile of TMA or wgmma, whose layout they ask for.
static const char *mechanism_text(const Page *page, const Stmt *stmt, const Region *region) {
    TmaPanels panels;
    bool copies = via_is(stmt, VIA_TMA), product = via_is(stmt, VIA_WGMMA);
    if (stores_staged(stmt)) return stored_text(page, stmt, region);
    if ((!copies && !product) || tma_panels_problem(region->buf, &panels)) return NULL;
    const char *what =
        copies ? arena_printf(page->arena, "TMA: %lld box%s", (long long)panels.count, panels.count > 1 ? "es" : "")
               : arena_printf(page->arena, "wgmma: operand along %s, panels",
                              region->transposed == (region == gemm_of(stmt).b) ? "k" : "m or n");
    return arena_printf(page->arena, "line %d, %s of %lld x %lld, %s", stmt->loc.line, what, (long long)panels.rows,
                        (long long)panels.columns, swizzled_text(page->arena, panels.swizzle));
}

typedef VEC(const char *) Texts;

static void add_text(const Page *page, Texts *texts, const char *text) {
    for (int i = 0; text && i < texts->count; i++)
        if (strcmp(texts->items[i], text) == 0) return;
    if (text) vec_push(page->arena, texts, text);
}

static Texts mechanisms_of(const Page *page, const Buf *buf) {
    Texts texts = {0};
    FOR_EACH_STMT (stmt, &page->func->body)
        for (int i = 0; stmt->kind == STMT_CALL && i < stmt->call.count; i++) {
            const Region *region = call_region(stmt, i);
            if (region && region->buf == buf) add_text(page, &texts, mechanism_text(page, stmt, region));
        }
    return texts;
}

// Why a shared buffer has its layout.
static const char *reason_of(const Page *page, const Buf *buf, const Texts *mechanisms) {
    int accesses = 0;
    if (buf->given) return "given by the source";
    for (int i = 0; i < page->accesses.count; i++) accesses += page->accesses.items[i].buf == buf;
    if (mechanisms->count) return "as TMA and wgmma take it";
    return accesses ? "by the wavefronts of its accesses" : "no access of a warp asks for one";
}

// ---- reasons of fragments ----

static const char *product_role(const Stmt *stmt, const Buf *buf) {
    if (!is_call(stmt, OP_GEMM)) return NULL;
    GemmOp gemm = gemm_of(stmt);
    return gemm.acc->buf == buf ? "accumulator" : gemm.a->buf == buf ? "operand a" : NULL;
}

// The statement whose instruction or map the layout comes from: a product, else what reduces to it, else what moves the
// widest vectors.
static const char *fragment_reason(const Page *page, const Buf *buf) {
    const char *moves = NULL, *result = NULL;
    int64_t widest = 0;
    if (buf->given) return "given by the source";
    FOR_EACH_STMT (stmt, &page->func->body) {
        const char *role = product_role(stmt, buf);
        int line = stmt->loc.line;
        if (role)
            return arena_printf(page->arena, "line %d, %s of a product by %s", line, role, via_text(via_of(stmt)));
        if (!attr_get(stmt->attrs, ATTR_MAP) || !stmt_uses_buf(stmt, buf)) continue;
        const Attr *vector = attr_get(stmt->attrs, ATTR_VECTOR);
        int64_t width = vector ? vector->args[0].integer : 1;
        const char *place = arena_printf(page->arena, "line %d, %s", line, statement_name(stmt));
        if (is_reduction(stmt) && reduce_of(stmt).dst->buf == buf) result = place;
        if (is_reduction(stmt) || width <= widest) continue;
        widest = width;
        moves = width == 1 ? place : arena_printf(page->arena, "%s: vectors of %lld elements", place, (long long)width);
    }
    return result ? result : moves ? moves : "no statement asks for one";
}

static void print_reasons(const Page *page, const Buf *buf, const char *before, const char *behind) {
    if (buf->scope == SCOPE_FRAGMENT) {
        sb_printf(page->out, "%s%s%s", before, fragment_reason(page, buf), behind);
        return;
    }
    Texts mechanisms = mechanisms_of(page, buf);
    sb_printf(page->out, "%s%s%s", before, reason_of(page, buf, &mechanisms), behind);
    for (int i = 0; i < mechanisms.count; i++) sb_printf(page->out, "%s%s%s", before, mechanisms.items[i], behind);
}

// ---- pictures ----

static bool draw(const Page *page, const Buf *buf, Drawing *drawing) {
    const MemoryShape memory = {page->target->banks, page->target->bank_bytes, page->target->sector_bytes};
    int64_t shape[LAYOUT_MAX_RANK];
    LayoutContext cx = layout_context(page->arena);
    const char *title = buffer_text(page, buf);
    for (int d = 0; d < buf->rank; d++) shape[d] = buf_extent(buf, d);
    if (!buf->layout) return false;
    *drawing = buf->scope == SCOPE_SHARED ? draw_shared(&cx, title, buf->layout, type_bits(buf->type), memory)
                                          : draw_distribution(&cx, title, buf->layout, shape);
    return !cx.failed;
}

// The earlier place of an equal picture; NULL: there is none.
static const char *seen_as(Page *page, const Buf *buf) {
    StrBuf key;
    sb_init(&key, page->arena);
    sb_printf(&key, "%s %d %s", scope_name(buf), buf->scope == SCOPE_SHARED ? type_bits(buf->type) : 0,
              layout_of(page, buf));
    for (int d = 0; d < buf->rank; d++) sb_printf(&key, " %lld", (long long)buf_extent(buf, d));
    for (int i = 0; i < page->seen.count; i++)
        if (strcmp(page->seen.items[i].key, sb_text(&key)) == 0) return page->seen.items[i].where;
    const char *where = arena_printf(page->arena, "%s in %s", buf->name, page->kernel_text);
    vec_push(page->arena, &page->seen, ((Picture){sb_text(&key), where}));
    return NULL;
}

// ---- one buffer ----

static void text_buffer(const Page *page, const Buf *buf) {
    sb_printf(page->out, "  %-9s%s", scope_name(buf), buffer_text(page, buf));
    if (buf->offset >= 0 && buf->scope == SCOPE_SHARED) sb_printf(page->out, " at byte %lld", (long long)buf->offset);
    sb_printf(page->out, "\n           %s\n", layout_of(page, buf));
    if (type_kind(buf->type) == KIND_OPAQUE) return;
    print_reasons(page, buf, "           ", "\n");
    if (buf->scope == SCOPE_SHARED) text_accesses(page, buf);
}

static void html_buffer(Page *page, const Buf *buf) {
    sb_printf(page->out, "<h3>%s <code>", scope_name(buf));
    draw_escaped(page->out, buffer_text(page, buf));
    sb_str(page->out, "</code></h3>\n<p><code>");
    draw_escaped(page->out, layout_of(page, buf));
    sb_str(page->out, "</code>");
    if (buf->scope == SCOPE_SHARED && buf->offset >= 0) sb_printf(page->out, " at byte %lld", (long long)buf->offset);
    sb_str(page->out, "</p>\n");
    if (type_kind(buf->type) != KIND_OPAQUE) print_reasons(page, buf, "<p>", "</p>\n");
    if (buf->scope == SCOPE_SHARED) html_accesses(page, buf);
    const char *before = seen_as(page, buf);
    Drawing drawing;
    if (before) sb_printf(page->out, "<p>Laid out like %s.</p>\n", before);
    if (before || !draw(page, buf, &drawing)) return;
    LayoutContext cx = layout_context(page->arena);
    drawing.title = "";
    sb_printf(page->out, "<figure>\n%s</figure>\n", draw_svg(&cx, drawing));
}

static void svg_buffer(Page *page, const Buf *buf) {
    Drawing drawing;
    if (seen_as(page, buf) || !draw(page, buf, &drawing)) return;
    drawing.title = arena_printf(page->arena, "%s, %s %s   %s", page->kernel_text, scope_name(buf), drawing.title,
                                 layout_of(page, buf));
    vec_push(page->arena, &page->drawings, drawing);
}

static bool each_declaration(Visitor *visitor, Stmt *stmt) {
    Page *page = visitor->user;
    if (stmt->kind != STMT_DECL || (stmt->decl->scope != SCOPE_SHARED && stmt->decl->scope != SCOPE_FRAGMENT))
        return true;
    switch (page->form) {
    case LAYOUTS_TEXT: text_buffer(page, stmt->decl); break;
    case LAYOUTS_SVG: svg_buffer(page, stmt->decl); break;
    case LAYOUTS_HTML: html_buffer(page, stmt->decl); break;
    }
    return true;
}

// ---- the page ----

// Its variant, if it has several, and tunables: "kernel gemm, variant 2 of 3, BM = 128, BN = 256".
static const char *heading_of(const Page *page, const Func *func) {
    int number = 0, count = 0;
    StrBuf text;
    sb_init(&text, page->arena);
    for (int i = 0; i < page->module->funcs.count; i++) {
        const Func *other = page->module->funcs.items[i];
        if (other->kind != FUNC_KERNEL || strcmp(other->name, func->name)) continue;
        count++;
        if (other == func) number = count;
    }
    sb_printf(&text, "kernel %s", func->name);
    if (count > 1) sb_printf(&text, ", variant %d of %d", number, count);
    for (const Attr *attr = func->attrs; attr; attr = attr->next)
        if (attr->id == ATTR_TUNED && attr->count == 2)
            sb_printf(&text, ", %s = %lld", attr->args[0].text, (long long)attr->args[1].integer);
    if (attr_get(func->attrs, ATTR_FALLBACK)) sb_str(&text, " (fallback)");
    return sb_text(&text);
}

static void contents(const Page *page) {
    int number = 0;
    sb_str(page->out, "<ul>\n");
    for (int i = 0; i < page->module->funcs.count; i++) {
        const Func *func = page->module->funcs.items[i];
        if (func->kind == FUNC_KERNEL)
            sb_printf(page->out, "<li><a href=\"#kernel%d\">%s</a></li>\n", ++number, heading_of(page, func));
    }
    sb_str(page->out, "</ul>\n");
}

static void kernel(Page *page, Func *func) {
    PassContext context = {.module = page->module, .arena = page->arena, .failure = page->module->failure};
    context.sink = page->module->sink;
    context.target = page->target;
    page->kernel_text = heading_of(page, func);
    page->number++;
    page->func = func;
    page->accesses.count = 0;
    if (func->stage == STAGE_TILE) shared_accesses(&context, func, &page->accesses);
    if (page->form == LAYOUTS_TEXT) sb_printf(page->out, "%s\n", page->kernel_text);
    if (page->form == LAYOUTS_HTML)
        sb_printf(page->out, "<h2 id=\"kernel%d\">%s <small>%lld threads</small></h2>\n", page->number,
                  page->kernel_text, (long long)kernel_threads(func));
    Visitor visitor = {.stmt = each_declaration, .user = page};
    visit_block(&visitor, &func->body);
}

void emit_layouts(Module *module, const Target *target, const char *name, LayoutsForm form, StrBuf *out) {
    Page page = {.arena = out->arena, .module = module, .target = target, .form = form, .out = out};
    if (form == LAYOUTS_HTML) {
        draw_html_begin(out, arena_printf(page.arena, "layouts of %s", name));
        sb_str(out, "<h1>");
        draw_escaped(out, name);
        sb_printf(out, "<small>%s</small></h1>\n", target->name);
        contents(&page);
    }
    for (int i = 0; i < module->funcs.count; i++)
        if (module->funcs.items[i]->kind == FUNC_KERNEL) kernel(&page, module->funcs.items[i]);
    LayoutContext cx = layout_context(page.arena);
    if (form == LAYOUTS_SVG) sb_str(out, draw_svgs(&cx, page.drawings.items, page.drawings.count));
    if (form == LAYOUTS_HTML) draw_html_end(out);
}
